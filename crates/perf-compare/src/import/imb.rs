//! The tables of the Intel MPI benchmarks, one for each benchmark and number of processes. Times are read; the bandwidth
//! column follows from them, and has had two units.

use std::collections::BTreeMap;

use super::bad_line;
use crate::recording::{Figure, Key, Recording};

/// What stands at the end of a run.
const LAST_LINE: &str = "All processes entering MPI_Finalize";

struct Heading {
    has_size: bool,
    /// The column of the mean time.
    time: usize,
}

/// Reads the output of one run.
pub(super) fn recording(name: &str, text: &str) -> Result<Recording, String> {
    let mut recording = Recording::new(name, "Intel MPI benchmarks");
    recording.conditions = conditions(text);
    let mut table = Table::default();
    for (index, line) in text.lines().enumerate() {
        table.read(index, line)?;
    }
    if table.benchmark.is_empty() {
        return Err("it has no line such as \"# Benchmarking PingPong\"".to_owned());
    }
    recording.faults = table.faults;
    if !text.contains(LAST_LINE) {
        recording.faults.push("it ends before its last line: the run was cut short".to_owned());
    }
    recording.set_points(table.points);
    Ok(recording)
}

#[derive(Default)]
struct Table {
    benchmark: String,
    processes: Option<u32>,
    heading: Option<Heading>,
    points: BTreeMap<Key, Vec<f64>>,
    faults: Vec<String>,
}

impl Table {
    fn read(&mut self, index: usize, line: &str) -> Result<(), String> {
        let comment = line.trim_start_matches(['#', ' ', '-']);
        if let Some(benchmark) = comment.strip_prefix("Benchmarking ") {
            let benchmark = benchmark.trim().to_owned();
            *self = Self {
                benchmark,
                points: std::mem::take(&mut self.points),
                faults: std::mem::take(&mut self.faults),
                ..Self::default()
            };
        } else if let Some(count) =
            comment.strip_prefix("#processes =").or(comment.strip_prefix("processes ="))
        {
            self.processes = count.trim().parse().ok();
        } else if line.contains("#repetitions") {
            let heading =
                heading_of(line).ok_or_else(|| bad_line(index, line, "a column t[usec] or t_avg[usec]"))?;
            self.heading = Some(heading);
        } else if line.trim_start().starts_with(|c: char| c.is_ascii_digit()) && self.heading.is_some() {
            self.row(index, line)?;
        }
        Ok(())
    }

    fn row(&mut self, index: usize, line: &str) -> Result<(), String> {
        if line.contains("out-of-mem") || line.contains("time-out") {
            self.faults.push(format!("line {}: {}", index + 1, line.trim()));
            return Ok(());
        }
        let Some(heading) = &self.heading else { return Ok(()) };
        let (size_bytes, usec) =
            values(line, heading).ok_or_else(|| bad_line(index, line, "a number for each column"))?;
        // What the tool rounded to nothing is left out: no ratio can be made of it.
        if usec != 0.0 {
            let over = self.processes.map_or(String::new(), |count| format!(" over {count} ranks"));
            let key = Key { what: format!("{}{over}", self.benchmark), size_bytes, figure: Figure::Mean };
            self.points.entry(key).or_default().push(usec);
        }
        Ok(())
    }
}

fn heading_of(line: &str) -> Option<Heading> {
    let names: Vec<&str> = line.split_whitespace().collect();
    let time = names.iter().position(|name| ["t[usec]", "t_avg[usec]"].contains(name))?;
    Some(Heading { has_size: names[0] == "#bytes", time })
}

fn values(line: &str, heading: &Heading) -> Option<(u64, f64)> {
    let cells: Vec<&str> = line.split_whitespace().collect();
    let size_bytes = if heading.has_size { cells.first()?.parse().ok()? } else { 0 };
    Some((size_bytes, cells.get(heading.time)?.parse().ok()?))
}

fn conditions(text: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([("tool".to_owned(), "imb".to_owned())]);
    for line in text.lines().take(200) {
        let line = line.trim_start_matches(['#', ' ']);
        let named = [
            ("Intel(R) MPI Benchmarks ", "version"),
            ("MPI_Datatype for reductions", "imb.reduction_datatype"),
            ("MPI_Datatype ", "imb.datatype"),
            ("MPI_Op ", "imb.reduction"),
        ];
        if let Some((name, value)) =
            named.iter().find_map(|(begin, name)| Some((name, line.strip_prefix(begin)?)))
        {
            all.entry((*name).to_owned()).or_insert_with(|| value.trim_matches([' ', ':', '\t']).to_owned());
        }
    }
    all
}
