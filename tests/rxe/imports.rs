//! What Debian's perftest prints over Soft-RoCE, imported: both ends in one VM, as in `perftest`.

use linkproof_tests::imports;
use linkproof_tests::lab::{Lab, Vm};

use crate::port;

/// A run of perftest's program $1 with the options $2 on the port $0: the client's table, and its JSON below a line.
const RUN: &str = "
    program=$1 options=$2
    end() { $program -d rxe0 -F -p $0 $options \"$@\"; }
    end >/tmp/imports.server 2>&1 & server=$!
    until ss -Hltn sport = :$0 | grep -q .; do sleep 0.1; done
    rm -f /tmp/imports.json
    end --out_json --out_json_file=/tmp/imports.json 10.77.0.1
    wait $server
    echo JSON
    cat /tmp/imports.json";

#[test]
fn what_perftest_prints_is_imported_row_by_row_and_compared() {
    let Some(lab) = Lab::get("what_perftest_prints_is_imported_row_by_row_and_compared") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let run = |name: &str, program: &str, options: &str| {
        let run = lab.run(Vm::A, &["sh", "-ec", RUN, &port(), program, options]).expect_status(0);
        let (table, json) = run.stdout.split_once("JSON\n").unwrap_or_else(|| panic!("{}", run.show()));
        let table = imports::perftests_table(folder, name, table);
        let of_json = format!("{name}-json");
        let document = imports::perftest(folder, &of_json, json);
        for part in ["operation", "conditions", "points"] {
            assert_eq!(table[part], document[part], "{}", run.show());
        }
        imports::compared(folder, [(name, &table), (&of_json, &document)]);
        table
    };
    let mib = run("mib", "ib_write_bw", "-s 65536 -n 20");
    let gbit = run("gbit", "ib_write_bw", "-s 65536 -n 20 --report_gbits");
    imports::compared(folder, [("mib", &mib), ("gbit", &gbit)]);
    assert_eq!(mib["conditions"]["perftest.Device"], "rxe0");
    let latency = run("latency", "ib_write_lat", "-s 65536 -n 20");
    assert_eq!(latency["points"][1]["figure"], "p99", "{latency:#}");
    let mean = run("mean", "ib_write_lat", "-s 8 -D 1");
    assert_eq!(mean["points"][0]["figure"], "mean", "{mean:#}");
}
