//! Where results and failures go: results to stdout, everything else to stderr, and with `--json` one valid document
//! to stdout or a file, failures included.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the one place that writes to the streams")]

use std::ffi::OsString;
use std::io::{IsTerminal, Write};

use linkproof_common::error::{Error, ExitStatus};
use linkproof_common::report::{JsonTarget, Layout, write_document};

use super::text::{Detail, render};
use super::{Document, TOOL};
use crate::plan::Point;

/// How a run shows what it has to say.
#[derive(Clone, Debug)]
pub struct Output {
    json: Option<JsonTarget>,
    detail: Detail,
}

impl Output {
    /// As the options ask.
    pub fn new(json: Option<JsonTarget>, verbose: bool) -> Self {
        Self { json, detail: if verbose { Detail::Rounds } else { Detail::Table } }
    }

    /// For a command line that was not understood.
    pub fn for_unparsed(argv: &[OsString]) -> Self {
        Self { json: JsonTarget::from_unparsed(argv), detail: Detail::Table }
    }

    /// Shows a concluded document and gives the exit status that it stands for.
    pub fn show(&self, document: &Document) -> ExitStatus {
        if self.json != Some(JsonTarget::Stdout) && !document.results.is_empty() {
            // A reader that has seen enough and closed the pipe is no failure.
            let _ = std::io::stdout().write_all(render(document, self.detail).as_bytes());
        }
        for warning in &document.warnings {
            eprintln!("{}", warning.render(TOOL));
        }
        for failure in &document.verdict.failures {
            eprintln!("{}", failure.render(TOOL));
        }
        if let Some(target) = &self.json
            && let Err(error) = write_document(document, target, Layout::Pretty)
        {
            eprintln!("{}", error.render(TOOL));
            return error.exit_status();
        }
        document.verdict.failures.first().map_or(ExitStatus::Good, Error::exit_status)
    }

    /// Says on stderr why a rank that shows no result has ended.
    pub fn say_failure(&self, error: &Error) {
        eprintln!("{}", error.render(TOOL));
    }

    /// Says something about the run on stderr.
    pub fn note(&self, text: &str) {
        eprintln!("{TOOL}: {text}");
    }
}

/// Says something on stderr, where there is no [`Output`] at hand.
pub(crate) fn say(text: &str) {
    eprintln!("{TOOL}: {text}");
}

/// A line on the terminal that says how far the run is; nothing where stderr is none.
#[derive(Debug, Default)]
pub struct Progress {
    shown: bool,
}

impl Progress {
    /// Point `index` of `of` begins.
    pub fn begins(&mut self, point: &Point, index: usize, of: usize) {
        if std::io::stderr().is_terminal() {
            // The line is written over, and cleared to its end.
            eprint!("\r[{}/{of}] {}\x1b[K", index + 1, point.describe());
            self.shown = true;
        }
    }

    /// Takes the line away.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.shown) {
            eprint!("\r\x1b[K");
        }
    }
}
