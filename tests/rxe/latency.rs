//! write-lat between the VMs: numbers that are in order, over every size, and failures that are told.

use std::time::Instant;

use linkproof_tests::lab::{Lab, Outcome, Running, User, Vm};
use linkproof_tests::schema;
use serde_json::Value;

use crate::failures::{NOTICED_WITHIN, await_traffic, signal_in};
use crate::port;

fn server_in_a(lab: &Lab, port: &str) -> Running {
    lab.server(Vm::A, User::Root, &["write-lat", "-d", "rxe0", "-p", port])
}

fn client_in_b(lab: &Lab, port: &str, options: &[&str]) -> Outcome {
    let mut program = vec!["write-lat", "-d", "rxe0", "-p", port, "a"];
    program.extend(options);
    lab.run(Vm::B, &program)
}

fn figures_are_in_order(row: &Value) {
    let figure = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("no {name} in {row}"));
    let rising =
        ["t_min_usec", "t_typical_usec", "p99_usec", "p99_9_usec", "p99_99_usec", "t_max_usec"].map(figure);
    assert!(rising[0] > 0.0 && rising.is_sorted(), "{row}");
}

#[test]
fn half_round_trips_of_several_kinds_of_run() {
    let Some(lab) = Lab::get("half_round_trips_of_several_kinds_of_run") else { return };
    let port = port();
    let _server = server_in_a(lab, &port);
    let runs: [&[&str]; 4] = [
        &["-n", "20", "--json"],
        &["-s", "4K", "-n", "20", "--rounds", "1", "--warmup", "0", "--json"],
        &["-s", "8", "-I", "64", "-n", "20", "--rounds", "1", "--warmup", "0", "--json"],
        &["-D", "2", "--json"],
    ];
    for options in runs {
        let outcome = client_in_b(lab, &port, options).expect_status(0);
        let document = outcome.json();
        schema::validate(&document);
        figures_are_in_order(&document["results"][0]);
        let registered = document["memory"]["registration"].as_str().unwrap();
        assert!(
            registered.contains("strict ordering"),
            "the last byte may not overtake the others: {registered}"
        );
    }
}

#[test]
fn small_messages_go_inline_unless_told_otherwise() {
    let Some(lab) = Lab::get("small_messages_go_inline_unless_told_otherwise") else { return };
    let port = port();
    let _server = server_in_a(lab, &port);
    let granted = |options: &[&str]| {
        let options: Vec<&str> =
            [&["-n", "10", "--rounds", "1", "--warmup", "0", "-s", "220,221", "--json"], options].concat();
        let document = client_in_b(lab, &port, &options).expect_status(0).json();
        schema::validate(&document);
        let of = |end: &str| document["link"][end]["inline_bytes"].as_u64().unwrap();
        (document["plan"]["queue_pair"]["inline_fixed"] == true, of("client"), of("server"))
    };
    assert_eq!(granted(&[]), (false, 220, 220));
    assert_eq!(granted(&["-I", "64"]), (true, 64, 64));
    assert_eq!(granted(&["-I", "0"]), (true, 0, 0));
    client_in_b(lab, &port, &["-n", "10"]).expect_status(0).expect_stdout(&[", up to 220 B inline\n"]);
    client_in_b(lab, &port, &["-n", "10", "-I", "4096"]).expect_status(3).expect_stderr(&[
        "write-lat: --inline-size asks for 4096 bytes of inline data and rxe0 allows ",
        "hint: use --inline-size ",
    ]);
}

#[test]
fn every_message_is_looked_at_and_right() {
    let Some(lab) = Lab::get("every_message_is_looked_at_and_right") else { return };
    let port = port();
    let _server = server_in_a(lab, &port);
    // Inline and not; of one packet and of many; 260 wrap the number in the last byte around.
    let runs: [&[&str]; 3] = [
        &["-s", "1,2,64,1000", "-n", "260"],
        &["-s", "64", "-I", "0", "-n", "40"],
        &["-s", "64K", "-n", "20"],
    ];
    for options in runs {
        // Both ends in one VM: between two a round trip takes 20 ms.
        let mut program = vec!["write-lat", "-d", "rxe0", "-p", &port, "10.77.0.1", "--rounds", "2"];
        program.extend(options.iter().copied().chain(["--validate", "--json"]));
        let document = lab.run(Vm::A, &program).expect_status(0).json();
        schema::validate(&document);
        for row in document["results"].as_array().unwrap() {
            let bytes = |name: &str| row[name].as_u64().unwrap();
            let messages = 2 * 2 * bytes("iterations");
            assert_eq!((bytes("checked_bytes"), bytes("wrong_bytes")), (messages * bytes("size_bytes"), 0));
            figures_are_in_order(row);
        }
    }
}

#[test]
fn every_size_with_a_histogram() {
    let Some(lab) = Lab::get("every_size_with_a_histogram") else { return };
    let port = port();
    // Both ends in one VM: between two a round trip of 8 MiB takes the better part of a second.
    let _server = server_in_a(lab, &port);
    let options = ["-a", "-n", "2", "--rounds", "1", "--warmup", "0", "-H"];
    let program = [&["write-lat", "-d", "rxe0", "-p", &port, "10.77.0.1"][..], &options].concat();
    let outcome = lab.run(Vm::A, &program).expect_status(0);
    outcome.expect_stdout(&[
        "t_min[usec]  t_max[usec]  t_typical[usec]",
        "Half round trips at 2 B",
        "Half round trips at 8 MiB",
        "RDMA write latency over RC, half a round trip",
    ]);
}

#[test]
fn a_latency_server_that_is_killed_is_noticed() {
    let Some(lab) = Lab::get("a_latency_server_that_is_killed_is_noticed") else { return };
    let port = port();
    let _server = server_in_a(lab, &port);
    let client = lab.start(
        Vm::B,
        User::Root,
        &["write-lat", "-d", "rxe0", "-p", &port, "a", "-D", "90", "--rounds", "1"],
    );
    await_traffic(lab, Vm::B);
    signal_in(lab, Vm::A, &port, "KILL");
    let killed = Instant::now();
    let outcome = client.finish().expect_status(4).expect_stderr(&["the server a", "got so far: "]);
    assert!(killed.elapsed() < NOTICED_WITHIN, "noticed after {:?}\n{}", killed.elapsed(), outcome.show());
}
