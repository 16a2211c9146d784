//! perftest's tables. Columns are known by their number, units by the heading: what older versions call MB/sec is
//! 2²⁰ bytes a second as well.

use std::collections::BTreeMap;

use linkproof_common::units::{Bandwidth, ByteSize};

use super::bad_line;
use crate::recording::{Figure, Key, Recording};

/// What a table has.
#[derive(Clone, Copy, PartialEq)]
enum Table {
    Bandwidth(Unit),
    Latency,
    /// Of `-D`: the mean only.
    MeanLatency,
}

/// What a bandwidth is in.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Unit {
    MibPerSec,
    GbitPerSec,
}

impl Unit {
    /// A number in this unit in 10⁹ bits a second.
    pub(super) fn gbit(self, number: f64) -> f64 {
        number * self.in_gbit()
    }

    /// 10⁹ bits a second in this unit.
    fn of_gbit(self, gbit: f64) -> f64 {
        gbit / self.in_gbit()
    }

    fn in_gbit(self) -> f64 {
        match self {
            Self::MibPerSec => Bandwidth::from_bytes_per_sec(ByteSize::MIB as f64).gbit_per_sec(),
            Self::GbitPerSec => 1.0,
        }
    }
}

/// Why there is no point though there are rows: a path that needs longer for a message than `-D` lets it.
pub(super) const NOTHING: &str = "every bandwidth in it is 0: no message was completed while it measured";

/// Reads the output of one run.
pub(super) fn recording(name: &str, text: &str) -> Result<Recording, String> {
    let (title, bidirectional) =
        text.lines().find_map(title).ok_or("it has no title such as \"RDMA_Write BW Test\"")?;
    let mut recording = Recording::new(name, &title);
    recording.conditions = conditions(text);
    recording.conditions.insert("tool".to_owned(), "perftest".to_owned());
    let (mut table, mut has_rows) = (None, false);
    let mut points: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("#bytes") {
            table =
                Some(heading(line).ok_or_else(|| bad_line(index, line, "columns of bandwidth or latency"))?);
        } else if let Some(table) = table.filter(|_| starts_with_digit(line)) {
            has_rows = true;
            let cells = row(line, table).ok_or_else(|| bad_line(index, line, expected(table)))?;
            for (key, value) in cells {
                points.entry(key).or_default().push(value);
            }
        }
    }
    if table.is_none() {
        return Err("it ends before the table: no line begins with #bytes".to_owned());
    }
    if points.is_empty() && has_rows {
        return Err(NOTHING.to_owned());
    }
    let traffic = traffic(recording.operation.ends_with("latency"), bidirectional);
    recording.conditions.insert("plan.traffic".to_owned(), traffic.to_owned());
    recording.set_points(points);
    Ok(recording)
}

/// As the tools' own documents have it.
pub(super) fn traffic(is_latency: bool, bidirectional: bool) -> &'static str {
    match (is_latency, bidirectional) {
        (true, _) => "ping_pong",
        (false, true) => "bidirectional",
        (false, false) => "unidirectional",
    }
}

/// `write bandwidth` for `RDMA_Write Bidirectional BW Test`, and whether it was in both directions.
pub(super) fn title(line: &str) -> Option<(String, bool)> {
    let line = line.trim().strip_suffix(" Test")?;
    // The table has an underline where JSON, which has them everywhere, is given with blanks.
    let words = line.strip_prefix("RDMA_").or(line.strip_prefix("RDMA ")).unwrap_or(line);
    let mut parts = words.split_whitespace();
    let verb = parts.next()?.to_lowercase();
    let rest: Vec<&str> = parts.collect();
    let figure = match rest.last() {
        Some(&"BW") => "bandwidth",
        Some(&"Latency") => "latency",
        _ => return None,
    };
    Some((format!("{verb} {figure}"), rest.contains(&"Bidirectional")))
}

