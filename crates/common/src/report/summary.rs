//! From raw rounds to the lines of the table, the warnings and what was wrong. Pure.

use std::time::Duration;

use super::intervals::{bandwidth_intervals, latency_intervals};
use super::slow::slow_stretch;
use super::{BandwidthRow, LatencyRow, Link, ResultRow, Round};
use crate::error::{Error, ErrorKind};
use crate::latency::Latency;
use crate::plan::{Plan, Role, Traffic};
use crate::stats::RoundStats;
use crate::units::{Bandwidth, ByteSize};
use crate::validate::{Checked, Direction};
use crate::warning::{
    FEWEST_TRUSTED_MESSAGES, RATE_LIMIT_REACHED_PERCENT, SHORTEST_TRUSTED_ROUND, SPREAD_WORTH_A_WORD_PERCENT,
    SlowStretch, Warning,
};

/// Directions whose lengths differ by more than this share of the longer one did not overlap enough to be added
/// without a word. Taste: the start of the second direction alone is one message on the control channel late.
const DIRECTIONS_APART: f64 = 0.1;

/// All directions of one round.
struct WholeRound<'a> {
    directions: Vec<&'a Round>,
}

impl WholeRound<'_> {
    fn sum(&self, value: impl Fn(&Round) -> f64) -> f64 {
        self.directions.iter().map(|round| value(round)).sum()
    }

    fn of(&self, role: Role) -> Option<&Round> {
        self.directions.iter().find(|round| round.direction == role.writes()).copied()
    }
}

/// The lines of the table, in the order of the sizes, and what they warn of.
pub fn summarise(
    plan: Option<&Plan>,
    link: Option<&Link>,
    rounds: &[Round],
) -> (Vec<ResultRow>, Vec<Warning>) {
    let Some(plan) = plan else { return (Vec::new(), Vec::new()) };
    let mut rows = Vec::new();
    let mut doubts = Doubts::default();
    for &size in &plan.sizes_bytes {
        let whole = whole_rounds(plan, size, rounds);
        if let Some(row) = row(plan, link, size, &whole) {
            doubts.look_at(plan, &row, &whole);
            doubts.look_at_limit(&row);
            rows.push(row);
        }
    }
    let mut warnings = link.map(software_warnings).unwrap_or_default();
    warnings.extend(doubts.warnings(plan));
    (rows, warnings)
}

/// The sizes of which something has to be said, so that a sweep warns once and not once a size.
#[derive(Default)]
struct Doubts {
    differ: Vec<(u64, f64)>,
    short: Vec<(u64, Duration)>,
    few: Vec<(u64, u64)>,
    apart: Vec<(u64, Duration)>,
    below: Vec<(u64, f64)>,
    slow: Vec<SlowStretch>,
}

impl Doubts {
    fn look_at(&mut self, plan: &Plan, row: &ResultRow, whole: &[WholeRound]) {
        let size = row.size_bytes();
        if let Some(spread) = row.spread_percent().filter(|&spread| spread > SPREAD_WORTH_A_WORD_PERCENT) {
            self.differ.push((size, spread));
        }
        let shortest = whole.iter().flat_map(|round| &round.directions).map(|round| round.elapsed()).min();
        // A latency's samples are whole each for itself, however short the round.
        let matters = |&shortest: &Duration| {
            matches!(row, ResultRow::Bandwidth(_)) && shortest < SHORTEST_TRUSTED_ROUND
        };
        if let Some(shortest) = shortest.filter(matters) {
            self.short.push((size, shortest));
        } else {
            // What is short has few for the same reason, with the same way out.
            let fewest = fewest_messages(plan, whole).filter(|&fewest| fewest < FEWEST_TRUSTED_MESSAGES);
            self.few.extend(fewest.map(|fewest| (size, fewest)));
        }
        if let Some(most) = whole.iter().filter_map(directions_apart).max() {
            self.apart.push((size, most));
        }
        self.slow.extend(slow_stretch(plan, size, &all(whole)));
    }

