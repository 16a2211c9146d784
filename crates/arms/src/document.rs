//! The result: `schema/arms.v1.json`. Every run's own document is in it, whole.

use linkproof_common::error::{Error, Result};
use linkproof_common::report::{Verdict, timestamp};
use perf_compare::arm::Sequence;
use perf_compare::judge::{Primary, Wishes};
use perf_compare::recording::Recording;
use perf_compare::show::{Compared, json};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::arm::Arm;
use crate::trial::Tried;

/// The version of the document's shape.
pub const SCHEMA: &str = "linkproof/arms.v1";

/// Conditions that arms are there to change: they differ on purpose.
const DECLARED: &[&str] =
    &["evidence.transports", "plan.require_transport", "plan.transport", "backend.transport", "backend.note"];

/// What came of all arms.
pub struct Report {
    /// The tool.
    pub tool: String,
    /// Its version.
    pub version: String,
    /// Runs that each arm was to have.
    pub rounds: u32,
    /// When it began, in UTC.
    pub started: String,
    /// Every arm.
    pub arms: Vec<Tried>,
    /// Each arm against the first; absent where fewer than two were measured.
    pub compared: Option<Compared>,
    /// Whether all is well.
    pub verdict: Verdict,
}

impl Report {
    /// Of `arms`, whose trial `ended`; `started` is when it began, in UTC.
    pub fn of(
        tool: &str,
        version: &str,
        rounds: u32,
        started: String,
        arms: Vec<Tried>,
        ended: Result<()>,
    ) -> Self {
        let compared = compare(&arms);
        let mut failures: Vec<Error> = arms.iter().filter_map(|tried| tried.failure.clone()).collect();
        failures.extend(ended.err());
        let compared = match compared {
            Ok(compared) => compared,
            Err(error) => {
                failures.push(error);
                None
            }
        };
        let verdict = Verdict { ok: failures.is_empty(), failures };
        let (tool, version) = (tool.to_owned(), version.to_owned());
        Self { tool, version, rounds, started, arms, compared, verdict }
    }

    /// As it is written.
    pub fn document(&self) -> impl Serialize {
        let environment = |arm: &Arm| -> Map<String, Value> {
            arm.environment.iter().map(|(name, value)| (name.clone(), Value::from(value.clone()))).collect()
        };
        Document {
            schema: SCHEMA,
            tool: &self.tool,
            version: &self.version,
            command: std::env::args().collect(),
            started: &self.started,
            finished: timestamp(),
            rounds: self.rounds,
            arms: self
                .arms
                .iter()
                .map(|tried| ArmOut {
                    name: &tried.arm.name,
                    environment: environment(&tried.arm),
                    options: &tried.arm.options,
                    proof: tried.proof.as_deref(),
                    runs: &tried.runs,
                    failure: tried.failure.as_ref(),
                })
                .collect(),
            comparison: self.compared.as_ref().map(|compared| json::Document::of(compared, Vec::new())),
            verdict: &self.verdict,
        }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    tool: &'a str,
    version: &'a str,
    command: Vec<String>,
    started: &'a str,
    finished: String,
    rounds: u32,
    arms: Vec<ArmOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<json::Document>,
    verdict: &'a Verdict,
}

#[derive(Serialize)]
struct ArmOut<'a> {
    name: &'a str,
    environment: Map<String, Value>,
    options: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    proof: Option<&'a str>,
    runs: &'a [Value],
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'a Error>,
}

/// Every arm that has not failed against the first of those; only rounds that all of them have.
fn compare(arms: &[Tried]) -> Result<Option<Compared>> {
    let good: Vec<&Tried> = arms.iter().filter(|tried| tried.failure.is_none()).collect();
    let rounds = good.iter().map(|tried| tried.runs.len()).min().unwrap_or(0);
    if good.len() < 2 || rounds == 0 {
        return Ok(None);
    }
    let mut arms: Vec<_> = good.iter().map(|tried| recorded(tried, rounds)).collect::<Result<_>>()?;
    leave_out_what_the_way_brings(&mut arms);
    let wishes = Wishes { sequence: Sequence::Auto, threshold: None, primary: Primary::Mean };
    let declared: Vec<String> = DECLARED.iter().map(|&name| name.to_owned()).collect();
    Compared::of(arms, wishes, &declared).map(Some)
}

/// What says that arms go over different ways: the transport, and how GPU memory is reached, if there is any.
const WAYS: [&str; 4] = ["plan.transport", "memory.kind", "memory.client_gpu.path", "memory.server_gpu.path"];

/// Where arms go over different ways, each has its own devices, addresses and registrations: what they are stands in each
/// arm's proof, and would bury the conditions that differ by accident.
fn leave_out_what_the_way_brings(arms: &mut [perf_compare::arm::Arm]) {
    let way = |run: &Recording| WAYS.map(|name| run.conditions.get(name).cloned());
    let mut ways = arms.iter().flat_map(|arm| &arm.runs).map(way);
    let first = ways.next();
    if first.is_none_or(|first| ways.all(|other| other == first)) {
        return;
    }
    for run in arms.iter_mut().flat_map(|arm| &mut arm.runs) {
        run.conditions.retain(|name, _| {
            let of_the_way = ["link.", "memory.", "plan.gpu."];
            !(of_the_way.iter().any(|prefix| name.starts_with(prefix)) || name.ends_with(".why_not"))
        });
    }
}

fn recorded(tried: &Tried, rounds: usize) -> Result<perf_compare::arm::Arm> {
    let mut runs = Vec::new();
    for (index, document) in tried.runs.iter().take(rounds).enumerate() {
        let name = format!("run {} of {}", index + 1, tried.arm.name);
        let bytes = document.to_string();
        runs.extend(perf_compare::source::parse(&name, bytes.as_bytes()).map_err(|it| it.into_error(&name))?);
    }
    Ok(perf_compare::arm::Arm { label: tried.arm.name.clone(), runs })
}
