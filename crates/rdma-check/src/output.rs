//! Where things go: the text or JSON to stdout, everything else to stderr.
#![allow(clippy::print_stderr, reason = "the one place that writes to the streams")]

use std::io::Write;

use linkproof_common::error::{Error, ErrorKind, ExitStatus, Result, show_io_error};

use crate::document::TOOL;

/// Writes `text` to stdout. A reader that has seen enough and closed the pipe is no failure.
///
/// # Errors
/// [`ErrorKind::Output`].
pub(crate) fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Error::new(
            ErrorKind::Output,
            format!("cannot write standard output: {}", show_io_error(&error)),
        )),
        _ => Ok(()),
    }
}

/// Shows a failure on stderr and gives its exit status.
pub(crate) fn fail(error: &Error) -> ExitStatus {
    eprintln!("{}", error.render(TOOL));
    error.exit_status()
}
