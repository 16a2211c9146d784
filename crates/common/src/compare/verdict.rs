//! What a comparison says.

use super::{
    Change, Goal, LEAST_ROUNDS, Noise, Oddity, Order, exact_p_paired, exact_p_two_sample, oddities, relative,
};

/// What can be said of B against A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Fewer than four rounds, or arms that were run one after the other: no verdict is given.
    TooFewRounds,
    /// The interval excludes "no change" on the good side, and the change is worth acting on.
    Better,
    /// The same on the bad side.
    Worse,
    /// The interval excludes "no change", but the change is smaller than the threshold.
    BelowThreshold,
    /// The whole interval lies within the threshold: evidence that there is no change that matters.
    Equal,
    /// The interval holds both "no change" and one that matters: the measurement could not tell.
    NoMeasurableDifference,
}

impl Verdict {
    /// In words, for tables.
    pub fn words(self) -> &'static str {
        match self {
            Self::TooFewRounds => "too few rounds",
            Self::Better => "better",
            Self::Worse => "worse",
            Self::BelowThreshold => "changed, below threshold",
            Self::Equal => "equal within threshold",
            Self::NoMeasurableDifference => "no measurable difference",
        }
    }
}

/// One figure of two arms, judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// How B differs from A.
    pub change: Change,
    /// The scatter of each arm; `None` below three rounds.
    pub noise: [Option<Noise>; 2],
    /// The rounds of each arm that are unlike the others.
    pub oddities: [Vec<Oddity>; 2],
    /// The chance of such a difference between arms that are alike, where it can be enumerated.
    pub p: Option<f64>,
    /// The verdict.
    pub verdict: Verdict,
}

impl Comparison {
    /// Judges B against A, whose values stand in the order of their rounds. A change smaller than `threshold` (a
    /// fraction) is not worth acting on. `None` where an arm has no rounds, or a value that is not a positive number.
    pub fn between(a: &[f64], b: &[f64], order: Order, goal: Goal, threshold: f64) -> Option<Self> {
        let change = Change::between(a, b, order)?;
        let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
        let (a_logs, b_logs) = (logs(a), logs(b));
        let p = if change.paired {
            exact_p_paired(&a_logs.iter().zip(&b_logs).map(|(a, b)| b - a).collect::<Vec<_>>())
        } else if a.len().min(b.len()) >= LEAST_ROUNDS {
            exact_p_two_sample(&a_logs, &b_logs)
        } else {
            None
        };
        Some(Self {
            change,
            noise: [Noise::of(a), Noise::of(b)],
            oddities: [oddities(a, threshold), oddities(b, threshold)],
            p: p.filter(|_| order != Order::Blocked),
            verdict: judge(change, order, goal, threshold),
        })
    }

    /// The change as a fraction of A, with its interval: 0.47 for 47 % more.
    pub fn relative(&self) -> (f64, Option<(f64, f64)>) {
        let interval = self.change.interval.map(|(low, high)| (relative(low), relative(high)));
        (relative(self.change.log_ratio), interval)
    }

    /// How many rounds it would take for an interval that reaches as far as `threshold` to either side, if these
    /// `rounds` are typical: its width shrinks with their root.
    pub fn rounds_wanted(&self, rounds: usize, threshold: f64) -> Option<usize> {
        let (low, high) = self.change.interval?;
        let wider = (high - low) / 2.0 / threshold.ln_1p();
        Some((rounds as f64 * wider * wider).ceil() as usize)
    }
}

fn judge(change: Change, order: Order, goal: Goal, threshold: f64) -> Verdict {
    let Some((low, high)) = change.interval.filter(|_| order != Order::Blocked) else {
        return Verdict::TooFewRounds;
    };
    let threshold = threshold.ln_1p();
    if low <= 0.0 && high >= 0.0 {
        let within = low > -threshold && high < threshold;
        return if within { Verdict::Equal } else { Verdict::NoMeasurableDifference };
    }
    match (change.log_ratio.abs() >= threshold, (change.log_ratio > 0.0) == (goal == Goal::Higher)) {
        (false, _) => Verdict::BelowThreshold,
        (true, true) => Verdict::Better,
        (true, false) => Verdict::Worse,
    }
}

