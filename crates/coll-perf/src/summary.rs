//! From the ranks' logs to figures. Pure, and tested on known data.
//!
//! In a collective a rank that comes late makes everybody else wait, and has itself the shortest time. So arrivals are
//! kept beside durations: `skew` is how long the first to come waited for the last, `transfer` how long it took from
//! then until all were done, and who came last is counted.

use serde::{Deserialize, Serialize};

use crate::backend::Pacing;
use crate::data::Checked;
use crate::group::ClockOffset;
use crate::measure::IterationLog;

/// What all ranks together did in one round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundSummary {
    /// The round's time of one call in nanoseconds; see [`RoundSummary::of`].
    pub call_ns: f64,
    /// For each iteration the slowest rank's duration of one call, in nanoseconds.
    pub slowest_ns: Vec<f64>,
    /// For each iteration from the first arrival to the last, in nanoseconds.
    pub skew_ns: Vec<f64>,
    /// For each iteration from the last arrival to the last end, in nanoseconds.
    pub transfer_ns: Vec<f64>,
    /// What each rank did.
    pub ranks: Vec<RankRound>,
    /// What was found wrong, on all ranks.
    pub checked: Option<Checked>,
}

/// What one rank did in one round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankRound {
    /// Its time of one call, in nanoseconds.
    pub call_ns: f64,
    /// Iterations to which it came last, as far as the clocks tell.
    pub last_to_arrive: u32,
    /// How far behind the last but one it was then, each time, in nanoseconds.
    pub behind_ns: Vec<f64>,
    /// Iterations that it ended last.
    pub last_to_finish: u32,
    /// How often the scheduler gave its processor to another thread.
    pub preemptions: u64,
}

/// One rank's log with what its clock shows more than rank 0's.
pub struct RankLog {
    /// The log.
    pub log: IterationLog,
    /// The clock.
    pub clock: ClockOffset,
    /// How often the scheduler gave the rank's processor to another thread meanwhile.
    pub preemptions: u64,
}

impl RankLog {
    /// How many iterations it has.
    pub fn iterations(&self) -> usize {
        self.log.starts_ns.len()
    }

    /// When iteration `index` began, in nanoseconds of rank 0's clock.
    pub fn start(&self, index: usize) -> i64 {
        self.log.starts_ns[index] as i64 - self.clock.ahead_ns
    }

    /// When it ended.
    pub fn stop(&self, index: usize) -> i64 {
        self.log.stops_ns[index] as i64 - self.clock.ahead_ns
    }

    fn duration(&self, index: usize) -> f64 {
        (self.log.stops_ns[index] - self.log.starts_ns[index]) as f64
    }
}

impl RoundSummary {
    /// The round of `logs`, one a rank, with `calls` calls in an iteration.
    ///
    /// Its time of one call is that of the slowest rank. Pipelined: from a rank's first start to its last stop,
    /// or the time of its batch where it has one, divided by the number of calls. Aligned: the median over the iterations of the slowest rank's duration.
    pub fn of(logs: &[RankLog], pacing: Pacing, calls: u32, checked: Option<Checked>) -> Self {
        let iterations = logs.iter().map(RankLog::iterations).min().unwrap_or(0);
        let calls = f64::from(calls);
        let mut summary = Self { checked, ..Self::default() };
        summary.ranks = logs.iter().map(|rank| RankRound::timed(rank, pacing, iterations, calls)).collect();
        for index in 0..iterations {
            summary.note_iteration(logs, index, calls);
        }
        summary.call_ns = match pacing {
            Pacing::Pipelined => summary.ranks.iter().map(|rank| rank.call_ns).fold(0.0, f64::max),
            Pacing::Aligned => quantile(&summary.slowest_ns, 0.5),
        };
        summary
    }

