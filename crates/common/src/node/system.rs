//! The machine, its kernel, and what this process sees of them.

use serde::{Deserialize, Serialize};

use super::Unseen;
use crate::environment;
use crate::host::HostFiles;

/// Kernel modules that RDMA or GPUs may need; those that are loaded are told.
const MODULES: &[&str] = &[
    "bnxt_re",
    "efa",
    "erdma",
    "hns_roce_hw_v2",
    "ib_core",
    "ib_ipoib",
    "ib_umad",
    "ib_uverbs",
    "irdma",
    "mana_ib",
    "mlx4_ib",
    "mlx5_core",
    "mlx5_ib",
    "nvidia",
    "nvidia_peermem",
    "nv_peer_mem",
    "rdma_cm",
    "rdma_rxe",
    "rdma_ucm",
    "siw",
];

/// The machine and its kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct System {
    /// Its name; absent for a recorded tree that does not have it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// The kernel's release.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kernel: Option<String>,
    /// The processor's model.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu: Option<String>,
    /// Its NUMA nodes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub numa_nodes: Option<u32>,
    /// Whether it is a virtual machine.
    pub virtual_machine: bool,
    /// The kind of container that the process runs in, if it is in one that shows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub container: Option<String>,
    /// Whether RDMA devices are seen in every network namespace; absent where the kernel does not say.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rdma_shared_by_namespaces: Option<bool>,
    /// What the control group lets this process have of RDMA devices, in the kernel's words; absent where it has no limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rdma_cgroup: Option<String>,
    /// Network interfaces of this network namespace, by name.
    pub interfaces: Vec<String>,
    /// Loaded kernel modules, of those that matter here.
    pub modules: Vec<String>,
}

impl System {
    pub(super) fn read(files: &HostFiles, unseen: &mut Vec<Unseen>) -> Self {
        if !files.exists("/sys/class") {
            unseen.push(Unseen::new("devices of every kind", "there is no /sys/class: /sys is not mounted"));
        }
        let name = files.words("/proc/sys/kernel/hostname");
        let live_name = || (!files.is_recorded()).then(environment::host_name);
        Self {
            name: name.or_else(live_name),
            kernel: files.words("/proc/sys/kernel/osrelease"),
            cpu: files.value_of("/proc/cpuinfo", "model name"),
            numa_nodes: environment::numa_nodes(files),
            virtual_machine: files
                .value_of("/proc/cpuinfo", "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            container: environment::container(files),
            rdma_shared_by_namespaces: files
                .words("/sys/module/ib_core/parameters/netns_mode")
                .and_then(|mode| [("Y", true), ("N", false)].into_iter().find(|(word, _)| mode == *word))
                .map(|(_, shared)| shared),
            rdma_cgroup: rdma_cgroup(files),
            interfaces: files.names("/sys/class/net"),
            modules: MODULES
                .iter()
                .filter(|module| files.exists(&format!("/sys/module/{module}")))
                .map(|module| (*module).to_owned())
                .collect(),
        }
    }

    /// Whether the kernel module `name`, one of those that matter here, is loaded.
    pub fn has_module(&self, name: &str) -> bool {
        self.modules.iter().any(|module| module == name)
    }
}

/// The limits of this process's group that are limits: `mlx5_0 hca_handle=2 hca_object=2000`.
fn rdma_cgroup(files: &HostFiles) -> Option<String> {
    let group = files
        .text("/proc/self/cgroup")?
        .lines()
        .find_map(|line| line.strip_prefix("0::").map(str::to_owned))?;
    let text = files.words(&format!("/sys/fs/cgroup{}/rdma.max", group.trim_end_matches('/')))?;
    let limited = |line: &&str| {
        line.split(' ').skip(1).any(|limit| limit.split_once('=').is_some_and(|(_, most)| most != "max"))
    };
    let lines: Vec<&str> = text.lines().filter(limited).collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}
