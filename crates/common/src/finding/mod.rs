//! What is to be said of a node: each finding with what was seen, what it does, and the way out.
//!
//! One place for each fact: a [`Code`] has its effect, its remedy and its section of the documentation in the table below,
//! and the checks ([`examine`]) say of what it was found and what was seen. A check that can't see what it needs finds
//! nothing; above all it does not find that all is well.

mod counters;
mod device;
mod explain;
mod gpu;
mod limits;
mod nccl;
mod network;
mod pci;

pub use counters::growth;
pub use device::is_usable;
pub use explain::explain;

use serde::{Deserialize, Serialize};

use crate::node::Node;

/// How bad it is, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Looked at, and good.
    Ok,
    /// Worth knowing.
    Note,
    /// A run works, and may be slower than it could be, fail under a condition, or measure something else.
    Warning,
    /// No run works.
    Unfit,
}

impl Severity {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Unfit => "unfit",
        }
    }
}

/// What a finding is about; a view shows some of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    /// Devices and their ports.
    Device,
    /// Addresses, interfaces, MTU.
    Network,
    /// What the process may have.
    Limits,
    /// The bus and what stands on it.
    Pci,
    /// GPUs, and how adapters reach their memory.
    Gpu,
    /// What NCCL is told.
    Nccl,
    /// What adapters have counted.
    Counters,
    /// The run that was asked about.
    Run,
}

macro_rules! findings {
    ($($(#[$doc:meta])* $name:ident = $code:literal: $topic:ident, $severity:ident, $section:literal,
        $effect:literal, $remedy:literal;)*) => {
        /// Everything that can be found, in the order in which it is told: causes before what follows from them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Code {
            $($(#[$doc])* #[serde(rename = $code)] $name,)*
        }

        impl Code {
            /// Every one, for tables and tests.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The stable name for scripts.
            pub fn name(self) -> &'static str {
                match self { $(Code::$name => $code,)* }
            }

            /// What it is about.
            pub fn topic(self) -> Topic {
                match self { $(Code::$name => Topic::$topic,)* }
            }

            /// How bad it is, unless the check knows better.
            pub fn severity(self) -> Severity {
                match self { $(Code::$name => Severity::$severity,)* }
            }

            /// Its section of `docs/troubleshooting.md`.
            pub fn section(self) -> &'static str {
                match self { $(Code::$name => $section,)* }
            }

            /// What it does to a run.
            pub fn effect(self) -> &'static str {
                match self { $(Code::$name => $effect,)* }
            }

            /// What one can do about it; empty where there is nothing to do.
            pub fn remedy(self) -> &'static str {
                match self { $(Code::$name => $remedy,)* }
            }
        }
    };
}

