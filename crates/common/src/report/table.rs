//! The table itself, one kind for bandwidth and one for latency: perftest's columns in perftest's order, ours behind
//! them; and the histograms.

use super::text::BandwidthUnit;
use super::{BandwidthRow, Document, LatencyRow, ResultRow};
use crate::latency::{Bucket, Latency};
use crate::units::ByteSize;

/// The header and the lines of a run; all lines of a run are of one kind.
pub(super) fn table(rows: &[ResultRow], unit: BandwidthUnit) -> String {
    let header = match rows.first() {
        Some(ResultRow::Latency(_)) => latency_header(),
        _ => bandwidth_header(unit),
    };
    let line = |row: &ResultRow| match row {
        ResultRow::Bandwidth(row) => bandwidth_line(row, unit),
        ResultRow::Latency(row) => latency_line(row),
    };
    std::iter::once(header).chain(rows.iter().map(line)).collect::<Vec<_>>().join("\n")
}

fn bandwidth_header(unit: BandwidthUnit) -> String {
    let label = unit.label();
    format!(
        " {:<10} {:<12} {:<18} {:<21} {:<13} {:<9} {}",
        "#bytes",
        "#iterations",
        format!("BW peak[{label}]"),
        format!("BW average[{label}]"),
        "MsgRate[Mpps]",
        "spread[%]",
        "line rate[%]"
    )
}

fn bandwidth_line(row: &BandwidthRow, unit: BandwidthUnit) -> String {
    let (peak, average) = match unit {
        BandwidthUnit::Mib => (row.bw_peak_mib_per_sec, row.bw_average_mib_per_sec),
        BandwidthUnit::Gbit => (row.bw_peak_gbit_per_sec, row.bw_average_gbit_per_sec),
    };
    format!(
        " {:<10} {:<12} {:<18} {:<21} {:<13} {:<9} {}{}",
        row.size_bytes,
        row.iterations,
        show_bandwidth(peak),
        show_bandwidth(average),
        format!("{:.6}", row.msg_rate_mpps),
        percent(row.spread_percent),
        percent(row.line_rate_percent),
        partial_mark(row.partial)
    )
}

/// perftest's names for the columns; `99.99%` and the spread are ours.
fn latency_header() -> String {
    format!(
        " {:<8} {:<12} {:<12} {:<12} {:<16} {:<12} {:<14} {:<11} {:<13} {:<14} {}",
        "#bytes",
        "#iterations",
        "t_min[usec]",
        "t_max[usec]",
        "t_typical[usec]",
        "t_avg[usec]",
        "t_stdev[usec]",
        "99%[usec]",
        "99.9%[usec]",
        "99.99%[usec]",
        "spread[%]"
    )
}

fn latency_line(row: &LatencyRow) -> String {
    let usec = |value: f64| format!("{value:.3}");
    format!(
        " {:<8} {:<12} {:<12} {:<12} {:<16} {:<12} {:<14} {:<11} {:<13} {:<14} {}{}",
        row.size_bytes,
        row.iterations,
        usec(row.t_min_usec),
        usec(row.t_max_usec),
        usec(row.t_typical_usec),
        usec(row.t_avg_usec),
        usec(row.t_stdev_usec),
        usec(row.p99_usec),
        usec(row.p99_9_usec),
        usec(row.p99_99_usec),
        percent(row.spread_percent),
        partial_mark(row.partial)
    )
}

fn percent(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.1}"))
}

fn partial_mark(partial: bool) -> &'static str {
    if partial { "  (partial)" } else { "" }
}

/// Two decimals, and six below 0.1, as perftest has it, so that a slow point is not shown as nothing.
pub(super) fn show_bandwidth(value: f64) -> String {
    if value < 0.1 { format!("{value:.6}") } else { format!("{value:.2}") }
}

/// Bars of this many characters stand for the fullest.
const BAR_WIDTH: u64 = 50;

/// The half round trips of every size, all rounds together, as bars.
pub(super) fn histograms(document: &Document) -> String {
    let mut out = String::new();
    for row in &document.results {
        let of_size = |round: &&super::Round| round.size_bytes == row.size_bytes();
        let rounds = document.rounds.iter().filter(of_size).filter_map(|round| round.latency.as_ref());
        let bars = all_rounds(rounds);
        out.push_str(&format!(" Half round trips at {}\n", ByteSize(row.size_bytes())));
        let most = bars.iter().map(|bar| bar.count).max().unwrap_or(1).max(1);
        for bar in &bars {
            out.push_str(&bar_line(bar, most));
        }
    }
    out
}

/// A bar that holds anything at all is never drawn as nothing: the tail is what one looks for.
fn bar_line(bar: &Bucket, most: u64) -> String {
    let length = (bar.count * BAR_WIDTH).div_ceil(most);
    format!("  up to {:>12.3} usec {:>10}  {}\n", bar.up_to_usec, bar.count, "#".repeat(length as usize))
}

/// The bars of several rounds, which share their edges, put together; with the empty ones between them.
fn all_rounds<'a>(rounds: impl Iterator<Item = &'a Latency>) -> Vec<Bucket> {
    let mut bars: Vec<Bucket> = Vec::new();
    for bucket in rounds.flat_map(|latency| &latency.histogram) {
        match bars.iter_mut().find(|bar| bar.up_to_usec == bucket.up_to_usec) {
            Some(bar) => bar.count += bucket.count,
            None => bars.push(*bucket),
        }
    }
    bars.sort_by(|a, b| a.up_to_usec.total_cmp(&b.up_to_usec));
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_point_is_not_shown_as_nothing() {
        assert_eq!(show_bandwidth(0.000_123_4), "0.000123");
        assert_eq!(show_bandwidth(12.345), "12.35");
    }

    #[test]
    fn a_bar_with_one_sample_shows() {
        assert!(bar_line(&Bucket { up_to_usec: 8.0, count: 1 }, 1_000_000).ends_with("  #\n"));
        assert!(bar_line(&Bucket { up_to_usec: 8.0, count: 0 }, 1_000_000).ends_with("0  \n"));
    }

    #[test]
    fn perftests_latency_columns_stand_first_and_in_its_order() {
        let header = latency_header().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(header.starts_with(
            "#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] t_stdev[usec] 99%[usec] 99.9%[usec]"
        ));
    }
}
