//! How writes are posted, and what the queue pairs are told, over real verbs.

use linkproof_tests::lab::{Lab, PROGRAM_LIMIT, Vm};
use serde_json::Value;

use crate::{client_in_b, port, server_in_a, start_client_in_b};

fn document(lab: &Lab, port: &str, options: &[&str]) -> Value {
    let options: Vec<&str> = options.iter().copied().chain(["--json"]).collect();
    let document = client_in_b(lab, port, &options).expect_status(0).json();
    linkproof_tests::schema::validate(&document);
    document
}

#[test]
fn lists_and_signal_intervals_keep_the_data_right_to_the_last_write() {
    let Some(lab) = Lab::get("lists_and_signal_intervals_keep_the_data_right_to_the_last_write") else {
        return;
    };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    // 50 is no whole number of lists of 16: the last one is shorter.
    for options in [["-l", "16", "-Q", "32"], ["-l", "16", "-Q", "16"], ["-l", "2", "-Q", "128"]] {
        let rest = ["-n", "50", "-s", "64,4K", "-q", "2", "-b", "--validate", "--rounds", "2"];
        let options: Vec<&str> = options.into_iter().chain(rest).collect();
        let document = document(lab, &port, &options);
        for row in document["results"].as_array().unwrap() {
            assert_eq!((&row["iterations"], &row["wrong_bytes"]), (&100.into(), &0.into()), "{options:?}");
        }
        assert_eq!(document["plan"]["signal_every"].to_string(), options[3]);
    }
}

#[test]
fn small_writes_go_inline_and_larger_ones_do_not() {
    let Some(lab) = Lab::get("small_writes_go_inline_and_larger_ones_do_not") else { return };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    for list in ["1", "8"] {
        let options = ["-I", "128", "-l", list, "-s", "1,128,129", "-n", "64", "--validate", "--rounds", "2"];
        let document = document(lab, &port, &options);
        let rows = document["results"].as_array().unwrap();
        assert!(rows.iter().all(|row| row["wrong_bytes"] == 0 && row["iterations"] == 64), "{rows:?}");
    }
}

#[test]
fn more_inline_data_than_the_device_takes_is_refused_with_its_limit() {
    let Some(lab) = Lab::get("more_inline_data_than_the_device_takes_is_refused_with_its_limit") else {
        return;
    };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    let refused = client_in_b(lab, &port, &["-I", "4096", "-n", "5"]).expect_status(3).expect_stderr(&[
        "write-bw: --inline-size asks for 4096 bytes of inline data and rxe0 allows ",
        "hint: use --inline-size ",
    ]);
    let limit = refused.stderr.split("rxe0 allows ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
    client_in_b(lab, &port, &["-I", limit, "-s", limit, "-n", "5", "--validate"]).expect_status(0);
}

#[test]
fn what_the_queue_pairs_are_told_is_in_the_header_and_on_the_wire() {
    let Some(lab) = Lab::get("what_the_queue_pairs_are_told_is_in_the_header_and_on_the_wire") else {
        return;
    };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    // Counts the packets that arrive with DSCP 26; traffic class 104 is DSCP 26 without ECN bits.
    let table = "nft add table ip dscp; nft add chain ip dscp in '{ type filter hook prerouting priority 0; }'; \
                 nft add rule ip dscp in ip dscp 26 udp dport 4791 counter";
    lab.run(Vm::A, &["sh", "-c", table]).expect_status(0);
    let run = client_in_b(
        lab,
        &port,
        &["--tclass", "104", "-S", "2", "-u", "17", "--retry-count", "3", "-n", "50"],
    );
    let counted = lab.run(Vm::A, &["nft", "list", "table", "ip", "dscp"]);
    lab.run(Vm::A, &["nft", "delete", "table", "ip", "dscp"]).expect_status(0);
    run.expect_status(0).expect_stdout(&[
        "QP options   : service level 2, traffic class 104 (DSCP 26), acknowledgement timeout 17 (0.537 s), 3 retries",
    ]);
    assert!(!counted.stdout.contains("packets 0 "), "no packet had the traffic class:\n{}", counted.show());
    assert!(counted.stdout.contains("packets"), "{}", counted.show());
}

#[test]
fn each_queue_pair_can_have_a_memory_region_of_its_own() {
    let Some(lab) = Lab::get("each_queue_pair_can_have_a_memory_region_of_its_own") else { return };
    let port = port();
    let mut server = server_in_a(lab, &port, &["--json"]);
    let options = ["--mr_per_qp", "-q", "3", "-b", "-s", "64,8K", "-n", "40", "--validate", "--rounds", "1"];
    let document = document(lab, &port, &options);
    for row in document["results"].as_array().unwrap() {
        assert_eq!((&row["iterations"], &row["wrong_bytes"]), (&120.into(), &0.into()), "{row}");
    }
    assert_eq!((&document["plan"]["mr_per_qp"], &document["memory"]["regions"]), (&true.into(), &3.into()));
    assert_eq!(server.await_documents(1, PROGRAM_LIMIT), [document]);

    // The kernel shows how many there are while a run is under way; without the option it is one on each end.
    let in_use = |options: &[&str]| {
        let port = crate::port();
        let server = server_in_a(lab, &port, &["--once"]);
        let long = ["-q", "3", "-D", "60", "--rounds", "1"];
        let client = start_client_in_b(lab, &port, &[options, &long].concat());
        let regions = || lab.shell(Vm::B, "rdma resource show mr | grep -c 'comm write-bw' || true");
        let connected =
            || lab.shell(Vm::B, "rdma resource show qp | grep -c 'state RTS.*comm write-bw' || true");
        let deadline = std::time::Instant::now() + PROGRAM_LIMIT;
        while connected().trim() != "3" {
            assert!(std::time::Instant::now() < deadline, "no 3 queue pairs come into RTS");
        }
        let regions = regions();
        drop(client);
        server.finish();
        regions.trim().to_owned()
    };
    assert_eq!((in_use(&["--mr-per-qp"]).as_str(), in_use(&[]).as_str()), ("3", "1"));
}
