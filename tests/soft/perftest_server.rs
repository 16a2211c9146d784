//! Our client measures against perftest's own server.

use linkproof_tests::{Finished, Running, Tool, free_port, installed, skip, softgpu, wait_for_listener};
use serde_json::Value;

/// A perftest server on a fabric of its own, and how our client of the same kind reaches it.
struct Perftest {
    server: Running,
    port: u16,
    tool: &'static str,
}

impl Perftest {
    /// perftest's `program` with `options`; `None`, and a reason printed, where it isn't installed.
    fn serve(test: &str, program: &str, options: &str) -> Option<Self> {
        Self::serve_with(test, program, options, "")
    }

    /// The same on a device that is described so.
    fn serve_with(test: &str, program: &str, options: &str, device: &str) -> Option<Self> {
        if !installed(program) {
            skip(test, &format!("{program} is not installed (ci/setup installs perftest)"));
            return None;
        }
        let tool = if program == "ib_write_lat" { "write-lat" } else { "write-bw" };
        let port = free_port();
        let server = Tool::perftest(program, &format!("server-{port}"), device)
            .args(&format!("-p {port} {options}"))
            .start();
        wait_for_listener(port);
        Some(Self { server, port, tool })
    }

    fn client(&self, options: &str) -> Finished {
        self.client_with(options, "")
    }

    fn client_with(&self, options: &str, device: &str) -> Finished {
        let Self { port, tool, .. } = self;
        Tool::soft(tool, &format!("server-{port}"), device)
            .env("LINKPROOF_CUDA", softgpu())
            .args(&format!("--json -p {port} {options} 127.0.0.1"))
            .run()
    }

    /// Our client's document and the server's table, where both are content.
    fn measure(self, options: &str) -> (Value, Finished) {
        let client = self.client(options);
        client.exits(0);
        let server = self.server.finish();
        server.exits(0);
        (client.document(), server)
    }
}

/// The number in column `column` of the server's last line.
fn number(server: &Finished, column: usize) -> f64 {
    let rows = server.rows();
    rows.last().and_then(|row| row.get(column)?.parse().ok()).expect("a table of numbers")
}

/// That both ends show the same bandwidth and count.
fn agree(document: &Value, server: &Finished) {
    let row = document["results"].as_array().and_then(|rows| rows.last()).expect("a result");
    let ours = row["bw_average_mib_per_sec"].as_f64().expect("a bandwidth");
    let theirs = number(server, 3);
    assert!((theirs / ours - 1.0).abs() < 0.02, "{theirs} there and {ours} here");
    assert_eq!(number(server, 0), row["size_bytes"].as_f64().expect("a size"));
}

#[test]
fn our_client_measures_against_its_server() {
    let name = "our_client_measures_against_its_server";
    let Some(perftest) = Perftest::serve(name, "ib_write_bw", "") else { return };
    let (document, server) = perftest.measure("");
    agree(&document, &server);
    assert_eq!(number(&server, 1), 5000.0);
    let peer = &document["peer"];
    assert_eq!((&peer["program"], &peer["version"]), (&"perftest".into(), &"6.06".into()));
    assert_eq!(document["link"]["server"]["perftest_version"], "6.06");
    assert_eq!(document["hosts"].as_array().map(Vec::len), Some(1));
}

#[test]
fn our_client_has_its_server_take_a_large_size() {
    let name = "our_client_has_its_server_take_a_large_size";
    let Some(perftest) = Perftest::serve(name, "ib_write_bw", "-s 1048576 -n 200") else { return };
    let (document, server) = perftest.measure("-s 1M -n 200");
    agree(&document, &server);
    assert_eq!(number(&server, 1), 200.0);
}

#[test]
fn our_client_measures_all_sizes_for_a_time_and_in_rounds_against_its_server() {
    let name = "our_client_measures_all_sizes_for_a_time_and_in_rounds_against_its_server";
    // A server that only takes writes has no say in how many there are, nor in how long they go on.
    let Some(perftest) = Perftest::serve(name, "ib_write_bw", "-a -n 20") else { return };
    let (document, server) = perftest.measure("-a -D 0.05 --rounds 2");
    agree(&document, &server);
    assert_eq!(document["results"].as_array().map(Vec::len), Some(23));
    assert_eq!(document["rounds"].as_array().map(Vec::len), Some(46));
}

#[test]
fn both_ends_write_at_the_same_time() {
    let name = "both_ends_write_at_the_same_time";
    let Some(perftest) = Perftest::serve(name, "ib_write_bw", "-b -q 4 -s 4096 -n 500") else { return };
    let (document, server) = perftest.measure("-b -q 4 -s 4096 -n 500");
    agree(&document, &server);
    assert_eq!(number(&server, 1), 2000.0);
    let directions: Vec<&Value> =
        document["rounds"].as_array().into_iter().flatten().map(|round| &round["direction"]).collect();
    assert_eq!(directions, ["client_to_server", "server_to_client"]);
    assert_eq!(document["plan"]["rounds"], 1);
}

