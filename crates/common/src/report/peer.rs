//! The other end where it is another program's.

use serde::{Deserialize, Serialize};

use crate::perftest::Version;
use crate::plan::{Plan, Role, Traffic};
use crate::validate::Direction;

/// The other end of a run, where it is none of these tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The program: `perftest`.
    pub program: String,
    /// The version that it announces.
    pub version: String,
    /// What holds between two ends of ours and does not hold here.
    pub without: Vec<Guarantee>,
    /// The directions of which the figures are what it reports itself, and not measured here.
    pub reports: Vec<Direction>,
    /// The options that its user had to give, or not to give, and of which it tells nothing.
    pub must_match: Vec<String>,
}

/// What holds between two ends of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guarantee {
    /// The data that arrives can be checked.
    Validation,
    /// Both ends hold the same document, with both ends' hosts, conditions and counters.
    PeerDocument,
    /// A failure of the other end is shown here.
    PeerError,
}

impl Guarantee {
    const ALL: [Self; 3] = [Self::Validation, Self::PeerDocument, Self::PeerError];

    fn words(self) -> &'static str {
        match self {
            Self::Validation => "no data is checked",
            Self::PeerDocument => "its host, conditions and counters are unknown",
            Self::PeerError => "its errors stay there",
        }
    }
}

impl Peer {
    /// A perftest of that version, for `plan`, seen from the end `role`.
    pub fn perftest(version: Version, plan: &Plan, role: Role) -> Self {
        let writes = plan.traffic != Traffic::PingPong && plan.is_initiator(role.peer());
        Self {
            program: "perftest".to_owned(),
            version: version.to_string(),
            without: Guarantee::ALL.to_vec(),
            reports: if writes { vec![role.peer().writes()] } else { Vec::new() },
            must_match: plan.must_match(role),
        }
    }

    /// Which program it is, and what is missed with it.
    pub fn describe(&self) -> String {
        let mut missed: Vec<&str> = self.without.iter().map(|guarantee| guarantee.words()).collect();
        if !self.reports.is_empty() {
            missed.push("what it wrote is its own report");
        }
        format!("{} {}: {}", self.program, self.version, missed.join(", "))
    }
}
