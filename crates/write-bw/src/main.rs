//! `write-bw`: RDMA write bandwidth between two hosts.
//!
//! Without a host it is the server, which takes no test options and serves client after client. With one it is
//! the client, which makes the plan, measures, and gives both ends the same result.

mod args;
mod client;
mod server;
mod stretch;
mod window;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use linkproof_common::args::{Parse, parse};
use linkproof_common::error::{Error, ExitStatus};
use linkproof_common::interrupt;
use linkproof_common::report::{Document, Output};

use crate::args::Args;

/// The name that messages begin with and both ends must share.
const TOOL: &str = "write-bw";
/// This release.
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn main() -> ExitCode {
    interrupt::install();
    let argv: Vec<OsString> = std::env::args_os().collect();
    let status = match parse::<Args>(argv.clone()) {
        Ok(Parse::Run(parsed)) => match &parsed.args.peer.host {
            Some(host) => client::run(&parsed.args, host),
            None => server::run(&parsed),
        },
        Ok(Parse::Text(text)) => print_text(&text),
        Err(error) => not_understood(&argv, error),
    };
    ExitCode::from(status as u8)
}

/// `--help` and `--version`. A reader that has seen enough and closed the pipe is no failure.
fn print_text(text: &str) -> ExitStatus {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitStatus::Good
}

fn not_understood(argv: &[OsString], error: Error) -> ExitStatus {
    let mut document = Document::begin(TOOL, VERSION);
    document.conclude(Some(error));
    Output::for_unparsed(TOOL, argv).show(&document)
}
