//! Several posting threads, over TCP on the loopback: the same counts, data and failures as of one.

use linkproof_tests::{Relay, SOON, Sender, Tool, free_port, schema};
use nix::sys::signal::Signal;
use serde_json::Value;

fn rounds(document: &Value) -> &Vec<Value> {
    document["rounds"].as_array().expect("rounds")
}

#[test]
fn all_queue_pairs_of_all_threads_and_both_ends_are_counted_and_checked() {
    let port = free_port();
    let server = Tool::write_bw_tcp().args("--json").serve(port);
    let options = "-q 7 --threads 3 -b -n 25 -s 4K --rounds 2 --validate --json";
    let run = Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {port} {options}")).run();
    let document = run.exits(0).document();
    assert_eq!(document["plan"]["threads"], 3);
    let row = &document["results"][0];
    assert_eq!((&row["iterations"], &row["wrong_bytes"]), (&(7 * 25).into(), &0.into()));
    // Each queue pair has one slot of 4 KiB; two rounds, two directions.
    assert_eq!(row["checked_bytes"], 7 * 4096 * 2 * 2);
    assert!(rounds(&document).iter().all(|round| round["messages"] == 7 * 25), "{document}");
    assert_eq!(schema::parse(&server.wait_for_stdout_lines(1)[0]), document, "both ends hold the same");
}

#[test]
fn rounds_by_time_end_for_all_threads_and_the_peak_is_no_less_than_the_average() {
    let port = free_port();
    let _server = Tool::write_bw_tcp().serve(port);
    let run = Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {port} -q 4 --threads 4 -D 0.9 --json")).run();
    for round in rounds(&run.exits(0).document()) {
        let number = |name: &str| round[name].as_f64().expect("a number");
        let average = number("messages") * 1e9 / number("elapsed_ns");
        assert!(number("elapsed_ns") >= 0.25e9, "{round}");
        assert!(number("peak_messages_per_sec") >= average * 0.999, "{round}");
    }
}

#[test]
fn threads_share_a_rate_limit() {
    let port = free_port();
    let _server = Tool::write_bw_tcp().serve(port);
    let options = "-q 5 --threads 2 -n 20 -s 1K --rounds 1 --rate-limit 0.0002Mpps --json";
    let document =
        Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {port} {options}")).run().exits(0).document();
    let share = document["results"][0]["rate_limit_percent"].as_f64().expect("a share");
    assert!(share <= 100.01, "{share} % of the limit");
    assert_eq!(document["results"][0]["iterations"], 100);
}

#[test]
fn a_lost_server_ends_all_threads_and_is_told_once() {
    let port = free_port();
    let server = Tool::write_bw_tcp().serve(port);
    let relay = Relay::to(port);
    let line = format!("127.0.0.1 -p {} -D 60 --rounds 1 -q 4 --threads 4 -b --json", relay.port);
    let client = Tool::write_bw_tcp().args(&line).start();
    relay.wait_for_progress_of(Sender::Client);
    server.signal(Signal::SIGKILL);
    let failed = client.finish_within(SOON);
    let document = failed.exits(4).document();
    let failures = document["verdict"]["failures"].as_array().expect("failures");
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0]["code"], "peer-lost");
    failed.says(&["got so far: round 1 of 1 at 64 KiB"]);
}

#[test]
fn an_interrupt_ends_all_threads_with_what_they_have() {
    let port = free_port();
    let _server = Tool::write_bw_tcp().serve(port);
    let relay = Relay::to(port);
    let line = format!("127.0.0.1 -p {} -D 60 --rounds 1 -q 3 --threads 3 --json", relay.port);
    let client = Tool::write_bw_tcp().args(&line).start();
    relay.wait_for_progress_of(Sender::Client);
    client.signal(Signal::SIGINT);
    let document = client.finish_within(SOON).exits(130).document();
    assert_eq!(rounds(&document)[0]["partial"], true);
    assert!(rounds(&document)[0]["messages"].as_u64().expect("a count") > 0);
}
