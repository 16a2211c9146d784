//! `write-bw`: RDMA write bandwidth between two hosts.
//!
//! Without a host it is the server, which takes no test options and serves client after client. With one it is
//! the client, which makes the plan, measures, and gives both ends the same result.

mod args;
mod window;
mod write;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use linkproof_common::args::{Parse, Parsed, TransferArgs, given_of, parse};
use linkproof_common::conduct::{Tool, client, server};
use linkproof_common::error::{Error, ExitStatus};
use linkproof_common::interrupt;
use linkproof_common::report::{Document, Layout, Output};

use crate::args::Args;
use crate::write::WriteBw;

fn main() -> ExitCode {
    interrupt::install();
    let argv: Vec<OsString> = std::env::args_os().collect();
    let status = match parse::<Args>(argv.clone()) {
        Ok(Parse::Run(parsed)) => run(&parsed),
        Ok(Parse::Text(text)) => print_text(&text),
        Err(error) => not_understood(&argv, error),
    };
    ExitCode::from(status as u8)
}

fn run(parsed: &Parsed<Args>) -> ExitStatus {
    let args = &parsed.args;
    let ends = args.ends();
    let mut tool = WriteBw::default();
    match &args.peer.host {
        Some(host) => {
            let plan = args.transfer.plan(WriteBw::NAME, ends.transport());
            let output = Output::new(WriteBw::NAME, &args.output, Layout::Pretty);
            client::run(&mut tool, ends, host, plan, &output)
        }
        None => server::run(&mut tool, ends, &given_of::<TransferArgs>(&parsed.given), &args.output),
    }
}

/// `--help` and `--version`. A reader that has seen enough and closed the pipe is no failure.
fn print_text(text: &str) -> ExitStatus {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitStatus::Good
}

fn not_understood(argv: &[OsString], error: Error) -> ExitStatus {
    let mut document = Document::begin(WriteBw::NAME, WriteBw::VERSION);
    document.conclude(Some(error));
    Output::for_unparsed(WriteBw::NAME, argv).show(&document)
}
