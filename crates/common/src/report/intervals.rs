//! What a line of the table says of its intervals: from the raw ones of its rounds, and into words. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::text::BandwidthUnit;
use super::{Document, ResultRow, Round, table::show_bandwidth};
use crate::intervals::{Interval, Intervals};
use crate::plan::{Plan, Traffic};
use crate::stats::RoundStats;
use crate::units::{Bandwidth, ByteSize, show_duration};
use crate::validate::Direction;

/// The intervals of one direction, over all rounds of a size of a bandwidth tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BandwidthIntervals {
    /// Who wrote.
    pub direction: Direction,
    /// How many there were.
    pub count: u64,
    /// The slowest one's bandwidth.
    pub bw_min_mib_per_sec: f64,
    /// The same in 10⁹ bits a second.
    pub bw_min_gbit_per_sec: f64,
    /// The middle one's.
    pub bw_median_mib_per_sec: f64,
    /// The same in 10⁹ bits a second.
    pub bw_median_gbit_per_sec: f64,
    /// The fastest one's.
    pub bw_max_mib_per_sec: f64,
    /// The same in 10⁹ bits a second.
    pub bw_max_gbit_per_sec: f64,
    /// The round that the slowest one was in, from 0.
    pub slowest_round: u32,
    /// When it began, from the beginning of that round.
    pub slowest_at_seconds: f64,
}

/// The intervals over all rounds of a size of a latency tool: half round trips.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyIntervals {
    /// How many there were.
    pub count: u64,
    /// The lowest median of an interval.
    pub t_typical_min_usec: f64,
    /// The middle one.
    pub t_typical_median_usec: f64,
    /// The highest.
    pub t_typical_max_usec: f64,
    /// The highest 99th percentile of an interval.
    pub p99_max_usec: f64,
    /// The round that the interval with the fewest round trips a second was in, from 0.
    pub slowest_round: u32,
    /// When it began, from the beginning of that round.
    pub slowest_at_seconds: f64,
}

/// The intervals of one direction of several rounds.
pub(super) struct Series<'a> {
    direction: Direction,
    pub(super) rounds: Vec<(&'a Round, &'a Intervals)>,
}

