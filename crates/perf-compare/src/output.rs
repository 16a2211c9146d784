//! Where results go: the table or JSON to stdout, everything else to stderr.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the one place that writes to the streams")]

use std::io::Write;

use linkproof_common::error::{Error, ErrorKind, ExitStatus, Result, show_io_error};
use linkproof_common::report::{JsonTarget, Layout, Verdict, write_document};
use serde::Serialize;

/// The name that messages begin with.
pub const TOOL: &str = "perf-compare";

/// Writes `text` to stdout. A reader that has seen enough and closed the pipe is no failure.
///
/// # Errors
/// [`ErrorKind::Output`].
pub fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Error::new(
            ErrorKind::Output,
            format!("cannot write standard output: {}", show_io_error(&error)),
        )),
        _ => Ok(()),
    }
}

/// Says something on stderr.
pub fn note(text: &str) {
    eprintln!("{TOOL}: {text}");
}

/// Shows a failure on stderr and gives its exit status.
pub fn fail(error: &Error) -> ExitStatus {
    eprintln!("{}", error.render(TOOL));
    error.exit_status()
}

/// What `--json` writes where there is nothing to show but the failure.
#[derive(Serialize)]
struct Failed<'a> {
    schema: &'a str,
    tool: &'a str,
    version: &'a str,
    verdict: Verdict,
}

/// Shows `error`, and writes it as a document of the shape `schema` where JSON was asked for: whoever did reads stdout.
pub fn fail_with(schema: &'static str, error: Error, json: Option<&JsonTarget>) -> ExitStatus {
    let status = fail(&error);
    let document = Failed {
        schema,
        tool: TOOL,
        version: env!("CARGO_PKG_VERSION"),
        verdict: Verdict { ok: false, failures: vec![error] },
    };
    match json.map_or(Ok(()), |target| write_document(&document, target, Layout::Pretty)) {
        Ok(()) => status,
        Err(error) => fail(&error),
    }
}
