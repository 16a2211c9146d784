//! Which cores and which memory are where, by the kernel's files.

use super::cores::Cores;
use crate::host::HostFiles;

/// The machine's cores and NUMA nodes. What can't be read is unknown.
pub(super) struct Topology<'a> {
    files: &'a HostFiles,
}

impl<'a> Topology<'a> {
    pub(super) fn of(files: &'a HostFiles) -> Self {
        Self { files }
    }

    fn list(&self, path: &str) -> Option<Cores> {
        Cores::from_kernel(&self.files.text(path)?)
    }

    /// The cores that run.
    pub(super) fn online(&self) -> Option<Cores> {
        self.list("/sys/devices/system/cpu/online")
    }

    /// The NUMA nodes that there are.
    pub(super) fn nodes(&self) -> Option<Cores> {
        self.list("/sys/devices/system/node/online")
    }

    /// The cores of NUMA node `node`; `None` where there is no such node.
    pub(super) fn cores_of(&self, node: u32) -> Option<Cores> {
        self.list(&format!("/sys/devices/system/node/node{node}/cpulist"))
    }

    /// Whether NUMA node `node` has memory; where the kernel does not say, it is taken to have some.
    pub(super) fn has_memory(&self, node: u32) -> bool {
        self.list("/sys/devices/system/node/has_memory").is_none_or(|nodes| nodes.contains(node))
    }

    /// The NUMA nodes that `cores` belong to, in rising order.
    pub(super) fn nodes_of(&self, cores: &Cores) -> Vec<u32> {
        let nodes = self.nodes().unwrap_or_default();
        let has_one = |node: &u32| self.cores_of(*node).is_some_and(|there| !there.among(cores).is_empty());
        nodes.numbers().iter().copied().filter(has_one).collect()
    }

    /// The NUMA node that RDMA device `device` is attached to; `None` where it has none: an emulation, or a machine
    /// whose firmware does not say (`-1`).
    pub(super) fn device_node(&self, device: &str) -> Option<u32> {
        self.files.text(&format!("/sys/class/infiniband/{device}/device/numa_node"))?.parse().ok()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::fs;

    /// A machine with two sockets of four cores: nodes 0 and 1, and node 2, which is memory only; `mlx5_0` is on node 1,
    /// `mlx5_1` on a slot of which the firmware says nothing, and `rxe0` is an emulation.
    pub(in crate::affinity) fn two_nodes() -> (tempfile::TempDir, HostFiles) {
        let tree = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = tree.path().join("sys").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("devices/system/cpu/online", "0-7\n");
        write("devices/system/node/online", "0-2\n");
        write("devices/system/node/has_memory", "0-2\n");
        write("devices/system/node/node0/cpulist", "0-3\n");
        write("devices/system/node/node1/cpulist", "4-7\n");
        write("devices/system/node/node2/cpulist", "\n");
        write("class/infiniband/mlx5_0/device/numa_node", "1\n");
        write("class/infiniband/mlx5_1/device/numa_node", "-1\n");
        write("class/infiniband/rxe0/node_desc", "rxe\n");
        let files = HostFiles::below(tree.path());
        (tree, files)
    }

    #[test]
    fn a_recorded_machine_is_read() {
        let (_tree, files) = two_nodes();
        let machine = Topology::of(&files);
        assert_eq!(machine.online(), Some(Cores::of(0..8)));
        assert_eq!(
            ["mlx5_0", "mlx5_1", "rxe0"].map(|device| machine.device_node(device)),
            [Some(1), None, None]
        );
        assert_eq!(machine.cores_of(1), Some(Cores::of(4..8)));
        assert_eq!((machine.cores_of(2), machine.cores_of(3)), (Some(Cores::default()), None));
        assert_eq!(machine.nodes_of(&Cores::of([3, 4])), [0, 1]);
        assert_eq!(machine.nodes_of(&Cores::of([4])), [1]);
        assert!(machine.has_memory(2) && !machine.has_memory(3));
    }

    #[test]
    fn a_machine_that_says_nothing_has_no_nodes() {
        let tree = tempfile::tempdir().unwrap();
        let files = HostFiles::below(tree.path());
        let machine = Topology::of(&files);
        assert_eq!((machine.online(), machine.nodes(), machine.device_node("mlx5_0")), (None, None, None));
        assert!(machine.nodes_of(&Cores::of([0])).is_empty() && machine.has_memory(0));
    }
}
