//! Where results and failures go: results to stdout, everything else to stderr, and with `--json` one valid
//! document to stdout or a file, failures included.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the one place that writes to the streams")]

use std::ffi::OsString;

use super::lines::Lines;
use super::{BandwidthUnit, Detail, Document, JsonTarget, Layout, Live, render_table, write_document};
use crate::args::OutputArgs;
use crate::error::{Error, ErrorKind, ExitStatus};

/// How one process shows what it has to say.
#[derive(Clone, Debug)]
pub struct Output {
    tool: &'static str,
    json: Option<JsonTarget>,
    layout: Layout,
    unit: BandwidthUnit,
    detail: Detail,
}

impl Output {
    /// As the options ask. `layout` is [`Layout::Line`] where several documents follow each other.
    pub fn new(tool: &'static str, args: &OutputArgs, layout: Layout) -> Self {
        Self {
            tool,
            json: JsonTarget::from_option(args.json.as_ref()),
            layout,
            unit: if args.report_gbits { BandwidthUnit::Gbit } else { BandwidthUnit::Mib },
            detail: Detail { rounds: args.verbose, histograms: false },
        }
    }

    /// With a histogram of each size's latencies.
    #[must_use]
    pub fn with_histograms(mut self) -> Self {
        self.detail.histograms = true;
        self
    }

    /// For a command line that was not understood: `--json` is looked for all the same, since whoever asked for it
    /// reads stdout.
    pub fn for_unparsed(tool: &'static str, argv: &[OsString]) -> Self {
        let option = JsonTarget::from_unparsed(argv);
        let layout = option.as_ref().map_or(Layout::Pretty, layout_of);
        Self { tool, json: option, layout, unit: BandwidthUnit::Mib, detail: Detail::default() }
    }

    /// Shows a concluded document: the table where there is a result, warnings, failures, JSON where asked for.
    /// Gives the exit status that the document stands for.
    pub fn show(&self, document: &Document) -> ExitStatus {
        if self.json != Some(JsonTarget::Stdout) && worth_a_table(document) {
            print!("{}", render_table(document, self.unit, self.detail));
        }
        for warning in &document.warnings {
            eprintln!("{}", warning.render(self.tool));
        }
        for failure in &document.verdict.failures {
            self.say_failure(failure);
        }
        if let Some(target) = &self.json
            && let Err(error) = write_document(document, target, self.layout)
        {
            self.say_failure(&error);
            return error.exit_status();
        }
        document.verdict.failures.first().map_or(ExitStatus::Good, Error::exit_status)
    }

    /// Begins to show the intervals of a run that is about to begin, where its plan has any: on stderr, since the result
    /// is to come on stdout.
    pub fn live(&self, document: &Document) -> Option<Live> {
        let plan = document.plan.as_ref().filter(|plan| plan.interval_seconds.is_some())?;
        Some(Live::start(Lines::text(plan, self.unit)))
    }

    /// Shows the last intervals.
    pub fn finish(&self, live: Option<Live>) {
        let left_out = live.map_or(0, Live::finish);
        if left_out > 0 {
            self.note(&format!("{left_out} interval lines were left out: they were not read fast enough"));
        }
    }

    /// Shows a failure on stderr.
    pub fn say_failure(&self, failure: &Error) {
        eprintln!("{}", failure.render(self.tool));
    }

    /// Says something about the state of the process on stderr.
    pub fn note(&self, text: &str) {
        eprintln!("{}: {text}", self.tool);
    }
}

/// A file that a server has written documents to line by line goes on so: it is not lost to a mistyped option.
fn layout_of(target: &JsonTarget) -> Layout {
    match target {
        JsonTarget::File(path) if std::fs::read(path).is_ok_and(|text| text.starts_with(b"{\"")) => {
            Layout::Line
        }
        _ => Layout::Pretty,
    }
}

/// A failed run leaves stdout empty; one that was interrupted, whose data was wrong, or that was too slow for what
/// was required, has something to show.
fn worth_a_table(document: &Document) -> bool {
    let has_numbers = |failure: &Error| {
        matches!(failure.kind, ErrorKind::Interrupted | ErrorKind::WrongData | ErrorKind::RequirementNotMet)
    };
    document.verdict.failures.iter().all(has_numbers) && !document.results.is_empty()
}
