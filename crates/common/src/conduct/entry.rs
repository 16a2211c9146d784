//! What the `main` of every tool does: from the words of the command line to an exit status.
#![allow(clippy::print_stdout, reason = "the texts of --help and --version go to stdout")]

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use super::Tool;
use crate::args::{Parse, Parsed, parse};
use crate::error::{Error, ExitStatus};
use crate::finding::explain;
use crate::host::HostFiles;
use crate::interrupt;
use crate::report::{Document, Output};

/// Parses the command line of `T` as `A`, and runs `run` with it.
pub fn main<T: Tool, A: Parser>(run: impl FnOnce(&Parsed<A>) -> ExitStatus) -> ExitCode {
    interrupt::install();
    let argv: Vec<OsString> = std::env::args_os().collect();
    let status = match parse::<A>(argv.clone()) {
        Ok(Parse::Run(parsed)) => run(&parsed),
        Ok(Parse::Text(text)) => print_text(&text),
        Err(error) => fail::<T>(error, &Output::for_unparsed(T::NAME, &argv)),
    };
    ExitCode::from(status as u8)
}

/// Ends a run that has not begun.
pub fn fail<T: Tool>(error: Error, output: &Output) -> ExitStatus {
    let mut document = Document::begin(T::NAME, T::VERSION);
    document.conclude(Some(explain(error, &HostFiles::this_machine())));
    output.show(&document)
}

/// A reader that has seen enough and closed the pipe is no failure.
fn print_text(text: &str) -> ExitStatus {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitStatus::Good
}
