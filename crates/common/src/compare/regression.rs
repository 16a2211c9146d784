//! Whether later runs are worse than those of a baseline, which were made at another time: there are no pairs, and often
//! only one later run, so that what says how much runs differ anyway are the baseline's.

use super::Goal;

/// Runs in a baseline below which nothing can be said: two do not tell how much runs differ.
pub const LEAST_BASELINE: usize = 3;
/// How often later runs that are like the baseline's, normally scattered, are called worse at any of their points.
pub const REGRESSION_FALSE_ALARM: f64 = 0.01;

/// What can be said of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Worse by more than is tolerated, and by more than runs differ anyway.
    Regressed,
    /// Not worse by more than is tolerated.
    Within,
    /// Worse by more than is tolerated, which the scatter of the runs explains as well, or too few runs tell.
    Undecided,
}

/// Later runs against those of a baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regression {
    /// The mean of the later runs' logarithms less that of the baseline's.
    pub log_ratio: f64,
    /// The standard deviation of the logarithms of runs, of both together; `None` where too few tell.
    pub sigma: Option<f64>,
    /// The chance of a change this bad between runs that are alike (Student, one-sided); `None` where too few tell.
    pub p: Option<f64>,
    /// What follows.
    pub finding: Finding,
}

impl Regression {
    /// Of one value for each run. A change for the worse beyond `tolerance`, a fraction, counts where its probability is
    /// small enough for one of `points` points. `None` where there are no runs, or a value that is not a positive
    /// number.
    pub fn of(baseline: &[f64], later: &[f64], goal: Goal, tolerance: f64, points: usize) -> Option<Self> {
        let usable = |values: &[f64]| {
            !values.is_empty() && values.iter().all(|value| value.is_finite() && *value > 0.0)
        };
        if !usable(baseline) || !usable(later) {
            return None;
        }
        let (a, b) = (Logs::of(baseline), Logs::of(later));
        let log_ratio = b.mean - a.mean;
        let worse_by = if goal == Goal::Higher { -log_ratio } else { log_ratio };
        let freedom = a.n + b.n - 2.0;
        let sigma = (baseline.len() >= LEAST_BASELINE).then(|| ((a.squares + b.squares) / freedom).sqrt());
        let p = sigma.map(|sigma| match worse_by / (sigma * (1.0 / a.n + 1.0 / b.n).sqrt()) {
            // All runs agree to the last digit.
            nothing if nothing.is_nan() => 1.0,
            t => student_beyond(t, freedom),
        });
        let tolerated = if goal == Goal::Higher { -(-tolerance).ln_1p() } else { tolerance.ln_1p() };
        let finding = match p {
            _ if worse_by <= tolerated => Finding::Within,
            Some(p) if p * points.max(1) as f64 <= REGRESSION_FALSE_ALARM => Finding::Regressed,
            _ => Finding::Undecided,
        };
        Some(Self { log_ratio, sigma, p, finding })
    }
}

struct Logs {
    n: f64,
    mean: f64,
    /// The sum of the squared deviations from the mean.
    squares: f64,
}

impl Logs {
    fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().map(|value| value.ln()).sum::<f64>() / n;
        let squares = values.iter().map(|value| (value.ln() - mean).powi(2)).sum();
        Self { n, mean, squares }
    }
}

/// The probability beyond `t` of Student's distribution with `freedom` degrees of freedom.
fn student_beyond(t: f64, freedom: f64) -> f64 {
    if t.is_infinite() {
        return if t > 0.0 { 0.0 } else { 1.0 };
    }
    let tail = incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5) / 2.0;
    if t > 0.0 { tail } else { 1.0 - tail }
}

/// The regularised incomplete beta function, by its continued fraction (DLMF 8.17.22) evaluated after Lentz.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast on this side of the mean.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    front / continued_fraction(x, a, b)
}

