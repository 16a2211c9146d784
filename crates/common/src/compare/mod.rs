//! Is B really faster than A, and by how much: the judgement of two arms measured in rounds.
//!
//! The unit of replication is a round, a run of its own: samples within a run are alike because they share its
//! conditions, and would call any drift between two runs a difference. Everything is done on logarithms, so that
//! "twice" and "half" are equally far from "the same", and a change reads as a percentage of A.
//!
//! - The change is the Hodges–Lehmann estimate, with the exact 95 % interval that belongs to it (`interval`).
//! - From six rounds in turn on, rounds are compared in pairs, which takes out what drifts; four and five are too few
//!   for that, and all of A are compared with all of B. Three or fewer, or arms that were run one after the other,
//!   give no verdict.
//! - From six rounds on, "better" and "worse" need a change of three standard errors of the noisier arm, too, or five of the
//!   pairs' differences: rounds that agree by luck agree on little (`verdict`).
//! - "Equal" is a statement of its own: the interval lies within the threshold. An interval that holds both nothing
//!   and more than the threshold says that the measurement could not tell ([`Verdict::NoMeasurableDifference`]).
//!
//! Two questions are of another kind: which of many that should be alike is odd ([`Spread`], [`odd_limit`]), and whether
//! later runs got worse than a baseline of another day ([`Regression`]).
//!
//! The table of how often this is wrong on unchanged arms is in `docs/measuring.md`, and a test pins it.

mod dice;
mod interval;
mod noise;
mod odd;
mod regression;
mod verdict;

pub use interval::{Change, exact_p_paired, exact_p_two_sample};
pub use noise::{Noise, Oddity, drift, oddities};
pub use odd::{FLEET_FALSE_ALARM, LEAST_MEMBERS, Spread, odd_limit};
pub use regression::{Finding, LEAST_BASELINE, REGRESSION_FALSE_ALARM, Regression};
pub use verdict::{Comparison, Verdict, holm, pooled};

/// Which values are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Bandwidth, rates.
    Higher,
    /// Latency, times.
    Lower,
}

impl Goal {
    /// As documents spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
        }
    }
}

/// How the rounds of the two arms were run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In turn (`ABBA…` or at random within a round): round `i` of A belongs to round `i` of B.
    InTurn,
    /// All of A, then all of B, in one sitting: what drifts meanwhile looks like a difference.
    Blocked,
    /// At different times, as files of two days are. Drift is not controlled.
    Apart,
}

/// The smallest relative change worth acting on in a bandwidth, as a fraction.
pub const BANDWIDTH_THRESHOLD: f64 = 0.01;
/// The same in a median latency.
pub const LATENCY_THRESHOLD: f64 = 0.03;
/// The same in a 99th percentile.
pub const TAIL_THRESHOLD: f64 = 0.05;

/// Rounds from which on they are compared in pairs: with five, even rounds that all agree have a chance of 6 % to do
/// so by accident.
pub const PAIRED_FROM: usize = 6;
/// Rounds below which there is no verdict.
pub const LEAST_ROUNDS: usize = 4;

/// The relative change that a difference of logarithms is, as a fraction: 0.47 for 47 % more.
pub fn relative(log_ratio: f64) -> f64 {
    log_ratio.exp_m1()
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn median_of(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    median(&sorted(values.into_iter().collect()))
}

#[cfg(test)]
mod simulation;
