//! perftest's own clients measure against our server.

use std::time::{Duration, Instant};

use linkproof_tests::{Finished, Running, SOON, StrangeClient, Tool, free_port, installed, skip, softgpu};
use serde_json::Value;

/// Our server on a fabric of its own.
struct Server {
    server: Running,
    port: u16,
    device: &'static str,
}

impl Server {
    /// `tool` with `options`; `None`, and a reason printed, where perftest's `program` isn't installed.
    fn serve(test: &str, tool: &str, program: &str, options: &str) -> Option<Self> {
        Self::serve_with(test, tool, program, options, "")
    }

    /// The same on a device that is described so.
    fn serve_with(
        test: &str,
        tool: &str,
        program: &str,
        options: &str,
        device: &'static str,
    ) -> Option<Self> {
        if !installed(program) {
            skip(test, &format!("{program} is not installed (ci/setup installs perftest)"));
            return None;
        }
        let port = free_port();
        let server = Tool::soft(tool, &format!("client-{port}"), device)
            .env("LINKPROOF_CUDA", softgpu())
            .args(&format!("--json {options}"))
            .serve(port);
        Some(Self { server, port, device })
    }

    /// perftest's client, on its way.
    fn start(&self, program: &str, options: &str) -> Running {
        let Self { port, device, .. } = self;
        Tool::perftest(program, &format!("client-{port}"), device)
            .args(&format!("-p {port} {options} 127.0.0.1"))
            .start()
    }

    /// perftest's client and our server's document of it, the `nth` since it serves.
    fn measure(&self, nth: usize, program: &str, options: &str) -> (Finished, Value) {
        let client = self.start(program, options).finish();
        (client, self.document(nth))
    }

    fn document(&self, nth: usize) -> Value {
        let lines = self.server.wait_for_stdout_lines(nth);
        serde_json::from_str(&lines[nth - 1]).expect("a document a line")
    }

    /// Our own client.
    fn ours(&self, tool: &str) -> Finished {
        let port = self.port;
        Tool::soft(tool, &format!("client-{port}"), "").args(&format!("-p {port} -n 100 127.0.0.1")).run()
    }

    /// Measures with our own client, as document `nth`.
    fn serves_ours(&self, nth: usize, tool: &str) {
        self.ours(tool).exits(0);
        assert_eq!(self.document(nth)["hosts"].as_array().map(Vec::len), Some(2));
    }
}

fn row(document: &Value) -> &Value {
    document["results"].as_array().and_then(|rows| rows.last()).expect("a result")
}

/// The number in column `column` of perftest's last line.
fn number(client: &Finished, column: usize) -> f64 {
    let rows = client.rows();
    rows.last().and_then(|row| row.get(column)?.parse().ok()).expect("a table of numbers")
}

fn agree(client: &Finished, document: &Value) {
    let ours = row(document)["bw_average_mib_per_sec"].as_f64().expect("a bandwidth");
    let theirs = number(client, 3);
    assert!((theirs / ours - 1.0).abs() < 0.02, "{theirs} there and {ours} here");
}

/// The code of the document's failure.
fn failure(document: &Value) -> &str {
    document["verdict"]["failures"][0]["code"].as_str().unwrap_or("none")
}

#[test]
fn our_server_serves_perftests_client_and_then_ours() {
    let name = "our_server_serves_perftests_client_and_then_ours";
    let Some(server) = Server::serve(name, "write-bw", "ib_write_bw", "") else { return };
    let runs =
        [("", 65536, 5000, 1), ("-s 1048576 -n 200", 1 << 20, 200, 1), ("-q 4 -n 500", 65536, 2000, 4)];
    for (nth, (options, size, messages, qps)) in (1..).zip(runs) {
        let (client, document) = server.measure(nth, "ib_write_bw", options);
        client.exits(0);
        agree(&client, &document);
        assert_eq!(
            (&row(&document)["size_bytes"], &row(&document)["iterations"]),
            (&size.into(), &messages.into())
        );
        assert_eq!(document["link"]["client"]["qpns"].as_array().map(Vec::len), Some(qps));
        assert_eq!(document["peer"]["reports"][0], "client_to_server");
    }
    server.serves_ours(4, "write-bw");
}

#[test]
fn our_server_takes_all_sizes_of_perftests_client() {
    let name = "our_server_takes_all_sizes_of_perftests_client";
    let Some(server) = Server::serve(name, "write-bw", "ib_write_bw", "") else { return };
    let (client, document) = server.measure(1, "ib_write_bw", "-a -n 20");
    client.exits(0);
    agree(&client, &document);
    assert_eq!(row(&document)["size_bytes"], 8 << 20);
}

