//! From arms to rows and the primary figure, each judged by [`linkproof_common::compare`].

use linkproof_common::compare::{Comparison, Oddity, Order, Verdict, drift, holm, pooled};
use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::units::ByteSize;

use crate::arm::{Arm, Sequence, Standing, standing};
use crate::recording::{Figure, Key};
use crate::words;

/// What the user may say of the judgement.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    /// How the runs were made.
    pub sequence: Sequence,
    /// The smallest change worth acting on, as a fraction; otherwise each figure's own.
    pub threshold: Option<f64>,
    /// What the primary figure is of.
    pub primary: Primary,
}

/// The one figure whose verdict counts, declared before the rows are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primary {
    /// The geometric mean over the sizes, round by round.
    Mean,
    /// One size.
    Size(u64),
}

impl std::str::FromStr for Primary {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "mean" => Ok(Self::Mean),
            size => size
                .parse::<ByteSize>()
                .map(|size| Self::Size(size.bytes()))
                .map_err(|error| error.to_string()),
        }
    }
}

/// One arm against the first.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The arm that the other is compared with.
    pub baseline: String,
    /// The arm that is compared.
    pub arm: String,
    /// How their runs stand to each other.
    pub standing: Standing,
    /// The primary figure.
    pub primary: PrimaryRow,
    /// Every point that both have.
    pub rows: Vec<Row>,
}

/// The primary figure.
#[derive(Clone, Debug, PartialEq)]
pub struct PrimaryRow {
    /// What it is, in words.
    pub of: String,
    /// The figures it is made of.
    pub figure: Figure,
    /// The judgement.
    pub judged: Judged,
}

/// A point of both arms.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Which.
    pub key: Key,
    /// The judgement.
    pub judged: Judged,
    /// Whether it holds among so many rows: its probability survives Holm's correction.
    pub survives: bool,
}

/// Two arms' rounds and what is said of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The rounds of the baseline and of the arm.
    pub rounds: [Vec<f64>; 2],
    /// The change, its interval, the noise, the verdict.
    pub comparison: Comparison,
    /// The smallest change worth acting on.
    pub threshold: f64,
    /// The correlation with time, where the rounds of both arms drift together.
    pub drift: Option<f64>,
}

/// Compares every arm with the first.
///
/// # Errors
/// [`ErrorKind::Usage`] as [`standing`], and where the primary size is not there.
pub fn pairs(arms: &[Arm], wishes: Wishes) -> Result<Vec<Pair>> {
    let (first, others) =
        arms.split_first().ok_or_else(|| Error::new(ErrorKind::Usage, "there is no arm"))?;
    others.iter().map(|arm| pair(first, arm, wishes)).collect()
}

fn pair(a: &Arm, b: &Arm, wishes: Wishes) -> Result<Pair> {
    let standing = standing(a, b, wishes.sequence)?;
    let judge = |key: &Key| {
        let rounds = [a.rounds(key)?, b.rounds(key)?];
        Some((key.clone(), judged(rounds, key.figure, standing.order, wishes.threshold)?))
    };
    let both: Vec<(Key, Judged)> = a.keys().intersection(&b.keys()).filter_map(judge).collect();
    let primary = primary(&both, standing.order, wishes)?;
    // Of a row that has no probability, Holm's correction can say nothing.
    let survives =
        holm(&both.iter().map(|(_, judged)| judged.comparison.p.unwrap_or(1.0)).collect::<Vec<_>>());
    let rows = both.into_iter().zip(survives).map(|((key, judged), survives)| Row { key, judged, survives });
    Ok(Pair { baseline: a.label.clone(), arm: b.label.clone(), standing, primary, rows: rows.collect() })
}

fn judged(rounds: [Vec<f64>; 2], figure: Figure, order: Order, threshold: Option<f64>) -> Option<Judged> {
    let threshold = threshold.unwrap_or(figure.threshold());
    let comparison = Comparison::between(&rounds[0], &rounds[1], order, figure.goal(), threshold)?;
    // Only rounds made in turn have an order in common.
    let drift = (order == Order::InTurn).then(|| drift(&in_time(&rounds))).flatten();
    Some(Judged { rounds, comparison, threshold, drift })
}

/// The rounds of both arms as they were made, each arm's around its own middle so that a change is not taken for drift.
fn in_time(rounds: &[Vec<f64>; 2]) -> Vec<f64> {
    let middle = [0, 1].map(|arm| crate::arm::median(&rounds[arm]));
    rounds[0].iter().zip(&rounds[1]).flat_map(|(a, b)| [a / middle[0], b / middle[1]]).collect()
}

