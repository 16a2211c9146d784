//! From rounds to the figures of a table. Pure, and tested on known data.

/// The median and the range of one point's rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundStats {
    /// The middle value; of an even number of rounds the mean of the two middle ones.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl RoundStats {
    /// Of the values of at least one round; `None` where there is none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Self { median, min, max })
    }

    /// The range in per cent of the median; `None` for a single round (no spread was measured) or a zero median.
    pub fn spread_percent(&self, rounds: usize) -> Option<f64> {
        (rounds > 1 && self.median > 0.0).then(|| (self.max - self.min) / self.median * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!(RoundStats::of(&[3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(RoundStats::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(RoundStats::of(&[]), None);
    }

    #[test]
    fn spread_is_the_range_over_the_median() {
        let stats = RoundStats::of(&[90.0, 100.0, 120.0]).unwrap();
        assert_eq!(stats.spread_percent(3), Some(30.0));
        assert_eq!(stats.spread_percent(1), None);
    }

    proptest! {
        #[test]
        fn the_median_lies_in_the_range(values in prop::collection::vec(0.0_f64..1e12, 1..50)) {
            let stats = RoundStats::of(&values).unwrap();
            prop_assert!(stats.min <= stats.median && stats.median <= stats.max);
        }
    }
}