/// 1 + d₁/(1 + d₂/(1 + …)).
fn continued_fraction(x: f64, a: f64, b: f64) -> f64 {
    // What stands for nothing where something is divided by it.
    const TINY: f64 = 1e-300;
    let term = |step: f64, odd: bool| {
        if odd {
            -(a + step) * (a + b + step) * x / ((a + 2.0 * step) * (a + 2.0 * step + 1.0))
        } else {
            step * (b - step) * x / ((a + 2.0 * step - 1.0) * (a + 2.0 * step))
        }
    };
    let (mut fraction, mut c, mut d) = (1.0_f64, 1.0_f64, 0.0_f64);
    for index in 1..400 {
        let d_n = term(f64::from(index / 2), index % 2 == 1);
        d = 1.0 / not_nothing(1.0 + d_n * d, TINY);
        c = not_nothing(1.0 + d_n / c, TINY);
        fraction *= c * d;
        if (c * d - 1.0).abs() < 1e-14 {
            break;
        }
    }
    fraction
}

fn not_nothing(value: f64, tiny: f64) -> f64 {
    if value.abs() < tiny { tiny } else { value }
}

/// The logarithm of the gamma function of a positive number: Stirling's series (DLMF 5.11.1) from 8 on, and the
/// recurrence below.
fn ln_gamma(x: f64) -> f64 {
    if x < 8.0 {
        return ln_gamma(x + 1.0) - x.ln();
    }
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1260.0 * x.powi(5))
        - 1.0 / (1680.0 * x.powi(7));
    (x - 0.5) * x.ln() - x + std::f64::consts::TAU.ln() / 2.0 + series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_distribution_is_that_of_the_published_tables() {
        for (t, freedom, beyond) in [
            (31.821, 1.0, 0.01),
            (9.925, 2.0, 0.005),
            (2.776, 4.0, 0.025),
            (2.228, 10.0, 0.025),
            (3.291, 1e6, 0.0005),
            (0.0, 3.0, 0.5),
            (-2.776, 4.0, 0.975),
        ] {
            let p = student_beyond(t, freedom);
            assert!((p - beyond).abs() < beyond * 2e-3, "{t}, {freedom}: {p}");
        }
        assert!((ln_gamma(0.5) - std::f64::consts::PI.ln() / 2.0).abs() < 1e-9);
        assert!((ln_gamma(11.0) - 3_628_800_f64.ln()).abs() < 1e-9);
    }

    #[test]
    fn each_finding_has_its_case() {
        let finding = |later: &[f64], tolerance| {
            Regression::of(&[100.0, 101.0, 99.0, 100.5], later, Goal::Higher, tolerance, 1).unwrap().finding
        };
        assert_eq!(finding(&[98.0], 0.05), Finding::Within);
        assert_eq!(finding(&[130.0], 0.05), Finding::Within);
        assert_eq!(finding(&[80.0], 0.05), Finding::Regressed);
        // 2 % below is more than 1 %, but four runs that differ by 1 % don't tell.
        assert_eq!(finding(&[98.0], 0.01), Finding::Undecided);
        let of_two = Regression::of(&[100.0, 101.0], &[50.0], Goal::Higher, 0.05, 1).unwrap();
        assert_eq!((of_two.finding, of_two.p), (Finding::Undecided, None));
    }

    #[test]
    fn a_change_and_its_probability_by_hand() {
        let e = |log: f64| log.exp();
        let found = Regression::of(&[e(1.0), e(1.1), e(1.2)], &[e(1.6)], Goal::Lower, 0.05, 1).unwrap();
        assert!((found.log_ratio - 0.5).abs() < 1e-12);
        assert!((found.sigma.unwrap() - 0.1).abs() < 1e-12);
        // t = 0.5 / (0.1·√(1 + 1/3)) = 4.33 with two degrees of freedom: ½ − t/(2√(2 + t²)) = 0.0247.
        assert!((found.p.unwrap() - 0.0247).abs() < 1e-4, "{:?}", found.p);
    }

    #[test]
    fn runs_that_agree_to_the_last_digit_do_not_break_it() {
        let of = |later| Regression::of(&[5.0; 4], &[later], Goal::Higher, 0.05, 1).unwrap();
        assert_eq!((of(5.0).p, of(5.0).finding), (Some(1.0), Finding::Within));
        assert_eq!((of(4.0).p, of(4.0).finding), (Some(0.0), Finding::Regressed));
        assert_eq!(Regression::of(&[5.0; 4], &[0.0], Goal::Higher, 0.05, 1), None);
        assert_eq!(Regression::of(&[5.0; 4], &[], Goal::Higher, 0.05, 1), None);
    }
}
