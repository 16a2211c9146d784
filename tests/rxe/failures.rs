//! Peers that die, paths that break, users that interrupt: noticed soon, named truly, and never a hang.

use std::time::{Duration, Instant};

use linkproof_tests::lab::{Fault, Lab, Vm};
use linkproof_tests::schema;

use crate::{client_in_b, port, server_in_a, start_client_in_b};

/// How soon a dead peer must be noticed, as the tool promises.
pub(crate) const NOTICED_WITHIN: Duration = Duration::from_secs(5);
/// Long enough that nothing but the fault ends it.
const LONG: &[&str] = &["-s", "4K", "-D", "90", "--rounds", "1", "-t", "16"];

/// Waits until writes go out of `vm`: the adapter counts packets, and many of them. The shell starts no program for it but to
/// sleep: beside two polling loops the emulator takes the better part of a second for one.
pub(crate) fn await_traffic(lab: &Lab, vm: Vm) {
    lab.shell(
        vm,
        "cd /sys/class/infiniband/rxe0/ports/1/hw_counters; read before <sent_pkts; i=0; \
         until read now <sent_pkts; [ $((now - before)) -gt 200 ]; do i=$((i + 1)); [ $i -lt 300 ]; sleep 0.1; done",
    );
}

/// Sends `signal` to the tool of `vm` whose command line has this control port.
pub(crate) fn signal_in(lab: &Lab, vm: Vm, port: &str, signal: &str) {
    signal_tool(lab, vm, &format!("-p {port} "), signal);
}

/// Sends `signal` to the tool of `vm` whose command line has these words.
pub(crate) fn signal_tool(lab: &Lab, vm: Vm, words: &str, signal: &str) {
    lab.shell(
        vm,
        &format!(
            "for p in $(pidof write-bw write-lat coll-perf); do \
             if tr '\\0' ' ' </proc/$p/cmdline | grep -q -e '{words}'; then kill -{signal} $p; fi; done"
        ),
    );
}

#[test]
fn a_server_killed_in_mid_run_is_noticed_by_the_client() {
    let Some(lab) = Lab::get("a_server_killed_in_mid_run_is_noticed_by_the_client") else { return };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    let client = start_client_in_b(lab, &port, LONG);
    await_traffic(lab, Vm::B);
    signal_in(lab, Vm::A, &port, "KILL");
    let killed = Instant::now();
    let outcome = client.finish().expect_status(4).expect_stderr(&["the server a", "got so far: "]);
    assert!(killed.elapsed() < NOTICED_WITHIN, "noticed after {:?}\n{}", killed.elapsed(), outcome.show());
    assert_eq!(outcome.stdout, "", "{}", outcome.show());
}

#[test]
fn a_client_killed_in_mid_run_is_noticed_by_the_server_which_goes_on_serving() {
    let Some(lab) = Lab::get("a_client_killed_in_mid_run_is_noticed_by_the_server_which_goes_on_serving")
    else {
        return;
    };
    let port = port();
    let mut server = server_in_a(lab, &port, &[]);
    let client = start_client_in_b(lab, &port, LONG);
    await_traffic(lab, Vm::B);
    signal_in(lab, Vm::B, &port, "KILL");
    server.await_stderr("got so far: round 1 of 1 at 4 KiB: the client had reported", NOTICED_WITHIN);
    assert_eq!(client.finish().status, 137);
    client_in_b(lab, &port, &["-n", "5"]).expect_status(0);
}

#[test]
fn a_path_that_drops_roce_is_told_with_status_meaning_counters_and_hint() {
    let Some(lab) = Lab::get("a_path_that_drops_roce_is_told_with_status_meaning_counters_and_hint") else {
        return;
    };
    let port = port();
    let server = server_in_a(lab, &port, &["--once"]);
    let client = start_client_in_b(lab, &port, LONG);
    await_traffic(lab, Vm::B);
    let fault = Fault::drop_roce(lab, Vm::A);
    let outcome = client.finish().expect_status(4).expect_stderr(&[
        "a write did not complete: RETRY_EXC_ERR (12), vendor 0x",
        "meaning: the peer's adapter acknowledged nothing until the retries ran out",
        "counters: ",
        "retry_exceeded_err 1",
        "peer: still connected on the control channel",
        "got so far: round 1 of 1 at 4 KiB: ",
        "hint: packets got lost and did not recover: see that UDP port 4791 passes",
    ]);
    drop(fault);
    assert!(outcome.elapsed < Duration::from_secs(60), "{}", outcome.show());
    server.finish().expect_status(4).expect_stderr(&[
        "the client 10.77.0.2",
        "could not go on: a write did not complete: RETRY_EXC_ERR (12)",
    ]);
}

#[test]
fn ctrl_c_on_the_client_prints_what_was_measured_and_marks_it() {
    let Some(lab) = Lab::get("ctrl_c_on_the_client_prints_what_was_measured_and_marks_it") else { return };
    let port = port();
    let server = server_in_a(lab, &port, &["--once", "--json"]);
    let mut options = vec!["--json"];
    options.extend(LONG);
    let client = start_client_in_b(lab, &port, &options);
    await_traffic(lab, Vm::B);
    signal_in(lab, Vm::B, &port, "INT");
    let outcome = client.finish().expect_status(130);
    let document = outcome.json();
    schema::validate(&document);
    assert_eq!(document["verdict"]["failures"][0]["code"], "interrupted", "{}", outcome.show());
    assert_eq!(document["results"][0]["partial"], true, "{}", outcome.show());
    assert!(document["results"][0]["bw_average_mib_per_sec"].as_f64().unwrap() > 0.0, "{}", outcome.show());
    let theirs = server.finish().expect_status(130).json();
    assert_eq!(document, theirs, "the server holds another document");
}

#[test]
fn ctrl_c_on_the_server_is_told_at_the_client() {
    let Some(lab) = Lab::get("ctrl_c_on_the_server_is_told_at_the_client") else { return };
    let port = port();
    let server = server_in_a(lab, &port, &[]);
    let client = start_client_in_b(lab, &port, LONG);
    await_traffic(lab, Vm::B);
    signal_in(lab, Vm::A, &port, "INT");
    client.finish().expect_status(4).expect_stderr(&["the server a could not go on: interrupted"]);
    server.finish().expect_status(130);
}

#[test]
fn a_refused_connection_and_a_host_that_is_not_there() {
    let Some(lab) = Lab::get("a_refused_connection_and_a_host_that_is_not_there") else { return };
    client_in_b(lab, &port(), &[])
        .expect_status(4)
        .expect_stderr(&["nothing listens at a (", "hint: start the server there first"]);
    // No such host in the lab's subnet: the kernel finds no neighbour.
    lab.run(Vm::B, &["write-bw", "-d", "rxe0", "10.77.0.99"])
        .expect_status(4)
        .expect_stderr(&["cannot reach 10.77.0.99:18515", "hint: "]);
}
