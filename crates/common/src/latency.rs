//! From round trips to the figures of a latency table.
//!
//! Every figure is half a round trip, in microseconds. Rounds that end by count keep every sample, so that each
//! figure is exact; rounds that end by time count into a histogram of bounded size ([`HdrSamples`]), beside which
//! minimum, maximum, mean and deviation stay exact. perftest hides its two worst samples, truncates its deviation to
//! whole microseconds and gives only an average for timed runs; nothing of the kind happens here.

use serde::{Deserialize, Serialize};

use crate::histogram::{Histogram, at_rank};

/// A store of round trips; the measured loop is compiled for each kind.
pub trait Samples {
    /// Notes one round trip of `rtt_ns` nanoseconds. Never allocates.
    fn record(&mut self, rtt_ns: u64);

    /// The figures; `None` where nothing was recorded.
    fn latency(&self) -> Option<Latency>;
}

/// Half round trips of one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The shortest.
    pub t_min_usec: f64,
    /// The longest: the true one.
    pub t_max_usec: f64,
    /// The median.
    pub t_typical_usec: f64,
    /// The mean.
    pub t_avg_usec: f64,
    /// The standard deviation of all samples, dividing by their number.
    pub t_stdev_usec: f64,
    /// 99 % are not longer.
    pub p99_usec: f64,
    /// 99.9 % are not longer.
    pub p99_9_usec: f64,
    /// 99.99 % are not longer.
    pub p99_99_usec: f64,
    /// How the samples are distributed.
    pub histogram: Vec<Bucket>,
}

/// A bar of a histogram: samples longer than the bar before and not longer than this.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// The upper end.
    pub up_to_usec: f64,
    /// Samples.
    pub count: u64,
}

/// Half of a round trip in nanoseconds, in microseconds.
pub fn half_usec(rtt_ns: f64) -> f64 {
    rtt_ns / 2.0 / 1e3
}

/// Every sample, for rounds whose number of samples is known.
#[derive(Debug, Default)]
pub struct RawSamples {
    rtts_ns: Vec<u64>,
}

impl RawSamples {
    /// A store for `count` samples at most; allocates and touches all of it now.
    pub fn with_capacity(count: usize) -> Self {
        let mut rtts_ns = vec![1; count];
        rtts_ns.clear();
        Self { rtts_ns }
    }

    /// The samples in the order in which they were taken.
    pub fn rtts_ns(&self) -> &[u64] {
        &self.rtts_ns
    }
}

impl Samples for RawSamples {
    #[inline(always)]
    fn record(&mut self, rtt_ns: u64) {
        debug_assert!(self.rtts_ns.len() < self.rtts_ns.capacity(), "the loop stops at the capacity");
        self.rtts_ns.push(rtt_ns);
    }

    fn latency(&self) -> Option<Latency> {
        let mut sorted = self.rtts_ns.clone();
        sorted.sort_unstable();
        let moments = Moments::of(&sorted);
        let at = |quantile: f64| sorted[rank(quantile, sorted.len() as u64) as usize - 1];
        let counted = sorted.iter().map(|&rtt_ns| (rtt_ns, 1));
        (!sorted.is_empty()).then(|| moments.latency(at, buckets(counted)))
    }
}

/// Samples counted into a histogram of three significant digits: a percentile is at most 0.1 % too high. Memory is
/// bounded whatever the number of samples.
#[derive(Default)]
pub struct HdrSamples {
    histogram: Histogram,
    moments: Moments,
}

impl HdrSamples {
    /// An empty store; allocates all that it will ever use.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is counted, for another thread to look at meanwhile.
    pub fn histogram(&self) -> Histogram {
        self.histogram.clone()
    }
}

impl Samples for HdrSamples {
    #[inline]
    fn record(&mut self, rtt_ns: u64) {
        self.histogram.record(rtt_ns);
        self.moments.add(rtt_ns);
    }

