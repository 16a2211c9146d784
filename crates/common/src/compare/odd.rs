//! Which of several that should be alike is odd.
//!
//! The distance of each from the median, in the standard deviation that belongs to the median deviation: one odd member,
//! or a few, move neither. How far the farthest of n alike members is, is worked out by trying: with few members the
//! median deviation is often nearly nothing, and a fixed limit would call something odd in every third fleet of five.

use super::dice::Dice;
use super::noise::MAD_TO_SIGMA;
use super::{median_of, relative};

/// Members below which none is called odd.
pub const LEAST_MEMBERS: usize = 5;
/// How often a fleet of alike members, normally scattered, has a member that is called odd at any of its points.
pub const FLEET_FALSE_ALARM: f64 = 0.01;

/// Normal numbers that are drawn for a limit, and the fewest and most fleets made of them: some hundredths of a second.
const DRAWN: usize = 600_000;
const FEWEST_FLEETS: usize = 4_000;
const MOST_FLEETS: usize = 20_000;

/// What the members of a fleet are around, and how far each is from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// The median of the members' values.
    pub centre: f64,
    /// The standard deviation of their logarithms, from the median deviation.
    pub sigma: f64,
    /// Each member's logarithm less the centre's, in members' order.
    pub logs: Vec<f64>,
}

impl Spread {
    /// Of the members' values; `None` where there is none, or one that is not a positive number.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.iter().any(|value| !(value.is_finite() && *value > 0.0)) {
            return None;
        }
        let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        let (centre, sigma) = centre_and_sigma(&logs)?;
        Some(Self { centre: centre.exp(), sigma, logs: logs.iter().map(|log| log - centre).collect() })
    }

    /// How far `member` is from the centre, as a fraction of it.
    pub fn off(&self, member: usize) -> f64 {
        relative(self.logs[member])
    }

    /// The same in standard deviations; infinite where all others agree to the last digit and it does not.
    pub fn deviations(&self, member: usize) -> f64 {
        let log = self.logs[member];
        if log == 0.0 { 0.0 } else { log / self.sigma }
    }

    /// Whether `member` is odd: beyond `limit` standard deviations, and by a change that matters.
    pub fn is_odd(&self, member: usize, limit: f64, threshold: f64) -> bool {
        self.logs[member].abs() >= threshold.ln_1p() && self.deviations(member).abs() > limit
    }
}

fn centre_and_sigma(logs: &[f64]) -> Option<(f64, f64)> {
    let centre = median_of(logs.iter().copied())?;
    let deviation = median_of(logs.iter().map(|log| (log - centre).abs()))?;
    Some((centre, MAD_TO_SIGMA * deviation))
}

/// How many standard deviations the farthest of `members` alike ones is away at one of `points` points, in all but
/// [`FLEET_FALSE_ALARM`] of fleets. Points are taken as if each were another chance, though a fleet's usually agree.
/// `None` for fewer than [`LEAST_MEMBERS`].
pub fn odd_limit(members: usize, points: usize) -> Option<f64> {
    if members < LEAST_MEMBERS {
        return None;
    }
    let fleets = (DRAWN / members).clamp(FEWEST_FLEETS, MOST_FLEETS);
    let mut dice = Dice(members as u64);
    let mut farthest: Vec<f64> = (0..fleets).map(|_| farthest_of(members, &mut dice)).collect();
    farthest.sort_by(f64::total_cmp);
    let beyond = (FLEET_FALSE_ALARM / points.max(1) as f64 * fleets as f64).floor() as usize;
    farthest.get(fleets - 1 - beyond.min(fleets - 1)).copied()
}

fn farthest_of(members: usize, dice: &mut Dice) -> f64 {
    let mut logs: Vec<f64> = (0..members).map(|_| dice.normal()).collect();
    let centre = middle(&mut logs);
    let mut away: Vec<f64> = logs.iter().map(|log| (log - centre).abs()).collect();
    let farthest = away.iter().copied().fold(0.0, f64::max);
    farthest / (MAD_TO_SIGMA * middle(&mut away))
}

/// The median, without sorting all.
fn middle(values: &mut [f64]) -> f64 {
    let half = values.len() / 2;
    let odd = values.len() % 2 == 1;
    let (below, &mut upper, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    if odd { upper } else { (below.iter().copied().fold(f64::MIN, f64::max) + upper) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_odd_one_is_found_by_hand() {
        // Around 100 within 1 %, and one 10 % below.
        let spread = Spread::of(&[99.0, 100.0, 101.0, 99.5, 100.5, 90.0, 100.2]).unwrap();
        assert!((spread.centre - 100.0).abs() < 1e-9);
        // The deviations of the logarithms from 100's: 0, .2, .5, .5, 1, 1, 10.5 %: the median is .5 %.
        assert!((spread.sigma - 1.4826 * 0.005).abs() < 2e-5, "{}", spread.sigma);
        assert!((spread.off(5) + 0.1).abs() < 1e-9);
        assert!(spread.is_odd(5, 9.0, 0.01) && !spread.is_odd(0, 9.0, 0.01));
        // Far in deviations, but nothing to act on.
        assert!(!spread.is_odd(5, 9.0, 0.2));
        assert_eq!(Spread::of(&[1.0, 0.0]), None);
    }

    #[test]
    fn members_that_agree_to_the_last_digit_have_no_odd_one_but_what_matters() {
        let spread = Spread::of(&[10.0, 10.0, 10.0, 10.0, 10.05, 9.0]).unwrap();
        assert_eq!(spread.deviations(0), 0.0);
        assert!(!spread.is_odd(4, 30.0, 0.01) && spread.is_odd(5, 30.0, 0.01));
    }

    #[test]
    fn limits_fall_with_the_members_and_rise_with_the_points() {
        let limits: Vec<f64> = [5, 8, 16, 64].map(|members| odd_limit(members, 1).unwrap()).to_vec();
        assert!(limits.windows(2).all(|pair| pair[0] > pair[1]), "{limits:?}");
        assert!(limits[0] > 15.0 && limits[3] < 7.0, "{limits:?}");
        assert!(odd_limit(16, 10) > odd_limit(16, 1));
        assert_eq!(odd_limit(4, 1), None);
        assert_eq!(odd_limit(16, 3), odd_limit(16, 3));
    }

    #[test]
    fn the_median_without_sorting_is_the_median() {
        assert_eq!(middle(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(middle(&mut [4.0, 1.0, 3.0, 2.0]), 2.5);
    }
}
