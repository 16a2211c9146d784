//! What a run shows: the table, the document, the data checked, one server for all.

use std::time::Duration;

use linkproof_tests::lab::{Lab, Outcome, User, Vm};
use linkproof_tests::schema;
use serde_json::Value;

use crate::{client_in_b, port, server_in_a};

/// The rows of the table: those that begin with a number.
fn rows(outcome: &Outcome) -> Vec<Vec<String>> {
    let is_row = |fields: &Vec<String>| fields.first().is_some_and(|field| field.parse::<u64>().is_ok());
    let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    outcome.stdout.lines().map(fields).filter(is_row).collect()
}

#[test]
fn the_table_has_perftests_columns_and_the_header_names_the_path() {
    let Some(lab) = Lab::get("the_table_has_perftests_columns_and_the_header_names_the_path") else { return };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    let outcome = client_in_b(lab, &port, &["-n", "50"]).expect_status(0).expect_stdout(&[
        "#bytes     #iterations  BW peak[MiB/sec]   BW average[MiB/sec]   MsgRate[Mpps]",
        "rxe0 (software: rxe) port 1, Ethernet",
        "GID 1 ::ffff:10.77.0.2 (RoCE v2, eth1), QP 0x0",
        "GID choice   : RoCE v2, IPv4-mapped: the ends share its subnet",
        "Path MTU     : 1024 B",
        "Data         : not checked",
    ]);
    let rows = rows(&outcome);
    assert_eq!(rows.len(), 1, "{}", outcome.show());
    assert_eq!(rows[0][..2], ["65536", "50"], "{}", outcome.show());
    let average: f64 = rows[0][3].parse().unwrap();
    let message_rate: f64 = rows[0][4].parse().unwrap();
    assert!(
        average > 0.0 && (average - message_rate * 1e6 * 65536.0 / 1_048_576.0).abs() < 0.1,
        "{}",
        outcome.show()
    );
    outcome.expect_stderr(&["emulated in software (rxe)"]);
}

#[test]
fn all_sizes_from_2_bytes_to_8_mib() {
    let Some(lab) = Lab::get("all_sizes_from_2_bytes_to_8_mib") else { return };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    let options = ["-a", "-n", "2", "--rounds", "1", "--warmup", "0", "--validate"];
    let outcome = client_in_b(lab, &port, &options).expect_status(0);
    let sizes: Vec<u64> = rows(&outcome).iter().map(|row| row[0].parse().unwrap()).collect();
    assert_eq!(sizes, (1..=23).map(|power| 1 << power).collect::<Vec<u64>>(), "{}", outcome.show());
}

/// The document of a run, checked against the schema and for what every good run has.
fn good_document(outcome: &Outcome) -> Value {
    let document = outcome.json();
    schema::validate(&document);
    assert_eq!(document["verdict"]["ok"], true, "{}", outcome.show());
    assert_eq!(document["link"]["transport"], "rdma", "{}", outcome.show());
    document
}

#[test]
fn one_server_serves_them_all_and_both_ends_hold_the_same_document() {
    let Some(lab) = Lab::get("one_server_serves_them_all_and_both_ends_hold_the_same_document") else {
        return;
    };
    let port = port();
    let mut server = server_in_a(lab, &port, &["--json"]);
    let runs: [&[&str]; 4] = [
        &["-n", "20", "--json"],
        &["-b", "-s", "4K", "-n", "40", "--validate", "--json"],
        &["-q", "4", "-s", "4K", "-n", "40", "--validate", "--json"],
        &["-D", "1.5", "-s", "4K", "-t", "16", "--validate", "--json"],
    ];
    for (number, options) in runs.iter().enumerate() {
        let outcome = client_in_b(lab, &port, options).expect_status(0);
        let ours = good_document(&outcome);
        let theirs = server.await_documents(number + 1, Duration::from_secs(20)).pop().unwrap();
        assert_eq!(ours, theirs, "the two ends of {options:?} hold different documents");
    }
    let documents = server.await_documents(4, Duration::from_secs(1));
    assert_eq!(documents[1]["plan"]["traffic"], "bidirectional");
    assert_eq!(documents[1]["rounds"].as_array().unwrap().len(), 6, "three rounds of two directions");
    // Three rounds, two directions, one slot of 4 KiB.
    assert_eq!(documents[1]["results"][0]["checked_bytes"], 3 * 2 * 4096);
    assert_eq!(documents[2]["link"]["client"]["qpns"].as_array().unwrap().len(), 4);
    assert_eq!(documents[2]["results"][0]["iterations"], 4 * 40);
    assert_eq!(documents[2]["results"][0]["checked_bytes"], 3 * 4 * 4096);
    assert_eq!(documents[3]["results"][0]["wrong_bytes"], 0);
}

#[test]
fn the_adapters_own_counters_prove_that_packets_went() {
    let Some(lab) = Lab::get("the_adapters_own_counters_prove_that_packets_went") else { return };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    let options = ["-s", "4K", "-n", "25", "--warmup", "0", "--rounds", "2", "--json"];
    let document = good_document(&client_in_b(lab, &port, &options).expect_status(0));
    for (end, counter) in [(0, "sent_pkts"), (1, "rcvd_pkts")] {
        let evidence = &document["evidence"][end];
        // 50 messages of four packets of 1024 bytes; retransmissions may add to them.
        assert!(evidence["moved"][counter].as_u64().unwrap() >= 200, "{evidence}");
    }
}

#[test]
fn an_rdma_server_serves_tcp_clients_too() {
    let Some(lab) = Lab::get("an_rdma_server_serves_tcp_clients_too") else { return };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    let outcome = client_in_b(lab, &port, &["--transport", "tcp", "-n", "20", "--validate"]).expect_status(0);
    outcome.expect_stdout(&["over TCP", "196608 bytes checked by the target, all as sent"]);
    client_in_b(lab, &port, &["-n", "5"]).expect_status(0).expect_stdout(&["over RC"]);
}

#[test]
fn both_ends_in_one_vm_and_without_naming_the_device() {
    let Some(lab) = Lab::get("both_ends_in_one_vm_and_without_naming_the_device") else { return };
    let port = port();
    let mut server = lab.server(Vm::A, User::Root, &["write-bw", "-p", &port, "--once"]);
    server.await_stderr("with rxe0 port 1", Duration::from_secs(1));
    lab.run(Vm::A, &["write-bw", "-p", &port, "10.77.0.1", "-n", "20", "--validate"]).expect_status(0);
    server.finish().expect_status(0).expect_stdout(&["65536      20"]);
}

#[test]
fn nothing_is_left_behind_when_clients_have_gone() {
    let Some(lab) = Lab::get("nothing_is_left_behind_when_clients_have_gone") else { return };
    let port = port();
    // The adapter's own objects (one queue pair and more, held by the kernel) are there without any program.
    let objects = || lab.shell(Vm::A, "rdma resource show");
    let before = objects();
    let _server = server_in_a(lab, &port, &[]);
    for _ in 0..2 {
        client_in_b(lab, &port, &["-q", "8", "-n", "5", "-s", "1K"]).expect_status(0);
    }
    assert_eq!(objects(), before, "the server holds resources of clients that have gone");
}
