//! nccl-tests' tables. Columns are found by the heading, so that versions and options with more of them are read, too.

use std::collections::BTreeMap;

use super::bad_line;
use crate::recording::{Figure, Key, Recording};

/// Where columns are.
struct Columns {
    /// Times, out of place and, where there are any, in place; the wrong elements stand three columns on.
    times: Vec<usize>,
    count: usize,
}

/// Reads the output of one run. `operation` is for versions that do not name the collective.
pub(super) fn recording(name: &str, text: &str, operation: Option<&str>) -> Result<Recording, String> {
    let named = text
        .lines()
        .find_map(|line| line.trim_start_matches(['#', ' ']).strip_prefix("Collective test starting:"));
    let operation = operation
        .or_else(|| named.map(|name| name.trim().trim_end_matches("_perf")))
        .ok_or("it does not say which collective it is of: give --op, for instance --op all_reduce")?;
    let mut recording = Recording::new(name, "collectives");
    recording.conditions = conditions(text);
    let mut columns: Option<Columns> = None;
    let mut points: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
    let mut wrong = 0;
    for (index, line) in text.lines().enumerate() {
        if let Some(heading) = line.trim_start().strip_prefix('#') {
            columns = columns_of(heading).or(columns);
        } else if let Some(columns) =
            columns.as_ref().filter(|_| line.trim_start().starts_with(|c: char| c.is_ascii_digit()))
        {
            let found = row(line, columns, operation).ok_or_else(|| {
                bad_line(index, line, &format!("{} columns as in the heading", columns.count))
            })?;
            wrong += found.wrong;
            for (key, value) in found.values {
                points.entry(key).or_default().push(value);
            }
        }
    }
    if columns.is_none() {
        return Err("it ends before the table: no heading has size, count, type, time and algbw".to_owned());
    }
    let failed = |line: &str| line.contains("Out of bounds values") && line.contains("FAILED");
    if wrong > 0 || text.lines().any(failed) {
        recording.faults.push(format!("wrong-data: {wrong} elements were wrong"));
    }
    if !text.contains("Avg bus bandwidth") {
        recording.faults.push("it ends before its summary: the run was cut short".to_owned());
    }
    recording.set_points(points);
    Ok(recording)
}

fn conditions(text: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([("tool".to_owned(), "nccl-tests".to_owned())]);
    let comments = || text.lines().filter_map(|line| line.trim_start().strip_prefix('#')).map(str::trim);
    let is_rank = |line: &&str| line.starts_with("Rank ") && line.contains(" on ");
    let ranks = comments().filter(is_rank).count();
    if ranks > 0 {
        all.insert("plan.n_ranks".to_owned(), ranks.to_string());
    }
    if let Some(version) = comments().find(|line| line.starts_with("nccl-tests version")) {
        all.insert("version".to_owned(), version.to_owned());
        let library = version.split_once("nccl-library=").map(|(_, library)| library.to_owned());
        all.extend(library.map(|library| ("nccl-tests.nccl_version".to_owned(), library)));
    }
    all.extend(comments().find(|line| line.starts_with("nThread")).map(parameters).unwrap_or_default());
    all
}

/// `warmup iters: 5 iters: 20 graph: 0`, by the names that the JSON has. Which sizes were measured the points tell.
fn parameters(line: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut name: Vec<&str> = Vec::new();
    for word in line.split_whitespace() {
        if name.is_empty() || !word.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            name.push(word.trim_end_matches(':'));
            continue;
        }
        let known = match name.join("_").as_str() {
            "minBytes" | "maxBytes" | "step" => None,
            "iters" => Some("iterations".to_owned()),
            "agg_iters" => Some("aggregated_iterations".to_owned()),
            other => Some(other.to_lowercase().replace("nthread", "nthreads")),
        };
        found.extend(known.map(|known| (format!("nccl-tests.{known}"), word.to_owned())));
        name.clear();
    }
    found
}

fn columns_of(heading: &str) -> Option<Columns> {
    let names: Vec<&str> = heading.split_whitespace().collect();
    let starts = names.starts_with(&["size", "count", "type"]);
    let is_time = |index: &usize| {
        ["time", "cputime"].contains(&names[*index]) && names.get(index + 1) == Some(&"algbw")
    };
    let times: Vec<usize> = (0..names.len()).filter(is_time).collect();
    (starts && !times.is_empty()).then_some(Columns { times, count: names.len() })
}

struct Found {
    values: Vec<(Key, f64)>,
    wrong: u64,
}

/// algbw is worked out from size and time, which have more digits than the column has.
fn row(line: &str, columns: &Columns, operation: &str) -> Option<Found> {
    let cells: Vec<&str> = line.split_whitespace().collect();
    if cells.len() < columns.count {
        return None;
    }
    let size_bytes: u64 = cells[0].parse().ok()?;
    let mut found = Found { values: Vec::new(), wrong: 0 };
    for (half, &at) in columns.times.iter().enumerate() {
        let usec: f64 = cells.get(at)?.parse().ok()?;
        let column: f64 = cells.get(at + 1)?.parse().ok()?;
        found.wrong += cells.get(at + 3).and_then(|wrong| wrong.parse::<u64>().ok()).unwrap_or(0);
        let words = [*cells.get(2)?, *cells.get(3)?, *cells.get(4)?];
        let key =
            Key { what: describe(operation, words, half > 0), size_bytes, figure: Figure::AlgBandwidth };
        // Sweeps that begin below one element for each rank have lines of nothing.
        if size_bytes > 0 {
            found.values.push((key, algbw(operation, size_bytes, usec, column)));
        }
    }
    Some(found)
}

/// From the size and the time, which have more digits than the column `column`, except where that leaves out a rank's own
/// block.
pub(super) fn algbw(operation: &str, size_bytes: u64, usec: f64, column: f64) -> f64 {
    if operation == "hypercube" { column } else { size_bytes as f64 / usec / 1e3 }
}

/// As the tools' own documents have it: `all_reduce float sum in place`. The words are type, reduction and root.
pub(super) fn describe(operation: &str, [dtype, redop, root]: [&str; 3], in_place: bool) -> String {
    let mut words = vec![operation.to_owned(), dtype.to_owned()];
    if redop != "none" {
        words.push(redop.to_owned());
    }
    if let Ok(root) = root.parse::<u32>() {
        words.push(format!("root {root}"));
    }
    if in_place {
        words.push("in place".to_owned());
    }
    words.join(" ")
}
