//! The line of an interval: for people, in perftest's columns with ours behind them; for programs, as JSON.

use std::time::SystemTime;

use serde::Serialize;

use super::table::show_bandwidth;
use super::text::BandwidthUnit;
use crate::intervals::Interval;
use crate::plan::{Plan, Traffic};
use crate::units::Bandwidth;
use crate::validate::Direction;
use crate::watch::sampling::Report;

/// The version of the shape of an interval's line in JSON, `schema/interval.v1.json`.
pub const INTERVAL_SCHEMA: &str = "linkproof/interval.v1";

/// How the lines of a run look.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    traffic: Traffic,
    kind: Kind,
    above: String,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Text(BandwidthUnit),
    Json { tool: &'static str },
}

impl Lines {
    /// Columns, with `above` above their names.
    pub(super) fn text(plan: &Plan, unit: BandwidthUnit, above: String) -> Self {
        Self { traffic: plan.traffic, kind: Kind::Text(unit), above }
    }

    /// An object a line.
    pub(super) fn json(plan: &Plan, tool: &'static str) -> Self {
        Self { traffic: plan.traffic, kind: Kind::Json { tool }, above: String::new() }
    }

    /// What stands above all lines.
    pub(super) fn header(&self) -> String {
        match self.kind {
            Kind::Text(unit) => {
                format!("{}{}\n", self.above, columns(self.traffic, &names(self.traffic, unit)))
            }
            Kind::Json { .. } => String::new(),
        }
    }

    /// The line of an interval that began at `began`, with its line end.
    pub(super) fn line(&self, report: &Report, began: SystemTime) -> String {
        match self.kind {
            Kind::Text(unit) => {
                format!("{}\n", columns(self.traffic, &values(report, self.traffic, unit, began)))
            }
            Kind::Json { tool } => json(tool, self.traffic, report, began),
        }
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

/// An interval's line in JSON.
#[derive(Serialize)]
struct IntervalLine<'a> {
    schema: &'static str,
    tool: &'a str,
    began: String,
    size_bytes: u64,
    round: u32,
    direction: Direction,
    #[serde(flatten)]
    interval: Interval,
    #[serde(flatten)]
    rates: Option<Rates>,
}

/// What a bandwidth tool works out of it.
#[derive(Serialize)]
struct Rates {
    bw_average_mib_per_sec: f64,
    bw_average_gbit_per_sec: f64,
    msg_rate_mpps: f64,
}

fn json(tool: &str, traffic: Traffic, report: &Report, began: SystemTime) -> String {
    let rates = (traffic != Traffic::PingPong).then(|| Rates {
        bw_average_mib_per_sec: bandwidth(report).mib_per_sec(),
        bw_average_gbit_per_sec: bandwidth(report).gbit_per_sec(),
        msg_rate_mpps: report.interval.messages_per_sec() / 1e6,
    });
    let line = IntervalLine {
        schema: INTERVAL_SCHEMA,
        tool,
        began: humantime::format_rfc3339_millis(began).to_string(),
        size_bytes: report.size_bytes,
        round: report.round,
        direction: report.direction,
        interval: report.interval,
        rates,
    };
    // Numbers and words only: nothing in it that JSON can't say.
    serde_json::to_string(&line).map(|line| format!("{line}\n")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intervals::IntervalLatency;
    use crate::plan::tests::plan;
    use std::time::Duration;

    fn report(latency: Option<IntervalLatency>) -> Report {
        let interval =
            Interval { begin_ns: 17_000_000_000, elapsed_ns: 1_000_000_000, messages: 16_000, latency };
        Report { size_bytes: 65536, round: 1, direction: Direction::ServerToClient, interval }
    }

    fn began() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123)
    }

    fn shown(traffic: Traffic, report: &Report) -> String {
        let lines = Lines::text(&Plan { traffic, ..plan() }, BandwidthUnit::Mib, String::new());
        format!("{}{}", lines.header(), lines.line(report, began()))
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

    #[test]
    fn a_line_of_json_has_the_units_in_its_keys() {
        let lines = Lines::json(&plan(), "write-bw");
        assert_eq!(lines.header(), "");
        let line = lines.line(&report(None), began());
        assert!(line.ends_with("}\n") && line.matches('\n').count() == 1, "{line}");
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        let expected = serde_json::json!({
            "schema": INTERVAL_SCHEMA, "tool": "write-bw", "began": "2023-11-14T22:13:20.123Z", "size_bytes": 65536,
            "round": 1, "direction": "server_to_client", "begin_ns": 17_000_000_000_u64, "elapsed_ns": 1_000_000_000,
            "messages": 16000, "bw_average_mib_per_sec": 1000.0, "bw_average_gbit_per_sec": 8.388608,
            "msg_rate_mpps": 0.016,
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn a_latencys_line_of_json_has_no_bandwidth() {
        let latency = IntervalLatency { t_typical_usec: 1.9, p99_usec: 2.5, t_max_usec: 31.25 };
        let lines = Lines::json(&Plan { traffic: Traffic::PingPong, ..plan() }, "write-lat");
        let line: serde_json::Value =
            serde_json::from_str(&lines.line(&report(Some(latency)), began())).unwrap();
        assert_eq!(
            line["latency"],
            serde_json::json!({"t_typical_usec": 1.9, "p99_usec": 2.5, "t_max_usec": 31.25})
        );
        assert!(line.get("bw_average_mib_per_sec").is_none(), "{line}");
    }
}
