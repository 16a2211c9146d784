//! Stretches of a round in which far less came than in the rest of it. Pure.
//!
//! Intervals are judged alone, and in runs of two, four, eight and so on in a row, as if `--interval` had been so much longer: on a
//! slow link a path that is gone for seconds may be missing less in each of its intervals than the queues hold.

use super::Round;
use super::intervals::Series;
use crate::intervals::Interval;
use crate::plan::{Plan, Traffic};
use crate::stats::RoundStats;
use crate::validate::Direction;
use crate::warning::SlowStretch;

/// An interval that carries less than this share of the middle one is worth a word. Taste, with a reason: a port that
/// falls back to half of its lanes or to the next lower rate carries half, one that retrains carries nothing for a
/// while; and what a busy host does to an interval of a second is some ten per cent.
const SLOW_SHARE: f64 = 0.5;

/// The stretch of `rounds`, all of which are of one size, that was the slowest, where that is worth a word. Of equals the longest.
pub(super) fn slow_stretch(plan: &Plan, size_bytes: u64, rounds: &[&Round]) -> Option<SlowStretch> {
    let of_direction = |&direction: &Direction| {
        let series = Series::of(direction, rounds)?;
        let slow = |count| series.slow_run(count, outstanding(plan), size_bytes);
        stretch_lengths(&series).filter_map(slow).min_by(worse_first)
    };
    plan.reported_directions().iter().filter_map(of_direction).min_by(worse_first)
}

fn worse_first(a: &SlowStretch, b: &SlowStretch) -> std::cmp::Ordering {
    a.percent.total_cmp(&b.percent).then(b.elapsed.cmp(&a.elapsed))
}

/// 1, 2, 4 and so on, up to half of the longest round.
fn stretch_lengths(series: &Series) -> impl Iterator<Item = usize> + use<> {
    let longest = series.rounds.iter().map(|(_, intervals)| intervals.list.len()).max().unwrap_or(0);
    std::iter::successors(Some(1), |count| Some(count * 2))
        .take_while(move |&count| count == 1 || 2 * count <= longest)
}

/// Messages that can be outstanding at once.
fn outstanding(plan: &Plan) -> f64 {
    match plan.traffic {
        Traffic::PingPong => 1.0,
        Traffic::Unidirectional | Traffic::Bidirectional => f64::from(plan.tx_depth) * f64::from(plan.qps),
    }
}

impl Series<'_> {
    /// The slowest of all runs of `count` entries, if it is slow for an end that can have `outstanding` messages under way.
    fn slow_run(&self, count: usize, outstanding: f64, size_bytes: u64) -> Option<SlowStretch> {
        // A lone interval is known exactly, whatever has been merged in the list.
        let (median, (round, slowest), merged) = if count == 1 {
            (self.median_rate()?, self.slowest()?, 1)
        } else {
            let runs: Vec<(u32, Interval)> = self.runs(count).collect();
            let rates: Vec<f64> = runs.iter().map(|(_, run)| run.messages_per_sec()).collect();
            let slowest =
                runs.into_iter().min_by(|a, b| a.1.messages_per_sec().total_cmp(&b.1.messages_per_sec()))?;
            let merged = self.rounds.iter().map(|(_, intervals)| intervals.merged).max()?;
            (RoundStats::of(&rates)?.median, slowest, merged)
        };
        let rate = slowest.messages_per_sec();
        (rate < median * SLOW_SHARE && self.misses(slowest, median, outstanding)).then(|| SlowStretch {
            size_bytes,
            percent: rate / median * 100.0,
            intervals: count as u64 * merged,
            round,
            begin: slowest.begin(),
            elapsed: slowest.elapsed(),
        })
    }

    /// Whether `run` is short of messages that are not merely outstanding at its ends.
    ///
    /// Where messages complete at a steady rate r, and what the watcher sees lags behind by 0 to Q messages, a stretch of the
    /// time T has r·T − Q of them at least, and the remaining time D has r·D + Q at most. So it is short of what the average of
    /// the rest promises by Q·(1 + T/D) at most; what is short of more had another rate.
    fn misses(&self, run: Interval, median: f64, outstanding: f64) -> bool {
        let all = self.entries().fold((0.0, 0.0), |(messages, seconds), entry| {
            (messages + entry.messages as f64, seconds + entry.elapsed().as_secs_f64())
        });
        let (messages, seconds) = (run.messages as f64, run.elapsed().as_secs_f64());
        let (rest_messages, rest_seconds) = (all.0 - messages, all.1 - seconds);
        if rest_seconds <= 0.0 {
            return false;
        }
        // Neither a few fast intervals nor an uneven middle must make the others slow.
        let expected = median.min(rest_messages / rest_seconds) * seconds;
        expected - messages > outstanding * (1.0 + seconds / rest_seconds)
    }

    /// All runs of `count` neighbours in the lists, as one interval each, with the number of their round.
    fn runs(&self, count: usize) -> impl Iterator<Item = (u32, Interval)> {
        self.rounds.iter().flat_map(move |(round, intervals)| {
            runs(&intervals.list, count).into_iter().map(|run| (round.round, run))
        })
    }
}

