//! What a number needs to be believed: the machine that it was measured on, as far as the kernel tells.

use serde::{Deserialize, Serialize};

use crate::host::HostFiles;
use crate::memlock::LockedMemory;
use crate::plan::Role;

/// One end's machine. What is absent is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Which end it is.
    pub role: Role,
    /// Its name.
    pub name: String,
    /// The version of the tool that runs there.
    pub version: String,
    /// The kernel's release.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kernel: Option<String>,
    /// The processor's model.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu: Option<String>,
    /// Processors that this process may run on.
    pub cpus: u32,
    /// NUMA nodes of the machine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub numa_nodes: Option<u32>,
    /// What the process may pin.
    pub memlock: LockedMemory,
    /// The kind of container that the process runs in, if it is in one that shows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub container: Option<String>,
}

impl Host {
    /// This machine, as the end `role`.
    pub fn this_machine(role: Role, version: &str, files: &HostFiles) -> Self {
        Self {
            role,
            name: host_name(),
            version: version.to_owned(),
            kernel: files.text("/proc/sys/kernel/osrelease"),
            cpu: files.value_of("/proc/cpuinfo", "model name"),
            cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
            numa_nodes: numa_nodes(files),
            memlock: LockedMemory::of_this_process(files),
            container: container(files),
        }
    }
}

/// The name of this host, or what stands for an unknown one.
pub(crate) fn host_name() -> String {
    nix::unistd::gethostname().map_or("unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// How many NUMA nodes the machine has.
pub(crate) fn numa_nodes(files: &HostFiles) -> Option<u32> {
    let is_node =
        |name: &String| name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok());
    let count = files.names("/sys/devices/system/node").iter().filter(|name| is_node(name)).count();
    (count > 0).then_some(count as u32)
}

/// The marks that container engines leave.
pub(crate) fn container(files: &HostFiles) -> Option<String> {
    let groups = files.text("/proc/self/cgroup").unwrap_or_default();
    let marks = [
        ("kubernetes", groups.contains("kubepods")),
        ("docker", files.exists("/.dockerenv") || groups.contains("/docker")),
        ("podman", files.exists("/run/.containerenv")),
    ];
    marks.iter().find(|(_, present)| *present).map(|(name, _)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_recorded_machine_is_described() {
        let tree = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = tree.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/sys/kernel/osrelease", "6.1.0\n");
        write("proc/cpuinfo", "processor : 0\nmodel name\t: Some CPU\n");
        write("proc/self/cgroup", "0::/kubepods/x\n");
        write("sys/devices/system/node/node0/x", "");
        write("sys/devices/system/node/node1/x", "");
        write("sys/devices/system/node/online", "0-1");
        let host = Host::this_machine(Role::Client, "1.2.3", &HostFiles::below(tree.path()));
        assert_eq!(host.kernel.as_deref(), Some("6.1.0"));
        assert_eq!(host.cpu.as_deref(), Some("Some CPU"));
        assert_eq!(host.numa_nodes, Some(2));
        assert_eq!(host.container.as_deref(), Some("kubernetes"));
    }

    #[test]
    fn what_is_unknown_is_absent() {
        let tree = tempfile::tempdir().unwrap();
        let host = Host::this_machine(Role::Server, "1", &HostFiles::below(tree.path()));
        assert_eq!((host.kernel, host.cpu, host.numa_nodes, host.container), (None, None, None, None));
    }
}
