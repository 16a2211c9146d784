//! `write-lat`: RDMA write latency between two hosts.
//!
//! Without a host it is the server, which answers every message; with one it is the client, which decides everything
//! and takes the time. What is shown is half a round trip.
//!
//! A library, so that other tools can read this one's command line as it would itself.

pub mod args;
mod latency;
mod pingpong;

use std::process::ExitCode;

use linkproof_common::args::{Parsed, given_of};
use linkproof_common::conduct::{self, Tool, client, server};
use linkproof_common::error::ExitStatus;
use linkproof_common::report::Output;

use crate::args::{Args, LatencyArgs};
use crate::latency::WriteLat;

/// Runs the tool with the command line of this process.
pub fn main() -> ExitCode {
    conduct::main::<WriteLat, Args>(run)
}

fn run(parsed: &Parsed<Args>) -> ExitStatus {
    let args = &parsed.args;
    let ends = args.ends();
    if !args.arms.arm.is_empty() {
        let rounds = parsed.given.iter().any(|given| given == "rounds").then_some(args.latency.rounds);
        return linkproof_arms::link::run::<WriteLat>(&args.arms, &args.peer, &args.output, rounds);
    }
    let Some(host) = &args.peer.host else {
        return server::run(
            &mut WriteLat::new(),
            ends,
            &given_of::<LatencyArgs>(&parsed.given),
            args.latency.plan(ends.transport()),
            &args.output,
        );
    };
    let output = Output::of_client(WriteLat::NAME, &args.output, &args.latency.long);
    let output = if args.latency.histogram { output.with_histograms() } else { output };
    match WriteLat::new().writing_samples_to(args.latency.raw_samples.as_deref()) {
        Ok(mut tool) => client::run(&mut tool, ends, host, args.latency.plan(ends.transport()), &output),
        Err(error) => conduct::fail::<WriteLat>(error, &output),
    }
}