fn runs(list: &[Interval], count: usize) -> Vec<Interval> {
    let Some(first) = list.get(..count) else { return Vec::new() };
    let mut messages: u64 = first.iter().map(|entry| entry.messages).sum();
    let mut elapsed_ns: u64 = first.iter().map(|entry| entry.elapsed_ns).sum();
    let mut runs = Vec::with_capacity(list.len() - count + 1);
    for (index, entry) in list[..=list.len() - count].iter().enumerate() {
        runs.push(Interval { begin_ns: entry.begin_ns, elapsed_ns, messages, latency: None });
        if let Some(next) = list.get(index + count) {
            messages = messages - entry.messages + next.messages;
            elapsed_ns = elapsed_ns - entry.elapsed_ns + next.elapsed_ns;
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::intervals::tests::{long, round};
    use crate::report::summarise;
    use Direction::ClientToServer as Out;
    use proptest::prelude::*;

    /// A plan of one round with 128 writes outstanding.
    fn plan() -> Plan {
        let plan = Plan { rounds: 1, ..long(Traffic::Unidirectional) };
        assert_eq!((plan.tx_depth, plan.qps), (128, 1));
        plan
    }

    fn slow(messages: &[u64]) -> Option<SlowStretch> {
        slow_stretch(&plan(), 65536, &[&round(0, Out, messages)])
    }

    #[test]
    fn an_interval_with_less_than_half_is_worth_a_word() {
        let percent = |slowest| slow(&[1000, 1000, slowest, 1000]).map(|slow| slow.percent);
        assert_eq!((percent(500), percent(499), percent(0)), (None, Some(49.9), Some(0.0)));
        let warnings = summarise(Some(&plan()), None, &[round(0, Out, &[1000, 1000, 499, 1000])]).1;
        assert_eq!(warnings[0].code, "slow-intervals");
        assert_eq!(
            warnings[0].seen,
            "an interval at 64 KiB carried 50 % of what the middle one did: 1 s, from 2 s of round 1 on"
        );
    }

    #[test]
    fn completions_that_fall_beside_the_moment_are_no_slow_interval() {
        // 128 can be outstanding: an interval of 100 that has none may have been looked at too early.
        assert_eq!(slow(&[100, 100, 0, 100]), None);
        assert_eq!(slow(&[200, 200, 0, 200]).unwrap().intervals, 1);
    }

    #[test]
    fn intervals_in_a_row_that_miss_more_than_the_queues_hold_are_one_slow_stretch() {
        // Each of the five could be short of 70 by chance, and all together not of 350.
        let gone = slow(&[70, 70, 71, 0, 0, 0, 0, 0, 140, 70, 69, 70, 70, 70, 71, 70]).unwrap();
        assert_eq!((gone.percent, gone.intervals, gone.begin.as_secs()), (0.0, 4, 3));
        assert_eq!(gone.elapsed.as_secs(), 4);
        assert_eq!(slow(&[70, 70, 71, 0, 140, 70, 69, 70, 70, 70, 71, 70]), None);
        let slower: Vec<u64> = (0..40).map(|i| if (3..11).contains(&i) { 20 } else { 70 }).collect();
        assert_eq!(slow(&slower).unwrap().intervals, 8);
    }

    #[test]
    fn completions_that_come_in_lots_are_steady() {
        // Of a slow link with a signal every 16 messages: an interval has one lot or none, as it falls.
        let lots: Vec<u64> = (0..400_u64).map(|i| ((i + 1) * 9 / 16 - i * 9 / 16) * 128).collect();
        assert_eq!(slow(&lots), None);
        // One fast beginning does not make the rest slow.
        assert_eq!(slow(&[9000, 1000, 1000, 1000, 1000, 1000, 1000, 1000]), None);
    }

    #[test]
    fn the_worst_of_all_rounds_is_told_with_its_round() {
        let rounds = [round(0, Out, &[1000, 400, 1000]), round(1, Out, &[1000, 1000, 100])];
        let plan = Plan { rounds: 2, ..plan() };
        let slow = slow_stretch(&plan, 65536, &rounds.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!((slow.round, slow.begin.as_secs(), slow.percent), (1, 2, 10.0));
    }

    proptest! {
        #[test]
        fn a_steady_rate_is_never_slow_wherever_the_watcher_looks(
            rate in 0_u64..1000,
            lags in prop::collection::vec(0_u64..=128, 2..200),
        ) {
            // Seen so far: what has completed, less what is still on its way to be seen.
            let seen: Vec<u64> = (1..).zip(&lags).map(|(second, lag)| (second * rate).saturating_sub(*lag)).collect();
            let mut before = 0;
            let messages: Vec<u64> = seen.iter().map(|&now| { let came = now.saturating_sub(before); before = before.max(now); came }).collect();
            prop_assert_eq!(slow(&messages), None);
        }
    }
}