    fn latency(&self) -> Option<Latency> {
        // The last bar's upper end can be above the largest sample, which is known exactly.
        let max = self.moments.max;
        let at = |quantile: f64| {
            at_rank(self.histogram.bars(), rank(quantile, self.moments.count)).map_or(max, |ns| ns.min(max))
        };
        let counted = self.histogram.bars().map(|bar| (bar.up_to_ns, bar.count));
        (self.moments.count > 0).then(|| self.moments.latency(at, buckets(counted)))
    }
}

/// What stays exact however many samples there are.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    count: u64,
    min: u64,
    max: u64,
    sum: u128,
    sum_of_squares: u128,
}

impl Moments {
    fn of(samples: &[u64]) -> Self {
        let mut moments = Self::default();
        samples.iter().for_each(|&sample| moments.add(sample));
        moments
    }

    #[inline]
    fn add(&mut self, sample: u64) {
        self.min = if self.count == 0 { sample } else { self.min.min(sample) };
        self.max = self.max.max(sample);
        self.count += 1;
        self.sum += u128::from(sample);
        self.sum_of_squares += u128::from(sample) * u128::from(sample);
    }

    fn mean(&self) -> f64 {
        self.sum as f64 / self.count as f64
    }

    /// From exact integers, so that nothing is lost by subtracting two large and close numbers.
    fn deviation(&self) -> f64 {
        let count = u128::from(self.count);
        let spread = (count * self.sum_of_squares).saturating_sub(self.sum * self.sum);
        (spread as f64).sqrt() / self.count as f64
    }

    fn latency(&self, at: impl Fn(f64) -> u64, histogram: Vec<Bucket>) -> Latency {
        let usec = |rtt_ns: u64| half_usec(rtt_ns as f64);
        Latency {
            t_min_usec: usec(self.min),
            t_max_usec: usec(self.max),
            t_typical_usec: usec(at(0.5)),
            t_avg_usec: half_usec(self.mean()),
            t_stdev_usec: half_usec(self.deviation()),
            p99_usec: usec(at(0.99)),
            p99_9_usec: usec(at(0.999)),
            p99_99_usec: usec(at(0.9999)),
            histogram,
        }
    }
}

/// The rank, from 1, of the smallest sample that `quantile` of `count` samples are not longer than: the nearest-rank
/// rule. Never interpolated: every figure is a sample that was taken.
pub fn rank(quantile: f64, count: u64) -> u64 {
    // 0.99 × 100 is a hair above 99 in binary; a rank is not to move for that.
    ((quantile * count as f64 - 1e-9).ceil() as u64).clamp(1, count.max(1))
}

/// Ten bars to a factor of ten (the R10 series): fine enough to show two humps, few enough for a screen.
const BARS: [f64; 10] = [1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0];