#[test]
fn our_server_writes_as_its_own_options_say() {
    let name = "our_server_writes_as_its_own_options_say";
    let options = "--peer-protocol perftest -b -q 4 -s 4096 -n 500";
    let Some(server) = Server::serve(name, "write-bw", "ib_write_bw", options) else { return };
    let (client, document) = server.measure(1, "ib_write_bw", "-b -q 4 -s 4096 -n 500");
    client.exits(0);
    agree(&client, &document);
    // The options are for perftest's clients only.
    server.serves_ours(2, "write-bw");
}

#[test]
fn our_server_has_gpu_memory_for_perftests_client() {
    let name = "our_server_has_gpu_memory_for_perftests_client";
    for both in ["", "-b"] {
        let options = format!("--peer-protocol perftest --use-cuda 0 -n 300 {both}");
        let Some(server) = Server::serve(name, "write-bw", "ib_write_bw", &options) else { return };
        let (client, document) = server.measure(1, "ib_write_bw", &format!("-n 300 {both}"));
        client.exits(0);
        agree(&client, &document);
        assert_eq!(document["memory"]["server_gpu"]["path"], "dmabuf");
    }
}

#[test]
fn latency_is_measured_on_both_ends() {
    let name = "latency_is_measured_on_both_ends";
    let Some(server) = Server::serve(name, "write-lat", "ib_write_lat", "") else { return };
    let (client, document) = server.measure(1, "ib_write_lat", "");
    client.exits(0);
    assert_eq!((number(&client, 1), row(&document)["iterations"].as_u64()), (1000.0, Some(1000)));
    assert!(row(&document)["t_typical_usec"].as_f64().is_some_and(|typical| typical > 0.0));
    server.serves_ours(2, "write-lat");
}

#[test]
fn latency_is_measured_for_a_time_on_both_ends() {
    let name = "latency_is_measured_for_a_time_on_both_ends";
    let options = "--peer-protocol perftest -D 2";
    let Some(server) = Server::serve(name, "write-lat", "ib_write_lat", options) else { return };
    let (client, document) = server.measure(1, "ib_write_lat", "-D 2");
    client.exits(0);
    let [ours, theirs] = [row(&document)["t_avg_usec"].as_f64().expect("an average"), number(&client, 2)];
    assert!((theirs / ours - 1.0).abs() < 0.25, "{theirs} there and {ours} here");
    server.serves_ours(2, "write-lat");
}

