//! Stretches of a round in which far less came than in the rest of it. Pure.
//!
//! Intervals are judged alone, and in runs of two, three, four, six, eight and so on in a row, as if `--interval` had been so much longer: on a
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

/// A middle of fewer would be moved by one that is odd.
const FEWEST_TILES: usize = 8;

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

/// 1, 2, 3, 4, 6, 8, 12 and so on, up to half of the longest round.
fn stretch_lengths(series: &Series) -> impl Iterator<Item = usize> + use<> {
    let longest = series.rounds.iter().map(|(_, intervals)| intervals.list.len()).max().unwrap_or(0);
    std::iter::successors(Some(1_usize), |&count| Some(next_length(count)))
        .take_while(move |&count| count == 1 || 2 * count <= longest)
}

/// Half as much again, and a third more, in turn: what is gone for a while fills a run of two thirds of it at least.
fn next_length(count: usize) -> usize {
    match count {
        1 => 2,
        count if count.is_power_of_two() => count / 2 * 3,
        count => count / 3 * 4,
    }
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
        let ((round, slowest), merged) = if count == 1 {
            (self.slowest()?, 1)
        } else {
            let by_rate = |a: &(u32, Interval), b: &(u32, Interval)| {
                a.1.messages_per_sec().total_cmp(&b.1.messages_per_sec())
            };
            (
                self.runs(count).min_by(by_rate)?,
                self.rounds.iter().map(|(_, intervals)| intervals.merged).max()?,
            )
        };
        let usual = self.usual_rate((round, slowest))?.min(self.rate_without(slowest)?);
        let (rate, seconds) = (slowest.messages_per_sec(), slowest.elapsed().as_secs_f64());
        let missing = (usual - rate) * seconds;
        let is_slow = rate < usual * SLOW_SHARE && missing > self.may_seem_missing(seconds, outstanding);
        is_slow.then(|| SlowStretch {
            size_bytes,
            percent: rate / usual * 100.0,
            intervals: count as u64 * merged,
            round,
            begin: slowest.begin(),
            elapsed: slowest.elapsed(),
        })
    }

    /// The middle rate of the intervals outside of `run`, which a few fast ones do not move; of two together, of three and so on
    /// where that is more: into short ones whole lots of completions fall, or none.
    fn usual_rate(&self, run: (u32, Interval)) -> Option<f64> {
        let middle = |count: usize| {
            let tiles = self.rest(run).flat_map(|part| part.chunks_exact(count));
            let rates: Vec<f64> = tiles.map(|tile| sum(tile).messages_per_sec()).collect();
            let enough = count == 1 || rates.len() >= FEWEST_TILES;
            Some(RoundStats::of(&rates).filter(|_| enough)?.median)
        };
        stretch_lengths(self).filter_map(middle).max_by(f64::total_cmp)
    }

    /// The lists without what lies in `run`, in parts.
    fn rest(&self, (of_round, run): (u32, Interval)) -> impl Iterator<Item = &[Interval]> {
        let end_ns = run.begin_ns + run.elapsed_ns;
        self.rounds.iter().flat_map(move |(round, intervals)| {
            let list = &intervals.list[..];
            let before = |ns: u64| list.partition_point(|entry| entry.begin_ns < ns);
            let (from, to) =
                if round.round == of_round { (before(run.begin_ns), before(end_ns)) } else { (0, 0) };
            [&list[..from], &list[to..]]
        })
    }

    /// The average rate of all entries but `run`.
    fn rate_without(&self, run: Interval) -> Option<f64> {
        let messages: u64 = self.entries().map(|entry| entry.messages).sum();
        let rest = self.seconds() - run.elapsed().as_secs_f64();
        (rest > 0.0).then(|| messages.saturating_sub(run.messages) as f64 / rest)
    }

    fn seconds(&self) -> f64 {
        self.entries().map(|entry| entry.elapsed().as_secs_f64()).sum()
    }

    /// So many messages may seem to be missing in a stretch of `seconds`, by what the rest of the time had, where none is.
    ///
    /// Where messages complete at a steady rate r, and what the watcher sees lags behind by 0 to Q messages, a stretch of the
    /// time T has r·T − Q of them at least, and the remaining time D has r·D + Q at most. So it is short of what the average of
    /// the rest promises by Q·(1 + T/D) at most.
    fn may_seem_missing(&self, seconds: f64, outstanding: f64) -> f64 {
        let rest = (self.seconds() - seconds).max(f64::MIN_POSITIVE);
        outstanding * (1.0 + seconds / rest)
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
    let Interval { mut elapsed_ns, mut messages, .. } = sum(first);
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

/// Neighbours as one interval.
fn sum(entries: &[Interval]) -> Interval {
    Interval {
        begin_ns: entries.first().map_or(0, |entry| entry.begin_ns),
        elapsed_ns: entries.iter().map(|entry| entry.elapsed_ns).sum(),
        messages: entries.iter().map(|entry| entry.messages).sum(),
        latency: None,
    }
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
            "an interval at 64 KiB carried 50 % of what the others did: 1 s, from 2 s of round 1 on"
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
        // A third of the round, in intervals of which most have nothing.
        let plan = Plan { tx_depth: 32, ..plan() };
        let short: Vec<u64> =
            (0..80).map(|i| if (30..54).contains(&i) || i % 2 == 0 { 0 } else { 8 }).collect();
        let gone = slow_stretch(&plan, 65536, &[&round(0, Out, &short)]).unwrap();
        assert_eq!((gone.percent, gone.intervals), (0.0, 24));
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
    fn a_path_that_was_gone_shows_in_lots_of_a_slow_link() {
        // Two emulated machines, 2026-12-01: intervals of 100 ms, a queue of 32, a signal every 8; gone for a third of the run.
        const SEEN: [&str; 2] = [
            "....8.8..8.8.8.8......8.88..8...8..8..8.8.........................8.8..8.8..8",
            "...8.....8.....88..8.8.8.8...8.8.........................88.8.8.",
        ];
        for seen in SEEN {
            let seen: Vec<u64> = seen.chars().map(|lot| if lot == '8' { 8 } else { 0 }).collect();
            let of_depth =
                |tx_depth| slow_stretch(&Plan { tx_depth, ..plan() }, 65536, &[&round(0, Out, &seen)]);
            let gone = of_depth(32).unwrap();
            assert_eq!((gone.percent, gone.intervals), (0.0, 24));
            // All of it could have been in a queue of 128.
            assert_eq!(of_depth(128), None);
        }
    }

    #[test]
    fn the_worst_of_all_rounds_is_told_with_its_round() {
        let rounds = [round(0, Out, &[1000, 400, 1000]), round(1, Out, &[1000, 1000, 100])];
        let plan = Plan { rounds: 2, ..plan() };
        let slow = slow_stretch(&plan, 65536, &rounds.iter().collect::<Vec<_>>()).unwrap();
        // The others had 4400 in 5 s.
        assert_eq!((slow.round, slow.begin.as_secs(), slow.percent), (1, 2, 100.0 / 880.0 * 100.0));
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
