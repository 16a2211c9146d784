//! For programs: `schema/check.v1.json`.

use linkproof_common::error::{Error, ExitStatus};
use linkproof_common::finding::{Finding, Severity, worst};
use linkproof_common::node::Node;
use linkproof_common::report::timestamp;
use serde::{Deserialize, Serialize};

use crate::View;
use crate::run::Run;

/// The name that messages begin with.
pub const TOOL: &str = "rdma-check";
/// The shape's name.
pub const SCHEMA: &str = "linkproof/check.v1";

/// Everything that was seen and found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// The shape's name.
    pub schema: String,
    /// Always this tool.
    pub tool: String,
    /// Its version.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// When it looked, in UTC.
    pub taken: String,
    /// The tree that was looked at instead of this machine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub root: Option<String>,
    /// What was asked for; the findings are of that.
    pub view: View,
    /// What was seen; absent where nothing was looked at.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<Node>,
    /// The run that was asked about, and what would come of it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub run: Option<Run>,
    /// What is to be said of it, the worst first.
    pub findings: Vec<Finding>,
    /// Whether the node is fit.
    pub verdict: Verdict,
}

/// Whether the node is fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Nothing stops every run, or the one that was asked about, and with `--strict` nothing is worth a warning.
    pub ok: bool,
    /// The worst of what was found; absent where nothing was looked at.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub worst: Option<Severity>,
    /// Why nothing was looked at.
    pub failures: Vec<Error>,
}

impl Document {
    fn begin(view: View) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            tool: TOOL.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: std::env::args().collect(),
            taken: timestamp(),
            root: None,
            view,
            node: None,
            run: None,
            findings: Vec::new(),
            verdict: Verdict { ok: false, worst: None, failures: Vec::new() },
        }
    }

    /// What was seen and found.
    pub fn of(node: Node, findings: Vec<Finding>, view: View, strict: bool) -> Self {
        let worst = worst(&findings);
        let ok = worst < if strict { Severity::Warning } else { Severity::Unfit };
        Self {
            node: Some(node),
            findings,
            verdict: Verdict { ok, worst: Some(worst), failures: Vec::new() },
            ..Self::begin(view)
        }
    }

    /// A look that did not happen.
    pub fn failed(error: Error) -> Self {
        let mut document = Self::begin(View::All);
        document.verdict.failures.push(error);
        document
    }

    /// What the shell is told.
    pub fn exit_status(&self) -> ExitStatus {
        match self.verdict.worst {
            _ if self.verdict.ok => ExitStatus::Good,
            Some(Severity::Unfit) => ExitStatus::Machine,
            Some(_) => ExitStatus::NotMet,
            None => self.verdict.failures.first().map_or(ExitStatus::Machine, Error::exit_status),
        }
    }
}