/// One figure for several sizes: the geometric mean over them, round by round. `sizes` holds the rounds of each size;
/// rounds that not every size has are left out.
pub fn pooled(sizes: &[&[f64]]) -> Vec<f64> {
    let rounds = sizes.iter().map(|rounds| rounds.len()).min().unwrap_or(0);
    let mean = |round: usize| {
        (sizes.iter().map(|rounds| rounds[round].ln()).sum::<f64>() / sizes.len() as f64).exp()
    };
    (0..rounds).map(mean).collect()
}

/// Which of several probabilities survive Holm's correction at 5 %: among many rows one is always unlikely.
pub fn holm(p: &[f64]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut kept = vec![false; p.len()];
    for (rank, &row) in order.iter().enumerate() {
        if p[row] > 0.05 / (p.len() - rank) as f64 {
            break;
        }
        kept[row] = true;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(differences: [f64; 6], goal: Goal) -> Verdict {
        let b = differences.map(f64::exp);
        Comparison::between(&[1.0; 6], &b, Order::InTurn, goal, 0.01).unwrap().verdict
    }

    #[test]
    fn each_verdict_has_its_case() {
        let faster = [0.05, 0.06, 0.04, 0.05, 0.055, 0.045];
        assert_eq!(verdict(faster, Goal::Higher), Verdict::Better);
        assert_eq!(verdict(faster, Goal::Lower), Verdict::Worse);
        assert_eq!(
            verdict([0.003, 0.004, 0.005, 0.004, 0.003, 0.004], Goal::Higher),
            Verdict::BelowThreshold
        );
        assert_eq!(verdict([0.001, -0.001, 0.002, -0.002, 0.0, 0.001], Goal::Higher), Verdict::Equal);
        assert_eq!(
            verdict([0.03, -0.04, 0.02, -0.01, 0.05, -0.03], Goal::Higher),
            Verdict::NoMeasurableDifference
        );
    }

    #[test]
    fn blocked_arms_and_few_rounds_get_no_verdict() {
        let (a, b) = ([1.0; 6], [2.0; 6]);
        let blocked = Comparison::between(&a, &b, Order::Blocked, Goal::Higher, 0.01).unwrap();
        assert_eq!((blocked.verdict, blocked.p), (Verdict::TooFewRounds, None));
        assert!((blocked.relative().0 - 1.0).abs() < 1e-12);
        let three = Comparison::between(&a[..3], &b[..3], Order::InTurn, Goal::Higher, 0.01).unwrap();
        assert_eq!(three.verdict, Verdict::TooFewRounds);
        let four = Comparison::between(&a[..4], &b[..4], Order::InTurn, Goal::Higher, 0.01).unwrap();
        assert_eq!(four.verdict, Verdict::Better);
    }

    #[test]
    fn rounds_wanted_grow_with_the_square_of_the_width() {
        let b = [0.02, -0.02, 0.02, -0.02, 0.02, -0.02].map(f64::exp);
        let comparison = Comparison::between(&[1.0; 6], &b, Order::InTurn, Goal::Higher, 0.01).unwrap();
        // The interval is ±2 %, the threshold 1 %: four times the rounds, and a little for the logarithm.
        assert_eq!(comparison.rounds_wanted(6, 0.01), Some(25));
    }

    #[test]
    fn sizes_are_pooled_by_their_geometric_mean() {
        assert_eq!(pooled(&[&[2.0, 8.0], &[8.0, 2.0, 1.0]]).len(), 2);
        assert!(pooled(&[&[2.0, 8.0], &[8.0, 2.0]]).iter().all(|mean| (mean - 4.0).abs() < 1e-12));
        assert!(pooled(&[]).is_empty());
    }

    #[test]
    fn holm_by_hand() {
        assert_eq!(holm(&[0.01, 0.04, 0.03]), [true, false, false]);
        assert_eq!(holm(&[0.01, 0.02, 0.03]), [true, true, true]);
        assert_eq!(holm(&[]), Vec::<bool>::new());
    }
}
