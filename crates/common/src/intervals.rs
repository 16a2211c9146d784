//! A long round, interval by interval: what shows a link that flaps, which an average hides.
//!
//! Pure: the watcher of a round (see [`crate::watch`]) says what came in each interval, this keeps it in bounded memory
//! and finds the slowest. Intervals have their true length, not the one that was asked for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::histogram::{Bar, at_rank};
use crate::latency::{half_usec, rank};
use crate::plan::Plan;
use crate::stats::RoundStats;

/// One interval of a round, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// When it began, from the beginning of the round.
    pub begin_ns: u64,
    /// How long it was.
    pub elapsed_ns: u64,
    /// Messages completed in it; of a latency, round trips.
    pub messages: u64,
    /// Its half round trips; absent for bandwidth, and where none ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency: Option<IntervalLatency>,
}

/// Half round trips of an interval. The figures are the upper ends of bars, at most 0.1 % too high.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct IntervalLatency {
    /// The median.
    pub t_typical_usec: f64,
    /// 99 % are not longer.
    pub p99_usec: f64,
    /// The longest.
    pub t_max_usec: f64,
}

impl Interval {
    /// When it began, from the beginning of the round.
    pub fn begin(&self) -> Duration {
        Duration::from_nanos(self.begin_ns)
    }

    /// How long it was.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.elapsed_ns)
    }

    /// Messages a second; zero where no time has passed.
    pub fn messages_per_sec(&self) -> f64 {
        if self.elapsed_ns > 0 { self.messages as f64 * 1e9 / self.elapsed_ns as f64 } else { 0.0 }
    }

    /// This and the next as one. Of half round trips the larger figure of the two stays: a bad interval must not
    /// vanish in a good one.
    fn merged_with(self, next: Self) -> Self {
        let latency = match (self.latency, next.latency) {
            (Some(one), Some(other)) => Some(IntervalLatency {
                t_typical_usec: one.t_typical_usec.max(other.t_typical_usec),
                p99_usec: one.p99_usec.max(other.p99_usec),
                t_max_usec: one.t_max_usec.max(other.t_max_usec),
            }),
            (one, other) => one.or(other),
        };
        Self {
            begin_ns: self.begin_ns,
            elapsed_ns: self.elapsed_ns.saturating_add(next.elapsed_ns),
            messages: self.messages.saturating_add(next.messages),
            latency,
        }
    }
}

impl IntervalLatency {
    /// Of the round trips that `bars` hold; `None` where there are none.
    pub fn of<B: Iterator<Item = Bar>>(bars: impl Fn() -> B) -> Option<Self> {
        let count: u64 = bars().map(|bar| bar.count).sum();
        let at = |quantile| at_rank(bars(), rank(quantile, count)).map(|ns| half_usec(ns as f64));
        Some(Self { t_typical_usec: at(0.5)?, p99_usec: at(0.99)?, t_max_usec: at(1.0)? })
    }
}

/// The intervals of one direction of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intervals {
    /// How many there were; what was left of the round when no whole one fitted is not among them.
    pub count: u64,
    /// The one with the lowest message rate.
    pub slowest: Interval,
    /// The one with the highest.
    pub fastest: Interval,
    /// How many neighbours each entry of the list stands for; the last may stand for fewer.
    pub merged: u64,
    /// All of them, in order.
    pub list: Vec<Interval>,
}

impl Intervals {
    /// The middle message rate of the list.
    pub fn median_messages_per_sec(&self) -> f64 {
        let rates: Vec<f64> = self.list.iter().map(Interval::messages_per_sec).collect();
        RoundStats::of(&rates).map_or(0.0, |stats| stats.median)
    }
}

/// Entries that the lists of one direction of a run have together: an hour of seconds. At 60 to 150 bytes an entry in
/// JSON that is half a MiB.
const ENTRIES_OF_A_RUN: usize = 3600;
/// And those of a round at least, however many rounds there are.
const ENTRIES_OF_A_ROUND: usize = 4;

/// Keeps the intervals of a round: when its list is full, neighbours are merged two by two.
#[derive(Debug)]
pub struct IntervalLog {
    count: u64,
    extremes: Option<(Interval, Interval)>,
    list: Vec<Interval>,
    capacity: usize,
    merged: u64,
    /// The entry in the making, and how many intervals are in it.
    pending: Option<(Interval, u64)>,
}

impl IntervalLog {
    /// For a round of `plan`.
    pub fn for_round_of(plan: &Plan) -> Self {
        let rounds = plan.rounds as usize * plan.sizes_bytes.len();
        Self::with_capacity(ENTRIES_OF_A_RUN / rounds.max(1))
    }

    /// With a list of `entries` at most; allocates all that it will ever use.
    fn with_capacity(entries: usize) -> Self {
        // Even, so that it can be halved.
        let capacity = entries.max(ENTRIES_OF_A_ROUND) & !1;
        Self {
            count: 0,
            extremes: None,
            list: Vec::with_capacity(capacity),
            capacity,
            merged: 1,
            pending: None,
        }
    }

