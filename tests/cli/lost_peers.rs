//! A peer that is killed in mid-run: the other end notices within seconds, and says how far the run got.

use std::time::Duration;

use linkproof_tests::{Finished, Relay, Running, Sender, Tool, free_port};
use nix::sys::signal::Signal;

/// A killed process's sockets close at once; the rest is for a busy machine.
const NOTICED_WITHIN: Duration = Duration::from_secs(5);
/// A run that does not end by itself while a test looks at it.
const LONG: &str = "-D 60 --rounds 1";

/// A long run between a server with `options` and a client, in the middle of its round.
struct MidRun {
    server: Running,
    client: Running,
    relay: Relay,
}

fn mid_run(port: u16, server_options: &str, client_options: &str) -> MidRun {
    let server = Tool::write_bw_tcp().args(server_options).serve(port);
    let relay = Relay::to(port);
    let line = format!("127.0.0.1 -p {} {LONG} {client_options}", relay.port);
    let client = Tool::write_bw_tcp().args(&line).start();
    relay.wait_for_progress_of(Sender::Client);
    MidRun { server, client, relay }
}

fn failure_code(finished: &Finished) -> String {
    finished.document()["verdict"]["failures"][0]["code"].as_str().expect("a code").to_owned()
}

#[test]
fn a_client_whose_server_is_killed_exits_4_and_says_how_far_it_got() {
    for options in ["", "-b"] {
        let MidRun { server, client, .. } = mid_run(free_port(), "", options);
        server.signal(Signal::SIGKILL);
        let failed = client.finish_within(NOTICED_WITHIN);
        failed.exits(4).silent_on_stdout().says(&["got so far: round 1 of 1 at 64 KiB", "writes posted"]);
    }
}

#[test]
fn the_document_of_a_lost_server_is_valid_and_names_the_loss() {
    let MidRun { server, client, .. } = mid_run(free_port(), "", "--json");
    server.signal(Signal::SIGKILL);
    let failed = client.finish_within(NOTICED_WITHIN);
    assert_eq!(failure_code(failed.exits(4)), "peer-lost");
}

#[test]
fn a_server_whose_client_is_killed_exits_4_and_says_how_far_it_got() {
    let MidRun { server, client, relay } = mid_run(free_port(), "--once --json", "");
    client.signal(Signal::SIGKILL);
    let failed = server.finish_within(NOTICED_WITHIN);
    let reported = relay.last_progress_of(Sender::Client).expect("it reported");
    failed.exits(4).says(&[&format!("the client had reported {reported} writes completed")]);
    assert_eq!(failure_code(&failed), "peer-lost");
}

#[test]
fn a_server_that_writes_as_well_notices_its_killed_client() {
    let MidRun { server, client, .. } = mid_run(free_port(), "--once", "-b");
    client.signal(Signal::SIGKILL);
    server.finish_within(NOTICED_WITHIN).exits(4).silent_on_stdout().says(&["got so far: round 1 of 1"]);
}

#[test]
fn a_server_that_stays_serves_the_next_client_after_a_killed_one() {
    let port = free_port();
    let MidRun { server, client, .. } = mid_run(port, "", "");
    client.signal(Signal::SIGKILL);
    server.wait_for_stderr("closed the connection");
    Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {port} -n 10")).run().exits(0);
}

#[test]
fn ctrl_c_on_the_server_in_mid_run_exits_130_and_the_client_hears_of_it() {
    let MidRun { server, client, .. } = mid_run(free_port(), "", "");
    server.signal(Signal::SIGINT);
    server.finish_within(NOTICED_WITHIN).exits(130);
    let failed = client.finish_within(NOTICED_WITHIN);
    failed.exits(4).silent_on_stdout().says(&["the server 127.0.0.1 could not go on: interrupted"]);
}

#[test]
fn ctrl_c_on_a_server_that_writes_as_well_ends_both_ends() {
    let MidRun { server, client, .. } = mid_run(free_port(), "", "-b");
    server.signal(Signal::SIGINT);
    server.finish_within(NOTICED_WITHIN).exits(130);
    client.finish_within(NOTICED_WITHIN).exits(4).says(&["could not go on: interrupted"]);
}
