//! The tools' own documents, `schema/result.v1.json`: what of them is compared.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::leaves::Leaves;
use crate::recording::{Figure, Key, Recording, Straggler};

#[derive(Deserialize)]
struct Document {
    tool: String,
    version: String,
    started: String,
    finished: String,
    #[serde(default)]
    hosts: Leaves,
    #[serde(default)]
    plan: Leaves,
    #[serde(default)]
    link: Leaves,
    #[serde(default)]
    backend: Leaves,
    #[serde(default)]
    memory: Leaves,
    #[serde(default)]
    conditions: Leaves,
    #[serde(default)]
    evidence: Vec<Evidence>,
    rounds: Vec<Round>,
    results: Vec<Row>,
    verdict: Verdict,
}

/// Only what names a transport; counters are different in each run.
#[derive(Deserialize)]
struct Evidence {
    #[serde(default)]
    edges: Vec<Edge>,
}

#[derive(Deserialize)]
struct Edge {
    transports: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Round {
    round: u32,
    #[serde(default)]
    size_bytes: Option<u64>,
    #[serde(default)]
    messages: u64,
    #[serde(default)]
    elapsed_ns: u64,
    #[serde(default)]
    partial: bool,
    #[serde(default)]
    latency: Option<Latency>,
    #[serde(default)]
    result: Option<usize>,
    #[serde(default)]
    time_usec: Option<f64>,
}

#[derive(Deserialize)]
struct Latency {
    t_typical_usec: f64,
    p99_usec: f64,
}

#[derive(Deserialize)]
struct Row {
    size_bytes: u64,
    #[serde(default)]
    collective: Option<String>,
    #[serde(default)]
    dtype: Option<String>,
    #[serde(default)]
    redop: Option<String>,
    #[serde(default)]
    root: Option<u32>,
    #[serde(default)]
    placement: Option<String>,
    #[serde(default)]
    time_usec: f64,
    #[serde(default)]
    alg_bw_gbyte_per_sec: f64,
    #[serde(default)]
    ranks: Vec<Rank>,
}

#[derive(Deserialize)]
struct Rank {
    rank: u32,
    #[serde(default)]
    last_to_arrive: u64,
    #[serde(default)]
    behind_usec: f64,
}

#[derive(Deserialize)]
struct Verdict {
    #[serde(default)]
    failures: Vec<Failure>,
}

#[derive(Deserialize)]
struct Failure {
    code: String,
    what: String,
}

/// Differs in each run, or is compared elsewhere: by its last name.
const NOT_A_CONDITION: &[&str] = &[
    "qpns",
    "pid",
    "role",
    "address",
    "average",
    "tick_hz",
    "why",
    "pages",
    "sizes_bytes",
    "rounds",
    "timeout_seconds",
    "note",
    "lid",
    "index",
    "soft_bytes",
    "hard_bytes",
];
/// The same by a name on the way.
const NO_CONDITIONS_BELOW: &[&str] = &["contention", "requirements", "pages", "matrix_bytes"];

/// A failure that says nothing against the figures.
const FIGURES_STAND: &str = "requirement-not-met";

/// Reads `json`, one document of the file `name`.
pub(super) fn recording(name: &str, json: &[u8]) -> serde_json::Result<Recording> {
    let document: Document = serde_json::from_slice(json)?;
    let mut recording = Recording::new(name, operation(&document));
    recording.conditions = conditions(&document);
    let invalid = |failure: &&Failure| failure.code != FIGURES_STAND;
    let fault = |failure: &Failure| format!("{}: {}", failure.code, failure.what);
    recording.faults = document.verdict.failures.iter().filter(invalid).map(fault).collect();
    if document.rounds.iter().any(|round| round.result.is_some()) {
        collectives(&document, &mut recording);
    } else {
        links(&document, &mut recording);
    }
    recording.started = Some(document.started);
    recording.finished = Some(document.finished);
    Ok(recording)
}

fn operation(document: &Document) -> &str {
    match document.tool.as_str() {
        "write-bw" => "write bandwidth",
        "write-lat" => "write latency",
        "coll-perf" => "collectives",
        other => other,
    }
}

fn conditions(document: &Document) -> BTreeMap<String, String> {
    let parts = [
        ("hosts", &document.hosts),
        ("plan", &document.plan),
        ("link", &document.link),
        ("backend", &document.backend),
        ("memory", &document.memory),
        ("conditions", &document.conditions),
    ];
    let is_condition = |name: &String| {
        let last = name.rsplit('.').next().unwrap_or_default();
        !NOT_A_CONDITION.contains(&last) && !name.split('.').any(|part| NO_CONDITIONS_BELOW.contains(&part))
    };
    let mut all: BTreeMap<String, String> = parts
        .iter()
        .flat_map(|(part, leaves)| leaves.named(part))
        .filter(|(name, _)| is_condition(name))
        .collect();
    all.insert("tool".to_owned(), document.tool.clone());
    all.insert("version".to_owned(), document.version.clone());
    let edges = document.evidence.iter().flat_map(|evidence| &evidence.edges);
    let transports: BTreeSet<String> =
        edges.flat_map(|edge| &edge.transports).map(|transport| without_device(transport)).collect();
    if !transports.is_empty() {
        all.insert("evidence.transports".to_owned(), Vec::from_iter(transports).join(", "));
    }
    all
}

/// `NET/IB device 3, GDRDMA` and `NET/IB device 0, GDRDMA` are one transport, `NET/IB, GDRDMA`: the number is the
/// adapter's, and each rank has another.
fn without_device(transport: &str) -> String {
    let Some((network, rest)) = transport.split_once(" device ") else { return transport.to_owned() };
    rest.split_once(", ").map_or_else(|| network.to_owned(), |(_, more)| format!("{network}, {more}"))
}

/// The rounds of a link: those of one number and size are one, in one direction or two.
fn links(document: &Document, recording: &mut Recording) {
    let mut whole: BTreeMap<(u64, u32), (f64, Option<&Latency>)> = BTreeMap::new();
    for round in document.rounds.iter().filter(|round| !round.partial && round.messages > 0) {
        let Some(size) = round.size_bytes else { continue };
        let gbit = round.messages as f64 * size as f64 * 8.0 / round.elapsed_ns as f64;
        let entry = whole.entry((size, round.round)).or_insert((0.0, None));
        entry.0 += gbit;
        entry.1 = entry.1.or(round.latency.as_ref());
    }
    let mut points: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
    for ((size_bytes, _), (gbit, latency)) in whole {
        let mut add = |figure, value| {
            let key = Key { what: String::new(), size_bytes, figure };
            points.entry(key).or_default().push(value);
        };
        match latency {
            Some(latency) => {
                add(Figure::Typical, latency.t_typical_usec);
                add(Figure::P99, latency.p99_usec);
            }
            None => add(Figure::Bandwidth, gbit),
        }
    }
    recording.set_points(points);
    let partial = document.rounds.iter().filter(|round| round.partial).count();
    if partial > 0 {
        recording.faults.push(format!("{partial} rounds were cut short, and are left out"));
    }
}

/// The rounds of collectives: a round's algbw is its row's, by the ratio of their times.
fn collectives(document: &Document, recording: &mut Recording) {
    let mut points: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
    for round in &document.rounds {
        let row = round.result.and_then(|result| document.results.get(result));
        let (Some(row), Some(time)) = (row, round.time_usec) else { continue };
        let key = Key { what: describe(row), size_bytes: row.size_bytes, figure: Figure::AlgBandwidth };
        points.entry(key).or_default().push(row.alg_bw_gbyte_per_sec * row.time_usec / time);
    }
    recording.set_points(points);
    recording.stragglers = stragglers(&document.results);
}

/// Each rank that ever came last, over all rows.
fn stragglers(rows: &[Row]) -> Vec<Straggler> {
    let mut ranks: BTreeMap<u32, Straggler> = BTreeMap::new();
    for found in rows.iter().flat_map(|row| &row.ranks).filter(|rank| rank.last_to_arrive > 0) {
        let new = Straggler { rank: found.rank, times_last: 0, behind_usec: 0.0 };
        let rank = ranks.entry(found.rank).or_insert(new);
        rank.times_last = rank.times_last.saturating_add(found.last_to_arrive);
        rank.behind_usec = rank.behind_usec.max(found.behind_usec);
    }
    ranks.into_values().collect()
}

fn describe(row: &Row) -> String {
    let words = [row.collective.as_deref(), row.dtype.as_deref(), row.redop.as_deref()];
    let mut text: Vec<String> = words.into_iter().flatten().map(str::to_owned).collect();
    text.extend(row.root.map(|root| format!("root {root}")));
    if row.placement.as_deref() == Some("in_place") {
        text.push("in place".to_owned());
    }
    text.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_come_last_are_counted_over_all_points() {
        let row = |ranks: &str| -> Row {
            serde_json::from_str(&format!("{{\"size_bytes\": 8, \"ranks\": [{ranks}]}}")).unwrap()
        };
        let first =
            row(r#"{"rank": 0, "last_to_arrive": 0}, {"rank": 1, "last_to_arrive": 7, "behind_usec": 2.5}"#);
        let second =
            row(r#"{"rank": 0, "last_to_arrive": 3, "behind_usec": 1.0}, {"rank": 1, "last_to_arrive": 4}"#);
        let found = stragglers(&[first, second]);
        let of = |straggler: &Straggler| (straggler.rank, straggler.times_last, straggler.behind_usec);
        assert_eq!(found.iter().map(of).collect::<Vec<_>>(), [(0, 3, 1.0), (1, 11, 2.5)]);
    }

    #[test]
    fn a_transport_is_named_without_its_adapter() {
        let named =
            ["NET/Socket device 0", "NET/IB device 12, GDRDMA", "P2P (CUMEM)", "SHM"].map(without_device);
        assert_eq!(named, ["NET/Socket", "NET/IB, GDRDMA", "P2P (CUMEM)", "SHM"]);
    }
}