    fn note_iteration(&mut self, logs: &[RankLog], index: usize, calls: f64) {
        let arrivals: Vec<i64> = logs.iter().map(|rank| rank.start(index)).collect();
        let ends: Vec<i64> = logs.iter().map(|rank| rank.stop(index)).collect();
        let (last, end) = (position_of_max(&arrivals), position_of_max(&ends));
        let first = arrivals.iter().min().copied().unwrap_or(0);
        self.slowest_ns.push(logs.iter().map(|rank| rank.duration(index)).fold(0.0, f64::max) / calls);
        self.skew_ns.push((arrivals[last] - first) as f64);
        // Clocks of different machines are compared to within some uncertainty.
        self.transfer_ns.push((ends[end] - arrivals[last]).max(0) as f64 / calls);
        let doubt: u64 = logs.iter().map(|rank| rank.log.uncertainty_ns).max().unwrap_or(0) * 2;
        // Who was last by less than the clocks are known to is not known.
        let known = |behind: i64| doubt == 0 || behind.cast_unsigned() > doubt;
        if behind_the_next(&ends, end).is_some_and(known) {
            self.ranks[end].last_to_finish += 1;
        }
        if let Some(behind) = behind_the_next(&arrivals, last).filter(|behind| known(*behind)) {
            self.ranks[last].last_to_arrive += 1;
            self.ranks[last].behind_ns.push(behind as f64);
        }
    }
}

impl RankRound {
    fn timed(rank: &RankLog, pacing: Pacing, iterations: usize, calls: f64) -> Self {
        if iterations == 0 {
            return Self::default();
        }
        let call_ns = match pacing {
            Pacing::Pipelined => {
                let whole = rank.log.stops_ns[iterations - 1] - rank.log.starts_ns[0];
                rank.log.batch_ns.unwrap_or(whole) as f64 / iterations as f64
            }
            Pacing::Aligned => {
                quantile(&(0..iterations).map(|index| rank.duration(index)).collect::<Vec<_>>(), 0.5)
            }
        };
        Self { call_ns: call_ns / calls, preemptions: rank.preemptions, ..Self::default() }
    }
}

/// How far the `last` of `times` is behind the one before it; `None` where there is none.
fn behind_the_next(times: &[i64], last: usize) -> Option<i64> {
    let others = times.iter().enumerate().filter(|(rank, _)| *rank != last);
    others.map(|(_, at)| times[last] - at).min()
}

/// The first of the largest.
fn position_of_max(values: &[i64]) -> usize {
    (0..values.len()).rev().max_by_key(|index| values[*index]).unwrap_or(0)
}

/// The value of nearest rank: number ⌈q·n⌉ of n in rising order; 0 of none.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}

/// Median, tail and largest of the same thing, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Half of the values are not larger.
    pub median_usec: f64,
    /// 95 % are not larger.
    pub p95_usec: f64,
    /// 99 % are not larger.
    pub p99_usec: f64,
    /// The largest.
    pub max_usec: f64,
}

