//! perftest's own tools over the software device: programs that know nothing of it, by way of LD_PRELOAD.

use linkproof_tests::{Finished, Tool, free_port, imports, installed, skip, wait_for_listener};

/// A run of perftest's `program` on both ends; `None`, and a reason printed, where it isn't installed.
fn run(test: &str, program: &str, options: &str) -> Option<Finished> {
    run_with(test, program, options, "")
}

/// The same, with options that only the client has.
fn run_with(test: &str, program: &str, options: &str, clients: &str) -> Option<Finished> {
    if !installed(program) {
        skip(test, &format!("{program} is not installed (ci/setup installs perftest)"));
        return None;
    }
    let port = free_port();
    let end =
        || Tool::perftest(program, &format!("perftest-{port}"), "").args(&format!("-p {port} {options}"));
    let server = end().start();
    // Its words stay in a buffer until it ends.
    wait_for_listener(port);
    let client = end().args(clients).arg("127.0.0.1").run();
    client.exits(0);
    server.finish().exits(0);
    Some(client)
}

/// The first columns of its table.
fn sizes_and_iterations(run: &Finished) -> Vec<(u64, u64)> {
    let number = |text: &str| text.parse().expect("a number");
    run.rows().iter().map(|row| (number(row[0]), number(row[1]))).collect()
}

#[test]
fn its_bandwidth_test_runs() {
    let Some(run) = run("its_bandwidth_test_runs", "ib_write_bw", "-n 1000") else { return };
    assert_eq!(sizes_and_iterations(&run), [(65536, 1000)]);
    assert!(run.stdout.contains("Device         : soft0"));
}

#[test]
fn its_table_and_its_json_are_imported_as_the_same() {
    let name = "its_table_and_its_json_are_imported_as_the_same";
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("out.json");
    let json = format!("--out_json --out_json_file={}", file.display());
    for (program, options, operation) in [
        ("ib_write_bw", "-n 1000", "write bandwidth"),
        ("ib_write_bw", "-n 1000 --report_gbits", "write bandwidth"),
        ("ib_write_bw", "-n 1000 -s 2", "write bandwidth"),
        ("ib_write_lat", "-n 1000", "write latency"),
    ] {
        let Some(run) = run_with(name, program, options, &json) else { return };
        let table = imports::perftests_table(folder.path(), "table", &run.stdout);
        let text = std::fs::read_to_string(&file).expect("a file");
        let document = imports::perftest(folder.path(), "document", &text);
        assert_eq!(table["operation"], operation);
        for part in ["operation", "conditions", "points"] {
            assert_eq!(table[part], document[part], "{program} {options}");
        }
        imports::compared(folder.path(), [("table", &table), ("document", &document)]);
    }
}

#[test]
fn what_it_prints_is_imported_row_by_row_and_compared() {
    let name = "what_it_prints_is_imported_row_by_row_and_compared";
    let folder = tempfile::tempdir().expect("a folder");
    // Latencies of all sizes take a minute where two that spin share their cores with others.
    for (program, options, others) in [
        ("ib_write_bw", "-s 65536 -n 20", "-s 65536 -n 20 --report_gbits"),
        ("ib_write_bw", "-a -n 5", "-a -n 5 --report_gbits"),
        ("ib_write_bw", "-b -s 4096 -n 100", "-b -q 2 -s 4096 -n 100"),
        ("ib_write_bw", "-D 1 -s 8", "-n 100 -s 8"),
        ("ib_write_lat", "-s 65536 -n 20", "-s 65536 -n 30"),
        ("ib_write_lat", "-D 1 -s 8", "-D 1 -s 8"),
    ] {
        let Some(first) = run(name, program, options) else { return };
        let Some(second) = run(name, program, others) else { return };
        let [a, b] = [("a", first), ("b", second)]
            .map(|(name, run)| imports::perftests_table(folder.path(), name, &run.stdout));
        imports::compared(folder.path(), [("a", &a), ("b", &b)]);
    }
}

#[test]
fn its_bandwidth_test_runs_over_all_sizes() {
    let Some(run) = run("its_bandwidth_test_runs_over_all_sizes", "ib_write_bw", "-a -n 100") else { return };
    assert_eq!(sizes_and_iterations(&run), (1..=23).map(|power| (1 << power, 100)).collect::<Vec<_>>());
}

#[test]
fn its_bandwidth_test_runs_in_both_directions_over_four_queue_pairs() {
    let name = "its_bandwidth_test_runs_in_both_directions_over_four_queue_pairs";
    let Some(run) = run(name, "ib_write_bw", "-b -q 4 -n 500 -s 4096") else { return };
    assert_eq!(sizes_and_iterations(&run), [(4096, 2000)]);
}

#[test]
fn its_bandwidth_test_runs_for_a_time() {
    let Some(run) = run("its_bandwidth_test_runs_for_a_time", "ib_write_bw", "-D 2 -s 8") else { return };
    assert!(sizes_and_iterations(&run)[0].1 > 0);
}

#[test]
fn its_latency_test_runs() {
    let Some(run) = run("its_latency_test_runs", "ib_write_lat", "-n 100 -s 8") else { return };
    assert_eq!(sizes_and_iterations(&run), [(8, 100)]);
}
