//! `rdma-check` in the lab, and faults that are set up behind its back: the right cause stands first. What is compared is
//! the exit status and the code, which are for programs, and not the words.

use linkproof_tests::lab::{Lab, Outcome, User, Vm};
use linkproof_tests::schema;
use serde_json::Value;

use crate::faults::{Fault, fault, run_under};
use crate::{port, server_in_a};

/// Nobody, with room for whatever a test measures.
const NOBODY: User = User::Nobody { memlock: 64 << 20 };

fn look(lab: &Lab, user: User, program: &[&str]) -> Outcome {
    lab.run_as(Vm::B, user, program)
}

/// The codes of what is worse than a note, in their order.
fn troubles(document: &Value) -> Vec<String> {
    let findings = document["findings"].as_array().expect("a list").iter();
    let bad = findings.filter(|finding| ["warning", "unfit"].iter().any(|word| finding["severity"] == *word));
    bad.filter_map(|finding| finding["code"].as_str().map(str::to_owned)).collect()
}

#[test]
fn a_sound_vm_is_fit_in_every_view_for_root_and_for_nobody() {
    let Some(lab) = Lab::get("a_sound_vm_is_fit_in_every_view_for_root_and_for_nobody") else { return };
    for view in [None, Some("gids"), Some("topo"), Some("limits"), Some("counters")] {
        let program: Vec<&str> = ["rdma-check", "--json"].into_iter().chain(view).collect();
        let outcome = look(lab, NOBODY, &program).expect_status(0);
        let document = schema::check(&outcome.stdout);
        assert_eq!(troubles(&document), Vec::<String>::new(), "{}", outcome.show());
    }
    let document = schema::check(&look(lab, User::Root, &["rdma-check", "--json"]).expect_status(0).stdout);
    let device = &document["node"]["devices"][0];
    let port = &device["ports"][0];
    assert_eq!((&device["name"], &device["software"]), (&Value::from("rxe0"), &Value::from("rxe")));
    // What the tools choose in this lab: the IPv4 address.
    assert_eq!(port["chosen_gid"]["index"], Value::from(1));
    assert_eq!((&port["state"], &port["active_mtu_bytes"]), (&Value::from("ACTIVE"), &Value::from(1024)));
    assert!(device["limits"]["max_qp"].as_u64() > Some(0), "{document}");
}

#[test]
fn the_choice_is_what_a_run_then_uses() {
    let Some(lab) = Lab::get("the_choice_is_what_a_run_then_uses") else { return };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    let command = format!("write-bw -d rxe0 -p {port} -n 5 a");
    let asked = look(lab, User::Root, &["rdma-check", "--json", "--for", &command]).expect_status(0);
    let program: Vec<&str> = command.split(' ').chain(["--json"]).collect();
    let run = look(lab, User::Root, &program).expect_status(0).json();
    let predicted = schema::check(&asked.stdout)["run"].clone();
    assert_eq!(predicted["gid_index"], run["link"]["client"]["gid"]["index"]);
    assert_eq!(predicted["device"], run["link"]["client"]["device"]);
}

/// A fault, who looks with which command, and what has to come of it.
struct Case {
    script: &'static str,
    vm: Vm,
    user: User,
    command: &'static [&'static str],
    status: i32,
    code: &'static str,
}

const LOOK: &[&str] = &["rdma-check", "--json"];