    fn look_at_limit(&mut self, row: &ResultRow) {
        let achieved = row.rate_limit_percent();
        if let Some(percent) = achieved.filter(|&percent| percent < RATE_LIMIT_REACHED_PERCENT) {
            self.below.push((row.size_bytes(), percent));
        }
    }

    fn warnings(&self, plan: &Plan) -> impl Iterator<Item = Warning> {
        let differ = Warning::rounds_differ(&self.differ);
        let short = Warning::short_rounds(&self.short);
        let few = Warning::few_messages(plan.traffic, &self.few);
        let below = Warning::below_rate_limit(&self.below);
        let apart = Warning::directions_apart(&self.apart);
        let slow = Warning::slow_intervals(&self.slow);
        // A cause before what it may have caused.
        short.into_iter().chain(few).chain(differ).chain(apart).chain(slow).chain(below)
    }
}

/// The fewest messages that a queue pair had in a round.
fn fewest_messages(plan: &Plan, whole: &[WholeRound]) -> Option<u64> {
    let on_each = |round: &&Round| round.messages / u64::from(plan.qps.max(1));
    whole.iter().flat_map(|round| &round.directions).map(on_each).min()
}

/// All directions of all rounds.
fn all<'a>(whole: &[WholeRound<'a>]) -> Vec<&'a Round> {
    whole.iter().flat_map(|round| round.directions.iter().copied()).collect()
}

/// The rounds of one size with all their directions. A round that was cut short counts only where no whole one
/// exists: it is better than nothing, and it is marked.
fn whole_rounds<'a>(plan: &Plan, size: u64, rounds: &'a [Round]) -> Vec<WholeRound<'a>> {
    let of_size = |partial: bool| {
        let mut whole = Vec::new();
        for number in 0..plan.rounds {
            let directions: Vec<&Round> = rounds
                .iter()
                .filter(|round| round.size_bytes == size && round.round == number && round.messages > 0)
                .collect();
            let complete = directions.len() == plan.reported_directions().len();
            let any_partial = directions.iter().any(|round| round.partial);
            if !directions.is_empty() && any_partial == partial && (complete || partial) {
                whole.push(WholeRound { directions });
            }
        }
        whole
    };
    let unbroken = of_size(false);
    if unbroken.is_empty() { of_size(true) } else { unbroken }
}

fn row(plan: &Plan, link: Option<&Link>, size: u64, whole: &[WholeRound]) -> Option<ResultRow> {
    match plan.traffic {
        Traffic::PingPong => latency_row(size, whole).map(ResultRow::Latency),
        Traffic::Unidirectional | Traffic::Bidirectional => {
            bandwidth_row(plan, link, size, whole).map(ResultRow::Bandwidth)
        }
    }
}

fn bandwidth_row(plan: &Plan, link: Option<&Link>, size: u64, whole: &[WholeRound]) -> Option<BandwidthRow> {
    let stats = |value: &dyn Fn(&Round) -> f64| {
        RoundStats::of(&whole.iter().map(|round| round.sum(value)).collect::<Vec<_>>())
    };
    let average = stats(&|round| round.bandwidth().bytes_per_sec())?;
    let peak = stats(&|round| round.peak_messages_per_sec.unwrap_or(0.0) * size as f64)?;
    let peak = Bandwidth::from_bytes_per_sec(peak.median);
    let rate = stats(&|round| round.messages as f64 / round.elapsed().as_secs_f64().max(f64::MIN_POSITIVE))?;
    let checked = all_checked(whole);
    let bandwidth = Bandwidth::from_bytes_per_sec(average.median);
    Some(BandwidthRow {
        size_bytes: size,
        iterations: iterations(whole)?,
        rounds: whole.len() as u32,
        bw_peak_mib_per_sec: peak.mib_per_sec(),
        bw_peak_gbit_per_sec: peak.gbit_per_sec(),
        bw_average_mib_per_sec: bandwidth.mib_per_sec(),
        bw_average_gbit_per_sec: bandwidth.gbit_per_sec(),
        msg_rate_mpps: rate.median / 1e6,
        spread_percent: average.spread_percent(whole.len()),
        line_rate_percent: link.and_then(Link::line_rate).map(|line| share(bandwidth, line, plan.traffic)),
        rate_limit_percent: plan.rate_limit.map(|limit| {
            rate.median / (limit.rate.messages_per_sec(size) * directions(plan.traffic)) * 100.0
        }),
        intervals: bandwidth_intervals(plan, size, &all(whole)),
        partial: is_partial(whole),
        checked_bytes: checked.map(|checked| checked.checked_bytes),
        wrong_bytes: checked.map(|checked| checked.wrong_bytes),
    })
}

