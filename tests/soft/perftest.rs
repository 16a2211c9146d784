//! perftest's own tools over the software device: programs that know nothing of it, by way of LD_PRELOAD.

use linkproof_tests::{Finished, Tool, free_port, installed, library, skip, wait_for_listener};

/// A run of perftest's `program` on both ends; `None`, and a reason printed, where it isn't installed.
fn run(test: &str, program: &str, options: &str) -> Option<Finished> {
    if !installed(program) {
        skip(test, &format!("{program} is not installed (ci/setup installs perftest)"));
        return None;
    }
    let port = free_port();
    let end = || {
        let preload = format!("LD_PRELOAD={}", library("softnic").display());
        Tool::program(std::path::Path::new("/usr/bin/env"))
            .arg(preload)
            .arg(format!("LINKPROOF_SOFTNIC=fabric=perftest-{port}"))
            .arg(program)
            .args(&format!("-d soft0 -p {port} -F {options}"))
    };
    let server = end().start();
    // Its words stay in a buffer until it ends.
    wait_for_listener(port);
    let client = end().arg("127.0.0.1").run();
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

/// Its table and its JSON, of one run, imported: the operation, the first point, and its value.
fn imported(folder: &std::path::Path, run: &Finished) -> [(String, String, f64); 2] {
    let table = folder.join("table.txt");
    std::fs::write(&table, &run.stdout).expect("a file");
    [table, folder.join("out.json")].map(|file| {
        let import = Tool::new("perf-compare").args("import perftest").arg(file.display().to_string()).run();
        import.exits(0);
        let recording = linkproof_tests::schema::recordings(&import.stdout).remove(0);
        let point = &recording["points"][0];
        let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
        let value = point["rounds"][0].as_f64().expect("a number");
        (text(&recording["operation"]), text(&point["figure"]), value)
    })
}

#[test]
fn its_table_and_its_json_are_imported_as_the_same() {
    let name = "its_table_and_its_json_are_imported_as_the_same";
    let folder = tempfile::tempdir().expect("a folder");
    let json = format!("--out_json --out_json_file={}", folder.path().join("out.json").display());
    for (program, options, operation, figure) in [
        ("ib_write_bw", "-n 1000", "write bandwidth", "bandwidth"),
        ("ib_write_bw", "-n 1000 --report_gbits", "write bandwidth", "bandwidth"),
        ("ib_write_lat", "-n 1000", "write latency", "typical"),
    ] {
        let Some(run) = run(name, program, &format!("{options} {json}")) else { return };
        let [table, document] = imported(folder.path(), &run);
        assert_eq!((table.0.as_str(), table.1.as_str()), (operation, figure));
        assert_eq!(table, document, "{program} {options}");
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