findings! {
    /// The run that was asked about would end with an error.
    RunRefused = "run-would-fail": Run, Unfit, "usage",
        "the run would end with this error before anything is measured", "";
    /// An adapter is there and its RDMA driver is not.
    AdapterIdle = "adapter-without-rdma": Device, Warning, "no-rdma-device",
        "the adapter carries Ethernet at most: no RDMA device belongs to it",
        "load its RDMA driver (modprobe mlx5_ib); in a container or with rdma's netns mode exclusive, the device may be in another namespace (rdma system)";
    /// There is no RDMA device.
    NoDevice = "no-rdma-device": Device, Unfit, "no-rdma-device",
        "nothing can be measured over RDMA here; TCP can (--transport tcp)",
        "load the adapter's driver (modprobe mlx5_ib, irdma, bnxt_re); in a container, see that the device was given to it";
    /// libibverbs can't be loaded.
    LibraryMissing = "library-missing": Device, Unfit, "library-missing",
        "no program can use the devices that the kernel has",
        "install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or libibverbs (RHEL, SUSE); in a container, in its image";
    /// The kernel's module for programs is not loaded.
    UverbsMissing = "uverbs-missing": Device, Unfit, "no-rdma-device",
        "the kernel knows the device and no program can reach it",
        "modprobe ib_uverbs, on the host";
    /// The node in /dev is missing.
    NodeMissing = "device-node-missing": Device, Unfit, "device-unusable",
        "the device shows in /sys and can't be opened",
        "in a container, pass the node in (--device=/dev/infiniband/uverbsN, or the device plugin's resource in the pod's limits)";
    /// The node in /dev is closed to this user.
    NodeClosed = "device-node-closed": Device, Unfit, "device-unusable",
        "this user can't open the device",
        "give it read and write access: rdma-core's udev rules open the nodes to everybody";
    /// libibverbs does not list or open the device.
    DeviceUnusable = "device-unusable": Device, Unfit, "device-unusable",
        "the kernel has the device and no run can use it",
        "see that the provider for the adapter is installed and not older than the kernel (ibv_devices, the package ibverbs-providers)";
    /// A virtual function has no identity.
    GuidZero = "vf-guid-zero": Device, Unfit, "virtual-functions",
        "a virtual function without a GUID registers no memory and gets no path",
        "on the host, set node_guid and port_guid (ip link set PF vf N node_guid …), and bind the function again";
    /// The link is up and no subnet manager has set it up.
    NoSubnetManager = "subnet-manager-missing": Device, Unfit, "port-not-active",
        "the cable works, and nobody has given the port its address: no traffic passes",
        "start a subnet manager (opensm on one host, or the switch's own), and see that the port is in its partition";
    /// The port is not active.
    PortDown = "port-not-active": Device, Unfit, "port-not-active",
        "no traffic passes over this port",
        "ip link set DEV up; then the cable, the transceiver, the port of the switch (rdma link, ip -br link, ethtool DEV)";
    /// A RoCE port has no address.
    NoGid = "no-usable-gid": Network, Unfit, "no-usable-gid",
        "a RoCE port without a GID has no address to send from",
        "give its network interface an IP address, in this network namespace";
    /// No port is known to be usable, and what was seen does not say why.
    NoUsablePort = "no-usable-port": Device, Unfit, "port-not-active",
        "no port has shown itself fit: a run would most likely fail",
        "see below what could not be seen, and compare with rdma link and ibv_devinfo";
    /// No GID of the port crosses a router.
    LinkLocalOnly = "link-local-only": Network, Warning, "roce-addressing",
        "a link-local GID reaches one layer-2 segment; a peer behind a router, or with IPv4 GIDs only, can't be reached",
        "give the network interface an IPv4 or global IPv6 address";
    /// The port has RoCE v1 only.
    RoceV1Only = "roce-v1-only": Network, Warning, "roce-addressing",
        "RoCE v1 is not routed, switches do not balance or mark it, and it does not talk to v2",
        "see that the adapter's driver has RoCE v2 on (cma_roce_mode, mlxconfig), and that the interface has an IP address";
    /// Several RDMA interfaces are in one subnet.
    SameSubnet = "same-subnet": Network, Warning, "several-interfaces-in-one-subnet",
        "the kernel may answer and send by another of these interfaces than the one that is measured: time-outs at connecting, or traffic on the wrong port",
        "a subnet for each rail; or a routing table for each source address, and arp_ignore=1, arp_announce=2";
    /// The reverse path filter is strict.
    ReversePath = "reverse-path-filter": Network, Warning, "several-interfaces-in-one-subnet",
        "packets whose sender the kernel would answer by another interface are dropped: ARP and TCP to this address fail at times",
        "sysctl net.ipv4.conf.all.rp_filter=2, and the same for the interface";
    /// The port's MTU is not what its interface's yields.
    MtuStale = "mtu-not-taken": Network, Warning, "mtu-of-a-port",
        "the port sends packets of another size than its interface's MTU allows: ends may disagree, and large messages stall",
        "take the interface down and up after its MTU was changed";
    /// RDMA interfaces have different MTUs.
    MtuDiffers = "mtu-differs": Network, Warning, "mtu-of-a-port",
        "ports that are meant to be alike send packets of different sizes: rails differ in speed, and connections between them take the smaller",
        "the same MTU on all of them, and on the switches";
    /// The interface's MTU makes the port use small packets.
    MtuSmall = "mtu-small": Network, Note, "mtu-of-a-port",
        "packets carry 1024 bytes where 4096 are possible: some per cent of the bandwidth go into headers, and more packets have to be handled",
        "ip link set DEV mtu 4200 (9000 will do) on both ends, and at least as much on the switches";
    /// A member of a bond is down.
    BondMemberDown = "bond-member-down": Network, Warning, "bonds",
        "the bond works with fewer links than it has: less bandwidth, and no spare",
        "bring the member up: cable, switch port, ip link set DEV up";
    /// The port belongs to a bond.
    BondedPort = "bonded-port": Network, Note, "bonds",
        "a queue pair stays on one of the links: one connection does not get the sum of them",
        "measure with several queue pairs (-q) to use all links";
    /// Default routes lead through several interfaces.
    DefaultRoutes = "several-default-routes": Network, Note, "several-interfaces-in-one-subnet",
        "which interface reaches the other hosts depends on the routes' metrics",
        "one default route, and routes by source for the rest";
    /// Little memory can be locked.
    MemlockLow = "memlock-low": Limits, Warning, "memlock",
        "an adapter's memory has to be locked: messages above what the limit allows can't be registered, and programs report ENOMEM, which looks like a lack of memory and is not",
        "raise memlock: ulimit -l, /etc/security/limits.conf with a new session, LimitMEMLOCK in a systemd unit, --ulimit memlock=-1 for a container";
    /// The capability is there and not in effect.
    CapabilityIdle = "cap-ipc-lock-not-effective": Limits, Note, "memlock",
        "the container was given CAP_IPC_LOCK, but a process that is not root does not have it in effect: the limit above counts",
        "raise the limit itself (LimitMEMLOCK of the container runtime), or run as root in the container";
    /// The control group limits RDMA resources.
    CgroupLimit = "rdma-cgroup-limit": Limits, Note, "containers",
        "beyond that many handles and objects (queue pairs, memory regions) the kernel refuses with EAGAIN or ENOMEM",
        "raise rdma.max of the group, or measure with fewer queue pairs";
    /// A PCIe link is below what its ends can do.
    PcieDegraded = "pcie-degraded": Pci, Warning, "pcie-path",
        "the adapter's way to memory is slower than it was built for",
        "reseat the card or its riser, look for errors (dmesg, AER counters), check the slot's bifurcation and speed in the BIOS";
    /// A PCIe link is slower than the port behind it.
    PcieNarrow = "pcie-below-port-rate": Pci, Warning, "pcie-path",
        "the bus bounds the bandwidth, not the network: the port's rate can't be reached, in both directions even less",
        "move the card to a slot with more lanes or a newer generation";
    /// A port runs at fewer lanes than its cable.
    LaneLost = "link-width-low": Device, Warning, "port-not-active",
        "one lane carries a quarter of what four do",
        "reseat or replace the cable; look at symbol errors of both ends";
    /// The IOMMU translates.
    IommuTranslates = "iommu-translates": Pci, Note, "iommu-and-acs",
        "each address that the adapter uses is looked up: some bandwidth and latency; between GPU and adapter the traffic goes up to the processor",
        "iommu=pt on the kernel's command line, unless isolation is needed";
    /// Bridges send traffic between devices up to the root.
    AcsRedirects = "acs-redirects": Pci, Warning, "iommu-and-acs",
        "traffic between GPU and adapter does not turn round in the switch but goes through the processor: GPUDirect is slow, or hangs",
        "turn ACS off in the BIOS or with setpci on these bridges; in a virtual machine leave it on and use ATS";
    /// Relaxed ordering is off.
    RelaxedOrderingOff = "relaxed-ordering-off": Pci, Note, "pcie-path",
        "on some processors writes to memory wait for each other: bandwidth into this host may be lower",
        "set PCI_WR_ORDERING=1 (mlxconfig) or the BIOS's relaxed ordering, and measure again";
    /// The kernel does not say on which NUMA node the adapter is.
    NumaUnknown = "numa-unknown": Pci, Note, "pcie-path",
        "threads and memory can't be placed near the adapter by themselves",
        "place them with --cores and --numa";
    /// The device is a virtual function.
    VirtualFunction = "virtual-function": Device, Note, "virtual-functions",
        "it shares its port with other functions, and limits may be set on the host",
        "see the host's rate limits and trust settings (ip link show PF) where figures are low";
    /// Devices of one kind have different firmware.
    FirmwareDiffers = "firmware-differs": Device, Note, "firmware",
        "adapters of one kind may behave differently",
        "bring them to one version";
    /// The device is an emulation.
    SoftwareDevice = "software-device": Device, Note, "software-devices",
        "its speed is this host's processor, not a link's",
        "quote equality, order and failures from it, never its bandwidth";
    /// A GPU's driver is not loaded.
    GpuDriverMissing = "gpu-driver-missing": Gpu, Warning, "gpu-driver",
        "GPU memory can't be measured",
        "install and load the GPU's driver; in a container, start it with the GPUs (--gpus all)";
    /// CUDA can't be used.
    GpuUnusable = "gpu-unusable": Gpu, Warning, "gpu-driver",
        "the kernel has the GPUs, and no program can use them here",
        "nvidia-smi says more; in a container, start it with the GPUs (--gpus all), which brings libcuda.so.1";
    /// Adapters can't be given GPU memory.
    GpudirectMissing = "gpudirect-missing": Gpu, Warning, "gpudirect",
        "GPU memory can't be registered with an adapter (EFAULT): transfers go through host memory, at a part of the bandwidth",
        "modprobe nvidia_peermem on the host, or use the open kernel modules (580 has them by default) and Linux 5.12 or newer for dma-buf";
    /// A GPU's nearest adapter is not near.
    GpuFar = "gpu-far-from-adapter": Gpu, Warning, "gpu-adapter-distance",
        "NCCL uses no GPUDirect over this distance unless told to, and what crosses is slower",
        "pair each GPU with an adapter below the same PCIe switch; see the matrix, and the slots' numbering in the machine's manual";
    /// NCCL is not there.
    NcclMissing = "nccl-missing": Gpu, Note, "nccl-settings",
        "coll-perf can't measure between GPUs",
        "install libnccl2 or the Python wheel nvidia-nccl-cu12, or name the library with --nccl-lib";
    /// NCCL does not use RDMA.
    NcclIbDisabled = "nccl-ib-disabled": Nccl, Warning, "nccl-settings",
        "NCCL uses TCP between hosts, also where RDMA would work",
        "unset it (also in /etc/nccl.conf)";
    /// NCCL uses sockets.
    NcclSocket = "nccl-net-socket": Nccl, Warning, "nccl-settings",
        "NCCL uses TCP between hosts; over RoCE interfaces too, which is not RoCE",
        "unset it, or set NCCL_NET=IB";
    /// NCCL's choice of adapters matches none.
    NcclHca = "nccl-ib-hca": Nccl, Warning, "nccl-settings",
        "NCCL finds no adapter and uses TCP, or fails",
        "name devices as rdma link shows them (NCCL_IB_HCA=mlx5 takes all whose names begin so, =mlx5_0 exactly that one)";
    /// NCCL's GID index is doubtful.
    NcclGidIndex = "nccl-gid-index": Nccl, Warning, "nccl-settings",
        "connections fail or time out, with completion status 12 at the first message",
        "unset it: NCCL 2.21 and later choose by themselves; otherwise the index that rdma-check gids shows as chosen, if it is the same on all hosts";
    /// NCCL's choice of interfaces matches none.
    NcclIfname = "nccl-socket-ifname": Nccl, Warning, "nccl-settings",
        "NCCL finds no interface to meet the other ranks on, and fails at once",
        "name interfaces as ip -br link shows them (eth takes all whose names begin so)";
    /// NCCL does not let GPUs talk directly.
    NcclP2p = "nccl-p2p-disabled": Nccl, Warning, "nccl-settings",
        "GPUs of one host exchange through host memory instead of NVLink or PCIe",
        "unset it, unless direct access hangs (see IOMMU and ACS)";
    /// NCCL does not let adapters reach GPU memory.
    NcclGdr = "nccl-gdr-off": Nccl, Warning, "nccl-settings",
        "NCCL stages GPU memory through the host between hosts",
        "unset it, or set NCCL_NET_GDR_LEVEL=SYS to try";
    /// Adapters have counted trouble.
    CountersTrouble = "counters-trouble": Counters, Note, "counters",
        "since the driver was loaded packets were lost, repeated, damaged or held back on this port",
        "see whether they still grow (rdma-check counters --watch 10), and on which: symbol errors are the cable's, discards and notifications congestion's";
    /// The run that was asked about finds on this node what it needs.
    RunPossible = "run-possible": Run, Ok, "usage", "nothing on this node stops it; the other end has its own word", "";
    /// A port can be used.
    PortUsable = "port-usable": Device, Ok, "port-not-active", "a run can use it", "";
    /// Enough memory can be locked.
    MemlockEnough = "memlock-enough": Limits, Ok, "memlock", "the limit stands in no run's way", "";
    /// A PCIe link is as good as its ends and carries its port's rate.
    PcieGood = "pcie-good": Pci, Ok, "pcie-path", "the bus does not bound the port", "";
    /// Adapters can be given GPU memory.
    GpudirectPossible = "gpudirect-possible": Gpu, Ok, "gpudirect",
        "GPU memory can be offered to adapters; only a registration proves that they take it", "";
    /// GPUs have an adapter near them.
    GpuNear = "gpu-near-adapter": Gpu, Ok, "gpu-adapter-distance", "their traffic stays below the processor", "";
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Its stable name.
    pub code: Code,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub topic: Topic,
    /// What it was found of: devices, ports, interfaces, GPUs; empty where it is of the node.
    pub on: Vec<String>,
    /// What was seen.
    pub seen: String,
    /// What it does to a run.
    pub effect: String,
    /// What one can do about it; absent where there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remedy: Option<String>,
    /// Where more is said: a section of `docs/troubleshooting.md`.
    pub section: String,
}

