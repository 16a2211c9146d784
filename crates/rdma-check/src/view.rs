//! The parts of the picture that can be asked for by themselves.

use linkproof_common::finding::{Code, Finding, Topic};
use serde::{Deserialize, Serialize};

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// Everything.
    All,
    /// GID tables and the choice in them.
    Gids,
    /// The PCI bus: links and distances.
    Topo,
    /// What the process and the devices allow.
    Limits,
    /// What the adapters have counted.
    Counters,
}

impl View {
    /// Whether `finding` belongs to it.
    pub fn has(self, finding: &Finding) -> bool {
        // Without a device there is nothing to look at, and what was asked is answered, in every view.
        finding.code == Code::NoDevice
            || finding.topic == Topic::Run
            || self.topics().contains(&finding.topic)
    }

    fn topics(self) -> &'static [Topic] {
        use Topic::{Counters, Device, Gpu, Limits, Nccl, Network, Pci, Run};
        match self {
            Self::All => &[Run, Device, Network, Limits, Pci, Gpu, Nccl, Counters],
            Self::Gids => &[Device, Network],
            Self::Topo => &[Pci, Gpu],
            Self::Limits => &[Limits],
            Self::Counters => &[Counters],
        }
    }

    /// Whether it shows the tables of `other`.
    pub fn shows(self, other: Self) -> bool {
        self == Self::All || self == other
    }
}
