//! The blind trial: ten reports drawn from `docs/failure-cases.md` by a fixed seed, each set up between the two VMs and met with
//! the command of a user who knows nothing of it. `benches/results/2026-11-30-blind-trial.md` has the draw, what was said at the
//! first time, and what was changed for it; here is what has to stay so
//! (`2026-12-01-blind-trial.md` has the second time). Of the tenth the rounds that are short are in `tests/soft/trial.rs`.

use linkproof_tests::lab::{Lab, Outcome, User, Vm};
use linkproof_tests::schema;
use serde_json::Value;

use crate::faults::{fault, run_under};
use crate::{port, server_in_a};

/// A report, how its cause is set up, and how a user meets it in `b`.
struct Report {
    reported_in: &'static str,
    script: &'static str,
    vm: Vm,
    /// The options of the server in `a`; `None` where nobody serves.
    server: Option<&'static [&'static str]>,
    user: User,
    /// The client's program and options, but for the port and the host.
    command: &'static str,
    status: i32,
    /// Codes of which one has to stand first among failures, warnings or findings.
    named: &'static [&'static str],
    /// Words of the remedy.
    remedy: &'static str,
}

const REPORT: Report = Report {
    reported_in: "",
    script: fault!("nothing"),
    vm: Vm::B,
    server: Some(&[]),
    user: User::Root,
    command: "",
    status: 4,
    named: &[],
    remedy: "",
};

const REPORTS: &[Report] = &[
    Report {
        reported_in: "NVIDIA/nccl-tests#185",
        script: fault!("no-route"),
        server: Some(&["-x", "2"]),
        command: "write-bw -x 2 -n 5",
        named: &["qp-transition"],
        remedy: "ip route get fd77::1",
        ..REPORT
    },
    Report {
        reported_in: "tarickb/the-geek-in-the-corner#6",
        user: User::Nobody { memlock: 128 << 10 },
        command: "write-bw -s 1M -n 5",
        status: 3,
        named: &["memlock"],
        remedy: "have an administrator raise the limit",
        ..REPORT
    },
    Report {
        reported_in: "NVIDIA/nccl#1131",
        script: fault!("second-adapter"),
        command: "rdma-check --strict",
        status: 1,
        named: &["same-subnet"],
        remedy: "a subnet for each rail",
        ..REPORT
    },
    Report {
        reported_in: "openucx/ucx#10996",
        script: fault!("lossy-path"),
        command: "write-bw -n 100",
        // Which of them is chance: how often the same packets are lost.
        named: &["stalled", "completion"],
        remedy: "lost",
        ..REPORT
    },
    Report {
        reported_in: "Mellanox/k8s-rdma-shared-dev-plugin#106",
        script: fault!("provider-missing"),
        command: "rdma-check",
        status: 3,
        named: &["device-unusable"],
        remedy: "the provider for the adapter is installed and not older than the kernel",
        ..REPORT
    },
    Report {
        reported_in: "NVIDIA/nccl#426",
        script: fault!("roce-over-ipv4-dropped"),
        vm: Vm::A,
        command: "write-bw -n 5 -u 12 --retry-count 1",
        named: &["completion"],
        remedy: "-x 2 on the client makes it IPv6",
        ..REPORT
    },
    Report {
        reported_in: "linux-rdma/perftest#228",
        server: None,
        command: "write-bw -n 5",
        named: &["connection-refused"],
        remedy: "start the server there first",
        ..REPORT
    },
    // A message takes 7 ms between two emulated machines: ten are no short round.
    Report {
        reported_in: "linux-rdma/perftest#318",
        command: "write-bw -n 10",
        status: 0,
        named: &["few-messages", "short-rounds"],
        remedy: "-n",
        ..REPORT
    },
    Report {
        reported_in: "linux-rdma/perftest#214",
        script: fault!("flapping"),
        vm: Vm::A,
        command: "write-bw -D 5 --rounds 1 --warmup 0",
        status: 0,
        named: &["counters-moved"],
        remedy: "--interval",
        ..REPORT
    },
];

/// The first thing that is said, of failures, else warnings, else findings, and its remedy.
fn said(document: &Value) -> (String, String) {
    let lists = [("/verdict/failures", "hint"), ("/warnings", "hint"), ("/findings", "remedy")];
    let of_list = |(list, remedy): (&str, &str)| {
        let first =
            document.pointer(list)?.as_array()?.iter().find(|said| said["code"] != "software-device")?;
        let word = |key: &str| first[key].as_str().unwrap_or_default().to_owned();
        Some((word("code"), word(remedy)))
    };
    lists.into_iter().find_map(of_list).unwrap_or_default()
}

fn meet(lab: &Lab, report: &Report) -> Outcome {
    let port = port();
    let _server = report.server.map(|options| server_in_a(lab, &port, options));
    let mut program: Vec<&str> = report.command.split(' ').chain(["--json"]).collect();
    if program[0] != "rdma-check" {
        program.extend(["-p", &port, "a"]);
    }
    run_under(lab, report.vm, report.script, report.user, &program)
}

#[test]
fn the_cause_of_each_report_is_named_first_with_the_way_out() {
    let Some(lab) = Lab::get("the_cause_of_each_report_is_named_first_with_the_way_out") else { return };
    for report in REPORTS {
        let outcome = meet(lab, report);
        let shown = format!("{}\n{}", report.reported_in, outcome.show());
        let is_look = report.command.starts_with("rdma-check");
        let document = if is_look { schema::check(&outcome.stdout) } else { schema::parse(&outcome.stdout) };
        let (code, remedy) = said(&document);
        assert_eq!(outcome.status, report.status, "{shown}");
        assert!(report.named.contains(&code.as_str()), "{code}: {shown}");
        assert!(remedy.contains(report.remedy), "{remedy}: {shown}");
    }
}

/// linux-rdma/perftest#240: with the connection manager another adapter was taken, one with a slower link.
#[test]
fn another_adapter_is_not_taken_and_the_connection_manager_is_refused() {
    let Some(lab) = Lab::get("another_adapter_is_not_taken_and_the_connection_manager_is_refused") else {
        return;
    };
    let report = Report { script: fault!("other-adapter"), command: "write-bw -n 5", ..REPORT };
    let document = schema::parse(&meet(lab, &report).expect_status(0).stdout);
    assert_eq!(document["link"]["client"]["device"], "rxe0");
    lab.run(Vm::B, &["write-bw", "-R", "a"]).expect_status(2).expect_stderr(&["rdma_cm is not supported"]);
}

/// The same path as in linux-rdma/perftest#214, looked at as the warning says.
#[test]
fn a_path_that_is_gone_for_a_while_shows_in_its_intervals() {
    let Some(lab) = Lab::get("a_path_that_is_gone_for_a_while_shows_in_its_intervals") else { return };
    // The queue holds more than an interval: what is missing shows over several in a row.
    let command = "write-bw -D 8 --rounds 1 --warmup 0 --interval 100ms -t 16";
    let outcome = meet(lab, &Report { script: fault!("flapping"), vm: Vm::A, command, ..REPORT });
    let document = schema::parse(&outcome.stdout);
    let warnings = document["warnings"].as_array().expect("a list");
    let slow = warnings.iter().find(|warning| warning["code"] == "slow-intervals");
    let seen =
        slow.and_then(|warning| warning["seen"].as_str()).unwrap_or_else(|| panic!("{}", outcome.show()));
    assert!(seen.contains("intervals in a row"), "{seen}");
}
