//! Runs without an end of their own: a line an interval, and Ctrl-C, or a reader that has seen enough, ends them well.

use linkproof_tests::{Finished, Relay, Running, SOON, Sender, Tool, binary, free_port, schema, works};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::intervals::{memory_stays, mib_per_sec};

/// A server of `tool` and the line of options that leads to it.
fn server(tool: &str) -> (Running, String) {
    let port = free_port();
    (Tool::tcp(tool).args("--json").serve(port), format!("127.0.0.1 -p {port}"))
}

/// A run with `options`, stopped by `signal` once it has shown enough.
fn stopped(tool: &str, to: &str, options: &str, signal: Signal) -> Finished {
    let client = Tool::tcp(tool).args(to).args("--run-infinitely --interval 100ms").args(options).start();
    client.wait_for_stdout_lines(20);
    client.signal(signal);
    client.finish_within(SOON)
}

/// What the server has written of its clients, which is a document a line.
fn documents(server: &Running, count: usize) -> Vec<Value> {
    server.wait_for_stdout_lines(count).iter().map(|line| schema::parse(line)).collect()
}

#[test]
fn ctrl_c_is_how_it_ends_and_both_ends_hold_the_same_result() {
    let (server, to) = server("write-bw");
    for (number, signal) in (1..).zip([Signal::SIGINT, Signal::SIGTERM]) {
        let run = stopped("write-bw", &to, "--json", signal);
        let (intervals, document) = schema::parse_lines(&run.exits(0).stdout);
        assert_eq!(document, documents(&server, number)[number - 1]);
        assert_eq!(document["plan"]["round_length"], "until_stopped");
        assert_eq!(
            (&document["verdict"]["ok"], &document["results"][0]["partial"]),
            (&true.into(), &false.into())
        );
        let kept = &document["rounds"][0]["intervals"];
        assert_eq!(kept["count"], intervals.len());
        assert!(!run.stderr.contains("interrupted"), "{}", run.stderr);
    }
    Tool::write_bw_tcp().args(&to).args("-n 10").run().exits(0);
}

#[test]
fn each_line_of_json_is_what_the_result_keeps_of_that_interval() {
    let (_server, to) = server("write-bw");
    let run = stopped("write-bw", &to, "--json -s 4K", Signal::SIGINT);
    let (intervals, document) = schema::parse_lines(&run.stdout);
    let kept = document["rounds"][0]["intervals"]["list"].as_array().expect("a list");
    for (told, kept) in intervals.iter().zip(kept) {
        for field in ["begin_ns", "elapsed_ns", "messages"] {
            assert_eq!(told[field], kept[field]);
        }
        let bandwidth = told["bw_average_mib_per_sec"].as_f64().expect("a bandwidth");
        assert!((bandwidth - mib_per_sec(kept, 4096.0)).abs() <= bandwidth * 1e-9, "{told}");
    }
}

#[test]
fn both_directions_are_told_and_both_ends_stop() {
    let (server, to) = server("write-bw");
    let run = stopped("write-bw", &to, "--json -b", Signal::SIGINT);
    let (intervals, document) = schema::parse_lines(&run.exits(0).stdout);
    for direction in ["client_to_server", "server_to_client"] {
        assert!(intervals.iter().filter(|interval| interval["direction"] == direction).count() > 2);
        let mut rounds = document["rounds"].as_array().expect("rounds").iter();
        let round = rounds.find(|round| round["direction"] == direction).expect("a round");
        assert_eq!(round["partial"], false);
    }
    assert_eq!(document, documents(&server, 1)[0]);
}

#[test]
fn people_get_columns_below_a_header_and_the_table_at_the_end() {
    let (_server, to) = server("write-lat");
    let run = stopped("write-lat", &to, "", Signal::SIGINT);
    run.exits(0);
    let rows = run.rows();
    assert!(rows.len() > 5 && rows.iter().all(|row| row.len() == 8 && row[0] == "2"), "{rows:?}");
    for words in ["Rounds       : 1, until it is stopped", "t_min[usec]", " Intervals    : 2 B: "] {
        assert!(run.stdout.contains(words), "{words}");
    }
    let first = run.stdout.find("Sockets      :").expect("a header");
    assert!(first < run.stdout.find("time[UTC]").expect("columns"), "what is watched is said before");
    assert_eq!(run.stdout.matches("Sockets      :").count(), 2, "and with the result");
}

#[test]
fn into_a_file_go_the_same_lines_beside_the_columns() {
    let (_server, to) = server("write-bw");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("lines.json");
    let run = stopped("write-bw", &to, &format!("--json={}", file.display()), Signal::SIGINT);
    let text = std::fs::read_to_string(&file).expect("the file was written");
    let (intervals, document) = schema::parse_lines(&text);
    assert_eq!(intervals.len(), run.rows().len());
    assert_eq!(document["verdict"]["ok"], true);
}

#[test]
fn a_requirement_is_held_against_the_result() {
    let (_server, to) = server("write-bw");
    let run = stopped("write-bw", &to, "--json --min-bw 900000Gb/s", Signal::SIGINT);
    let (_, document) = schema::parse_lines(&run.exits(1).stdout);
    assert_eq!(document["verdict"]["failures"][0]["code"], "requirement-not-met");
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_run_well() {
    assert!(works("bash --version"), "bash is part of every build machine");
    let (server, to) = server("write-bw");
    for (number, options) in (1..).zip(["", "--json"]) {
        let tool = binary("write-bw");
        let script = format!(
            "set -o pipefail; {} --transport tcp {to} --run-infinitely --interval 100ms {options} | head -n 15",
            tool.display()
        );
        let run = Tool::program("/bin/bash".as_ref()).arg("-c").arg(script).run();
        run.exits(0);
        assert_eq!(run.stdout.lines().count(), 15);
        assert!(!run.stderr.contains("panicked") && !run.stderr.contains("Broken pipe"), "{}", run.stderr);
        assert_eq!(documents(&server, number)[number - 1]["verdict"]["ok"], true);
    }
}

#[test]
fn a_file_that_is_full_ends_the_run_and_is_named() {
    let (_server, to) = server("write-bw");
    let line = format!("{to} --run-infinitely --interval 100ms --json=/dev/full");
    let run = Tool::write_bw_tcp().args(&line).run();
    run.exits(3).says(&["cannot write /dev/full: ENOSPC"]);
}

#[test]
fn before_anything_was_measured_it_is_interrupted() {
    let port = free_port();
    let _server = Tool::write_bw_tcp().serve(port);
    let relay = Relay::to(port);
    let options = "--run-infinitely --json --warmup 4000000000 -s 1M";
    let client = Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {}", relay.port)).args(options).start();
    // It is in the warm-up, and will be for a long time.
    relay.wait_for_progress_of(Sender::Client);
    client.signal(Signal::SIGINT);
    let (intervals, document) = schema::parse_lines(&client.finish_within(SOON).exits(130).stdout);
    assert!(intervals.is_empty() && document["results"].as_array().is_some_and(Vec::is_empty));
}

#[test]
fn memory_stays_where_it_was_without_an_end_too() {
    for tool in ["write-bw", "write-lat"] {
        memory_stays(tool, "--run-infinitely --interval 100ms -s 64");
    }
}