#[test]
fn our_end_may_have_gpu_memory() {
    let name = "our_end_may_have_gpu_memory";
    for (options, theirs) in [("--use-cuda 0 --cuda-path peermem", ""), ("--use-cuda 0 -b", "-b")] {
        let Some(perftest) = Perftest::serve(name, "ib_write_bw", &format!("-n 300 {theirs}")) else {
            return;
        };
        let (document, server) = perftest.measure(&format!("-n 300 {options}"));
        agree(&document, &server);
        let memory = &document["memory"];
        assert_eq!((&memory["client_kind"], memory.get("server_kind")), (&"cuda".into(), None));
        assert_eq!(memory["client_gpu"]["name"], "Softgpu (host memory)");
    }
}

#[test]
fn ends_on_infiniband_go_by_lid() {
    let name = "ends_on_infiniband_go_by_lid";
    let ports = "soft0 link=infiniband";
    let Some(perftest) = Perftest::serve_with(name, "ib_write_bw", "-n 100", ports) else { return };
    let client = perftest.client_with("-n 100", ports);
    client.exits(0);
    perftest.server.finish().exits(0);
    assert!(client.document()["link"]["server"].get("gid").is_none());
}

/// Options of its server and of our client that do not go together, and what our client says of it.
const MISMATCHES: &[(&str, &str, &str)] = &[
    ("", "-b", "it has not measured"),
    ("-b", "-n 100", "must match on the other end: -s 65536, or more, or -a; no -b;"),
    ("-q 1", "-q 4", "does not have 4 queue pairs"),
    ("-q 4", "-q 1", "does not have 1 queue pairs"),
    ("-s 4096", "-s 1M", "REM_ACCESS_ERR"),
    ("-s 4096 -q 2", "-s 64K -q 2", "has 4096 bytes for each queue pair"),
    ("-b -n 100", "-b -n 200", "perftest has written 100 messages and this end 200"),
    ("", "--validate", "can't check the data"),
];

#[test]
fn options_that_do_not_match_are_told_and_nothing_hangs() {
    let name = "options_that_do_not_match_are_told_and_nothing_hangs";
    let run = |&(theirs, ours, words): &(&str, &str, &str)| {
        let Some(perftest) = Perftest::serve(name, "ib_write_bw", theirs) else { return };
        let client = perftest.client(ours);
        client.exits(4);
        client.says(&[words]);
    };
    // Its server sleeps for a second: all at the same time.
    std::thread::scope(|scope| MISMATCHES.iter().for_each(|case| drop(scope.spawn(move || run(case)))));
}

#[test]
fn a_gid_of_another_family_is_told() {
    let name = "a_gid_of_another_family_is_told";
    let ports = "soft0 gid=roce2:fe80::1/lo gid=roce2:127.0.0.1/lo";
    let Some(perftest) = Perftest::serve_with(name, "ib_write_bw", "-x 1", ports) else { return };
    let client = perftest.client_with("-x 0", ports);
    client.exits(4);
    client.says(&["link-local IPv6 and that of the server"]);
}

#[test]
fn a_client_that_is_told_to_speak_our_protocol_only_says_what_it_found() {
    let name = "a_client_that_is_told_to_speak_our_protocol_only_says_what_it_found";
    let Some(perftest) = Perftest::serve(name, "ib_write_bw", "") else { return };
    let client = perftest.client("--peer-protocol linkproof");
    client.exits(4);
    client.says(&["it is perftest: leave --peer-protocol out"]);
}

#[test]
fn latency_is_measured_against_its_server() {
    let name = "latency_is_measured_against_its_server";
    for options in ["", "-s 8 -n 200"] {
        let Some(perftest) = Perftest::serve(name, "ib_write_lat", options) else { return };
        let (document, server) = perftest.measure(options);
        let row = &document["results"][0];
        assert_eq!(
            (number(&server, 0), number(&server, 1)),
            (row["size_bytes"].as_f64().expect("a size"), row["iterations"].as_f64().expect("a count"),)
        );
    }
}

/// Both stop by their own clocks. The averages are of the same round trips, give or take what the ends begin and stop apart.
#[test]
fn latency_is_measured_for_a_time_against_its_server() {
    let name = "latency_is_measured_for_a_time_against_its_server";
    let Some(perftest) = Perftest::serve(name, "ib_write_lat", "-D 2") else { return };
    let (document, server) = perftest.measure("-D 2");
    let row = &document["results"][0];
    let [ours, theirs] = [row["t_avg_usec"].as_f64().expect("an average"), number(&server, 2)];
    assert!((theirs / ours - 1.0).abs() < 0.25, "{theirs} there and {ours} here");
    assert!(document["rounds"][0]["elapsed_ns"].as_u64() >= Some(1_500_000_000), "{}", document["rounds"][0]);
}

#[test]
fn a_latency_test_of_another_time_is_told() {
    let name = "a_latency_test_of_another_time_is_told";
    let Some(perftest) = Perftest::serve(name, "ib_write_lat", "-D 1") else { return };
    let client = perftest.client("-D 3");
    client.exits(4);
    client.says(&["perftest has left ", "and this end would measure for 3.00 s", "give the same -D"]);
}

#[test]
fn a_latency_test_of_another_length_is_told() {
    let name = "a_latency_test_of_another_length_is_told";
    let Some(perftest) = Perftest::serve(name, "ib_write_lat", "-n 100") else { return };
    let client = perftest.client("-n 200");
    client.exits(4);
    client.says(&["99 round trips", "must match on the other end: -s 2; -n 200"]);
}