fn latency_row(size: u64, whole: &[WholeRound]) -> Option<LatencyRow> {
    let rounds: Vec<&Latency> =
        whole.iter().flat_map(|round| &round.directions).filter_map(|round| round.latency.as_ref()).collect();
    let stats = |value: fn(&Latency) -> f64| {
        RoundStats::of(&rounds.iter().map(|latency| value(latency)).collect::<Vec<_>>())
    };
    let typical = stats(|latency| latency.t_typical_usec)?;
    let checked = all_checked(whole);
    Some(LatencyRow {
        size_bytes: size,
        iterations: iterations(whole)?,
        rounds: whole.len() as u32,
        t_min_usec: stats(|latency| latency.t_min_usec)?.min,
        t_max_usec: stats(|latency| latency.t_max_usec)?.max,
        t_typical_usec: typical.median,
        t_avg_usec: stats(|latency| latency.t_avg_usec)?.median,
        t_stdev_usec: stats(|latency| latency.t_stdev_usec)?.median,
        p99_usec: stats(|latency| latency.p99_usec)?.median,
        p99_9_usec: stats(|latency| latency.p99_9_usec)?.median,
        p99_99_usec: stats(|latency| latency.p99_99_usec)?.median,
        spread_percent: typical.spread_percent(whole.len()),
        intervals: latency_intervals(&all(whole)),
        partial: is_partial(whole),
        checked_bytes: checked.map(|checked| checked.checked_bytes),
        wrong_bytes: checked.map(|checked| checked.wrong_bytes),
    })
}

/// Messages of a round in its first direction.
fn iterations(whole: &[WholeRound]) -> Option<u64> {
    let first = |round: &WholeRound| round.directions.first().map(|round| round.messages as f64);
    Some(RoundStats::of(&whole.iter().filter_map(first).collect::<Vec<_>>())?.median as u64)
}

fn is_partial(whole: &[WholeRound]) -> bool {
    whole.iter().flat_map(|round| &round.directions).any(|round| round.partial)
}

fn share(bandwidth: Bandwidth, line: Bandwidth, traffic: Traffic) -> f64 {
    bandwidth.bytes_per_sec() / (line.bytes_per_sec() * directions(traffic)) * 100.0
}

/// How many ends write at a time.
fn directions(traffic: Traffic) -> f64 {
    match traffic {
        Traffic::Unidirectional | Traffic::PingPong => 1.0,
        Traffic::Bidirectional => 2.0,
    }
}

fn all_checked(whole: &[WholeRound]) -> Option<Checked> {
    let outcomes = whole.iter().flat_map(|round| &round.directions).flat_map(|round| round.findings());
    outcomes.map(|(_, checked)| checked).reduce(|mut sum, next| {
        sum.merge(next);
        sum
    })
}

fn software_warnings(link: &Link) -> Vec<Warning> {
    let Link::Rdma { client, server, .. } = link else { return Vec::new() };
    let known = [client, server].into_iter().filter_map(|end| end.known());
    let emulated = known.into_iter().find_map(|end| Some((end, end.software.as_ref()?)));
    emulated.map(|(end, driver)| Warning::software_device(&end.device, driver)).into_iter().collect()
}

