//! The estimate of a change with its exact interval, and exact probabilities.

use super::{LEAST_ROUNDS, Order, PAIRED_FROM, median, sorted};

/// The probability beyond each end of an interval: 95 % lie within.
const TAIL: f64 = 0.025;

/// How B differs from A, in natural logarithms of the ratio B/A.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The Hodges–Lehmann estimate: the median of the averages of all pairs of differences.
    pub log_ratio: f64,
    /// Its 95 % interval; `None` where the rounds are too few for one.
    pub interval: Option<(f64, f64)>,
    /// Whether rounds were compared in pairs.
    pub paired: bool,
}

impl Change {
    /// From the values of the rounds of both arms; `None` where an arm has none, or a value that is not a positive
    /// number.
    pub fn between(a: &[f64], b: &[f64], order: Order) -> Option<Self> {
        let (a, b) = (logarithms(a)?, logarithms(b)?);
        if order == Order::InTurn && a.len() == b.len() && a.len() >= PAIRED_FROM {
            let differences: Vec<f64> = a.iter().zip(&b).map(|(a, b)| b - a).collect();
            return Some(Self::paired(&differences));
        }
        Some(Self::two_sample(&a, &b))
    }

    /// From the differences of paired rounds, of which there is at least one (Wilcoxon's signed-rank interval).
    pub fn paired(differences: &[f64]) -> Self {
        let averages = sorted(walsh(differences));
        Self { paired: true, ..Self::from_sorted(&averages, signed_rank(differences.len())) }
    }

    fn two_sample(a: &[f64], b: &[f64]) -> Self {
        let differences = sorted(b.iter().flat_map(|b| a.iter().map(move |a| b - a)).collect());
        let enough = a.len().min(b.len()) >= LEAST_ROUNDS;
        let rank = if enough { rank_sum(a.len(), b.len()) } else { None };
        Self { paired: false, ..Self::from_sorted(&differences, rank) }
    }

    fn from_sorted(values: &[f64], rank: Option<usize>) -> Self {
        let interval = rank.map(|rank| (values[rank], values[values.len() - 1 - rank]));
        Self { log_ratio: median(values).unwrap_or(0.0), interval, paired: false }
    }
}

fn logarithms(values: &[f64]) -> Option<Vec<f64>> {
    let log = |&value: &f64| (value.is_finite() && value > 0.0).then(|| value.ln());
    values.iter().map(log).collect::<Option<Vec<f64>>>().filter(|logs| !logs.is_empty())
}

/// The averages of each difference with itself and every later one.
fn walsh(differences: &[f64]) -> Vec<f64> {
    let with_later = |(index, first): (usize, &f64)| {
        let first = *first;
        differences[index..].iter().map(move |second| (first + second) / 2.0)
    };
    differences.iter().enumerate().flat_map(with_later).collect()
}

/// Rounds of both arms together beyond which ranks are normal for all that matters: counting them one by one would take
/// seconds, and more than a floating-point number holds.
const NORMAL_FROM: usize = 200;
/// The standard normal deviate with [`TAIL`] beyond it.
const NORMAL_TAIL: f64 = 1.959_964;

/// The k of the signed-rank interval of `n` differences.
fn signed_rank(n: usize) -> Option<usize> {
    let n_f64 = n as f64;
    let pairs = n_f64 * (n_f64 + 1.0);
    match n {
        NORMAL_FROM.. => normal_rank(pairs / 4.0, pairs * (2.0 * n_f64 + 1.0) / 24.0),
        _ => lower_rank(&signed_rank_counts(n)),
    }
}

/// The k of the rank-sum interval of `m` and `n` values.
fn rank_sum(m: usize, n: usize) -> Option<usize> {
    let product = m as f64 * n as f64;
    match m + n {
        NORMAL_FROM.. => normal_rank(product / 2.0, product * (m + n + 1) as f64 / 12.0),
        _ => lower_rank(&rank_sum_counts(m, n)),
    }
}

/// The largest k below the lower tail of a rank statistic with this mean and variance, less one half for its steps.
fn normal_rank(mean: f64, variance: f64) -> Option<usize> {
    let rank = mean - NORMAL_TAIL * variance.sqrt() - 0.5;
    (rank >= 0.0).then_some(rank as usize)
}

