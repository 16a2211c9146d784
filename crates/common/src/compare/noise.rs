//! How much the rounds of an arm scatter, and which of them are odd.

use super::{median_of, sorted};

/// What relates the median absolute deviation to the standard deviation of normally scattered values.
pub(super) const MAD_TO_SIGMA: f64 = 1.4826;
/// The expected range of 3 to 10 normally scattered values, in standard deviations (the control-chart constant d₂).
const RANGE_TO_SIGMA: [f64; 8] = [1.693, 2.059, 2.326, 2.534, 2.704, 2.847, 2.970, 3.078];
/// Rounds up to which the range is used: with so few, the median deviation is too often nearly nothing.
const FEW: usize = 5;

/// The scatter of an arm's rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// The standard deviation of the logarithms, estimated so that a lone odd round does not blow it up (from six
    /// rounds on).
    pub sigma: f64,
}

impl Noise {
    /// Of the rounds' values, which are positive; `None` below three.
    pub fn of(values: &[f64]) -> Option<Self> {
        let logs = sorted(values.iter().map(|value| value.ln()).collect());
        let (first, last) = (logs.first()?, logs.last()?);
        match logs.len() {
            0..3 => None,
            few @ ..=FEW => Some(Self { sigma: (last - first) / RANGE_TO_SIGMA[few - 3] }),
            _ => Some(Self { sigma: robust_sigma(&logs)? }),
        }
    }

    /// As a percentage of the value.
    pub fn percent(self) -> f64 {
        self.sigma.exp_m1() * 100.0
    }
}

fn robust_sigma(logs: &[f64]) -> Option<f64> {
    let centre = median_of(logs.iter().copied())?;
    Some(MAD_TO_SIGMA * median_of(logs.iter().map(|log| (log - centre).abs()))?)
}

/// A round that is unlike the others. It is shown and never dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oddity {
    /// The first round, far from the others: something was cold.
    Cold,
    /// A lone round far from the others.
    Outlier(usize),
}

/// Robust deviations from the median beyond which a first round is called cold.
const COLD: f64 = 10.0;
/// The same for any round (the usual limit of the modified z-score).
const OUTLYING: f64 = 3.5;

/// The odd rounds among `values`. Less than `threshold` (a fraction) from the median is not odd, however little the
/// others scatter.
pub fn oddities(values: &[f64], threshold: f64) -> Vec<Oddity> {
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let (Some(centre), Some(sigma)) = (median_of(logs.iter().copied()), robust_sigma(&logs)) else {
        return Vec::new();
    };
    let far = |log: f64, times: f64| (log - centre).abs() > (times * sigma).max(threshold.ln_1p());
    let odd = |(index, &log): (usize, &f64)| match index {
        0 if far(log, COLD) => Some(Oddity::Cold),
        _ => far(log, OUTLYING).then_some(Oddity::Outlier(index)),
    };
    if values.len() < 3 { Vec::new() } else { logs.iter().enumerate().filter_map(odd).collect() }
}

/// Spearman's correlation beyond which a sitting is said to drift.
const DRIFTING: f64 = 0.7;
/// Rounds in both arms together below which a correlation says nothing.
const LEAST_FOR_DRIFT: usize = 8;

/// Whether values in the order of their taking went steadily up or down: their rank correlation with time, if it is
/// beyond ±0.7.
pub fn drift(in_order: &[f64]) -> Option<f64> {
    if in_order.len() < LEAST_FOR_DRIFT {
        return None;
    }
    let times: Vec<f64> = (0..in_order.len()).map(|time| time as f64).collect();
    let rho = correlation(&ranks(in_order), &times)?;
    (rho.abs() > DRIFTING).then_some(rho)
}

/// The rank of each value; equal ones share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        below as f64 + (equal - 1) as f64 / 2.0
    };
    values.iter().map(rank).collect()
}

fn correlation(x: &[f64], y: &[f64]) -> Option<f64> {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (mean_x, mean_y) = (mean(x), mean(y));
    let product = |(x, y): (&f64, &f64)| (x - mean_x) * (y - mean_y);
    let (xy, xx, yy): (f64, f64, f64) = (
        x.iter().zip(y).map(product).sum(),
        x.iter().map(|x| (x - mean_x).powi(2)).sum(),
        y.iter().map(|y| (y - mean_y).powi(2)).sum(),
    );
    (xx > 0.0 && yy > 0.0).then(|| xy / (xx * yy).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_of_few_rounds_is_their_range() {
        let e = |log: f64| log.exp();
        let noise = Noise::of(&[e(1.0), e(1.1), e(1.05)]).unwrap();
        assert!((noise.sigma - 0.1 / 1.693).abs() < 1e-12);
        assert_eq!(Noise::of(&[1.0, 2.0]), None);
    }

    #[test]
    fn noise_of_many_rounds_is_not_blown_up_by_a_lone_one() {
        let logs = [0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 3.0];
        let noise = Noise::of(&logs.map(f64::exp)).unwrap();
        // The deviations from 0.03 are 0, .01, .01, .02, .02, .03, 2.97: their median is .02.
        assert!((noise.sigma - 1.4826 * 0.02).abs() < 1e-9);
        assert!((Noise { sigma: 1.1_f64.ln() }.percent() - 10.0).abs() < 1e-9);
    }

    #[test]
    fn a_lone_slow_round_is_pointed_out() {
        // GB/s of three rounds of an all-to-all on one fabric.
        assert_eq!(oddities(&[39.180, 44.458, 18.763], 0.01), [Oddity::Outlier(2)]);
        assert_eq!(oddities(&[1.0, 10.0, 10.1, 9.9, 10.0, 10.05], 0.01), [Oddity::Cold]);
        assert_eq!(oddities(&[10.0, 10.0, 10.0, 10.05], 0.01), []);
        assert_eq!(oddities(&[1.0, 2.0], 0.01), []);
    }

    #[test]
    fn a_steady_rise_is_drift_and_scatter_is_not() {
        let rising: Vec<f64> = (0..12).map(|i| 100.0 + f64::from(i)).collect();
        assert!((drift(&rising).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(drift(&[1.0, 3.0, 2.0, 1.5, 2.5, 1.2, 2.8, 1.9]), None);
        assert_eq!(drift(&[5.0; 12]), None);
        assert_eq!(drift(&rising[..7]), None);
    }
}
