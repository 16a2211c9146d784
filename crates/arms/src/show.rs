//! Where it goes: the text to stdout, failures to stderr, and with `--json` one document, failures included.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the one place that writes to the streams")]

use std::io::{IsTerminal, Write};

use linkproof_common::error::{Error, ExitStatus};
use linkproof_common::report::{JsonTarget, Layout, write_document};

use crate::arm::Arm;
use crate::document::Report;
use crate::text::render;
use crate::trial::Observer;

/// Shows what came of the arms, with `all_rounds` every round of it, and gives the exit status that it stands for.
pub fn show(report: &Report, json: Option<&JsonTarget>, all_rounds: bool) -> ExitStatus {
    if json != Some(&JsonTarget::Stdout) && !report.arms.is_empty() {
        // A reader that has seen enough and closed the pipe is no failure.
        let _ = std::io::stdout().write_all(render(report, all_rounds).as_bytes());
    }
    for failure in &report.verdict.failures {
        eprintln!("{}", failure.render(&report.tool));
    }
    if let Some(target) = json
        && let Err(error) = write_document(&report.document(), target, Layout::Pretty)
    {
        eprintln!("{}", error.render(&report.tool));
        return error.exit_status();
    }
    report.verdict.failures.first().map_or(ExitStatus::Good, Error::exit_status)
}

/// A line on the terminal that says how far it is; nothing where stderr is none.
#[derive(Debug, Default)]
pub struct Terminal {
    shown: bool,
}

impl Observer for Terminal {
    fn begins(&mut self, arm: &Arm, index: usize, of: usize) {
        if std::io::stderr().is_terminal() {
            // The line is written over, and cleared to its end.
            eprint!("\r[{}/{of}] arm {}\x1b[K", index + 1, arm.name);
            self.shown = true;
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}
