//! Where results and failures go: results to stdout, everything else to stderr, and with `--json` one valid
//! document to stdout or a file, failures included.

use std::ffi::OsString;

use super::lines::Lines;
use super::live::Unread;
use super::stream::Stream;
use super::text::beginning;
use super::{BandwidthUnit, Detail, Document, JsonTarget, Layout, Live, render_table, write_document};
use crate::args::{LongRunArgs, OutputArgs};
use crate::error::{Error, ErrorKind, ExitStatus, Result};

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

    /// The same for the client of one run: one document, or with `--run-infinitely` a line of JSON an interval before it.
    pub fn of_client(tool: &'static str, args: &OutputArgs, long: &LongRunArgs) -> Self {
        let layout = if long.run_infinitely { Layout::Line } else { Layout::Pretty };
        Self::new(tool, args, layout)
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
        let in_lines = argv.iter().any(|arg| arg == "--run-infinitely" || arg == "--run_infinitely");
        let layout = if in_lines { Layout::Line } else { option.as_ref().map_or(Layout::Pretty, layout_of) };
        Self { tool, json: option, layout, unit: BandwidthUnit::Mib, detail: Detail::default() }
    }

    /// The unit of the bandwidths.
    pub fn unit(&self) -> BandwidthUnit {
        self.unit
    }

    /// Shows a concluded document: the table where there is a result, warnings, failures, JSON where asked for.
    /// Gives the exit status that the document stands for.
    pub fn show(&self, document: &Document) -> ExitStatus {
        let table = if self.json != Some(JsonTarget::Stdout) && worth_a_table(document) {
            Stream::Stdout.write(&render_table(document, self.unit, self.detail)).map(|_| ())
        } else {
            Ok(())
        };
        for warning in &document.warnings {
            say(&warning.render(self.tool));
        }
        for failure in &document.verdict.failures {
            self.say_failure(failure);
        }
        let json = self.json.as_ref().map_or(Ok(()), |target| write_document(document, target, self.layout));
        if let Err(error) = table.and(json) {
            self.say_failure(&error);
            return error.exit_status();
        }
        document.verdict.failures.first().map_or(ExitStatus::Good, Error::exit_status)
    }

    /// Begins to show the intervals of a run that is about to begin, where its plan has any: on stderr, since the result
    /// is to come on stdout; but where only the user ends it, they are the result.
    pub fn live(&self, document: &Document) -> Option<Live> {
        let plan = document.plan.as_ref().filter(|plan| plan.interval_seconds.is_some())?;
        if !plan.is_until_stopped() {
            let lines = vec![(Stream::Stderr, Lines::text(plan, self.unit, String::new()))];
            return Some(Live::start(lines, Unread::GoesOn));
        }
        let json = self.json.as_ref().map(|target| (target.stream(), Lines::json(plan, self.tool)));
        let text = (self.json != Some(JsonTarget::Stdout))
            .then(|| (Stream::Stdout, Lines::text(plan, self.unit, beginning(document, plan))));
        Some(Live::start(json.into_iter().chain(text).collect(), Unread::Ends))
    }

    /// Shows the last intervals.
    ///
    /// # Errors
    /// As [`Live::finish`].
    pub fn finish(&self, live: Option<Live>) -> Result<()> {
        let left_out = live.map_or(Ok(0), Live::finish)?;
        if left_out > 0 {
            self.note(&format!("{left_out} interval lines were left out: they were not read fast enough"));
        }
        Ok(())
    }

    /// Shows a failure on stderr.
    pub fn say_failure(&self, failure: &Error) {
        say(&failure.render(self.tool));
    }

    /// Says something about the state of the process on stderr.
    pub fn note(&self, text: &str) {
        say(&format!("{}: {text}", self.tool));
    }
}

/// A line on stderr. Where that can't be written there is nobody left to tell.
fn say(line: &str) {
    let _ = Stream::Stderr.write(&format!("{line}\n"));
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