impl Spread {
    /// Of values in nanoseconds.
    pub fn of_ns(values: &[f64]) -> Self {
        let usec = |q| quantile(values, q) / 1e3;
        Self { median_usec: usec(0.5), p95_usec: usec(0.95), p99_usec: usec(0.99), max_usec: usec(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A rank's iterations as (start, stop).
    fn log(iterations: &[(u64, u64)], ahead_ns: i64) -> RankLog {
        let log = IterationLog {
            starts_ns: iterations.iter().map(|i| i.0).collect(),
            stops_ns: iterations.iter().map(|i| i.1).collect(),
            batch_ns: None,
            uncertainty_ns: 0,
        };
        RankLog { log, clock: ClockOffset { ahead_ns, uncertainty_ns: 0 }, preemptions: 3 }
    }

    /// Rank 1 comes 30 late to both iterations; rank 0 waits, and rank 1 has the shorter times.
    fn late() -> [RankLog; 2] {
        [log(&[(1000, 1100), (1100, 1240)], 0), log(&[(1030, 1105), (1130, 1235)], 0)]
    }

    #[test]
    fn the_late_rank_is_named_though_its_times_are_shorter() {
        let round = RoundSummary::of(&late(), Pacing::Pipelined, 1, None);
        assert_eq!(round.slowest_ns, [100.0, 140.0]);
        assert_eq!(round.skew_ns, [30.0, 30.0]);
        assert_eq!(round.transfer_ns, [75.0, 110.0]);
        assert_eq!((round.ranks[0].last_to_arrive, round.ranks[1].last_to_arrive), (0, 2));
        assert_eq!(round.ranks[1].behind_ns, [30.0, 30.0]);
        assert_eq!((round.ranks[0].last_to_finish, round.ranks[1].last_to_finish), (1, 1));
        assert_eq!(round.ranks[0].preemptions, 3);
    }

    #[test]
    fn pipelined_is_the_whole_time_and_aligned_the_median_of_the_slowest_rank() {
        let round = RoundSummary::of(&late(), Pacing::Pipelined, 1, None);
        assert_eq!((round.call_ns, round.ranks[1].call_ns), (120.0, 102.5));
        let round = RoundSummary::of(&late(), Pacing::Aligned, 1, None);
        assert_eq!((round.call_ns, round.ranks[1].call_ns), (100.0, 75.0));
    }

    #[test]
    fn nobody_was_last_by_less_than_the_clocks_are_known_to() {
        let mut logs = late();
        for (uncertainty_ns, last) in [(14, 2), (15, 0)] {
            logs[0].log.uncertainty_ns = uncertainty_ns;
            let round = RoundSummary::of(&logs, Pacing::Pipelined, 1, None);
            assert_eq!(round.ranks[1].last_to_arrive, last, "30 late, known to twice {uncertainty_ns}");
        }
        logs[0].log.uncertainty_ns = 1000;
        let round = RoundSummary::of(&logs, Pacing::Pipelined, 1, None);
        assert_eq!([0, 1].map(|rank| round.ranks[rank].last_to_finish), [0, 0]);
    }

    #[test]
    fn the_time_of_a_batch_is_that_of_the_slowest_rank_where_there_is_one() {
        let mut logs = late();
        logs[0].log.batch_ns = Some(160);
        logs[1].log.batch_ns = Some(200);
        let round = RoundSummary::of(&logs, Pacing::Pipelined, 1, None);
        assert_eq!((round.call_ns, round.ranks[0].call_ns), (100.0, 80.0));
        assert_eq!(round.slowest_ns, [100.0, 140.0], "percentiles are of iterations");
    }

    #[test]
    fn times_are_of_one_call() {
        let round = RoundSummary::of(&late(), Pacing::Pipelined, 10, None);
        assert_eq!((round.call_ns, round.slowest_ns[1], round.transfer_ns[0]), (12.0, 14.0, 7.5));
        assert_eq!(round.skew_ns[0], 30.0, "arrivals are of the iteration");
    }

    #[test]
    fn clocks_that_differ_are_set_right_before_arrivals_are_compared() {
        let round = RoundSummary::of(
            &[log(&[(1000, 1100)], 0), log(&[(501_010, 501_090)], 500_000)],
            Pacing::Aligned,
            1,
            None,
        );
        assert_eq!((round.skew_ns[0], round.transfer_ns[0]), (10.0, 90.0));
    }

    #[test]
    fn one_rank_is_never_last() {
        let round = RoundSummary::of(&[log(&[(0, 10)], 0)], Pacing::Pipelined, 1, None);
        assert_eq!((round.ranks[0].last_to_arrive, round.skew_ns[0]), (0, 0.0));
    }

    #[test]
    fn quantiles_are_values_of_nearest_rank() {
        let values: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        assert_eq!([0.5, 0.95, 0.99, 1.0].map(|q| quantile(&values, q)), [10.0, 19.0, 20.0, 20.0]);
        assert_eq!((quantile(&[7.0], 0.5), quantile(&[], 0.5)), (7.0, 0.0));
    }

    proptest! {
        #[test]
        fn quantiles_rise_and_are_among_the_values(values in prop::collection::vec(0.0_f64..1e9, 1..60)) {
            let spread = Spread::of_ns(&values);
            prop_assert!(spread.median_usec <= spread.p95_usec && spread.p95_usec <= spread.p99_usec);
            prop_assert!(spread.p99_usec <= spread.max_usec);
            prop_assert!(values.contains(&quantile(&values, 0.95)));
        }
    }
}
