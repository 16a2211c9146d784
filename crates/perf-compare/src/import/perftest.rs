//! perftest's tables. Columns are known by their number, units by the heading: what older versions call MB/sec is
//! 2²⁰ bytes a second as well.

use std::collections::BTreeMap;

use linkproof_common::units::{Bandwidth, ByteSize};

use super::bad_line;
use crate::recording::{Figure, Key, Recording};

/// What a table has.
#[derive(Clone, Copy, PartialEq)]
enum Table {
    MibPerSec,
    GbitPerSec,
    Latency,
    /// Of `-D`: the mean only.
    MeanLatency,
}

/// Reads the output of one run.
pub(super) fn recording(name: &str, text: &str) -> Result<Recording, String> {
    let (title, bidirectional) =
        text.lines().find_map(title).ok_or("it has no title such as \"RDMA_Write BW Test\"")?;
    let mut recording = Recording::new(name, &title);
    recording.conditions = conditions(text);
    recording.conditions.insert("tool".to_owned(), "perftest".to_owned());
    let mut table = None;
    let mut points: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("#bytes") {
            table =
                Some(heading(line).ok_or_else(|| bad_line(index, line, "columns of bandwidth or latency"))?);
        } else if let Some(table) = table.filter(|_| starts_with_digit(line)) {
            let cells = row(line, table).ok_or_else(|| bad_line(index, line, expected(table)))?;
            for (key, value) in cells {
                points.entry(key).or_default().push(value);
            }
        }
    }
    if table.is_none() {
        return Err("it ends before the table: no line begins with #bytes".to_owned());
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
    let cells = text.lines().take(200).flat_map(|line| line.split('\t'));
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
        Some(Table::GbitPerSec)
    } else if line.contains("BW average[MB/sec]") || line.contains("BW average[MiB/sec]") {
        Some(Table::MibPerSec)
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
        _ => "size, iterations, peak, average and message rate",
    }
}

fn row(line: &str, table: Table) -> Option<Vec<(Key, f64)>> {
    let mut cells = line.split_whitespace();
    let size_bytes: u64 = cells.next()?.parse().ok()?;
    let numbers: Vec<f64> = cells.map(str::parse).collect::<Result<_, _>>().ok()?;
    let key = |figure| Key { what: String::new(), size_bytes, figure };
    match table {
        // iterations, min, max, typical, average, deviation, 99 %, 99.9 %
        Table::Latency if numbers.len() >= 8 => {
            Some(vec![(key(Figure::Typical), numbers[3]), (key(Figure::P99), numbers[6])])
        }
        Table::MeanLatency if numbers.len() >= 3 => Some(vec![(key(Figure::Mean), numbers[1])]),
        Table::Latency | Table::MeanLatency => None,
        // iterations, peak, average, message rate
        _ if numbers.len() < 4 => None,
        Table::GbitPerSec => Some(vec![(key(Figure::Bandwidth), numbers[2])]),
        Table::MibPerSec => {
            let bandwidth = Bandwidth::from_bytes_per_sec(numbers[2] * ByteSize::MIB as f64);
            Some(vec![(key(Figure::Bandwidth), bandwidth.gbit_per_sec())])
        }
    }
}
