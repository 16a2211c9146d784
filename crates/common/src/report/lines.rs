//! The line of an interval, in perftest's columns with ours behind them.

use std::time::SystemTime;

use super::table::show_bandwidth;
use super::text::BandwidthUnit;
use crate::intervals::Interval;
use crate::plan::{Plan, Traffic};
use crate::units::Bandwidth;
use crate::watch::sampling::Report;

/// How the lines of a run look.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    traffic: Traffic,
    unit: BandwidthUnit,
}

impl Lines {
    pub(super) fn text(plan: &Plan, unit: BandwidthUnit) -> Self {
        Self { traffic: plan.traffic, unit }
    }

    /// What stands above all lines.
    pub(super) fn header(&self) -> String {
        format!("{}\n", columns(self.traffic, &names(self.traffic, self.unit)))
    }

    /// The line of an interval that began at `began`, with its line end.
    pub(super) fn line(&self, report: &Report, began: SystemTime) -> String {
        format!("{}\n", columns(self.traffic, &values(report, self.traffic, self.unit, began)))
    }
}

/// A line of cells, in perftest's order; what is not known of an interval is a dash.
fn columns(traffic: Traffic, cells: &[String]) -> String {
    let widths: &[usize] = match traffic {
        Traffic::PingPong => &[8, 12, 16, 11, 12, 6, 10, 24],
        Traffic::Unidirectional | Traffic::Bidirectional => &[10, 12, 18, 21, 13, 6, 10, 24],
    };
    let padded = cells.iter().zip(widths.iter().chain(std::iter::repeat(&0)));
    let line: String = padded.map(|(cell, &width)| format!(" {cell:<width$}")).collect();
    line.trim_end().to_owned()
}

fn names(traffic: Traffic, unit: BandwidthUnit) -> Vec<String> {
    let label = unit.label();
    let figures = match traffic {
        Traffic::PingPong => ["t_typical[usec]".into(), "99%[usec]".into(), "t_max[usec]".into()],
        Traffic::Unidirectional | Traffic::Bidirectional => {
            [format!("BW peak[{label}]"), format!("BW average[{label}]"), "MsgRate[Mpps]".into()]
        }
    };
    let before = ["#bytes", "#iterations"].map(str::to_owned);
    let mut names: Vec<String> = before.into_iter().chain(figures).collect();
    names.extend(["round", "at[s]", "time[UTC]"].map(str::to_owned));
    names.extend(direction_of(traffic, || "direction".to_owned()));
    names
}

/// Two directions are never added: which of them is slow is the question.
fn direction_of(traffic: Traffic, words: impl Fn() -> String) -> Option<String> {
    (traffic == Traffic::Bidirectional).then(words)
}

fn values(report: &Report, traffic: Traffic, unit: BandwidthUnit, began: SystemTime) -> Vec<String> {
    let interval = &report.interval;
    let figures = match traffic {
        Traffic::PingPong => latency_figures(interval),
        Traffic::Unidirectional | Traffic::Bidirectional => {
            let bandwidth = bandwidth(report);
            let average = match unit {
                BandwidthUnit::Mib => bandwidth.mib_per_sec(),
                BandwidthUnit::Gbit => bandwidth.gbit_per_sec(),
            };
            ["-".into(), show_bandwidth(average), format!("{:.6}", interval.messages_per_sec() / 1e6)]
        }
    };
    let mut values = vec![report.size_bytes.to_string(), interval.messages.to_string()];
    values.extend(figures);
    values.extend([
        (report.round + 1).to_string(),
        format!("{:.3}", interval.begin().as_secs_f64()),
        humantime::format_rfc3339_millis(began).to_string(),
    ]);
    values.extend(direction_of(traffic, || report.direction.words().to_owned()));
    values
}

fn latency_figures(interval: &Interval) -> [String; 3] {
    interval.latency.map_or_else(
        || ["-", "-", "-"].map(str::to_owned),
        |latency| {
            [latency.t_typical_usec, latency.p99_usec, latency.t_max_usec].map(|usec| format!("{usec:.3}"))
        },
    )
}

fn bandwidth(report: &Report) -> Bandwidth {
    Bandwidth::of(report.interval.messages.saturating_mul(report.size_bytes), report.interval.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intervals::IntervalLatency;
    use crate::plan::tests::plan;
    use crate::validate::Direction;
    use std::time::Duration;

    fn report(latency: Option<IntervalLatency>) -> Report {
        let interval =
            Interval { begin_ns: 17_000_000_000, elapsed_ns: 1_000_000_000, messages: 16_000, latency };
        Report { size_bytes: 65536, round: 1, direction: Direction::ServerToClient, interval }
    }

    fn shown(traffic: Traffic, report: &Report) -> String {
        let lines = Lines::text(&Plan { traffic, ..plan() }, BandwidthUnit::Mib);
        let began = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        format!("{}{}", lines.header(), lines.line(report, began))
    }

    #[test]
    fn perftests_columns_stand_first() {
        let latency = IntervalLatency { t_typical_usec: 1.9, p99_usec: 2.5, t_max_usec: 31.25 };
        insta::assert_snapshot!(
            [
                shown(Traffic::Unidirectional, &report(None)),
                shown(Traffic::Bidirectional, &report(None)),
                shown(Traffic::PingPong, &report(Some(latency))),
                shown(Traffic::PingPong, &report(None)),
            ]
            .concat()
        );
    }
}
