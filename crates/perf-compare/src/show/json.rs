//! For programs: `schema/comparison.v1.json`. Every raw round is in it, so that the verdict can be worked out again.

use linkproof_common::compare::{Comparison, Oddity, Order, Verdict};
use linkproof_common::error::Error;
use linkproof_common::report::{self, timestamp};
use serde::Serialize;

use super::Compared;
use crate::arm::Arm;
use crate::judge::{Judged, Pair, Row};
use crate::output::TOOL;
use crate::recording::Figure;

/// The shape's name.
pub const SCHEMA: &str = "linkproof/comparison.v1";
/// The method's name; it changes with anything that could change a verdict.
const METHOD: &str = "hodges-lehmann-95/2";

/// The document.
#[derive(Serialize)]
pub struct Document {
    schema: &'static str,
    tool: &'static str,
    version: &'static str,
    command: Vec<String>,
    made: String,
    method: &'static str,
    operation: String,
    arms: Vec<ArmOut>,
    differences: Vec<DifferenceOut>,
    notes: Vec<String>,
    comparisons: Vec<PairOut>,
    verdict: report::Verdict,
}

#[derive(Serialize)]
struct ArmOut {
    label: String,
    runs: Vec<RunOut>,
}

#[derive(Serialize)]
struct RunOut {
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    started: Option<String>,
}

#[derive(Serialize)]
struct DifferenceOut {
    name: String,
    /// In the order of the arms.
    values: Vec<String>,
    allowed: bool,
}

#[derive(Serialize)]
struct PairOut {
    baseline: String,
    arm: String,
    order: &'static str,
    primary: PrimaryOut,
    rows: Vec<RowOut>,
}

#[derive(Serialize)]
struct PrimaryOut {
    of: String,
    #[serde(flatten)]
    judged: JudgedOut,
}

#[derive(Serialize)]
struct RowOut {
    #[serde(skip_serializing_if = "String::is_empty")]
    what: String,
    size_bytes: u64,
    figure: Figure,
    survives_correction: bool,
    #[serde(flatten)]
    judged: JudgedOut,
}

#[derive(Serialize)]
struct JudgedOut {
    unit: &'static str,
    goal: &'static str,
    threshold_percent: f64,
    baseline_rounds: Vec<f64>,
    arm_rounds: Vec<f64>,
    baseline_median: f64,
    arm_median: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline_noise_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arm_noise_percent: Option<f64>,
    change_percent: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    interval_percent: Option<[f64; 2]>,
    paired: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    p: Option<f64>,
    verdict: &'static str,
    /// Rounds of each arm, from 0, that are unlike the others.
    baseline_odd_rounds: Vec<usize>,
    arm_odd_rounds: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drift: Option<f64>,
}

impl Document {
    /// Of a comparison, and what is not well about it.
    pub fn of(compared: &Compared, failures: Vec<Error>) -> Self {
        let difference = |it: &crate::likeness::Difference| DifferenceOut {
            name: it.name.clone(),
            values: it.values.iter().map(|(_, value)| value.clone()).collect(),
            allowed: it.allowed,
        };
        Self {
            schema: SCHEMA,
            tool: TOOL,
            version: env!("CARGO_PKG_VERSION"),
            command: std::env::args().collect(),
            made: timestamp(),
            method: METHOD,
            operation: compared.arms[0].runs[0].operation.clone(),
            arms: compared.arms.iter().map(arm).collect(),
            differences: compared.likeness.differences.iter().map(difference).collect(),
            notes: compared.likeness.notes.clone(),
            comparisons: compared.pairs.iter().map(pair).collect(),
            verdict: report::Verdict { ok: failures.is_empty(), failures },
        }
    }
}

fn arm(arm: &Arm) -> ArmOut {
    let run = |run: &crate::recording::Recording| RunOut {
        source: run.source.clone(),
        started: run.started.clone(),
    };
    ArmOut { label: arm.label.clone(), runs: arm.runs.iter().map(run).collect() }
}

fn pair(pair: &Pair) -> PairOut {
    PairOut {
        baseline: pair.baseline.clone(),
        arm: pair.arm.clone(),
        order: match pair.standing.order {
            Order::InTurn => "in_turn",
            Order::Blocked => "blocked",
            Order::Apart => "apart",
        },
        primary: PrimaryOut {
            of: pair.primary.of.clone(),
            judged: judged(&pair.primary.judged, pair.primary.figure),
        },
        rows: pair.rows.iter().map(row).collect(),
    }
}

fn row(row: &Row) -> RowOut {
    RowOut {
        what: row.key.what.clone(),
        size_bytes: row.key.size_bytes,
        figure: row.key.figure,
        survives_correction: row.survives,
        judged: judged(&row.judged, row.key.figure),
    }
}

fn judged(judged: &Judged, figure: Figure) -> JudgedOut {
    let comparison = &judged.comparison;
    let (change, interval) = comparison.relative();
    let noise = |arm: usize| comparison.noise[arm].map(|noise| noise.percent());
    JudgedOut {
        unit: figure.unit(),
        goal: figure.goal().name(),
        threshold_percent: judged.threshold * 100.0,
        baseline_median: crate::arm::median(&judged.rounds[0]),
        arm_median: crate::arm::median(&judged.rounds[1]),
        baseline_rounds: judged.rounds[0].clone(),
        arm_rounds: judged.rounds[1].clone(),
        baseline_noise_percent: noise(0),
        arm_noise_percent: noise(1),
        change_percent: change * 100.0,
        interval_percent: interval.map(|(low, high)| [low * 100.0, high * 100.0]),
        paired: comparison.change.paired,
        p: comparison.p,
        verdict: code(comparison.verdict),
        baseline_odd_rounds: odd(comparison, 0),
        arm_odd_rounds: odd(comparison, 1),
        drift: judged.drift,
    }
}

/// Rounds of an arm, from 0, that are unlike the others.
pub(super) fn odd(comparison: &Comparison, arm: usize) -> Vec<usize> {
    let index = |oddity: &Oddity| match oddity {
        Oddity::Cold => 0,
        Oddity::Outlier(index) => *index,
    };
    comparison.oddities[arm].iter().map(index).collect()
}

/// A verdict for programs.
pub(crate) fn code(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::TooFewRounds => "no_verdict",
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::BelowThreshold => "below_threshold",
        Verdict::Equal => "equal",
        Verdict::NoMeasurableDifference => "no_measurable_difference",
    }
}
