//! Stories of the tools between two Soft-RoCE VMs: real verbs, real limits, real faults, no bounds on speed.
//!
//! Each test uses a control port of its own, so that a server that is still going down disturbs nobody. Tests
//! that change the network share two VMs, so they run one at a time (`--test-threads=1`, as `ci/test` has it).

mod addressing;
mod affinity;
mod check;
mod collectives;
mod failures;
mod faults;
mod imports;
mod intervals;
mod latency;
mod limits;
mod matrix;
mod measuring;
mod pace;
mod perftest;
mod queue_options;
mod threads;
mod trial;
mod use_cuda;
mod verbs_facts;

use std::sync::atomic::{AtomicU16, Ordering};

use linkproof_tests::lab::{Lab, Outcome, Running, User, Vm};

/// A control port that no other test of this process uses.
fn port() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(18600);
    NEXT.fetch_add(1, Ordering::Relaxed).to_string()
}

/// A server in `a` on a port of its own, as root, with `options` besides.
fn server_in_a(lab: &Lab, port: &str, options: &[&str]) -> Running {
    let mut program = vec!["write-bw", "-d", "rxe0", "-p", port];
    program.extend(options);
    lab.server(Vm::A, User::Root, &program)
}

/// A client in `b` against `a`.
fn client_in_b(lab: &Lab, port: &str, options: &[&str]) -> Outcome {
    let mut program = vec!["write-bw", "-d", "rxe0", "-p", port, "a"];
    program.extend(options);
    lab.run(Vm::B, &program)
}

/// The same, started and left running.
fn start_client_in_b(lab: &Lab, port: &str, options: &[&str]) -> Running {
    let mut program = vec!["write-bw", "-d", "rxe0", "-p", port, "a"];
    program.extend(options);
    lab.start(Vm::B, User::Root, &program)
}
