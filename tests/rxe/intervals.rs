//! Intervals between the VMs: a path that loses everything for a while shows, in the line of that moment and in the
//! result.

use std::time::Duration;

use linkproof_tests::lab::{Fault, Lab, Running, User, Vm};
use linkproof_tests::schema;

use crate::failures::signal_in;
use crate::{port, server_in_a, start_client_in_b};

/// How long the client may take until it has told of some intervals.
const TOLD_WITHIN: Duration = Duration::from_secs(40);

/// Waits until `client` has told of `count` intervals with a number of messages that `wanted` wants.
fn await_intervals(client: &mut Running, count: usize, wanted: fn(u64) -> bool) {
    client.await_stderr_that("intervals", TOLD_WITHIN, |stderr| {
        let below = stderr.lines().skip_while(|line| !line.contains("time[UTC]")).skip(1);
        let messages = below.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        messages.filter(|&messages| wanted(messages)).count() >= count
    });
}

#[test]
fn a_path_that_drops_roce_for_a_while_shows_in_its_intervals() {
    let Some(lab) = Lab::get("a_path_that_drops_roce_for_a_while_shows_in_its_intervals") else { return };
    let port = port();
    let server = server_in_a(lab, &port, &["--once", "--json"]);
    // Seven tries 1.07 s apart outlast the fault.
    let options = ["-s", "4K", "-t", "16", "-D", "20", "--rounds", "1", "--interval", "500ms", "--json"];
    let mut client = start_client_in_b(lab, &port, &options);
    await_intervals(&mut client, 4, |messages| messages > 0);
    let fault = Fault::drop_roce(lab, Vm::A);
    await_intervals(&mut client, 2, |messages| messages == 0);
    drop(fault);
    let outcome = client.finish().expect_status(0).expect_stderr(&["carried 0 % of what the others did"]);
    let document = outcome.json();
    schema::validate(&document);
    let intervals = &document["results"][0]["intervals"][0];
    assert_eq!(intervals["bw_min_mib_per_sec"], 0.0, "{}", outcome.show());
    assert!(intervals["bw_median_mib_per_sec"].as_f64().unwrap() > 0.0, "{}", outcome.show());
    assert!(intervals["slowest_at_seconds"].as_f64().unwrap() >= 1.0, "{}", outcome.show());
    assert_eq!(server.finish().expect_status(0).json(), document);
}

#[test]
fn a_latency_and_two_directions_are_cut_into_intervals_too() {
    let Some(lab) = Lab::get("a_latency_and_two_directions_are_cut_into_intervals_too") else { return };
    let long = ["-D", "4", "--rounds", "1", "--interval", "1s", "--json"];
    for (tool, options, directions) in
        [("write-lat", &[][..], 1), ("write-bw", &["-b", "-s", "4K", "-t", "16"][..], 2)]
    {
        let port = port();
        let _server = lab.server(Vm::A, User::Root, &[tool, "-d", "rxe0", "-p", &port]);
        let program = [&[tool, "-d", "rxe0", "-p", &port, "a"], &long[..], options].concat();
        let outcome = lab.run(Vm::B, &program).expect_status(0);
        let document = outcome.json();
        schema::validate(&document);
        let rounds = document["rounds"].as_array().unwrap();
        assert_eq!(rounds.len(), directions, "{}", outcome.show());
        for round in rounds {
            assert!(round["intervals"]["count"].as_u64().unwrap() >= 2, "{}", outcome.show());
        }
    }
}

#[test]
fn a_run_until_it_is_stopped_ends_well_on_both_ends() {
    let Some(lab) = Lab::get("a_run_until_it_is_stopped_ends_well_on_both_ends") else { return };
    let port = port();
    let server = server_in_a(lab, &port, &["--once", "--json"]);
    let options = ["--run-infinitely", "--interval", "500ms", "-s", "4K", "-t", "16", "-b", "--json"];
    let mut client = start_client_in_b(lab, &port, &options);
    client.await_documents(6, TOLD_WITHIN);
    signal_in(lab, Vm::B, &port, "INT");
    let outcome = client.finish().expect_status(0);
    let (intervals, document) = schema::parse_lines(&outcome.stdout);
    for direction in ["client_to_server", "server_to_client"] {
        assert!(intervals.iter().any(|interval| interval["direction"] == direction), "{}", outcome.show());
    }
    assert_eq!(document["verdict"]["ok"], true, "{}", outcome.show());
    assert_eq!(server.finish().expect_status(0).json(), document);
}
