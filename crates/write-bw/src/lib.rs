//! `write-bw`: RDMA write bandwidth between two hosts.
//!
//! Without a host it is the server, which takes no test options and serves client after client. With one it is
//! the client, which makes the plan, measures, and gives both ends the same result.
//!
//! A library, so that other tools can read this one's command line as it would itself.

pub mod args;
mod gate;
mod lane;
mod pace;
mod window;
mod write;

use std::process::ExitCode;

use linkproof_common::args::{Parsed, TransferArgs, given_of};
use linkproof_common::conduct::{self, Tool, client, server};
use linkproof_common::error::ExitStatus;
use linkproof_common::report::Output;

use crate::args::Args;
use crate::write::WriteBw;

/// Runs the tool with the command line of this process.
pub fn main() -> ExitCode {
    conduct::main::<WriteBw, Args>(run)
}

fn run(parsed: &Parsed<Args>) -> ExitStatus {
    let args = &parsed.args;
    let ends = args.ends();
    if !args.arms.arm.is_empty() {
        let rounds = parsed.given.iter().any(|given| given == "rounds").then_some(args.transfer.rounds);
        return linkproof_arms::link::run::<WriteBw>(&args.arms, &args.peer, &args.output, rounds);
    }
    let mut tool = WriteBw::default();
    let plan = args.transfer.plan(WriteBw::NAME, ends.transport());
    match &args.peer.host {
        Some(host) => {
            let output = Output::of_client(WriteBw::NAME, &args.output, &args.transfer.long);
            client::run(&mut tool, ends, host, plan, &output)
        }
        None => server::run(&mut tool, ends, &given_of::<TransferArgs>(&parsed.given), plan, &args.output),
    }
}
