//! `perf-compare` over many runs: references that later runs are held against, and fleets with an odd member; and the
//! documents of all that is no comparison of arms.

use std::fs;
use std::path::Path;

use linkproof_tests::schema;
use serde_json::{Value, json};

use crate::compare::{bandwidth, compare, folder, write};

/// Accepted runs at 10 Gb/s, give or take a per cent.
fn accepted(folder: &Path) {
    for (index, gbit) in [10.0, 10.1, 9.9, 10.05, 9.95, 10.02].into_iter().enumerate() {
        write(folder, &format!("ok-{index}.json"), &bandwidth(index as u32, &[gbit, gbit]));
    }
}

#[test]
fn a_regression_exits_1_and_names_its_points() {
    let folder = folder();
    accepted(folder.path());
    let saved = compare(folder.path(), "baseline save rack7 DIR/ok-*.json --dir DIR/refs");
    saved.exits(0);
    assert!(saved.stdout.contains("rack7, 6 runs, in ") && saved.stderr.is_empty());
    let file = fs::read_to_string(folder.path().join("refs/rack7.json")).expect("a file");
    assert_eq!(schema::of_perf_compare(&file)["runs"].as_array().map(Vec::len), Some(6));

    write(folder.path(), "same.json", &bandwidth(100, &[9.97]));
    let run = compare(folder.path(), "baseline check rack7 DIR/same.json --dir DIR/refs");
    run.exits(0);
    assert!(run.stdout.contains("within"), "{}", run.stdout);

    write(folder.path(), "slow.json", &bandwidth(100, &[8.0, 8.1]));
    let run = compare(
        folder.path(),
        "baseline check rack7 DIR/slow.json --dir DIR/refs --tolerance 5% --json=DIR/c.json",
    );
    run.exits(1).says(&["worse than the baseline rack7 by more than 5 %", "at: 64 KiB (-19."]);
    let checked = schema::of_perf_compare(&fs::read_to_string(folder.path().join("c.json")).expect("a file"));
    assert_eq!(
        (&checked["points"][0]["finding"], &checked["verdict"]["ok"]),
        (&json!("regressed"), &json!(false))
    );
    compare(folder.path(), "baseline check rack7 DIR/slow.json --dir DIR/refs --tolerance 30%").exits(0);
}

#[test]
fn a_reference_is_not_replaced_by_accident_and_two_runs_are_no_reference() {
    let folder = folder();
    accepted(folder.path());
    compare(folder.path(), "baseline save r DIR/ok-[0].json DIR/ok-1.json --dir DIR/refs").exits(2);
    let two = compare(folder.path(), "baseline save r DIR/ok-0.json DIR/ok-1.json --dir DIR/refs");
    two.exits(0).says(&["2 of 3 runs"]);
    write(folder.path(), "slow.json", &bandwidth(100, &[5.0]));
    let run = compare(folder.path(), "baseline check r DIR/slow.json --dir DIR/refs");
    run.exits(0);
    assert!(run.stdout.contains("undecided: 2 of 3 runs in the baseline"), "{}", run.stdout);
    compare(folder.path(), "baseline check r DIR/slow.json --dir DIR/refs --require-decision")
        .exits(1)
        .says(&["not decided whether worse"]);
    compare(folder.path(), "baseline save r DIR/ok-*.json --dir DIR/refs")
        .exits(2)
        .says(&["is there already", "--replace"]);
    compare(folder.path(), "baseline save r DIR/ok-*.json --dir DIR/refs --replace").exits(0);
    compare(folder.path(), "baseline check other DIR/slow.json --dir DIR/refs")
        .exits(2)
        .says(&["there is no baseline"]);
    compare(folder.path(), "baseline save ../r DIR/ok-*.json").exits(2).says(&["letters, digits"]);
    fs::write(folder.path().join("refs/r.json"), "{\"schema\": \"x\"").expect("a file");
    let torn = compare(folder.path(), "baseline check r DIR/slow.json --dir DIR/refs --json");
    torn.exits(2).says(&["can't be read as a baseline"]);
    assert_eq!(schema::of_perf_compare(&torn.stdout)["verdict"]["failures"][0]["code"], "usage");
}

#[test]
fn a_baseline_of_another_kind_is_refused_and_conditions_are_warned_of() {
    let folder = folder();
    accepted(folder.path());
    compare(folder.path(), "baseline save r DIR/ok-*.json --dir DIR/refs").exits(0);
    let mut other = bandwidth(100, &[10.0]);
    other["link"]["client"]["netdev"] = json!("eth1");
    write(folder.path(), "other.json", &other);
    let run = compare(folder.path(), "baseline check r DIR/other.json --dir DIR/refs");
    run.exits(0).says(&["conditions differ from those of the baseline: link.client.netdev"]);
    let allowed = compare(folder.path(), "baseline check r DIR/other.json --dir DIR/refs --allow netdev");
    allowed.exits(0);
    assert!(allowed.stderr.is_empty(), "{}", allowed.stderr);
    compare(folder.path(), "baseline check r DIR/other.json --dir DIR/refs --allow netdv")
        .exits(2)
        .says(&["netdv"]);
}