/// How many of the 2ⁿ ways to give n ranks a sign have each sum of the positive ones.
fn signed_rank_counts(n: usize) -> Vec<f64> {
    let mut counts = vec![0.0; n * (n + 1) / 2 + 1];
    counts[0] = 1.0;
    for rank in 1..=n {
        for sum in (rank..counts.len()).rev() {
            counts[sum] += counts[sum - rank];
        }
    }
    counts
}

/// How many of the ways to mix m and n values have each value of Mann and Whitney's U: the coefficients of the
/// Gaussian binomial, by multiplying with 1 − q^(n+i) and dividing by 1 − q^i for each i to m.
fn rank_sum_counts(m: usize, n: usize) -> Vec<f64> {
    let mut counts = vec![0.0; m * n + 1];
    counts[0] = 1.0;
    for step in 1..=m {
        for value in (n + step..counts.len()).rev() {
            counts[value] -= counts[value - n - step];
        }
        for value in step..counts.len() {
            counts[value] += counts[value - step];
        }
    }
    counts
}

/// The largest k with at most [`TAIL`] of the probability at or below it; `None` where even 0 has more.
fn lower_rank(counts: &[f64]) -> Option<usize> {
    let total: f64 = counts.iter().sum();
    let mut below = 0.0;
    let within = |count: &f64| {
        below += count / total;
        below <= TAIL
    };
    counts.iter().map(within).take_while(|&within| within).count().checked_sub(1)
}

/// The most arrangements that are enumerated: those of twenty pairs, or of two arms of eleven.
const MOST_ARRANGEMENTS: f64 = 1_048_576.0;
/// Sums in another order differ in their last bits, and must still count as equal.
const ROUNDING: f64 = 1e-9;

/// The chance that `differences` whose signs were tossed average as far from nothing as these do, both ways;
/// `None` where they are too many to enumerate.
pub fn exact_p_paired(differences: &[f64]) -> Option<f64> {
    let n = differences.len();
    let ways = 2_f64.powi(n as i32);
    if n == 0 || ways > MOST_ARRANGEMENTS {
        return None;
    }
    let seen = differences.iter().sum::<f64>().abs();
    let sum = |signs: u32| -> f64 {
        (0..n).map(|i| if signs >> i & 1 == 1 { -differences[i] } else { differences[i] }).sum()
    };
    let extreme = (0..1_u32 << n).filter(|&signs| sum(signs).abs() >= seen * (1.0 - ROUNDING)).count();
    Some(extreme as f64 / ways)
}

/// The chance that `a` and `b`, thrown together and dealt anew, have means as far apart as these, both ways; `None`
/// where there are too many ways to deal.
pub fn exact_p_two_sample(a: &[f64], b: &[f64]) -> Option<f64> {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let ways: f64 = (1..=a.len()).map(|i| (b.len() + i) as f64 / i as f64).product();
    if a.is_empty() || b.is_empty() || ways.round() > MOST_ARRANGEMENTS {
        return None;
    }
    let total: f64 = all.iter().sum();
    let apart = |sum_a: f64| (sum_a / a.len() as f64 - (total - sum_a) / b.len() as f64).abs();
    let seen = apart(a.iter().sum()) * (1.0 - ROUNDING);
    let mut extreme = 0_u64;
    deal(&all, a.len(), 0.0, &mut |sum| extreme += u64::from(apart(sum) >= seen));
    Some(extreme as f64 / ways.round())
}

