//! For a terminal.

use super::{Compared, goal, grid::grid, header, lines, primary, way_out};
use crate::arm::Arm;
use crate::judge::Pair;
use crate::likeness::Difference;
use crate::output::TOOL;
use crate::words::number;

/// Columns up to this one hold numbers.
const WORDS_FROM: usize = 8;

/// The whole comparison; with `all_rounds` every round of every point.
pub fn render(compared: &Compared, all_rounds: bool) -> String {
    let mut text = format!(" {TOOL} {}: {}\n", env!("CARGO_PKG_VERSION"), compared.arms[0].runs[0].operation);
    for arm in &compared.arms {
        text.push_str(&format!(" {:<13}: {}\n", arm.label, runs(arm)));
    }
    text + &body(compared, all_rounds)
}

/// What stands below the arms: conditions that differ, and each arm against the first.
pub fn body(compared: &Compared, all_rounds: bool) -> String {
    let mut text = conditions(&compared.likeness.differences);
    for pair in &compared.pairs {
        text.push_str(&of_pair(pair, all_rounds));
    }
    text
}

/// `6 runs, 2026-11-29T10:00:00.000Z to 2026-11-29T10:05:00.000Z` or the lone run's file.
pub(super) fn runs(arm: &Arm) -> String {
    let (Some(first), Some(last)) = (arm.runs.first(), arm.runs.last()) else { return "no run".to_owned() };
    let count = if arm.runs.len() == 1 { "one run".to_owned() } else { format!("{} runs", arm.runs.len()) };
    let more = if arm.runs.len() == 1 { "" } else { " …" };
    let when = match (&first.started, &last.started) {
        (Some(begin), Some(end)) if begin != end => format!("{begin} to {end}"),
        (Some(begin), _) => begin.clone(),
        (None, _) => "time unknown".to_owned(),
    };
    format!("{count}, {when} ({}{more})", first.source)
}

fn conditions(differences: &[Difference]) -> String {
    let mut text = String::new();
    for (allowed, heading) in [(true, "Declared differences"), (false, "Conditions that differ")] {
        let of_kind: Vec<&Difference> = differences.iter().filter(|it| it.allowed == allowed).collect();
        if of_kind.is_empty() {
            continue;
        }
        text.push_str(&format!(" {heading}\n"));
        for difference in of_kind {
            let values: Vec<String> =
                difference.values.iter().map(|(arm, value)| format!("{arm}: {value}")).collect();
            text.push_str(&format!("  {}  {}\n", difference.name, values.join("; ")));
        }
    }
    text
}

fn of_pair(pair: &Pair, all_rounds: bool) -> String {
    let mut text = format!("\n {} against {}\n", pair.arm, pair.baseline);
    text.push_str(&format!(" Order        : {}\n", pair.standing.why));
    text.push_str(&format!(" Primary      : {}\n", primary(pair)));
    if let Some(way_out) = way_out(pair) {
        text.push_str(&format!("                {way_out}\n"));
    }
    let rows = lines(pair);
    let unit = pair.primary.figure.unit();
    text.push_str(&format!(" Rows         : medians of rounds, {}\n", goal(pair)));
    text.push_str(&grid(&header(pair, unit), &rows, WORDS_FROM));
    if rows.iter().flatten().any(|cell| cell.ends_with(" ·")) {
        text.push_str(" · among so many rows one is always unlikely: this one alone is no proof\n");
    }
    let odd = pair.odd_rounds();
    if !odd.is_empty() {
        text.push_str(" Odd rounds, counted like the others\n");
        odd.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    if all_rounds {
        text.push_str(&rounds(pair));
    }
    text
}

fn rounds(pair: &Pair) -> String {
    let mut text = " Rounds, in the order of their runs\n".to_owned();
    for row in &pair.rows {
        for (label, rounds) in [&pair.baseline, &pair.arm].into_iter().zip(&row.judged.rounds) {
            let values: Vec<String> = rounds.iter().map(|&value| number(value)).collect();
            text.push_str(&format!("  {}  {label}: {}\n", row.key.describe(), values.join(", ")));
        }
    }
    text
}
