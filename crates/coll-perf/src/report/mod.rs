//! The result of a run: one [`Document`] at rank 0, from which the table and the JSON are made.
//!
//! Its shape is `schema/result.v1.json`; every document that the tools write validates against it.

mod caution;
mod host;
mod output;
mod port;
mod raw;
mod row;
mod stragglers;
mod text;

pub use host::RankHost;
pub(crate) use output::say;
pub use output::{Output, Progress};
pub use port::RankPort;
pub use raw::RawSamples;
pub use row::{RankRow, ResultRow, Round};

use linkproof_common::error::{Error, ErrorKind};
use linkproof_common::report::{SCHEMA, Verdict, timestamp};
use linkproof_common::warning::Warning;
use serde::{Deserialize, Serialize};

use crate::backend::Carrier;
use crate::backend::nccl::Witness;
use crate::plan::Plan;
use crate::run::Measured;

/// The name of the tool.
pub const TOOL: &str = "coll-perf";

/// Everything about one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`TOOL`].
    pub tool: String,
    /// The tool's version at rank 0.
    pub version: String,
    /// Rank 0's command line.
    pub command: Vec<String>,
    /// When it began, in UTC.
    pub started: String,
    /// When it ended, in UTC.
    pub finished: String,
    /// The ranks' machines, one entry a rank.
    pub hosts: Vec<RankHost>,
    /// What was to be measured; absent where the command line was not understood.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub plan: Option<Plan>,
    /// What carried the bytes; absent where it did not come to that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub backend: Option<Carrier>,
    /// Conditions of the two ends of a link: empty, since the ranks' are in `hosts`.
    pub conditions: Vec<Nothing>,
    /// What proves the path, where there is one: what NCCL's log says.
    pub evidence: Vec<Witness>,
    /// Every round.
    pub rounds: Vec<Round>,
    /// What the table shows, one entry for each point: size, type, reduction, root and placement of a collective.
    pub results: Vec<ResultRow>,
    /// What may make a number mean less than it seems to.
    pub warnings: Vec<Warning>,
    /// Whether all is well.
    pub verdict: Verdict,
}

/// Nothing: lists of it are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Nothing {}

impl Document {
    /// A document of a run that has just begun.
    pub fn begin() -> Self {
        let now = timestamp();
        Self {
            schema: SCHEMA.to_owned(),
            tool: TOOL.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: std::env::args().collect(),
            started: now.clone(),
            finished: now,
            hosts: Vec::new(),
            plan: None,
            backend: None,
            conditions: Vec::new(),
            evidence: Vec::new(),
            rounds: Vec::new(),
            results: Vec::new(),
            warnings: Vec::new(),
            verdict: Verdict::default(),
        }
    }

    /// Adds a measured point. One without a single whole round leaves no trace.
    pub fn add(&mut self, measured: &Measured) {
        let number = self.results.len() as u32;
        if let Some(row) = ResultRow::of(measured) {
            self.rounds.extend(Round::all_of(measured, number));
            self.results.push(row);
        }
    }

    /// Ends the run: works out the warnings and the verdict from what was measured.
    pub fn conclude(&mut self, failure: Option<Error>) {
        self.finished = timestamp();
        self.warnings.extend(caution::warnings(self));
        self.verdict.failures.extend(failure.into_iter().chain(self.wrong_data()));
        self.verdict.ok = self.verdict.failures.is_empty();
    }

    fn wrong_data(&self) -> Option<Error> {
        let wrong: u64 = self.results.iter().filter_map(|row| row.wrong_elements).sum();
        let points = self.results.iter().filter(|row| row.wrong_elements.unwrap_or(0) > 0).count();
        if wrong == 0 {
            return None;
        }
        let what =
            format!("wrong elements in results: {wrong}, at {points} of {} points", self.results.len());
        let first =
            self.rounds.iter().find_map(|round| Some((round, round.checked.as_ref()?.first_wrong.as_ref()?)));
        let error = Error::new(ErrorKind::WrongData, what);
        let Some((round, first)) = first else { return Some(error) };
        let row = &self.results[round.result as usize];
        let source =
            first.from_rank.map_or("the reduction of all ranks".to_owned(), |from| format!("rank {from}"));
        let host = self.hosts.iter().find(|host| host.rank == first.rank).map_or("", |host| &host.name);
        Some(
            error
                .fact("first", format!("{}, round {}", row.describe(), round.round + 1))
                .fact("rank", format!("{} ({host})", first.rank))
                .fact("offset", format!("{} B of its receive buffer, from {source}", first.offset_bytes))
                .fact("expected", &first.expected)
                .fact("found", &first.found),
        )
    }
}