fn nodes(folder: &Path, last: f64) {
    for (index, gbit) in [10.0, 10.04, 9.97, 10.02, 9.99, 10.01, 9.96, last].into_iter().enumerate() {
        let mut run = bandwidth(index as u32, &[gbit]);
        run["link"]["client"]["netdev"] = json!(if index == 7 { "eth9" } else { "eth0" });
        write(folder, &format!("node-{index}.json"), &run);
    }
}

#[test]
fn the_odd_node_of_a_fleet_is_named() {
    let folder = folder();
    nodes(folder.path(), 8.0);
    // As a shell gives them, and as one pattern.
    let each: Vec<String> = (0..8).map(|node| format!("DIR/node-{node}.json")).collect();
    for files in [each.join(" "), "DIR/node-*.json".to_owned()] {
        let run = compare(folder.path(), &format!("fleet {files} --json=DIR/f.json"));
        run.exits(1).says(&[
            "node-7 is worse than the rest of the fleet",
            "at: 64 KiB (-19.",
            "measure it again",
        ]);
        assert!(run.stdout.contains("link.client.netdev  node-7: eth9; the rest: eth0"), "{}", run.stdout);
        let fleet =
            schema::of_perf_compare(&fs::read_to_string(folder.path().join("f.json")).expect("a file"));
        assert_eq!(fleet["odd"], json!(["node-7"]));
        assert_eq!(fleet["points"][0]["values"][7]["worse"], true);
    }
}

#[test]
fn a_fleet_that_is_alike_or_too_small_has_no_odd_node() {
    let folder = folder();
    nodes(folder.path(), 9.98);
    let run = compare(folder.path(), "fleet DIR/node-*.json -v");
    run.exits(0);
    assert!(run.stdout.contains("No member is odd") && run.stdout.contains("node-3: "), "{}", run.stdout);
    nodes(folder.path(), 5.0);
    let three = compare(folder.path(), "fleet DIR/node-5.json DIR/node-6.json DIR/node-7.json --json");
    three.exits(0);
    let fleet = schema::of_perf_compare(&three.stdout);
    assert_eq!((fleet.get("limit"), &fleet["odd"]), (None, &json!([])));
    compare(folder.path(), "fleet DIR/node-5.json").exits(2).says(&["a fleet of 1"]);
    let by = compare(folder.path(), "fleet DIR/node-*.json --by link.client.netdev");
    by.exits(0);
    assert!(by.stdout.contains("2 members"), "{}", by.stdout);
    compare(folder.path(), "fleet DIR/node-*.json --by netdev").exits(2).says(&["has no condition netdev"]);
}

#[test]
fn everything_else_has_a_document_too() {
    let folder = folder();
    let table = "RDMA_Write Latency Test\n #bytes #iterations t_min[usec] t_max[usec] t_typical[usec]\n 8192 1000 1 1 2.6554 1 1 2.6554 1\n 8388608 1000 1 1 673.0886 1 1 673.0886 1\n";
    fs::write(folder.path().join("l.txt"), table).expect("a file");
    let import = compare(folder.path(), "import perftest DIR/l.txt");
    fs::write(folder.path().join("l.json"), &import.stdout).expect("a file");
    let document = |args: &str, status: i32| -> Value {
        let run = compare(folder.path(), &format!("{args} --json"));
        run.exits(status);
        schema::of_perf_compare(&run.stdout)
    };
    let fit = document("fit DIR/l.json --line-rate 200G --require 90%", 1);
    assert_eq!(fit["verdict"]["failures"][0]["code"], "requirement-not-met");
    let bandwidth = fit["fits"][0]["bandwidth_gbit_per_sec"].as_f64().expect("a number");
    assert!((bandwidth - 100.0).abs() < 0.01, "{bandwidth}");
    fs::write(folder.path().join("s.csv"), "1,4\n2,4\n3,4\n").expect("a file");
    let steps = document("steps --skip 1 DIR/s.csv DIR/s.csv", 0);
    assert_eq!((&steps["time_saved_percent"], &steps["finding"]), (&json!(0.0), &json!("no_verdict")));
    let value = document("value --communication 40% --removable 90 --overlapped 25", 0);
    assert!((value["time_saved_percent"].as_f64().expect("a number") - 27.0).abs() < 1e-9);
    let refused = document("fit DIR/none.json", 2);
    assert_eq!((&refused["schema"], refused.get("fits")), (&json!("linkproof/fit.v1"), None));
}
