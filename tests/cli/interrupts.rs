//! Ctrl-C on the client: what was measured until then is printed and marked, on both ends.

use linkproof_tests::{Finished, Frame, Relay, Running, SOON, Sender, Tool, free_port, schema};
use nix::sys::signal::Signal;
use serde_json::Value;

/// A run with `options`, interrupted once `ripe`; gives both ends.
fn interrupted(options: &str, ripe: impl Fn(&Relay)) -> (Finished, Running) {
    let port = free_port();
    let server = Tool::write_bw_tcp().args("--json").serve(port);
    let relay = Relay::to(port);
    let client = Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {} {options}", relay.port)).start();
    ripe(&relay);
    client.signal(Signal::SIGINT);
    (client.finish_within(SOON), server)
}

fn in_the_first_round(relay: &Relay) {
    relay.wait_for_progress_of(Sender::Client);
}

/// Once the client has asked for the round of that number.
fn in_round(relay: &Relay, number: u32) {
    let begins = |frame: &Frame| (frame.body["stretch"]["round"] == number).then_some(());
    relay.wait_for("begin of a round", begins);
}

fn failure_codes(document: &Value) -> Vec<&str> {
    let failures = document["verdict"]["failures"].as_array().expect("failures");
    failures.iter().map(|failure| failure["code"].as_str().expect("a code")).collect()
}

#[test]
fn the_partial_table_is_printed_and_marked_and_the_exit_is_130() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("result.json");
    let options = format!("-D 60 --rounds 1 --json={}", file.display());
    let (client, server) = interrupted(&options, in_the_first_round);
    client.exits(130);
    assert!(client.stdout.contains("INTERRUPTED"));
    assert_eq!(client.rows()[0].last(), Some(&"(partial)"));
    let ours = schema::parse(&std::fs::read_to_string(&file).expect("the file was written"));
    assert_eq!(failure_codes(&ours), ["interrupted"]);
    assert_eq!(ours["results"][0]["partial"], true);
    assert_eq!(ours, schema::parse(&server.wait_for_stdout_lines(1)[0]), "the server has the same");
}

#[test]
fn with_json_stdout_is_one_valid_document_all_the_same() {
    let (client, _server) = interrupted("-D 60 --rounds 1 -b --json", in_the_first_round);
    let document = client.exits(130).document();
    assert_eq!(failure_codes(&document), ["interrupted"]);
    assert!(document["rounds"].as_array().expect("rounds").iter().all(|round| round["partial"] == true));
}

#[test]
fn whole_rounds_count_and_the_broken_one_does_not() {
    let (client, _server) = interrupted("-D 180 --rounds 300 --json", |relay| in_round(relay, 2));
    let document = client.exits(130).document();
    let rounds = document["rounds"].as_array().expect("rounds");
    let whole = rounds.iter().filter(|round| round["partial"] == false).count();
    assert!(whole >= 2, "two rounds were over before the third began");
    assert_eq!(document["results"][0]["rounds"], whole);
    assert_eq!(document["results"][0]["partial"], false);
}

#[test]
fn a_run_by_iterations_is_cut_short_as_well() {
    let (client, _server) = interrupted("-n 4000000000 --rounds 1 --json", in_the_first_round);
    let document = client.exits(130).document();
    assert_eq!(failure_codes(&document), ["interrupted"]);
    assert!(document["rounds"][0]["messages"].as_u64().expect("a count") > 0);
}

#[test]
fn the_server_serves_the_next_client_after_an_interrupted_one() {
    let port = free_port();
    let _server = Tool::write_bw_tcp().serve(port);
    let relay = Relay::to(port);
    let client = Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {} -D 60 --rounds 1", relay.port)).start();
    in_the_first_round(&relay);
    client.signal(Signal::SIGINT);
    client.finish_within(SOON).exits(130);
    Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {port} -n 10")).run().exits(0);
}