impl Finding {
    /// `code`, of the node.
    pub fn new(code: Code, seen: impl Into<String>) -> Self {
        let remedy = code.remedy();
        Self {
            code,
            severity: code.severity(),
            topic: code.topic(),
            on: Vec::new(),
            seen: seen.into(),
            effect: code.effect().to_owned(),
            remedy: (!remedy.is_empty()).then(|| remedy.to_owned()),
            section: code.section().to_owned(),
        }
    }

    /// Says what it was found of.
    #[must_use]
    pub fn on(mut self, what: impl Into<String>) -> Self {
        self.on.push(what.into());
        self
    }

    /// Says how bad it is here.
    #[must_use]
    pub fn as_bad_as(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }
}

/// Everything that is to be said of `node`, the worst first, and of equals causes first.
pub fn examine(node: &Node) -> Vec<Finding> {
    let checks: &[fn(&Node) -> Vec<Finding>] =
        &[device::check, network::check, limits::check, pci::check, gpu::check, nccl::check, counters::check];
    ranked(checks.iter().flat_map(|check| check(node)).collect())
}

/// Sorts, and says once what was found in the same words of several things.
pub fn ranked(findings: Vec<Finding>) -> Vec<Finding> {
    let mut merged: Vec<Finding> = Vec::new();
    for finding in findings {
        let same = |other: &&mut Finding| {
            other.code == finding.code && other.severity == finding.severity && other.seen == finding.seen
        };
        match merged.iter_mut().find(same) {
            Some(other) => other.on.extend(finding.on),
            None => merged.push(finding),
        }
    }
    merged.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.code));
    merged
}

/// The worst of `findings`; [`Severity::Ok`] where there is none.
pub fn worst(findings: &[Finding]) -> Severity {
    findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
}

#[cfg(test)]
mod tests;
