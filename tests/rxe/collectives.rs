//! `coll-perf` between the two VMs, a rank in each: over sockets and over Soft-RoCE.

use std::time::Instant;

use linkproof_tests::lab::{Fault, Lab, Outcome, Running, User, Vm};
use linkproof_tests::schema;
use serde_json::Value;

use crate::failures::{NOTICED_WITHIN, await_traffic, signal_tool};
use crate::port;

/// How a rank is told who it is.
#[derive(Clone, Copy)]
enum By {
    /// torchrun's variables.
    Variables,
    Options,
}

/// Starts both ranks, which meet at `port` of `a`, with the options in `line`: rank 0 in `a`, rank 1 in `b`.
fn start(lab: &Lab, by: By, port: &str, line: &str) -> [Running; 2] {
    [Vm::A, Vm::B].map(|vm| {
        let rank = u32::from(vm == Vm::B);
        let words = match by {
            By::Variables => format!(
                "env RANK={rank} WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT={port} coll-perf {line}"
            ),
            By::Options => {
                format!("coll-perf --rank {rank} --world-size 2 --rendezvous a:{port} {line}")
            }
        };
        lab.start(vm, User::Root, &words.split(' ').collect::<Vec<_>>())
    })
}

/// The same to their ends.
fn run(lab: &Lab, by: By, line: &str) -> [Outcome; 2] {
    start(lab, by, &port(), line).map(Running::finish)
}

#[track_caller]
fn all_right([first, second]: [Outcome; 2], transport: &str) -> Value {
    second.expect_status(0);
    let document = schema::parse(&first.expect_status(0).stdout);
    assert_eq!(document["backend"]["transport"], transport);
    let hosts = document["hosts"].as_array().expect("ranks").iter();
    let names: Vec<&str> = hosts.filter_map(|host| host["name"].as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    for row in document["results"].as_array().expect("results") {
        assert_eq!(row["wrong_elements"], 0, "{row}");
        assert!(row["checked_elements"].as_u64() > Some(0), "{row}");
    }
    document
}

const SMALL: &str = "--op alltoall,all_reduce -b 8 -e 128K -f 128 -n 3 -w 1 --rounds 2 --json";

#[test]
fn collectives_over_sockets_between_two_hosts_are_right() {
    let Some(lab) = Lab::get("collectives_over_sockets_between_two_hosts_are_right") else { return };
    for by in [By::Variables, By::Options] {
        all_right(run(lab, by, &format!("--backend host --transport tcp {SMALL}")), "tcp");
    }
}

#[test]
fn collectives_over_rdma_between_two_hosts_are_right_and_name_the_ports() {
    let Some(lab) = Lab::get("collectives_over_rdma_between_two_hosts_are_right_and_name_the_ports") else {
        return;
    };
    for by in [By::Variables, By::Options] {
        let line = format!("--transport rdma --ib-dev rxe0 {SMALL}");
        let document = all_right(run(lab, by, &line), "rdma");
        for (host, address) in
            document["hosts"].as_array().expect("ranks").iter().zip(["10.77.0.1", "10.77.0.2"])
        {
            let port = &host["port"];
            assert_eq!((&port["device"], &port["device_kind"]), (&"rxe0".into(), &"software".into()));
            assert_eq!(port["gids"][0]["gid"], format!("::ffff:{address}"), "{port}");
        }
    }
}

#[test]
fn every_collective_is_right_over_soft_roce() {
    let Some(lab) = Lab::get("every_collective_is_right_over_soft_roce") else { return };
    let line = "--transport rdma --op all -b 20K -e 20K -n 2 -w 1 --rounds 1 --json";
    let document = all_right(run(lab, By::Options, line), "rdma");
    assert_eq!(document["results"].as_array().map(Vec::len), Some(11 + 8));
}

#[test]
fn small_pieces_in_one_direction_wait_for_free_slots_over_soft_roce() {
    let Some(lab) = Lab::get("small_pieces_in_one_direction_wait_for_free_slots_over_soft_roce") else {
        return;
    };
    let line = "--transport rdma --op broadcast,sendrecv -b 4K -e 4K -n 3 -m 40 -w 1 --rounds 1 --json";
    all_right(run(lab, By::Options, line), "rdma");
}

/// Long enough that nothing but the fault ends it.
const LONG: &str = "--transport rdma --op alltoall -b 64K -e 64K -n 1000 --rounds 1000";

#[test]
fn a_rank_killed_on_the_other_host_is_named_within_seconds() {
    let Some(lab) = Lab::get("a_rank_killed_on_the_other_host_is_named_within_seconds") else { return };
    let port = port();
    let [first, second] = start(lab, By::Options, &port, LONG);
    await_traffic(lab, Vm::B);
    signal_tool(lab, Vm::B, &format!("a:{port} "), "KILL");
    let killed = Instant::now();
    let outcome = first.finish().expect_status(4).expect_stderr(&["rank 1 (host b, pid ", "is gone"]);
    assert!(killed.elapsed() < NOTICED_WITHIN, "after {:?}\n{}", killed.elapsed(), outcome.show());
    second.finish();
}

#[test]
fn a_path_that_drops_roce_is_told_by_both_ranks() {
    let Some(lab) = Lab::get("a_path_that_drops_roce_is_told_by_both_ranks") else { return };
    let ranks = start(lab, By::Options, &port(), LONG);
    await_traffic(lab, Vm::B);
    let fault = Fault::drop_roce(lab, Vm::A);
    let ended = ranks.map(|rank| rank.finish().expect_status(4));
    drop(fault);
    for outcome in ended {
        outcome.expect_stderr(&["RETRY_EXC_ERR (12)", "UDP port 4791"]);
    }
}