/// By how much one direction outlasted the other, where that matters.
fn directions_apart(round: &WholeRound) -> Option<Duration> {
    let (client, server) = (round.of(Role::Client)?.elapsed(), round.of(Role::Server)?.elapsed());
    let apart = client.abs_diff(server);
    (apart.as_secs_f64() > client.max(server).as_secs_f64() * DIRECTIONS_APART).then_some(apart)
}

/// The failure that wrong bytes are.
pub(super) fn wrong_data(rounds: &[Round]) -> Option<Error> {
    let wrong: Vec<(&Round, Direction, Checked)> = rounds
        .iter()
        .flat_map(|round| round.findings().map(move |(direction, checked)| (round, direction, checked)))
        .filter(|(_, _, checked)| checked.wrong_bytes > 0)
        .collect();
    let (round, direction, first) = wrong.first()?;
    let total: u64 = wrong.iter().map(|(_, _, checked)| checked.wrong_bytes).sum();
    let direction = match direction {
        Direction::ClientToServer => "from the client to the server",
        Direction::ServerToClient => "from the server to the client",
    };
    let error = Error::new(
        ErrorKind::WrongData,
        format!(
            "{total} bytes arrived wrong, first at message size {} in round {}",
            ByteSize(round.size_bytes),
            round.round + 1
        ),
    )
    .fact("direction", direction);
    Some(match first.first_wrong {
        Some(byte) => {
            let message = byte.message.map_or(String::new(), |number| format!(", message {number}"));
            error.fact(
                "first wrong byte",
                format!(
                    "queue pair {}{message}, offset {}: expected 0x{:02x}, found 0x{:02x}",
                    byte.qp, byte.offset, byte.expected, byte.found
                ),
            )
        }
        None => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;
    use crate::rate::{Rate, RateLimit};
    use crate::report::TcpEnd;
    use crate::validate::WrongByte;

    fn round(number: u32, direction: Direction, messages: u64, elapsed_ms: u64) -> Round {
        Round {
            size_bytes: 65536,
            round: number,
            direction,
            messages,
            elapsed_ns: elapsed_ms * 1_000_000,
            peak_messages_per_sec: Some(messages as f64 / elapsed_ms as f64 * 1e3),
            latency: None,
            intervals: None,
            partial: false,
            checked: None,
            answers_checked: None,
        }
    }

    fn bandwidth(row: &ResultRow) -> &BandwidthRow {
        match row {
            ResultRow::Bandwidth(row) => row,
            ResultRow::Latency(_) => panic!("a bandwidth run gave a latency row"),
        }
    }

    #[test]
    fn a_latency_row_has_medians_of_rounds_and_the_true_extremes() {
        let with = |number: u32, base: f64| {
            let usec = |share: f64| base * share;
            let latency = Latency {
                t_min_usec: usec(0.5),
                t_max_usec: usec(9.0),
                t_typical_usec: base,
                t_avg_usec: usec(1.1),
                t_stdev_usec: usec(0.1),
                p99_usec: usec(2.0),
                p99_9_usec: usec(3.0),
                p99_99_usec: usec(4.0),
                histogram: Vec::new(),
            };
            Round { latency: Some(latency), peak_messages_per_sec: None, ..round(number, Out, 1000, 100) }
        };
        let plan = Plan { traffic: Traffic::PingPong, ..plan() };
        let (rows, warnings) = summarise(Some(&plan), None, &[with(0, 10.0), with(1, 12.0), with(2, 11.0)]);
        let ResultRow::Latency(row) = &rows[0] else { panic!("{rows:?}") };
        assert_eq!((row.t_min_usec, row.t_max_usec, row.t_typical_usec), (5.0, 108.0, 11.0));
        assert_eq!((row.p99_usec, row.p99_9_usec, row.p99_99_usec), (22.0, 33.0, 44.0));
        assert_eq!((row.iterations, row.rounds), (1000, 3));
        assert_eq!(warnings[0].code, "rounds-differ");
    }

    use Direction::{ClientToServer as Out, ServerToClient as Back};

    fn hundred_gbit() -> Link {
        let end = TcpEnd { address: "x".into(), netdev: None, rate_gbit_per_sec: Some(100.0) };
        Link::Tcp { client: end.clone(), server: end }
    }

    #[test]
    fn the_row_is_the_median_of_the_rounds() {
        let rounds = [round(0, Out, 1000, 100), round(1, Out, 1000, 50), round(2, Out, 1000, 200)];
        let (rows, _) = summarise(Some(&plan()), Some(&hundred_gbit()), &rounds);
        let row = bandwidth(&rows[0]);
        // 1000 × 64 KiB in 0.1 s: 625 MiB/s, 5.24288 Gb/s, 10 000 messages a second.
        assert!((row.bw_average_mib_per_sec - 625.0).abs() < 1e-9);
        assert!((row.bw_average_gbit_per_sec - 5.24288).abs() < 1e-9);
        assert!((row.msg_rate_mpps - 0.01).abs() < 1e-12);
        assert!((row.line_rate_percent.unwrap() - 5.24288).abs() < 1e-9);
        assert_eq!((row.iterations, row.rounds), (1000, 3));
        // The rounds give 625, 1250 and 312.5 MiB/s.
        assert!((row.spread_percent.unwrap() - 150.0).abs() < 1e-9);
    }

    #[test]
    fn a_round_of_a_month_has_the_bandwidth_of_a_second() {
        // 400 Gb/s of 64 KiB for 30 days: some 10^17 bytes in 10^15.4 ns.
        let day_ms = 24 * 3600 * 1000;
        let of = |seconds: u64, elapsed_ms| round(0, Out, 762_939 * seconds, elapsed_ms);
        let row = |round| summarise(Some(&plan()), None, &[round]).0;
        let (second, month) = (row(of(1, 1000)), row(of(30 * 24 * 3600, 30 * day_ms)));
        let (second, month) = (bandwidth(&second[0]), bandwidth(&month[0]));
        assert!((second.bw_average_gbit_per_sec - 400.0).abs() < 0.001, "{second:?}");
        assert!(
            (month.bw_average_gbit_per_sec / second.bw_average_gbit_per_sec - 1.0).abs() < 1e-9,
            "{month:?}"
        );
        assert!((month.msg_rate_mpps / second.msg_rate_mpps - 1.0).abs() < 1e-9, "{month:?}");
    }

    #[test]
    fn two_directions_are_added() {
        let mut both = plan();
        both.traffic = Traffic::Bidirectional;
        let rounds = [round(0, Out, 1000, 100), round(0, Back, 1000, 100)];
        let (rows, warnings) = summarise(Some(&both), Some(&hundred_gbit()), &rounds);
        assert!((bandwidth(&rows[0]).bw_average_mib_per_sec - 1250.0).abs() < 1e-9);
        assert!((bandwidth(&rows[0]).line_rate_percent.unwrap() - 5.24288).abs() < 1e-9);
        assert!(warnings.is_empty());
        let apart = [round(0, Out, 1000, 100), round(0, Back, 1000, 120)];
        assert_eq!(summarise(Some(&both), None, &apart).1[0].code, "directions-apart");
    }

    #[test]
    fn a_round_cut_short_counts_only_where_there_is_no_other() {
        let mut cut = round(1, Out, 10, 100);
        cut.partial = true;
        let (rows, _) = summarise(Some(&plan()), None, &[round(0, Out, 1000, 100), cut.clone()]);
        assert_eq!((bandwidth(&rows[0]).rounds, bandwidth(&rows[0]).partial), (1, false));
        let (rows, _) = summarise(Some(&plan()), None, &[cut]);
        assert_eq!((bandwidth(&rows[0]).rounds, bandwidth(&rows[0]).partial), (1, true));
    }

    #[test]
    fn rounds_that_differ_or_are_short_are_told() {
        let codes = |rounds: &[Round]| {
            summarise(Some(&plan()), None, rounds)
                .1
                .into_iter()
                .map(|warning| warning.code)
                .collect::<Vec<_>>()
        };
        assert_eq!(codes(&[round(0, Out, 1000, 100), round(1, Out, 1000, 120)]), ["rounds-differ"]);
        assert_eq!(codes(&[round(0, Out, 1000, 5)]), ["short-rounds"]);
        assert!(codes(&[round(0, Out, 1000, 100), round(1, Out, 1000, 101)]).is_empty());
    }

    #[test]
    fn few_messages_are_told_of_however_long_they_take() {
        let warned = |plan: Plan, round: Round| summarise(Some(&plan), None, &[round]).1;
        let codes = |plan: Plan, round: Round| -> Vec<String> {
            warned(plan, round).into_iter().map(|warning| warning.code).collect()
        };
        let few = warned(plan(), round(0, Out, 10, 100));
        assert_eq!(few[0].seen, "rounds had few messages on each queue pair at 64 KiB, down to 10");
        assert_eq!(codes(plan(), round(0, Out, 19, 100)), ["few-messages"]);
        assert!(codes(plan(), round(0, Out, 20, 100)).is_empty());
        assert_eq!(codes(Plan { qps: 4, ..plan() }, round(0, Out, 76, 100)), ["few-messages"]);
        // One of the two says it.
        assert_eq!(codes(plan(), round(0, Out, 5, 1)), ["short-rounds"]);
    }

    #[test]
    fn a_rate_limit_that_did_not_bind_is_told() {
        // 1000 × 64 KiB in 100 ms are 10 000 messages a second.
        let limited = |mpps| {
            let rate_limit = Some(RateLimit { rate: Rate::Mpps(mpps), burst_messages: 8 });
            Plan { rate_limit, ..plan() }
        };
        let of = |plan: &Plan, rounds: &[Round]| {
            let (rows, warnings) = summarise(Some(plan), None, rounds);
            let codes: Vec<String> = warnings.into_iter().map(|warning| warning.code).collect();
            (bandwidth(&rows[0]).rate_limit_percent, codes)
        };
        let one = [round(0, Out, 1000, 100)];
        assert_eq!(of(&limited(0.01), &one), (Some(100.0), vec![]));
        assert_eq!(of(&limited(0.02), &one), (Some(50.0), vec!["rate-limit-not-reached".to_owned()]));
        assert_eq!(of(&plan(), &one).0, None);
        let both = Plan { traffic: Traffic::Bidirectional, ..limited(0.01) };
        assert_eq!(of(&both, &[round(0, Out, 1000, 100), round(0, Back, 1000, 100)]).0, Some(100.0));
    }

    #[test]
    fn wrong_bytes_are_a_failure_that_names_the_first() {
        let mut bad = round(0, Out, 1000, 100);
        let first_wrong = Some(WrongByte { qp: 2, message: None, offset: 5, expected: 1, found: 0xff });
        bad.checked = Some(Checked { checked_bytes: 100, wrong_bytes: 3, first_wrong });
        let error = wrong_data(&[bad.clone()]).unwrap();
        assert_eq!(error.what, "3 bytes arrived wrong, first at message size 64 KiB in round 1");
        assert_eq!(error.facts[1].value, "queue pair 2, offset 5: expected 0x01, found 0xff");
        let (rows, _) = summarise(Some(&plan()), None, &[bad]);
        assert_eq!(rows[0].checked(), Some((100, 3)));
    }

    #[test]
    fn wrong_bytes_of_an_answer_are_the_servers() {
        let good = Checked { checked_bytes: 100, ..Checked::default() };
        let first_wrong = Some(WrongByte { qp: 0, message: Some(7), offset: 5, expected: 1, found: 3 });
        let bad = Checked { checked_bytes: 100, wrong_bytes: 1, first_wrong };
        let round = Round { checked: Some(good), answers_checked: Some(bad), ..round(0, Out, 10, 100) };
        let error = wrong_data(&[round]).unwrap();
        let facts: Vec<&str> = error.facts.iter().map(|fact| fact.value.as_str()).collect();
        assert_eq!(
            facts,
            ["from the server to the client", "queue pair 0, message 7, offset 5: expected 0x01, found 0x03"]
        );
    }
}
