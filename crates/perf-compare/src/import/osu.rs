//! The tables of the OSU micro-benchmarks: a title, a heading, a line for each size. Nothing marks their end, so that a
//! table that was cut between two lines can't be told from a whole one.

use std::collections::BTreeMap;

use super::bad_line;
use crate::recording::{Figure, Key, Recording};

/// What a column holds.
#[derive(Clone, Copy)]
enum Column {
    /// 10⁶ bytes a second.
    Megabytes,
    /// A mean time in microseconds.
    Mean,
    /// The 99th percentile of times in microseconds.
    P99,
}

struct Heading {
    /// Whether lines begin with a size: those of a barrier do not.
    has_size: bool,
    /// The columns that are read, by their place among all.
    columns: Vec<(usize, Column)>,
}

/// Reads the output of one run.
pub(super) fn recording(name: &str, text: &str) -> Result<Recording, String> {
    let title =
        text.lines().find_map(title_of).ok_or("it has no title such as \"# OSU MPI Latency Test v7.5\"")?;
    let (operation, what, traffic) = operation(&title.of);
    let mut recording = Recording::new(name, &operation);
    recording.conditions = conditions(text, &title, traffic);
    let mut heading: Option<Heading> = None;
    let mut points: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(comment) = line.trim_start().strip_prefix('#') {
            heading = heading_of(comment).or(heading);
        } else if let Some(heading) = heading.as_ref().filter(|_| starts_with_digit(line)) {
            let values =
                row(line, heading).ok_or_else(|| bad_line(index, line, "a number for each column"))?;
            for (size_bytes, figure, value) in values {
                let key = Key { what: what.clone(), size_bytes, figure };
                points.entry(key).or_default().push(value);
            }
        }
    }
    if heading.is_none() {
        return Err("it ends before the table: no line begins with # Size".to_owned());
    }
    recording.set_points(points);
    Ok(recording)
}

struct Title {
    /// `Latency`, `Bi-Directional Bandwidth`, `Allreduce Latency`.
    of: String,
    /// `v7.5`.
    version: Option<String>,
    /// `MPI`, `MPI-CUDA`.
    library: String,
}

/// `# OSU MPI-CUDA Allreduce Latency Test v7.5`.
fn title_of(line: &str) -> Option<Title> {
    let rest = line.trim_start_matches(['#', ' ']).strip_prefix("OSU ")?;
    let (words, version) = rest.split_once(" Test")?;
    let (library, of) = words.split_once(' ')?;
    let version = version.split_whitespace().next().map(str::to_owned);
    Some(Title { of: of.trim().to_owned(), version, library: library.to_owned() })
}

/// What is measured, what tells its points apart, and which way it goes. A collective's sizes follow MPI's rule (those of
/// an all-to-all are for each peer), so that they are compared with each other only.
fn operation(title: &str) -> (String, String, Option<&'static str>) {
    match title {
        "Latency" => ("MPI latency".to_owned(), String::new(), Some("ping_pong")),
        "Bandwidth" => ("MPI bandwidth".to_owned(), String::new(), Some("unidirectional")),
        "Bi-Directional Bandwidth" => ("MPI bandwidth".to_owned(), String::new(), Some("bidirectional")),
        other => {
            let collective = other.trim_end_matches(" Latency").to_lowercase();
            ("OSU collectives and others".to_owned(), collective, None)
        }
    }
}

fn conditions(text: &str, title: &Title, traffic: Option<&str>) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([("tool".to_owned(), "osu".to_owned())]);
    all.insert("osu.library".to_owned(), title.library.clone());
    all.extend(title.version.clone().map(|version| ("version".to_owned(), version)));
    all.extend(traffic.map(|traffic| ("plan.traffic".to_owned(), traffic.to_owned())));
    let dtype = text.lines().find_map(|line| line.trim_start_matches(['#', ' ']).strip_prefix("Datatype:"));
    all.extend(dtype.map(|dtype| ("osu.datatype".to_owned(), dtype.trim().trim_end_matches('.').to_owned())));
    all
}

/// Columns stand at least two blanks apart, and have blanks in their names.
fn heading_of(comment: &str) -> Option<Heading> {
    let names: Vec<&str> = comment.split("  ").map(str::trim).filter(|name| !name.is_empty()).collect();
    // Version 3 has one blank between the first two.
    let has_size = names.first()?.starts_with("Size");
    let column = |name: &str| match name.trim_start_matches("Size").trim().replace(' ', "").as_str() {
        "Bandwidth(MB/s)" | "MB/s" => Some(Column::Megabytes),
        "Latency(us)" | "AvgLatency(us)" | "Overall(us)" => Some(Column::Mean),
        "P99TailLat(us)" => Some(Column::P99),
        _ => None,
    };
    let joined = has_size && names[0].len() > "Size".len();
    let place = |index: usize| index + usize::from(joined);
    let columns: Vec<(usize, Column)> =
        names.iter().enumerate().filter_map(|(index, name)| Some((place(index), column(name)?))).collect();
    (!columns.is_empty()).then_some(Heading { has_size, columns })
}

fn starts_with_digit(line: &str) -> bool {
    line.trim_start().starts_with(|c: char| c.is_ascii_digit())
}

/// What the tool rounded to nothing is left out: no ratio can be made of it.
fn row(line: &str, heading: &Heading) -> Option<Vec<(u64, Figure, f64)>> {
    let cells: Vec<&str> = line.split_whitespace().collect();
    let size_bytes: u64 = if heading.has_size { cells.first()?.parse().ok()? } else { 0 };
    let mut found = Vec::new();
    for &(place, column) in &heading.columns {
        let value: f64 = cells.get(place)?.parse().ok()?;
        let (figure, value) = match column {
            Column::Megabytes => (Figure::Bandwidth, value * 8.0 / 1e3),
            Column::Mean => (Figure::Mean, value),
            Column::P99 => (Figure::P99, value),
        };
        if value != 0.0 {
            found.push((size_bytes, figure, value));
        }
    }
    Some(found)
}