/// Waits until a process has taken more than a second of a processor.
fn wait_until_busy(pid: u32) {
    let end = Instant::now() + SOON;
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.split_whitespace().nth(13).and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or(0)
    };
    while ticks() < 100 {
        assert!(Instant::now() < end, "process {pid} does not measure");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Options of our server and of perftest's client that do not go together, and what our document says of it. None of them takes
/// longer than our own deadlines.
const MISMATCHES: &[(&str, &str, &str, &str)] = &[
    ("write-bw", "-b -n 100", "-n 100", "it measures in one direction"),
    ("write-bw", "-b -n 100", "-b -n 200", "perftest has written 200 messages and this end 100"),
    ("write-bw", "-b -n 100 -s 4K", "-b -n 100 -s 8192", "-s 4096; -n 100; -b"),
    ("write-bw", "-b -n 100 -s 8K", "-b -n 100 -s 4096", "-s 8192; -n 100; -b"),
    ("write-bw", "-b -n 100 -q 4", "-b -n 100", "does not have 4 queue pairs"),
    ("write-bw", "-b -n 100", "-b -n 100 -q 4", "does not have 1 queue pairs"),
    ("write-lat", "-n 1000", "-n 100", "-s 2; -n 1000"),
    ("write-lat", "-n 100", "-n 200", "-s 2; -n 100"),
    ("write-lat", "-D 3", "-D 1", "this end would measure for 3.00 s"),
];

#[test]
fn options_that_do_not_match_the_servers_are_told_and_it_goes_on() {
    let name = "options_that_do_not_match_the_servers_are_told_and_it_goes_on";
    let run = |&(tool, ours, theirs, words): &(&str, &str, &str, &str)| {
        let program = format!("ib_{}", tool.replace('-', "_"));
        let options = format!("--peer-protocol perftest {ours}");
        let Some(server) = Server::serve(name, tool, &program, &options) else { return };
        // Whether and how a perftest notices is its own affair: some wait for ever.
        let client = server.start(&program, theirs);
        let document = server.document(1);
        drop(client);
        let told = document["verdict"]["failures"][0].to_string();
        assert!(told.contains(words), "{tool} {ours}, {theirs}: {told}");
        server.serves_ours(2, tool);
    };
    // Most of it is waiting: all at the same time.
    std::thread::scope(|scope| MISMATCHES.iter().for_each(|case| drop(scope.spawn(move || run(case)))));
}

/// A client by time would show the average of its wait for the messages that do not come.
#[test]
fn a_client_by_time_is_told_from_one_by_count() {
    let name = "a_client_by_time_is_told_from_one_by_count";
    let options = "--peer-protocol perftest -n 20";
    let Some(server) = Server::serve(name, "write-lat", "ib_write_lat", options) else { return };
    let (_, document) = server.measure(1, "ib_write_lat", "-D 2");
    assert_eq!(failure(&document), "perftest-peer");
    let what = document["verdict"]["failures"][0]["what"].as_str().unwrap_or_default();
    assert!(what.contains("after the 20 messages of this end: it measures by time"), "{what}");
    server.serves_ours(2, "write-lat");
}

#[test]
fn a_gid_of_another_family_is_told_by_the_server() {
    let name = "a_gid_of_another_family_is_told_by_the_server";
    let ports = "soft0 gid=roce2:fe80::1/lo gid=roce2:127.0.0.1/lo";
    let Some(server) = Server::serve_with(name, "write-bw", "ib_write_bw", "-x 0", ports) else { return };
    let (client, document) = server.measure(1, "ib_write_bw", "-x 1");
    client.exits(1);
    assert_eq!(failure(&document), "gid-family");
}

/// Clients whose options do not go with our server's, and what its document has for it.
#[test]
fn options_that_do_not_match_are_told_and_the_server_goes_on() {
    let name = "options_that_do_not_match_are_told_and_the_server_goes_on";
    let Some(server) = Server::serve(name, "write-bw", "ib_write_bw", "") else { return };
    let (client, both) = server.measure(1, "ib_write_bw", "-b -n 100");
    client.exits(1);
    assert_eq!(failure(&both), "perftest-peer");
    let (client, large) = server.measure(2, "ib_write_bw", "-s 16777216 -n 10");
    client.exits(1);
    assert_eq!(failure(&large), "peer-lost");
    server.serves_ours(3, "write-bw");
}

#[test]
fn a_perftest_that_stalls_or_vanishes_does_not_hold_the_server() {
    let name = "a_perftest_that_stalls_or_vanishes_does_not_hold_the_server";
    let Some(server) = Server::serve(name, "write-bw", "ib_write_bw", "") else { return };
    // It says its version and no more; the next has its turn in seconds all the same.
    let stalled = StrangeClient::saying(server.port, b"6.06\0\0\0\0\0\0\0\0\0\0\0\0");
    server.serves_ours(2, "write-bw");
    assert_eq!(failure(&server.document(1)), "peer-timeout");
    drop(stalled);
    // One that measures, and is killed.
    let victim = server.start("ib_write_bw", "-D 60");
    // What it prints stays in a buffer; that it measures shows in what it takes of its processor.
    wait_until_busy(victim.pid());
    victim.signal(nix::sys::signal::Signal::SIGKILL);
    assert_eq!(failure(&server.document(3)), "peer-lost");
    // One that says a key that is none.
    let mut liar = b"6.06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\x405\0".to_vec();
    liar.extend_from_slice(&[b'x'; 108]);
    let _liar = StrangeClient::saying(server.port, &liar);
    // Found by whoever looks first: the doorkeeper, or the server in its turn.
    server.server.wait_for_stderr_that("tells of the liar", |stderr| {
        stderr.contains("before it was its turn") || stderr.contains("sent no queue pair")
    });
    server.ours("write-bw").exits(0);
}

#[test]
fn a_server_of_our_own_protocol_only_turns_perftest_away() {
    let name = "a_server_of_our_own_protocol_only_turns_perftest_away";
    let Some(server) = Server::serve(name, "write-bw", "ib_write_bw", "--peer-protocol linkproof") else {
        return;
    };
    server.start("ib_write_bw", "").finish().exits(1);
    server.server.wait_for_stderr("is no linkproof tool");
    server.serves_ours(1, "write-bw");
}
