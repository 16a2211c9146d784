//! What a node is: its RDMA devices, their network interfaces, its GPUs and limits, as `/sys` and `/proc` tell, below a
//! root, and on the machine that runs as the libraries tell as well.
//!
//! Facts only, no judgement; that is [`crate::finding`]'s. What can't be seen is absent, and where one would look for it,
//! [`Node::unseen`] says why. Nothing here fails, writes, needs a privilege, or waits for long.

mod gpu;
mod limits;
mod live;
mod nccl;
mod net;
mod pci;
mod rdma;
mod system;
mod topology;

#[cfg(any(test, feature = "fixtures"))]
pub mod fixture;

pub use gpu::{CudaFacts, Gpu, GpuDriver, PeerMemory};
pub use limits::{HugePages, Limits, limit};
pub use live::PATIENCE;
pub use nccl::{Nccl, NcclLibrary};
pub use net::{Bond, Netdev, Subnet, roce_mtu};
pub use pci::{Adapter, PciFunction, PciLink};
pub use rdma::{ChosenGid, NodeFile, RdmaDevice, RdmaPort};
pub use system::System;
pub use topology::{Distance, Place, Topology};

use serde::{Deserialize, Serialize};

use crate::host::HostFiles;

/// Something that could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unseen {
    /// What would have been seen.
    pub what: String,
    /// Why it was not.
    pub why: String,
}

impl Unseen {
    pub(crate) fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into() }
    }
}

/// A node, as far as it can be seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The machine and its kernel.
    pub system: System,
    /// Why libibverbs can't be loaded, where it was tried and can't.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub library_missing: Option<String>,
    /// RDMA devices, by name.
    pub devices: Vec<RdmaDevice>,
    /// Adapters on the PCI bus that are made for RDMA and that no RDMA device belongs to.
    pub idle_adapters: Vec<Adapter>,
    /// The network interfaces of the RDMA ports, and those that these are part of.
    pub netdevs: Vec<Netdev>,
    /// GPUs on the PCI bus, by address.
    pub gpus: Vec<Gpu>,
    /// Their driver; absent where there is no GPU and no driver.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gpu_driver: Option<GpuDriver>,
    /// How far GPUs and RDMA devices are from each other.
    pub topology: Topology,
    /// What this process may have.
    pub limits: Limits,
    /// NCCL, and what it is told.
    pub nccl: Nccl,
    /// What could not be looked at, and why.
    pub unseen: Vec<Unseen>,
}

impl Node {
    /// The node below `files`. On the machine that runs the libraries are asked as well; a recorded tree has none.
    pub fn read(files: &HostFiles) -> Self {
        let mut node = Self::of_files(files);
        if files.is_recorded() {
            let why = format!("{} is a recorded tree", files.root().display());
            node.unseen.push(Unseen::new("what libibverbs, CUDA and NCCL say", why));
        } else {
            live::ask_libraries(&mut node, files);
        }
        node
    }

    /// What the files say, and no library: a few milliseconds.
    pub fn of_files(files: &HostFiles) -> Self {
        let mut unseen = Vec::new();
        let system = System::read(files, &mut unseen);
        let devices = rdma::devices(files, &mut unseen);
        let gpus = gpu::gpus(files);
        let nccl = Nccl::read(files, &mut unseen);
        let on_bus = || devices.iter().filter_map(|device| device.pci.as_ref());
        if on_bus().any(|pci| pci.relaxed_ordering.is_none()) {
            unseen.push(Unseen::new("relaxed ordering and ACS", pci::ONLY_ROOT_SEES));
        }
        Self {
            idle_adapters: pci::idle_adapters(files, &devices),
            netdevs: net::of_devices(files, &devices, &mut unseen),
            gpu_driver: gpu::driver(files, !gpus.is_empty()),
            topology: Topology::of(&gpus, &devices),
            limits: Limits::read(files, &mut unseen),
            library_missing: None,
            system,
            devices,
            gpus,
            nccl,
            unseen,
        }
    }

    /// The network interface called `name`.
    pub fn netdev(&self, name: &str) -> Option<&Netdev> {
        self.netdevs.iter().find(|netdev| netdev.name == name)
    }

    /// Every port, with its device.
    pub fn ports(&self) -> impl Iterator<Item = (&RdmaDevice, &RdmaPort)> {
        self.devices.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)))
    }

    /// The network interface of `port`, where it is seen.
    pub fn netdev_of(&self, port: &RdmaPort) -> Option<&Netdev> {
        port.netdev.as_deref().and_then(|name| self.netdev(name))
    }
}

#[cfg(test)]
mod tests;