impl<'a> Series<'a> {
    /// Of `rounds`, in `direction`; `None` where they have no intervals.
    pub(super) fn of(direction: Direction, rounds: &[&'a Round]) -> Option<Self> {
        let with = |round: &&'a Round| Some((*round, round.intervals.as_ref()?));
        let rounds: Vec<_> =
            rounds.iter().filter(|round| round.direction == direction).filter_map(with).collect();
        (!rounds.is_empty()).then_some(Self { direction, rounds })
    }

    fn count(&self) -> u64 {
        self.rounds.iter().map(|(_, intervals)| intervals.count).sum()
    }

    /// The slowest, and the number of its round.
    pub(super) fn slowest(&self) -> Option<(u32, Interval)> {
        let slowest = self.rounds.iter().map(|(round, intervals)| (round.round, intervals.slowest));
        slowest.min_by(|a, b| a.1.messages_per_sec().total_cmp(&b.1.messages_per_sec()))
    }

    fn fastest_rate(&self) -> f64 {
        self.rounds.iter().map(|(_, intervals)| intervals.fastest.messages_per_sec()).fold(0.0, f64::max)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Interval> {
        self.rounds.iter().flat_map(|(_, intervals)| &intervals.list)
    }

    fn median_rate(&self) -> Option<f64> {
        let rates: Vec<f64> = self.entries().map(Interval::messages_per_sec).collect();
        Some(RoundStats::of(&rates)?.median)
    }

    fn bandwidth(&self, size_bytes: u64) -> Option<BandwidthIntervals> {
        let (slowest_round, slowest) = self.slowest()?;
        let of_rate = |rate: f64| Bandwidth::from_bytes_per_sec(rate * size_bytes as f64);
        let (min, max) = (of_rate(slowest.messages_per_sec()), of_rate(self.fastest_rate()));
        let median = of_rate(self.median_rate()?);
        Some(BandwidthIntervals {
            direction: self.direction,
            count: self.count(),
            bw_min_mib_per_sec: min.mib_per_sec(),
            bw_min_gbit_per_sec: min.gbit_per_sec(),
            bw_median_mib_per_sec: median.mib_per_sec(),
            bw_median_gbit_per_sec: median.gbit_per_sec(),
            bw_max_mib_per_sec: max.mib_per_sec(),
            bw_max_gbit_per_sec: max.gbit_per_sec(),
            slowest_round,
            slowest_at_seconds: slowest.begin().as_secs_f64(),
        })
    }

    fn latency(&self) -> Option<LatencyIntervals> {
        let (slowest_round, slowest) = self.slowest()?;
        let latencies: Vec<_> = self.entries().filter_map(|interval| interval.latency).collect();
        let stats = |value: fn(&crate::intervals::IntervalLatency) -> f64| {
            RoundStats::of(&latencies.iter().map(value).collect::<Vec<_>>())
        };
        let typical = stats(|latency| latency.t_typical_usec)?;
        Some(LatencyIntervals {
            count: self.count(),
            t_typical_min_usec: typical.min,
            t_typical_median_usec: typical.median,
            t_typical_max_usec: typical.max,
            p99_max_usec: stats(|latency| latency.p99_usec)?.max,
            slowest_round,
            slowest_at_seconds: slowest.begin().as_secs_f64(),
        })
    }
}

/// The intervals of each direction of `rounds`, all of which are of one size of a bandwidth tool.
pub(super) fn bandwidth_intervals(
    plan: &Plan,
    size_bytes: u64,
    rounds: &[&Round],
) -> Vec<BandwidthIntervals> {
    let directions = plan.reported_directions().iter();
    directions.filter_map(|&direction| Series::of(direction, rounds)?.bandwidth(size_bytes)).collect()
}

/// The intervals of `rounds`, all of which are of one size of a latency tool.
pub(super) fn latency_intervals(rounds: &[&Round]) -> Option<LatencyIntervals> {
    Series::of(Direction::ClientToServer, rounds)?.latency()
}

/// A line for each size and direction that has intervals.
pub(super) fn interval_lines(document: &Document, plan: &Plan, unit: BandwidthUnit) -> Vec<String> {
    let Some(every) = plan.interval() else { return Vec::new() };
    let lines = |row: &ResultRow| match row {
        ResultRow::Bandwidth(row) => {
            let line = |intervals: &BandwidthIntervals| {
                let direction = match plan.traffic {
                    Traffic::Bidirectional => format!(", {}", intervals.direction.words()),
                    Traffic::Unidirectional | Traffic::PingPong => String::new(),
                };
                let place = format!("{}{direction}", ByteSize(row.size_bytes));
                let slowest = slowest(plan, intervals.slowest_round, intervals.slowest_at_seconds);
                let figures = bandwidth_figures(intervals, unit);
                format!("{place}: {} of {}, {figures}, {slowest}", intervals.count, show_duration(every))
            };
            row.intervals.iter().map(line).collect::<Vec<_>>()
        }
        ResultRow::Latency(row) => {
            let line = |intervals: &LatencyIntervals| {
                let LatencyIntervals {
                    t_typical_min_usec, t_typical_median_usec, t_typical_max_usec, ..
                } = intervals;
                format!(
                    "{}: {} of {}, t_typical min {t_typical_min_usec:.3}, median {t_typical_median_usec:.3}, \
                     max {t_typical_max_usec:.3} usec, {}",
                    ByteSize(row.size_bytes),
                    intervals.count,
                    show_duration(every),
                    slowest(plan, intervals.slowest_round, intervals.slowest_at_seconds)
                )
            };
            row.intervals.iter().map(line).collect()
        }
    };
    document.results.iter().flat_map(lines).collect()
}

fn bandwidth_figures(intervals: &BandwidthIntervals, unit: BandwidthUnit) -> String {
    let (min, median, max) = match unit {
        BandwidthUnit::Mib => {
            (intervals.bw_min_mib_per_sec, intervals.bw_median_mib_per_sec, intervals.bw_max_mib_per_sec)
        }
        BandwidthUnit::Gbit => {
            (intervals.bw_min_gbit_per_sec, intervals.bw_median_gbit_per_sec, intervals.bw_max_gbit_per_sec)
        }
    };
    let [min, median, max] = [min, median, max].map(show_bandwidth);
    format!("min {min}, median {median}, max {max} {}", unit.label())
}

fn slowest(plan: &Plan, round: u32, at_seconds: f64) -> String {
    let at = show_duration(Duration::from_millis((at_seconds * 1e3).round() as u64));
    let round = if plan.rounds > 1 { format!(" of round {}", round + 1) } else { String::new() };
    format!("slowest at {at}{round}")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::intervals::{IntervalLatency, IntervalLog};
    use crate::plan::RoundLength;
    use crate::plan::tests::plan;
    use Direction::{ClientToServer as Out, ServerToClient as Back};

    const SECOND: u64 = 1_000_000_000;

    /// A plan of rounds of many seconds.
    pub(in crate::report) fn long(traffic: Traffic) -> Plan {
        let round_length = RoundLength::Seconds(10.0);
        Plan { traffic, round_length, interval_seconds: Some(1.0), ..plan() }
    }

    /// A round whose intervals of a second had these numbers of messages.
    pub(in crate::report) fn round(number: u32, direction: Direction, messages: &[u64]) -> Round {
        let plan = long(Traffic::Unidirectional);
        let mut log = IntervalLog::for_round_of(&plan);
        for (index, &messages) in (0..).zip(messages) {
            let usec = SECOND as f64 / 2e3 / messages.max(1) as f64;
            let latency = (messages > 0).then_some(IntervalLatency {
                t_typical_usec: usec,
                p99_usec: 2.0 * usec,
                t_max_usec: 9.0,
            });
            log.add(Interval { begin_ns: index * SECOND, elapsed_ns: SECOND, messages, latency });
        }
        Round {
            size_bytes: 65536,
            round: number,
            direction,
            messages: messages.iter().sum(),
            elapsed_ns: messages.len() as u64 * SECOND,
            peak_messages_per_sec: Some(1.0),
            latency: None,
            intervals: log.finish(),
            partial: false,
            checked: None,
            answers_checked: None,
        }
    }

    fn document(plan: Plan, rounds: Vec<Round>) -> Document {
        let mut document = Document::begin("write-bw", "0.1.0");
        document.plan = Some(plan);
        document.rounds = rounds;
        document.conclude(None);
        document
    }

    fn lines(document: &Document, unit: BandwidthUnit) -> Vec<String> {
        interval_lines(document, document.plan.as_ref().unwrap(), unit)
    }

    #[test]
    fn the_slowest_interval_of_all_rounds_is_named() {
        let rounds = vec![
            round(0, Out, &[16000, 16160, 15840]),
            round(1, Out, &[16000, 8000]),
            round(2, Out, &[16000]),
        ];
        let document = document(long(Traffic::Unidirectional), rounds);
        assert_eq!(
            lines(&document, BandwidthUnit::Mib),
            ["64 KiB: 6 of 1 s, min 500.00, median 1000.00, max 1010.00 MiB/sec, slowest at 1 s of round 2"]
        );
        let gbit = &lines(&document, BandwidthUnit::Gbit)[0];
        assert!(gbit.contains("min 4.19, median 8.39, max 8.47 Gb/sec"), "{gbit}");
    }

    #[test]
    fn two_directions_are_told_apart() {
        let plan = Plan { rounds: 1, ..long(Traffic::Bidirectional) };
        let document = document(plan, vec![round(0, Out, &[16, 32]), round(0, Back, &[32, 16])]);
        let shown = lines(&document, BandwidthUnit::Mib);
        assert_eq!(
            shown,
            [
                "64 KiB, client to server: 2 of 1 s, min 1.00, median 1.50, max 2.00 MiB/sec, slowest at 0 ms",
                "64 KiB, server to client: 2 of 1 s, min 1.00, median 1.50, max 2.00 MiB/sec, slowest at 1 s",
            ]
        );
    }

    #[test]
    fn a_latency_has_the_medians_of_its_intervals() {
        let rounds = [round(0, Out, &[100_000, 50_000, 0, 100_000])];
        let latency = latency_intervals(&rounds.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!((latency.t_typical_min_usec, latency.t_typical_median_usec), (5.0, 5.0));
        assert_eq!((latency.t_typical_max_usec, latency.p99_max_usec), (10.0, 20.0));
        assert_eq!((latency.count, latency.slowest_at_seconds), (4, 2.0));
    }
}
