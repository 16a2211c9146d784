//! `write-lat`: RDMA write latency between two hosts.
//!
//! Without a host it is the server, which answers every message; with one it is the client, which decides everything
//! and takes the time. What is shown is half a round trip.

mod args;
mod latency;
mod pingpong;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use linkproof_common::args::{Parse, Parsed, given_of, parse};
use linkproof_common::conduct::{Tool, client, server};
use linkproof_common::error::{Error, ExitStatus};
use linkproof_common::interrupt;
use linkproof_common::report::{Document, Layout, Output};

use crate::args::{Args, LatencyArgs};
use crate::latency::WriteLat;

fn main() -> ExitCode {
    interrupt::install();
    let argv: Vec<OsString> = std::env::args_os().collect();
    let status = match parse::<Args>(argv.clone()) {
        Ok(Parse::Run(parsed)) => run(&parsed),
        Ok(Parse::Text(text)) => print_text(&text),
        Err(error) => failed(error, &Output::for_unparsed(WriteLat::NAME, &argv)),
    };
    ExitCode::from(status as u8)
}

fn run(parsed: &Parsed<Args>) -> ExitStatus {
    let args = &parsed.args;
    let ends = args.ends();
    let Some(host) = &args.peer.host else {
        return server::run(
            &mut WriteLat::new(),
            ends,
            &given_of::<LatencyArgs>(&parsed.given),
            &args.output,
        );
    };
    let output = Output::new(WriteLat::NAME, &args.output, Layout::Pretty);
    let output = if args.latency.histogram { output.with_histograms() } else { output };
    match WriteLat::new().writing_samples_to(args.latency.raw_samples.as_deref()) {
        Ok(mut tool) => client::run(&mut tool, ends, host, args.latency.plan(ends.transport()), &output),
        Err(error) => failed(error, &output),
    }
}

/// `--help` and `--version`. A reader that has seen enough and closed the pipe is no failure.
fn print_text(text: &str) -> ExitStatus {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitStatus::Good
}

fn failed(error: Error, output: &Output) -> ExitStatus {
    let mut document = Document::begin(WriteLat::NAME, WriteLat::VERSION);
    document.conclude(Some(error));
    output.show(&document)
}
