//! nccl-tests' JSON (`-J FILE`). Its numbers can be the text "nan", its booleans are texts, and a run that was cut short
//! leaves a document that is not closed.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::nccl_tests::describe;
use crate::recording::{Figure, Key, Recording};

#[derive(Deserialize)]
struct Report {
    #[serde(default)]
    args: Vec<Option<String>>,
    nccl_version: Option<Scalar>,
    #[serde(default)]
    config: Config,
    results: Vec<Row>,
    out_of_bounds: Option<OutOfBounds>,
    #[serde(default)]
    errors: Vec<Option<String>>,
    end_time: Option<String>,
}

#[derive(Default, Deserialize)]
struct Config {
    #[serde(default)]
    nthreads: usize,
    #[serde(default)]
    ngpus: usize,
    warmup_iters: Option<Scalar>,
    iterations: Option<Scalar>,
    aggregated_iterations: Option<Scalar>,
    validation: Option<Scalar>,
    graph: Option<Scalar>,
    blocking_collectives: Option<Scalar>,
    #[serde(default)]
    devices: Vec<Device>,
}

#[derive(Deserialize)]
struct Device {
    pid: i64,
    hostname: Option<String>,
}

#[derive(Deserialize)]
struct Row {
    size: u64,
    #[serde(rename = "type")]
    dtype: String,
    redop: String,
    root: Scalar,
    out_of_place: Option<Half>,
    in_place: Option<Half>,
}

#[derive(Deserialize)]
struct Half {
    #[serde(alias = "cpu_time")]
    time: Number,
    alg_bw: Number,
    nwrong: Option<Number>,
}

/// A number, or the text that stands for none.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Value(f64),
    Text(String),
}

/// What is only shown; versions differ in what is a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Flag(bool),
    Number(i64),
    Text(String),
}

impl Scalar {
    fn text(&self) -> String {
        match self {
            Self::Flag(flag) => flag.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.trim().to_owned(),
        }
    }
}

#[derive(Deserialize)]
struct OutOfBounds {
    count: i64,
}

impl Number {
    fn value(&self) -> f64 {
        match self {
            Self::Value(value) => *value,
            Self::Text(text) => text.trim().parse().unwrap_or(f64::NAN),
        }
    }
}

/// Reads the document of one run. `operation` is for documents whose arguments do not name the program.
pub(super) fn recording(name: &str, text: &str, operation: Option<&str>) -> Result<Recording, String> {
    let report: Report = serde_json::from_str(text).map_err(|error| wrong(&error))?;
    let operation = operation
        .map(str::to_owned)
        .or_else(|| program(&report.args))
        .ok_or("it does not say which collective it is of: give --op, for instance --op all_reduce")?;
    let mut recording = Recording::new(name, "collectives");
    recording.conditions = conditions(&report);
    recording.faults = faults(&report);
    recording.set_points(points(&report, &operation)?);
    Ok(recording)
}

fn wrong(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    let torn = if error.is_eof() { ": the run was cut short, or the copy" } else { "" };
    format!(
        "line {}: expected a document of its -J option, {}{torn}",
        error.line(),
        crate::words::printable(what)
    )
}

/// `all_reduce` of `/opt/nccl-tests/build/all_reduce_perf`.
fn program(args: &[Option<String>]) -> Option<String> {
    let program = args.first()?.as_deref()?.rsplit('/').next()?;
    program.strip_suffix("_perf").filter(|name| !name.is_empty()).map(str::to_owned)
}

fn points(report: &Report, operation: &str) -> Result<BTreeMap<Key, Vec<f64>>, String> {
    let mut points: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
    let rows = report.results.iter().enumerate();
    // Sweeps that begin below one element for each rank have rows of nothing.
    for (index, row) in rows.filter(|(_, row)| row.size > 0) {
        let root = row.root.text();
        for (in_place, half) in [(false, &row.out_of_place), (true, &row.in_place)] {
            let Some(half) = half else { continue };
            let what = describe(operation, [&row.dtype, &row.redop, &root], in_place);
            let gbyte = super::nccl_tests::algbw(operation, row.size, half.time.value(), half.alg_bw.value());
            if !gbyte.is_finite() {
                return Err(format!(
                    "row {} of \"results\": expected a time and alg_bw, found no numbers",
                    index + 1
                ));
            }
            let key = Key { what, size_bytes: row.size, figure: Figure::AlgBandwidth };
            points.entry(key).or_default().push(gbyte);
        }
    }
    Ok(points)
}

fn faults(report: &Report) -> Vec<String> {
    let halves = report.results.iter().flat_map(|row| [&row.out_of_place, &row.in_place]).flatten();
    // Adding to 0, since a sum of nothing is -0.
    let wrong = halves
        .filter_map(|half| half.nwrong.as_ref())
        .map(Number::value)
        .filter(|n| *n > 0.0)
        .fold(0.0, |sum, n| sum + n);
    let out_of_bounds = report.out_of_bounds.as_ref().is_some_and(|bounds| bounds.count != 0);
    let mut faults = Vec::new();
    if wrong > 0.0 || out_of_bounds {
        faults.push(format!("wrong-data: {wrong} elements were wrong"));
    }
    let errors = report.errors.iter().flatten().filter(|error| !error.trim().is_empty());
    faults.extend(errors.map(|error| format!("an error was noted: {}", error.trim())));
    if report.out_of_bounds.is_none() || report.end_time.is_none() {
        faults.push("it ends before its summary: the run was cut short".to_owned());
    }
    faults
}

fn conditions(report: &Report) -> BTreeMap<String, String> {
    let config = &report.config;
    let mut all = BTreeMap::from([("tool".to_owned(), "nccl-tests".to_owned())]);
    let mut add = |name: &str, value: Option<String>| {
        all.extend(value.map(|value| (name.to_owned(), value)));
    };
    add("plan.n_ranks", n_ranks(config).map(|n| n.to_string()));
    add("nccl-tests.nccl_version", report.nccl_version.as_ref().map(Scalar::text));
    add("nccl-tests.warmup_iters", config.warmup_iters.as_ref().map(Scalar::text));
    add("nccl-tests.iterations", config.iterations.as_ref().map(Scalar::text));
    add("nccl-tests.aggregated_iterations", config.aggregated_iterations.as_ref().map(Scalar::text));
    add("nccl-tests.nthreads", given(config.nthreads));
    add("nccl-tests.ngpus", given(config.ngpus));
    add("nccl-tests.validation", config.validation.as_ref().map(Scalar::text));
    add("nccl-tests.graph", config.graph.as_ref().map(Scalar::text));
    add("nccl-tests.blocking_collectives", config.blocking_collectives.as_ref().map(Scalar::text));
    all
}

fn given(count: usize) -> Option<String> {
    (count > 0).then(|| count.to_string())
}

/// Of a process with several GPUs only the first is listed, in the versions that have this document.
fn n_ranks(config: &Config) -> Option<usize> {
    let processes: BTreeSet<(&Option<String>, i64)> =
        config.devices.iter().map(|device| (&device.hostname, device.pid)).collect();
    let listed = config.devices.len();
    let each = config.nthreads.max(1).checked_mul(config.ngpus.max(1))?;
    let n = if processes.len() < listed { listed } else { listed.checked_mul(each)? };
    (n > 0).then_some(n)
}
