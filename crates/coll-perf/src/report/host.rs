//! The machine of one rank.

use linkproof_common::affinity;
use linkproof_common::environment::Host;
use linkproof_common::host::HostFiles;
use linkproof_common::memlock::LockedMemory;
use linkproof_common::plan::Role;
use serde::{Deserialize, Serialize};

use super::RankPort;

/// One rank's machine and process. What is absent is unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankHost {
    /// Which rank.
    pub rank: u32,
    /// Its process.
    pub pid: u32,
    /// The machine's name.
    pub name: String,
    /// The version of the tool that runs there.
    pub version: String,
    /// The kernel's release.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kernel: Option<String>,
    /// The processor's model.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu: Option<String>,
    /// Processors that the process may run on.
    pub cpus: u32,
    /// The cores that the rank's thread may run on, by the kernel's word.
    pub cores: String,
    /// NUMA nodes of the machine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub numa_nodes: Option<u32>,
    /// What the process may pin.
    pub memlock: LockedMemory,
    /// The kind of container that the process runs in, if it is in one that shows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub container: Option<String>,
    /// The RDMA port that the rank's bytes went through, if they did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub port: Option<RankPort>,
}

impl RankHost {
    /// This machine and process. To be asked before threads are bound to cores, which would be taken for all that the
    /// process has.
    pub fn this_machine() -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let host = Host::this_machine(Role::Client, version, &HostFiles::this_machine());
        Self {
            rank: 0,
            pid: std::process::id(),
            name: host.name,
            version: host.version,
            kernel: host.kernel,
            cpu: host.cpu,
            cpus: host.cpus,
            cores: affinity::allowed().to_string(),
            numa_nodes: host.numa_nodes,
            memlock: host.memlock,
            container: host.container,
            port: None,
        }
    }

    /// The same as rank `rank`, whose thread this is.
    pub fn as_rank(&self, rank: u32) -> Self {
        Self { rank, cores: affinity::allowed().to_string(), ..self.clone() }
    }
}