/// Calls `visit` with the sum of every choice of `take` of `values`.
fn deal(values: &[f64], take: usize, sum: f64, visit: &mut impl FnMut(f64)) {
    if take == 0 {
        return visit(sum);
    }
    for first in 0..=values.len() - take {
        deal(&values[first + 1..], take - 1, sum + values[first], visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_published_tables() {
        let signed = |n| lower_rank(&signed_rank_counts(n));
        assert_eq!([5, 6, 7, 8, 9, 10].map(signed), [None, Some(0), Some(2), Some(3), Some(5), Some(8)]);
        let sums = |n| lower_rank(&rank_sum_counts(n, n));
        assert_eq!(
            [3, 4, 5, 6, 7, 8, 9, 10].map(sums),
            [None, Some(0), Some(2), Some(5), Some(8), Some(13), Some(17), Some(23)]
        );
        assert_eq!(lower_rank(&rank_sum_counts(4, 6)), Some(2));
    }

    #[test]
    fn many_rounds_go_on_where_counting_ends() {
        let differ =
            |counted: Option<usize>, normal: Option<usize>| counted.unwrap().abs_diff(normal.unwrap());
        assert!(differ(lower_rank(&signed_rank_counts(220)), signed_rank(220)) <= 2);
        assert!(differ(lower_rank(&rank_sum_counts(110, 110)), rank_sum(110, 110)) <= 2);
        // One arm of four among a thousand still has an interval, and a thousand each do not take long.
        assert!(rank_sum(4, 1000).is_some() && rank_sum(1000, 1000).is_some());
    }

    #[test]
    fn counts_add_up_to_the_number_of_ways() {
        assert_eq!(signed_rank_counts(10).iter().sum::<f64>(), 1024.0);
        assert_eq!(rank_sum_counts(5, 5).iter().sum::<f64>(), 252.0);
        assert_eq!(rank_sum_counts(2, 2), [1.0, 1.0, 2.0, 1.0, 1.0]);
    }

    #[test]
    fn a_paired_change_by_hand() {
        // Differences 1..6: the 21 Walsh averages are 1, 1.5, 2, 2, 2.5, 2.5, 3, 3, 3, 3.5 ×3, … 6; the 11th is 3.5.
        let change = Change::paired(&[3.0, 1.0, 2.0, 6.0, 5.0, 4.0]);
        assert_eq!(change, Change { log_ratio: 3.5, interval: Some((1.0, 6.0)), paired: true });
        let seven = Change::paired(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        // k = 2: the third smallest of 1, 1.5, 2, 2 … is 2.
        assert_eq!(seven.interval, Some((2.0, 6.0)));
    }

    #[test]
    fn four_rounds_are_compared_all_with_all() {
        let e = std::f64::consts::E;
        let a = [1.0, 1.0, 1.0, 1.0];
        let b = [e, e * e, e.powi(3), e.powi(4)];
        let change = Change::between(&a, &b, Order::InTurn).unwrap();
        assert!((change.log_ratio - 2.5).abs() < 1e-12);
        let (low, high) = change.interval.unwrap();
        assert!((low - 1.0).abs() < 1e-12 && (high - 4.0).abs() < 1e-12);
        assert!(!change.paired);
    }

    #[test]
    fn three_rounds_have_no_interval_and_nonsense_has_no_change() {
        let change = Change::between(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0], Order::InTurn).unwrap();
        assert!((change.log_ratio - 2_f64.ln()).abs() < 1e-12);
        assert_eq!(change.interval, None);
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Change::between(&[1.0, bad], &[1.0, 1.0], Order::InTurn), None);
        }
        assert_eq!(Change::between(&[], &[1.0], Order::InTurn), None);
    }

    #[test]
    fn six_rounds_apart_are_not_paired() {
        let a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        assert!(Change::between(&a, &a, Order::InTurn).unwrap().paired);
        assert!(!Change::between(&a, &a, Order::Apart).unwrap().paired);
        assert!(!Change::between(&a, &a[..5], Order::InTurn).unwrap().paired);
    }

    #[test]
    fn exact_probabilities_by_hand() {
        // All six of one sign: only they and their mirror image are as far out: 2 of 64.
        assert_eq!(exact_p_paired(&[1.0; 6]), Some(2.0 / 64.0));
        assert_eq!(exact_p_paired(&[1.0, -1.0]), Some(1.0));
        // Fully apart: the deal itself and its mirror image, of C(8,4) = 70.
        assert_eq!(exact_p_two_sample(&[1.0, 2.0, 3.0, 4.0], &[11.0, 12.0, 13.0, 14.0]), Some(2.0 / 70.0));
        assert_eq!(exact_p_two_sample(&[1.0, 1.0], &[1.0, 1.0]), Some(1.0));
        assert_eq!(exact_p_paired(&[1.0; 40]), None);
        assert_eq!(exact_p_two_sample(&[1.0; 30], &[2.0; 30]), None);
    }
}