fn primary(both: &[(Key, Judged)], order: Order, wishes: Wishes) -> Result<PrimaryRow> {
    let figure = both.iter().map(|(key, _)| key.figure).find(|figure| figure.is_primary());
    let figure = figure.or_else(|| both.first().map(|(key, _)| key.figure));
    let part_of_it = |key: &Key| match wishes.primary {
        Primary::Mean => true,
        Primary::Size(size) => key.size_bytes == size,
    };
    let parts: Vec<&Judged> = both
        .iter()
        .filter(|(key, _)| Some(key.figure) == figure && part_of_it(key))
        .map(|(_, judged)| judged)
        .collect();
    let pool = |arm: usize| {
        let rounds: Vec<&[f64]> = parts.iter().map(|part| part.rounds[arm].as_slice()).collect();
        pooled(&rounds)
    };
    let row = figure.and_then(|figure| {
        let judged = judged([pool(0), pool(1)], figure, order, wishes.threshold)?;
        Some(PrimaryRow { of: describe(figure, wishes.primary, parts.len()), figure, judged })
    });
    row.ok_or_else(|| match wishes.primary {
        Primary::Size(size) => {
            Error::new(ErrorKind::Usage, format!("no point of {} is in every run", ByteSize(size)))
                .hint("choose another --primary, or leave it out: the mean over all sizes")
        }
        Primary::Mean => Error::new(ErrorKind::Usage, "the results have no point in common"),
    })
}

fn describe(figure: Figure, primary: Primary, points: usize) -> String {
    match (primary, points) {
        (Primary::Size(size), _) => format!("{} at {}", figure.name(), ByteSize(size)),
        (Primary::Mean, 1) => figure.name().to_owned(),
        (Primary::Mean, points) => format!("{}, geometric mean over {points} points", figure.name()),
    }
}

impl Judged {
    /// The verdict in words: `equal within 1 %`.
    pub fn verdict(&self) -> String {
        match self.comparison.verdict {
            Verdict::Equal => format!("equal within {}", words::percent(self.threshold)),
            Verdict::BelowThreshold => format!("changed, below {}", words::percent(self.threshold)),
            Verdict::TooFewRounds if self.fewest_rounds() >= linkproof_common::compare::LEAST_ROUNDS => {
                "no verdict: not in turn".to_owned()
            }
            verdict => verdict.words().to_owned(),
        }
    }

    /// Rounds of the arm that has fewer.
    pub fn fewest_rounds(&self) -> usize {
        self.rounds[0].len().min(self.rounds[1].len())
    }

    /// Whether something was decided.
    pub fn is_decided(&self) -> bool {
        !matches!(self.comparison.verdict, Verdict::TooFewRounds | Verdict::NoMeasurableDifference)
    }

    /// What is odd about it, in a few words each.
    pub fn flags(&self, order: Order) -> Vec<&'static str> {
        let has = |wanted: fn(&Oddity) -> bool| self.comparison.oddities.iter().flatten().any(wanted);
        let all = [
            ("cold", has(|oddity| *oddity == Oddity::Cold)),
            ("outlier", has(|oddity| matches!(oddity, Oddity::Outlier(_)))),
            ("drift", self.drift.is_some()),
            ("unpaired", order == Order::Apart),
        ];
        all.iter().filter(|(_, there)| *there).map(|(flag, _)| *flag).collect()
    }
}

impl Pair {
    /// Every odd round, in words, with all rounds of its arm beside it.
    pub fn odd_rounds(&self) -> Vec<String> {
        let of_row = |row: &Row| {
            let labels = [&self.baseline, &self.arm];
            let arms = row.judged.comparison.oddities.iter().zip(&row.judged.rounds).zip(labels);
            arms.flat_map(|((oddities, rounds), label)| {
                oddities.iter().map(move |oddity| odd(row, label, rounds, *oddity))
            })
            .collect::<Vec<_>>()
        };
        self.rows.iter().flat_map(of_row).collect()
    }
}

