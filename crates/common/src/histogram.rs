//! Counts of times, in bars that widen with the time: any time is known to three digits, and memory is bounded
//! whatever their number.
//!
//! The bars are those of an HDR histogram. It is our own so that a second thread can read the counters while the first
//! counts: what a watcher sees once a second then costs the measured loop nothing. The counters are atomic for that
//! reason alone; they are read and written with plain moves, since there is one writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Times below this many nanoseconds have a bar each; above, each power of two has half as many: 1 in 1024 is three
/// digits.
const EXACT: u64 = 2048;
const HALF: u64 = EXACT / 2;
/// The longest time that is told apart from longer ones: the last nanosecond below 2³⁶, 68.7 s.
const LONGEST_NS: u64 = (1 << 36) - 1;
const BARS: usize = index_of(LONGEST_NS) + 1;

/// Which bar a time belongs to.
const fn index_of(ns: u64) -> usize {
    if ns < EXACT {
        return ns as usize;
    }
    let shift = (ns / HALF).ilog2() as u64;
    (shift * HALF + (ns >> shift)) as usize
}

/// The longest time of a bar.
fn longest_in(index: usize) -> u64 {
    let index = index as u64;
    if index < EXACT {
        return index;
    }
    let shift = index / HALF - 1;
    ((index - shift * HALF + 1) << shift) - 1
}

/// The counters, which other threads may hold and read.
#[derive(Clone)]
pub struct Histogram {
    counts: Arc<[AtomicU64; BARS]>,
}

/// A bar that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// The longest time that it stands for.
    pub up_to_ns: u64,
    /// How often such a time was counted.
    pub count: u64,
}

impl Histogram {
    /// An empty one; allocates and touches all that it will ever use.
    pub fn new() -> Self {
        // Zeros alone would be pages that the kernel gives when the loop first counts in them.
        let counts = Arc::new([const { AtomicU64::new(1) }; BARS]);
        counts.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        Self { counts }
    }

    /// Counts a time. For one thread: counts of two at once would get lost.
    #[inline(always)]
    pub fn record(&mut self, ns: u64) {
        let counter = &self.counts[index_of(ns.min(LONGEST_NS))];
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn counts(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().map(|counter| counter.load(Ordering::Relaxed))
    }

    /// The bars that hold anything, in rising order.
    pub fn bars(&self) -> impl Iterator<Item = Bar> {
        bars(self.counts())
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

fn bars(counts: impl Iterator<Item = u64>) -> impl Iterator<Item = Bar> {
    counts
        .enumerate()
        .filter(|(_, count)| *count > 0)
        .map(|(index, count)| Bar { up_to_ns: longest_in(index), count })
}

/// The time of rank `rank` (from 1) among all that `bars` hold: the longest of its bar.
pub fn at_rank(mut bars: impl Iterator<Item = Bar>, rank: u64) -> Option<u64> {
    let mut below = 0;
    bars.find(|bar| {
        below += bar.count;
        below >= rank
    })
    .map(|bar| bar.up_to_ns)
}

/// Reads a [`Histogram`] again and again, while another thread counts: what has come since the last time.
pub struct Reader {
    histogram: Histogram,
    seen: Vec<u64>,
    since: Vec<u64>,
}

impl Reader {
    /// A reader that has just looked; allocates and touches all that it will ever use.
    pub fn new(histogram: Histogram) -> Self {
        let mut reader = Self { histogram, seen: vec![0; BARS], since: vec![0; BARS] };
        reader.look();
        reader
    }

    /// Looks at all counters; from now on [`Reader::bars`] is what has come since the last look.
    pub fn look(&mut self) {
        for ((seen, since), now) in self.seen.iter_mut().zip(&mut self.since).zip(self.histogram.counts()) {
            *since = now - *seen;
            *seen = now;
        }
    }

    /// What came between the last two looks, in rising order.
    pub fn bars(&self) -> impl Iterator<Item = Bar> {
        bars(self.since.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(times: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        times.iter().for_each(|&time| histogram.record(time));
        histogram
    }

    #[test]
    fn short_times_are_exact_and_long_ones_have_three_digits() {
        let bars: Vec<Bar> = of(&[0, 1, 2047, 2047, 2048, 1_000_000, u64::MAX]).bars().collect();
        let times: Vec<(u64, u64)> = bars.iter().map(|bar| (bar.up_to_ns, bar.count)).collect();
        assert_eq!(times, [(0, 1), (1, 1), (2047, 2), (2049, 1), (1_000_447, 1), (LONGEST_NS, 1)]);
    }

    #[test]
    fn a_rank_is_found_in_its_bar() {
        let histogram = of(&[5, 5, 7, 9]);
        let at = |rank| at_rank(histogram.bars(), rank);
        assert_eq!([at(1), at(2), at(3), at(4), at(5)], [Some(5), Some(5), Some(7), Some(9), None]);
    }

    #[test]
    fn a_reader_sees_what_has_come_since_its_last_look() {
        let mut histogram = of(&[5]);
        let mut reader = Reader::new(histogram.clone());
        let counts = |reader: &Reader| reader.bars().map(|bar| (bar.up_to_ns, bar.count)).collect::<Vec<_>>();
        histogram.record(5);
        histogram.record(9);
        reader.look();
        assert_eq!(counts(&reader), [(5, 1), (9, 1)]);
        reader.look();
        assert!(counts(&reader).is_empty());
    }

    #[test]
    fn nothing_is_lost_between_two_threads() {
        let mut histogram = Histogram::new();
        let mut reader = Reader::new(histogram.clone());
        let mut seen = 0;
        std::thread::scope(|scope| {
            let counting = scope.spawn(move || (0..100_000).for_each(|time| histogram.record(time % 5000)));
            while !counting.is_finished() {
                reader.look();
                seen += reader.bars().map(|bar| bar.count).sum::<u64>();
            }
        });
        reader.look();
        assert_eq!(seen + reader.bars().map(|bar| bar.count).sum::<u64>(), 100_000);
    }

    proptest! {
        #[test]
        fn a_bar_holds_its_times_to_three_digits(ns in 0..=LONGEST_NS) {
            let up_to = longest_in(index_of(ns));
            prop_assert!(up_to >= ns && up_to - ns <= ns / 1024, "{} in a bar up to {}", ns, up_to);
            prop_assert_eq!(index_of(up_to), index_of(ns));
            prop_assert_eq!(index_of(up_to + 1), index_of(ns) + 1);
        }
    }
}