/// Counts round trips (in rising order) into bars of half round trips, without the empty ones at both ends.
fn buckets(counted: impl Iterator<Item = (u64, u64)>) -> Vec<Bucket> {
    let mut bars: Vec<Bucket> = Vec::new();
    let mut edges = (-3..9).flat_map(|decade| BARS.map(|bar| bar * 10_f64.powi(decade)));
    for (rtt_ns, count) in counted {
        let usec = half_usec(rtt_ns as f64);
        while bars.last().is_none_or(|bar| usec > bar.up_to_usec) {
            let Some(up_to_usec) = edges.next() else { return bars };
            if !bars.is_empty() || usec <= up_to_usec {
                bars.push(Bucket { up_to_usec, count: 0 });
            }
        }
        if let Some(bar) = bars.last_mut() {
            bar.count += count;
        }
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn raw(rtts_ns: &[u64]) -> Latency {
        let mut samples = RawSamples::with_capacity(rtts_ns.len());
        rtts_ns.iter().for_each(|&rtt_ns| samples.record(rtt_ns));
        samples.latency().unwrap()
    }

    fn hdr(rtts_ns: &[u64]) -> Latency {
        let mut samples = HdrSamples::new();
        rtts_ns.iter().for_each(|&rtt_ns| samples.record(rtt_ns));
        samples.latency().unwrap()
    }

    #[test]
    fn figures_of_known_samples() {
        // 1000 round trips of 2, 4, … 2000 µs: half of them are 1, 2, … 1000 µs.
        let rtts: Vec<u64> = (1..=1000).map(|i| i * 2000).rev().collect();
        let latency = raw(&rtts);
        assert_eq!((latency.t_min_usec, latency.t_max_usec), (1.0, 1000.0));
        assert_eq!(latency.t_typical_usec, 500.0);
        assert_eq!((latency.p99_usec, latency.p99_9_usec, latency.p99_99_usec), (990.0, 999.0, 1000.0));
        assert_eq!(latency.t_avg_usec, 500.5);
        // The deviation of 1 … n is √((n² − 1) / 12).
        assert!((latency.t_stdev_usec - ((1e6 - 1.0) / 12.0_f64).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn one_sample_is_every_figure_but_the_deviation() {
        let latency = raw(&[3000]);
        assert_eq!((latency.t_min_usec, latency.t_typical_usec, latency.p99_99_usec), (1.5, 1.5, 1.5));
        assert_eq!(latency.t_stdev_usec, 0.0);
        assert!(RawSamples::default().latency().is_none());
        assert!(HdrSamples::new().latency().is_none());
    }

    #[test]
    fn ranks_are_nearest_ranks() {
        assert_eq!([0.5, 0.99, 0.999, 1.0].map(|quantile| rank(quantile, 100)), [50, 99, 100, 100]);
        assert_eq!([rank(0.5, 1), rank(0.5, 2), rank(0.5, 3), rank(0.99, 1000)], [1, 1, 2, 990]);
    }

    #[test]
    fn bars_hold_every_sample_and_begin_and_end_with_one() {
        let bars = raw(&[2000, 2000, 2400, 40_000]).histogram;
        assert_eq!(bars[0], Bucket { up_to_usec: 1.0, count: 2 });
        assert_eq!(bars[1], Bucket { up_to_usec: 1.25, count: 1 });
        assert_eq!(bars.last().unwrap(), &Bucket { up_to_usec: 20.0, count: 1 });
        assert_eq!(bars.iter().map(|bar| bar.count).sum::<u64>(), 4);
    }

    proptest! {
        #[test]
        fn the_histogram_agrees_with_the_samples(rtts in prop::collection::vec(100_u64..10_000_000, 1..400)) {
            let (exact, bounded) = (raw(&rtts), hdr(&rtts));
            prop_assert_eq!((exact.t_min_usec, exact.t_max_usec), (bounded.t_min_usec, bounded.t_max_usec));
            prop_assert!((exact.t_avg_usec - bounded.t_avg_usec).abs() < 1e-9);
            prop_assert!((exact.t_stdev_usec - bounded.t_stdev_usec).abs() < 1e-9);
            for (exact, bounded) in [
                (exact.t_typical_usec, bounded.t_typical_usec),
                (exact.p99_usec, bounded.p99_usec),
                (exact.p99_99_usec, bounded.p99_99_usec),
            ] {
                prop_assert!(bounded >= exact * 0.999 && bounded <= exact * 1.0011, "{} {}", exact, bounded);
            }
        }

        #[test]
        fn figures_are_in_order(rtts in prop::collection::vec(1_u64..1_000_000, 1..200)) {
            let l = raw(&rtts);
            let figures = [l.t_min_usec, l.t_typical_usec, l.p99_usec, l.p99_9_usec, l.p99_99_usec, l.t_max_usec];
            prop_assert!(figures.is_sorted());
            prop_assert!(l.t_min_usec <= l.t_avg_usec + 1e-9 && l.t_avg_usec <= l.t_max_usec + 1e-9);
        }
    }
}
