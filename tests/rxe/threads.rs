//! Several posting threads over real verbs, each with queue pairs and a completion queue of its own.

use std::collections::BTreeSet;

use linkproof_tests::lab::{Fault, Lab, Vm};
use linkproof_tests::schema;

use crate::failures::{await_traffic, signal_in};
use crate::{client_in_b, port, server_in_a, start_client_in_b};

#[test]
fn the_data_of_all_threads_of_both_ends_is_right() {
    let Some(lab) = Lab::get("the_data_of_all_threads_of_both_ends_is_right") else { return };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    for options in [["-s", "64,4K", "-l", "1"], ["-s", "64,4K", "-l", "16"]] {
        let rest = ["-q", "8", "--threads", "4", "-b", "-n", "50", "--rounds", "2", "--validate", "--json"];
        let options: Vec<&str> = options.into_iter().chain(rest).collect();
        let document = client_in_b(lab, &port, &options).expect_status(0).json();
        schema::validate(&document);
        assert_eq!(document["plan"]["threads"], 4);
        for row in document["results"].as_array().expect("rows") {
            assert_eq!((&row["iterations"], &row["wrong_bytes"]), (&400.into(), &0.into()), "{row}");
        }
    }
}

#[test]
fn a_write_that_fails_in_one_thread_ends_all_and_is_told_once_with_its_queue_pair() {
    let Some(lab) =
        Lab::get("a_write_that_fails_in_one_thread_ends_all_and_is_told_once_with_its_queue_pair")
    else {
        return;
    };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    let options =
        ["-s", "4K", "-D", "90", "--rounds", "1", "-t", "16", "-q", "4", "--threads", "2", "--json"];
    // By default giving up takes 7 s.
    let options = [&options[..], &["-u", "15", "--retry-count", "3"]].concat();
    let client = start_client_in_b(lab, &port, &options);
    await_traffic(lab, Vm::B);
    let fault = Fault::drop_roce(lab, Vm::A);
    let outcome = client.finish().expect_status(4).expect_stderr(&["got so far: round 1 of 1 at 4 KiB: "]);
    drop(fault);
    let document = outcome.json();
    let failures = document["verdict"]["failures"].as_array().expect("failures");
    assert_eq!(failures.len(), 1, "{}", outcome.show());
    let what = failures[0]["what"].as_str().expect("words");
    assert!(what.contains("RETRY_EXC_ERR (12)"), "{what}");
    let qpns = document["link"]["client"]["qpns"].as_array().expect("queue pairs");
    let named = qpns.iter().filter(|qpn| what.contains(&format!("on QP 0x{:06x} ", qpn.as_u64().unwrap())));
    assert_eq!(named.count(), 1, "{what}, of {qpns:?}");
}

#[test]
fn each_thread_has_a_core_of_the_list() {
    let Some(lab) = Lab::get("each_thread_has_a_core_of_the_list") else { return };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    let options = ["-s", "4K", "-D", "60", "--rounds", "1", "-q", "2", "--threads", "2", "--cores", "1,0"];
    let client = start_client_in_b(lab, &port, &options);
    await_traffic(lab, Vm::B);
    let script = "cd /proc/$(pidof write-bw); for t in task/*; do \
                  echo $(cat $t/comm) $(sed -n 's/^Cpus_allowed_list://p' $t/status); done";
    let threads = lab.shell(Vm::B, script);
    let threads: BTreeSet<&str> = threads.lines().collect();
    // In good order: packets of a killed client may still be on their way to the next one's queue pairs.
    signal_in(lab, Vm::B, &port, "INT");
    client.finish().expect_status(130);
    assert!(threads.contains("post 0 1") && threads.contains("post 1 0"), "{threads:?}");
}