fn odd(row: &Row, label: &str, rounds: &[f64], oddity: Oddity) -> String {
    let (index, why) = match oddity {
        Oddity::Cold => (0, "a cold start"),
        Oddity::Outlier(index) => (index, "unlike the others"),
    };
    let all: Vec<String> = rounds.iter().map(|&value| words::number(value)).collect();
    format!(
        "{label} {}: round {} is {why}, {} of {} {}",
        row.key.describe(),
        index + 1,
        all[index],
        all.join(", "),
        row.key.figure.unit()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::tests::{arm, key};

    const WISHES: Wishes = Wishes { sequence: Sequence::Auto, threshold: None, primary: Primary::Mean };

    fn in_turn(a: &[f64], b: &[f64]) -> Pair {
        let (times_a, times_b): (Vec<u32>, Vec<u32>) = (0..a.len() as u32)
            .map(|i| if i % 2 == 0 { (2 * i, 2 * i + 1) } else { (2 * i + 1, 2 * i) })
            .unzip();
        let (a, b): (Vec<&[f64]>, Vec<&[f64]>) = (a.chunks(1).collect(), b.chunks(1).collect());
        pairs(&[arm("A", &times_a, &a), arm("B", &times_b, &b)], WISHES).unwrap().remove(0)
    }

    #[test]
    fn three_rounds_have_no_verdict_four_all_with_all_six_in_pairs() {
        let of = |n: usize| {
            let a: Vec<f64> = (0..n).map(|i| 10.0 + 0.01 * i as f64).collect();
            let b: Vec<f64> = a.iter().map(|value| value * 1.2).collect();
            let judged = in_turn(&a, &b).rows.remove(0).judged;
            (judged.comparison.verdict, judged.comparison.change.paired)
        };
        assert_eq!(of(3), (Verdict::TooFewRounds, false));
        assert_eq!([of(4), of(5)], [(Verdict::Better, false); 2]);
        assert_eq!(of(6), (Verdict::Better, true));
    }

    #[test]
    fn the_field_tests_all_to_all_has_no_verdict_and_shows_its_lone_slow_round() {
        // Three rounds over RDMA; over TCP a steady 0.27 GB/s.
        let pair = in_turn(&[0.27, 0.271, 0.269], &[39.180, 44.458, 18.763]);
        let judged = &pair.rows[0].judged;
        assert_eq!(crate::arm::median(&judged.rounds[1]), 39.180);
        assert_eq!(judged.verdict(), "too few rounds");
        assert_eq!(
            pair.odd_rounds(),
            ["B 64 KiB: round 3 is unlike the others, 18.76 of 39.18, 44.46, 18.76 Gb/s"]
        );
        assert_eq!(judged.flags(pair.standing.order), ["outlier"]);
    }

    #[test]
    fn a_third_of_a_percent_within_the_noise_is_no_measurable_difference() {
        let a = [100.0, 101.2, 99.1, 100.6, 98.9, 100.3];
        // 0.35 % less in the middle, give or take what rounds differ anyway.
        let shares = [1.011, 0.982, 1.004, 0.989, 1.013, 0.9965];
        let b: Vec<f64> = a.iter().zip(shares).map(|(a, share)| a * share).collect();
        let primary = in_turn(&a, &b).primary;
        assert_eq!(primary.judged.verdict(), "no measurable difference");
        let change = primary.judged.comparison.relative().0;
        assert!(change.abs() < 0.01, "{change}");
        let equal: Vec<f64> = a.iter().map(|a| a * 0.9999).collect();
        assert_eq!(in_turn(&a, &equal).primary.judged.verdict(), "changed, below 1 %");
        let equal: Vec<f64> =
            a.iter().zip([1.001, 0.999, 1.002, 0.998, 1.0, 1.001]).map(|(a, s)| a * s).collect();
        assert_eq!(in_turn(&a, &equal).primary.judged.verdict(), "equal within 1 %");
    }

    #[test]
    fn one_run_each_has_no_verdict_unless_the_user_takes_the_risk() {
        let a = arm("A", &[0], &[&[10.0, 10.1, 9.9, 10.0]]);
        let b = arm("B", &[1], &[&[12.0, 12.1, 11.9, 12.0]]);
        let verdict = |sequence| {
            let pair = pairs(&[a.clone(), b.clone()], Wishes { sequence, ..WISHES }).unwrap().remove(0);
            (pair.primary.judged.verdict(), pair.primary.judged.flags(pair.standing.order))
        };
        assert_eq!(verdict(Sequence::Auto), ("no verdict: not in turn".into(), vec![]));
        assert_eq!(verdict(Sequence::Apart), ("better".into(), vec!["unpaired"]));
    }

    #[test]
    fn the_primary_figure_is_a_mean_or_a_size() {
        let a = arm("A", &[0], &[&[10.0]]);
        let at = |size| pairs(&[a.clone(), a.clone()], Wishes { primary: Primary::Size(size), ..WISHES });
        assert_eq!(at(key().size_bytes).unwrap()[0].primary.of, "average bandwidth at 64 KiB");
        assert!(at(1).unwrap_err().what.starts_with("no point of 1 B"));
    }
}