    /// Takes the next interval.
    pub fn add(&mut self, interval: Interval) {
        self.count += 1;
        let (slowest, fastest) = self.extremes.get_or_insert((interval, interval));
        if interval.messages_per_sec() < slowest.messages_per_sec() {
            *slowest = interval;
        }
        if interval.messages_per_sec() > fastest.messages_per_sec() {
            *fastest = interval;
        }
        let (entry, of) = match self.pending.take() {
            Some((before, of)) => (before.merged_with(interval), of + 1),
            None => (interval, 1),
        };
        self.pending = Some((entry, of));
        if of < self.merged {
            return;
        }
        if self.list.len() < self.capacity {
            self.push_pending();
        } else {
            // What is pending stays so: it is half of an entry now.
            self.halve();
        }
    }

    fn push_pending(&mut self) {
        self.list.extend(self.pending.take().map(|(entry, _)| entry));
    }

    fn halve(&mut self) {
        for index in 0..self.list.len() / 2 {
            self.list[index] = self.list[2 * index].merged_with(self.list[2 * index + 1]);
        }
        self.list.truncate(self.list.len() / 2);
        self.merged = self.merged.saturating_mul(2);
    }

    /// The intervals; `None` where there was no whole one.
    pub fn finish(mut self) -> Option<Intervals> {
        let (slowest, fastest) = self.extremes?;
        if self.list.len() == self.capacity && self.pending.is_some() {
            self.halve();
        }
        self.push_pending();
        Some(Intervals { count: self.count, slowest, fastest, merged: self.merged, list: self.list })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn interval(number: u64, messages: u64) -> Interval {
        Interval { begin_ns: number * SECOND, elapsed_ns: SECOND, messages, latency: None }
    }

    fn logged(capacity: usize, messages: &[u64]) -> Option<Intervals> {
        let mut log = IntervalLog::with_capacity(capacity);
        (0..).zip(messages).for_each(|(number, &messages)| log.add(interval(number, messages)));
        log.finish()
    }

    #[test]
    fn the_slowest_the_fastest_and_the_middle_are_found() {
        let intervals = logged(100, &[90, 100, 20, 110, 100]).unwrap();
        assert_eq!((intervals.count, intervals.merged, intervals.list.len()), (5, 1, 5));
        assert_eq!((intervals.slowest, intervals.fastest), (interval(2, 20), interval(3, 110)));
        assert_eq!(intervals.median_messages_per_sec(), 100.0);
        assert_eq!(logged(100, &[]), None);
    }

    #[test]
    fn a_long_interval_is_not_a_fast_one() {
        let mut log = IntervalLog::with_capacity(4);
        log.add(interval(0, 100));
        let late = Interval { elapsed_ns: 3 * SECOND, messages: 150, ..interval(1, 0) };
        log.add(late);
        let intervals = log.finish().unwrap();
        assert_eq!((intervals.slowest, intervals.fastest), (late, interval(0, 100)));
    }

    #[test]
    fn a_full_list_is_merged_two_by_two_and_the_extremes_stay() {
        let messages: Vec<u64> = (0..10_000).map(|i| if i == 7777 { 3 } else { 100 }).collect();
        let intervals = logged(60, &messages).unwrap();
        assert_eq!((intervals.count, intervals.merged), (10_000, 256));
        assert_eq!(intervals.slowest, interval(7777, 3));
        assert!(intervals.list.len() <= 60, "{}", intervals.list.len());
        assert_eq!(intervals.list[1].begin_ns, 256 * SECOND);
    }

    #[test]
    fn of_merged_latencies_the_worse_stays() {
        let with = |t: f64| {
            let latency = IntervalLatency { t_typical_usec: t, p99_usec: 10.0 / t, t_max_usec: 9.0 };
            Interval { latency: Some(latency), ..interval(0, 1) }
        };
        let merged = with(2.0).merged_with(with(5.0)).merged_with(interval(1, 0)).latency.unwrap();
        assert_eq!((merged.t_typical_usec, merged.p99_usec), (5.0, 5.0));
    }

    #[test]
    fn half_round_trips_are_those_of_the_bars() {
        let bars = || [(2000, 98), (4000, 1), (9000, 1)].map(|(up_to_ns, count)| Bar { up_to_ns, count });
        let latency = IntervalLatency::of(|| bars().into_iter()).unwrap();
        assert_eq!((latency.t_typical_usec, latency.p99_usec, latency.t_max_usec), (1.0, 2.0, 4.5));
        assert_eq!(IntervalLatency::of(std::iter::empty), None);
    }

    #[test]
    fn the_rounds_of_a_run_share_its_entries() {
        let capacity = |rounds, sizes| {
            let plan = Plan { rounds, sizes_bytes: vec![64; sizes], ..plan() };
            IntervalLog::for_round_of(&plan).capacity
        };
        assert_eq!(
            [capacity(1, 1), capacity(3, 1), capacity(3, 23), capacity(1000, 64)],
            [3600, 1200, 52, 4]
        );
    }

    proptest! {
        #[test]
        fn the_list_is_bounded_and_holds_everything(messages in prop::collection::vec(0_u64..1000, 1..500), capacity in 4_usize..20) {
            let intervals = logged(capacity, &messages).unwrap();
            prop_assert!(intervals.list.len() <= capacity & !1);
            prop_assert_eq!(intervals.list.iter().map(|entry| entry.messages).sum::<u64>(), messages.iter().sum::<u64>());
            prop_assert_eq!(intervals.list.iter().map(|entry| entry.elapsed_ns).sum::<u64>(), messages.len() as u64 * SECOND);
            prop_assert_eq!(intervals.slowest.messages, *messages.iter().min().unwrap());
            prop_assert_eq!(intervals.fastest.messages, *messages.iter().max().unwrap());
        }
    }
}