const CASES: &[Case] = &[
    Case {
        script: fault!("link-down"),
        vm: Vm::B,
        user: User::Root,
        command: LOOK,
        status: 3,
        code: "port-not-active",
    },
    Case {
        script: fault!("no-address"),
        vm: Vm::B,
        user: User::Root,
        command: &["rdma-check", "--json", "--strict"],
        status: 1,
        code: "link-local-only",
    },
    Case {
        script: fault!("node-closed"),
        vm: Vm::B,
        user: NOBODY,
        command: LOOK,
        status: 3,
        code: "device-node-closed",
    },
    Case {
        script: fault!("node-missing"),
        vm: Vm::B,
        user: User::Root,
        command: LOOK,
        status: 3,
        code: "device-node-missing",
    },
    Case {
        script: fault!("second-adapter"),
        vm: Vm::B,
        user: User::Root,
        command: &["rdma-check", "--json", "--strict"],
        status: 1,
        code: "same-subnet",
    },
    Case {
        script: fault!("nothing"),
        vm: Vm::B,
        user: User::Nobody { memlock: 32768 },
        command: LOOK,
        status: 3,
        code: "memlock-low",
    },
    Case {
        script: fault!("nothing"),
        vm: Vm::B,
        user: User::Nobody { memlock: 65536 },
        command: &["rdma-check", "--json", "--for", "write-bw -d rxe0 -s 1M a"],
        status: 3,
        code: "run-would-fail",
    },
    Case {
        script: fault!("nothing"),
        vm: Vm::B,
        user: User::Root,
        command: &["env", "LINKPROOF_IBVERBS=/does/not/exist.so", "rdma-check", "--json"],
        status: 3,
        code: "library-missing",
    },
    Case {
        script: fault!("nothing"),
        vm: Vm::B,
        user: User::Root,
        command: &["env", "NCCL_IB_HCA=mlx5", "rdma-check", "--json", "--strict"],
        status: 1,
        code: "nccl-ib-hca",
    },
    Case {
        script: fault!("nothing"),
        vm: Vm::B,
        user: User::Root,
        command: &["env", "NCCL_IB_GID_INDEX=9", "rdma-check", "--json", "--strict"],
        status: 1,
        code: "nccl-gid-index",
    },
    Case {
        script: fault!("nothing"),
        vm: Vm::B,
        user: User::Root,
        command: &["rdma-check", "--json", "--for", "write-bw -d rxe0 -x 9 a"],
        status: 3,
        code: "run-would-fail",
    },
];

#[test]
fn faults_are_diagnosed_with_the_right_cause_first() {
    let Some(lab) = Lab::get("faults_are_diagnosed_with_the_right_cause_first") else { return };
    for case in CASES {
        let outcome =
            run_under(lab, case.vm, case.script, case.user, case.command).expect_status(case.status);
        let found = troubles(&schema::check(&outcome.stdout));
        assert_eq!(found.first().map(String::as_str), Some(case.code), "{}", outcome.show());
    }
    // All is undone.
    look(lab, User::Root, LOOK).expect_status(0);
}

#[test]
fn a_failing_tool_names_the_cause_of_what_no_node_shows() {
    let Some(lab) = Lab::get("a_failing_tool_names_the_cause_of_what_no_node_shows") else { return };
    let failure = |outcome: &Outcome| outcome.json()["verdict"]["failures"][0]["code"].clone();
    let port = port();
    let program = ["write-bw", "-d", "rxe0", "-p", &port, "-n", "5", "--json", "a"];
    assert_eq!(failure(&look(lab, User::Root, &program).expect_status(4)), "connection-refused");
    let _server = server_in_a(lab, &port, &[]);
    let _fault = Fault::set_up(lab, Vm::A, fault!("roce-dropped"));
    let program: Vec<&str> = program.iter().copied().chain(["-u", "8", "--retry-count", "1"]).collect();
    assert_eq!(failure(&look(lab, User::Root, &program).expect_status(4)), "completion");
}

#[test]
fn both_ends_are_set_side_by_side() {
    let Some(lab) = Lab::get("both_ends_are_set_side_by_side") else { return };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    let program = ["rdma-check", "--peer", "a", "-p", &port, "--strict", "--json"];
    let document = schema::check(&look(lab, User::Root, &program).expect_status(0).stdout);
    let findings = document["findings"].as_array().expect("a list");
    let fits = findings.iter().find(|finding| finding["code"] == "peer-fits").expect("the ends fit");
    assert_eq!(fits["on"], serde_json::json!(["b rxe0 port 1", "a rxe0 port 1"]));
    let outcome = run_under(lab, Vm::B, fault!("larger-mtu"), User::Root, &program).expect_status(1);
    assert_eq!(troubles(&schema::check(&outcome.stdout)), ["peer-mtu-differs"], "{}", outcome.show());
}
