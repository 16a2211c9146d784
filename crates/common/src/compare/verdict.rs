//! What a comparison says.

use super::{
    Change, Goal, LEAST_ROUNDS, Noise, Oddity, Order, PAIRED_FROM, exact_p_paired, exact_p_two_sample,
    oddities, relative,
};

/// What can be said of B against A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Fewer than four rounds, or arms that were run one after the other: no verdict is given.
    TooFewRounds,
    /// The interval excludes "no change" on the good side, and the change is worth acting on and more than luck.
    Better,
    /// The same on the bad side.
    Worse,
    /// The interval excludes "no change", but the change is smaller than the threshold.
    BelowThreshold,
    /// The whole interval lies within the threshold: evidence that there is no change that matters.
    Equal,
    /// The interval holds both "no change" and one that matters, or the change may be luck: the measurement could not
    /// tell.
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
    /// The smallest change, in logarithms, that is called "better" or "worse" among rounds that scatter like these; 0 below
    /// six rounds.
    pub least: f64,
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
        let differences: Option<Vec<f64>> =
            change.paired.then(|| a_logs.iter().zip(&b_logs).map(|(a, b)| b - a).collect());
        let p = if let Some(differences) = &differences {
            exact_p_paired(differences)
        } else if a.len().min(b.len()) >= LEAST_ROUNDS {
            exact_p_two_sample(&a_logs, &b_logs)
        } else {
            None
        };
        let noise = [Noise::of(a), Noise::of(b)];
        let least = least_change(noise, [a.len(), b.len()], differences.as_deref());
        Some(Self {
            change,
            noise,
            least,
            oddities: [oddities(a, threshold), oddities(b, threshold)],
            p: p.filter(|_| order != Order::Blocked),
            verdict: judge(change, least, order, goal, threshold),
        })
    }

    /// The change as a fraction of A, with its interval: 0.47 for 47 % more.
    pub fn relative(&self) -> (f64, Option<(f64, f64)>) {
        let interval = self.change.interval.map(|(low, high)| (relative(low), relative(high)));
        (relative(self.change.log_ratio), interval)
    }

    /// How many rounds it would take for an interval that reaches as far as `threshold` to either side, or for a change like
    /// this to be more than luck, if these `rounds` are typical: both shrink with their root.
    pub fn rounds_wanted(&self, rounds: usize, threshold: f64) -> Option<usize> {
        let (low, high) = self.change.interval?;
        let wider = if self.may_be_luck() {
            self.least / self.change.log_ratio.abs()
        } else {
            (high - low) / 2.0 / threshold.ln_1p()
        };
        Some((rounds as f64 * wider * wider).ceil() as usize)
    }

    /// Whether the interval excludes "no change", but the change is so small beside the noise that it may be luck all the
    /// same.
    pub fn may_be_luck(&self) -> bool {
        let excludes = self.change.interval.is_some_and(|(low, high)| low > 0.0 || high < 0.0);
        excludes && self.change.log_ratio.abs() < self.least
    }
}

/// What a change must reach in standard errors of an arm, its noise over the root of its rounds. Six differences that have all
/// the same sign by luck, as they have in 2 of 64 sittings, are small in half of those, and never are where there is a change of
/// three times the noise: `simulation` has the figures. Of fewer than six rounds the noise is their range, which a lone slow
/// one blows up: there it would hide every other change.
const STANDARD_ERRORS: f64 = 3.0;
/// The same in standard errors of the differences of pairs, which is enough: the arms' noise has what both runs of a pair share
/// in it. Six alike differences get there in 1 of 250 sittings.
const STANDARD_ERRORS_OF_PAIRS: f64 = 5.0;

fn least_change(noise: [Option<Noise>; 2], rounds: [usize; 2], differences: Option<&[f64]>) -> f64 {
    if rounds[0].min(rounds[1]) < PAIRED_FROM {
        return 0.0;
    }
    let error = |arm: usize| noise[arm].map_or(0.0, |noise| noise.sigma / (rounds[arm] as f64).sqrt());
    let of_arms = STANDARD_ERRORS * error(0).max(error(1));
    differences.map_or(of_arms, |them| of_arms.min(STANDARD_ERRORS_OF_PAIRS * standard_error(them)))
}

/// Of the mean of two values or more.
fn standard_error(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (n - 1.0) / n).sqrt()
}

fn judge(change: Change, least: f64, order: Order, goal: Goal, threshold: f64) -> Verdict {
    let Some((low, high)) = change.interval.filter(|_| order != Order::Blocked) else {
        return Verdict::TooFewRounds;
    };
    let threshold = threshold.ln_1p();
    if low <= 0.0 && high >= 0.0 {
        let within = low > -threshold && high < threshold;
        return if within { Verdict::Equal } else { Verdict::NoMeasurableDifference };
    }
    let size = change.log_ratio.abs();
    match (change.log_ratio > 0.0) == (goal == Goal::Higher) {
        _ if size < threshold => Verdict::BelowThreshold,
        _ if size < least => Verdict::NoMeasurableDifference,
        true => Verdict::Better,
        false => Verdict::Worse,
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
    fn differences_that_agree_by_luck_are_small_beside_the_noise() {
        // Logarithms; the noise of A is 1.4826 × the median of the deviations 0.1, 0.2, 0.3 (twice each): 0.2965.
        let a = [-0.3, -0.2, -0.1, 0.1, 0.2, 0.3];
        let of = |by: [f64; 6]| {
            let b: Vec<f64> = a.iter().zip(by).map(|(a, by)| (a + by).exp()).collect();
            let compared =
                Comparison::between(&a.map(f64::exp), &b, Order::InTurn, Goal::Higher, 0.01).unwrap();
            assert!(compared.change.interval.unwrap().0 > 0.0);
            compared
        };
        let small = of([0.1, 0.1, 0.1, 0.3, 0.3, 0.3]);
        // B is twice as noisy: its logarithms are -0.2, -0.1, 0, 0.4, 0.5, 0.6, deviations 0.2, 0.3, 0.4 from 0.2.
        let (arms, pairs) = (3.0 * 1.4826 * 0.3 / 6_f64.sqrt(), 5.0 * (0.012_f64 / 6.0).sqrt());
        assert!((small.least - pairs).abs() < 1e-9 && pairs < arms, "{small:?}");
        assert_eq!((small.verdict, small.may_be_luck()), (Verdict::NoMeasurableDifference, true));
        // The change is 0.2, and 6 · (0.2236 / 0.2)² is 7.5.
        assert_eq!(small.rounds_wanted(6, 0.01), Some(8));
        // Pairs that differ more than the arms: -0.25, 0.6, 0, 0.8, 0.25, 0.4 are 0.3 from 0.325 by their median.
        let loose = of([0.05, 0.8, 0.1, 0.7, 0.05, 0.1]);
        assert!((loose.least - arms).abs() < 1e-9, "{loose:?}");
        assert_eq!(of([0.5, 0.6, 0.5, 0.6, 0.5, 0.6]).verdict, Verdict::Better);
        // What is the same in all pairs is no luck, however much both runs of a pair share.
        assert_eq!(of([0.2; 6]).verdict, Verdict::Better);
        // One that does not matter is said to be one, and asserts nothing.
        assert_eq!(of([0.001; 6]).verdict, Verdict::BelowThreshold);
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
