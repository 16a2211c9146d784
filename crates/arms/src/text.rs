//! For a terminal.

use perf_compare::show::text;

use crate::document::Report;
use crate::trial::Tried;

/// What came of the arms: what each was proven to be, and the comparison; with `all_rounds` every round of every point.
pub(crate) fn render(report: &Report, all_rounds: bool) -> String {
    let Report { tool, version, rounds, .. } = report;
    let mut shown = format!(" {tool} {version}: {} arms, {rounds} runs each, in turn\n", report.arms.len());
    for tried in &report.arms {
        shown.push_str(&format!(" {:<13}: {}\n", tried.arm.name, line(tried)));
    }
    match &report.compared {
        Some(compared) => shown.push_str(&text::body(compared, all_rounds)),
        None => shown.push_str(" Fewer than two arms were measured: there is nothing to compare\n"),
    }
    shown
}

fn line(tried: &Tried) -> String {
    let set = tried.arm.describe();
    match (&tried.failure, &tried.proof) {
        (Some(failure), _) => format!("{set}; failed: {}", failure.what),
        (None, Some(proof)) => format!("{set}; {} runs over {proof}", tried.runs.len()),
        (None, None) => format!("{set}; no run"),
    }
}
