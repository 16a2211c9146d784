//! A comparison shown: [`text`] for a terminal, [`markdown`] for a ticket, [`html`] for a browser, [`json`]
//! for programs.

pub mod grid;
pub mod html;
pub mod json;
pub mod markdown;
pub mod text;

use linkproof_common::compare::Verdict;
use linkproof_common::error::Result;

use crate::arm::Arm;
use crate::judge::{Judged, Pair, Wishes, pairs};
use crate::likeness::{self, Likeness};
use crate::words::{number, signed_percent};

/// A whole comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The arms.
    pub arms: Vec<Arm>,
    /// What differs.
    pub likeness: Likeness,
    /// Each arm against the first.
    pub pairs: Vec<Pair>,
}

impl Compared {
    /// Compares every one of `arms` with the first. `allow` has the conditions that differ on purpose.
    ///
    /// # Errors
    /// [`linkproof_common::error::ErrorKind::Usage`]: what can't be compared, as [`likeness::check`] and [`pairs`] say.
    pub fn of(arms: Vec<Arm>, wishes: Wishes, allow: &[String]) -> Result<Self> {
        let likeness = likeness::check(&arms, allow)?;
        let pairs = pairs(&arms, wishes)?;
        Ok(Self { arms, likeness, pairs })
    }
}

/// The columns of a pair's table.
fn header(pair: &Pair, unit: &str) -> Vec<String> {
    let columns =
        ["point", &format!("{}[{unit}]", pair.baseline), "noise", &format!("{}[{unit}]", pair.arm), "noise"];
    let rest = ["change[%]", "95 % interval", "n", "verdict", "flags"];
    columns.into_iter().chain(rest).map(str::to_owned).collect()
}

/// The lines of a pair's table. A dot marks a verdict that does not hold among so many rows.
fn lines(pair: &Pair) -> Vec<Vec<String>> {
    let line = |row: &crate::judge::Row| {
        let marked = is_change(&row.judged) && !row.survives && pair.rows.len() > 1;
        let verdict = format!("{}{}", row.judged.verdict(), if marked { " ·" } else { "" });
        let mut cells = vec![row.key.describe()];
        cells.extend(figures(&row.judged));
        cells.extend([verdict, row.judged.flags(pair.standing.order).join(" ")]);
        cells
    };
    pair.rows.iter().map(line).collect()
}

fn is_change(judged: &Judged) -> bool {
    matches!(judged.comparison.verdict, Verdict::Better | Verdict::Worse)
}

/// Medians, noise, change, interval and the number of rounds.
fn figures(judged: &Judged) -> Vec<String> {
    let noise = |arm: usize| {
        judged.comparison.noise[arm].map_or("-".to_owned(), |noise| format!("±{:.2} %", noise.percent()))
    };
    let median = |arm: usize| number(crate::arm::median(&judged.rounds[arm]));
    let counts = [judged.rounds[0].len(), judged.rounds[1].len()];
    let n =
        if counts[0] == counts[1] { counts[0].to_string() } else { format!("{}/{}", counts[0], counts[1]) };
    vec![
        median(0),
        noise(0),
        median(1),
        noise(1),
        signed_percent(judged.comparison.relative().0),
        interval(judged),
        n,
    ]
}

/// `+45.10 to +49.02`; a dash where there are too few rounds for one.
fn interval(judged: &Judged) -> String {
    judged
        .comparison
        .relative()
        .1
        .map_or("-".to_owned(), |(low, high)| format!("{} to {}", signed_percent(low), signed_percent(high)))
}

/// The primary figure in one sentence.
fn primary(pair: &Pair) -> String {
    let judged = &pair.primary.judged;
    let interval = match judged.comparison.change.interval {
        Some(_) => format!("95 % interval {}", interval(judged)),
        None => "too few rounds for an interval".to_owned(),
    };
    let change = signed_percent(judged.comparison.relative().0);
    format!("{}: {change} % ({interval}): {}", pair.primary.of, judged.verdict())
}

/// What could be done for a verdict, where there is none.
fn way_out(pair: &Pair) -> Option<String> {
    let judged = &pair.primary.judged;
    match judged.comparison.verdict {
        Verdict::TooFewRounds => Some("for a verdict run both in turn (A B B A …), six runs each".to_owned()),
        Verdict::NoMeasurableDifference => {
            lone_round(pair)
                .map(|which| {
                    format!(
                        "{which} is unlike the others, which widens the interval: see what disturbed it and measure both anew, \
                         or with twelve rounds each, which bear one such"
                    )
                })
                .or_else(|| more_rounds(judged))
        }
        _ => None,
    }
}

/// Rounds that nobody will measure.
const TOO_MANY_ROUNDS: usize = 100;

fn more_rounds(judged: &Judged) -> Option<String> {
    let wanted = judged.comparison.rounds_wanted(judged.fewest_rounds(), judged.threshold)?;
    let threshold = crate::words::percent(judged.threshold);
    Some(if judged.comparison.may_be_luck() {
        format!("a change this small beside the noise may be luck: about {wanted} rounds each would tell")
    } else if wanted > TOO_MANY_ROUNDS {
        format!(
            "rounds scatter too much to tell a change of {threshold} from none: make the runs longer, see what disturbs \
             them, or say with --threshold what matters"
        )
    } else {
        format!("about {wanted} rounds each would tell a change of {threshold} from none")
    })
}

/// The only odd round of the primary figure: `round 3 of rdma`.
fn lone_round(pair: &Pair) -> Option<String> {
    let odd = [0, 1].map(|arm| json::odd(&pair.primary.judged.comparison, arm));
    match (odd[0].as_slice(), odd[1].as_slice()) {
        ([round], []) => Some(format!("round {} of {}", round + 1, pair.baseline)),
        ([], [round]) => Some(format!("round {} of {}", round + 1, pair.arm)),
        _ => None,
    }
}

/// How figures of the same unit are read.
fn goal(pair: &Pair) -> &'static str {
    match pair.primary.figure.goal() {
        linkproof_common::compare::Goal::Higher => "higher is better",
        linkproof_common::compare::Goal::Lower => "lower is better",
    }
}