/// `Mtu : 1024[B]` and its like. Addresses and numbers of queue pairs have another form, and differ in each run.
fn conditions(text: &str) -> BTreeMap<String, String> {
    // A tab separates two of a line, and stands before the colon of one.
    let head = text.lines().take(200).collect::<Vec<_>>().join("\n").replace("\t :", " :");
    let cells = head.split(['\n', '\t']);
    let pair = |cell: &str| {
        let (name, value) = cell.split_once(" : ").or_else(|| cell.split_once(": "))?;
        let (name, value) = (name.trim(), value.trim());
        let is_name = name.len() < 30 && name.chars().all(|c| c.is_alphanumeric() || " _-*.".contains(c));
        let varies = name.contains("address") || name.contains("GID") || name.is_empty() || value.is_empty();
        (is_name && !varies).then(|| (format!("perftest.{name}"), value.to_owned()))
    };
    cells.filter_map(pair).collect()
}

fn heading(line: &str) -> Option<Table> {
    if line.contains("t_typical[usec]") {
        Some(Table::Latency)
    } else if line.contains("t_avg[usec]") {
        Some(Table::MeanLatency)
    } else if line.contains("BW average[Gb/sec]") {
        Some(Table::Bandwidth(Unit::GbitPerSec))
    } else if line.contains("BW average[MB/sec]") || line.contains("BW average[MiB/sec]") {
        Some(Table::Bandwidth(Unit::MibPerSec))
    } else {
        None
    }
}

fn starts_with_digit(line: &str) -> bool {
    line.trim_start().starts_with(|c: char| c.is_ascii_digit())
}

fn expected(table: Table) -> &'static str {
    match table {
        Table::Latency => "size, iterations and seven times in microseconds",
        Table::MeanLatency => "size, iterations, mean time and transactions a second",
        Table::Bandwidth(_) => "size, iterations, peak, average and message rate",
    }
}

fn row(line: &str, table: Table) -> Option<Vec<(Key, f64)>> {
    let mut cells = line.split_whitespace();
    let size_bytes: u64 = cells.next()?.parse().ok()?;
    let cells: Vec<&str> = cells.collect();
    let numbers: Vec<f64> = cells.iter().map(|cell| cell.parse()).collect::<Result<_, _>>().ok()?;
    let key = |figure| Key { what: String::new(), size_bytes, figure };
    let unit = match table {
        // iterations, min, max, typical, average, deviation, 99 %, 99.9 %
        Table::Latency if numbers.len() >= 8 => {
            return Some(vec![(key(Figure::Typical), numbers[3]), (key(Figure::P99), numbers[6])]);
        }
        Table::MeanLatency if numbers.len() >= 3 => return Some(vec![(key(Figure::Mean), numbers[1])]),
        // iterations, peak, average, message rate
        Table::Bandwidth(unit) if numbers.len() >= 4 => unit,
        _ => return None,
    };
    let gbit = finer(cells[2], cells[3], size_bytes, unit).unwrap_or_else(|| unit.gbit(numbers[2]));
    Some(if gbit > 0.0 { vec![(key(Figure::Bandwidth), gbit)] } else { Vec::new() })
}

/// The bandwidth in 10⁹ bits a second that so many million messages a second are.
pub(super) fn gbit_by_rate(million_messages: f64, size_bytes: u64) -> f64 {
    million_messages * 1e6 * size_bytes as f64 * 8.0 / 1e9
}

/// The bandwidth in 10⁹ bits a second by message rate and size, where the cell `rate` has more digits than the cell `average`,
/// of which small messages have one or two or none at all, and agrees with it as far as that goes.
pub(super) fn finer(average: &str, rate: &str, size_bytes: u64, unit: Unit) -> Option<f64> {
    let gbit = gbit_by_rate(rate.parse().ok()?, size_bytes);
    let decimals = average.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let agrees = format!("{:.decimals$}", unit.of_gbit(gbit)) == average;
    (agrees && digits(rate) > digits(average)).then_some(gbit)
}

/// How many digits that say something a number has.
fn digits(cell: &str) -> usize {
    cell.trim_start_matches(['0', '.']).bytes().filter(u8::is_ascii_digit).count()
}
