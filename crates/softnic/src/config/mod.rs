//! The devices that there are, as [`VARIABLE`] describes them.
//!
//! A description is a list of clauses separated by `;`. A clause that begins with a name describes a device of that
//! name with one port; one that begins with `key=value` is about the whole process:
//!
//! ```text
//! fabric=test1; soft0 gid=roce2:192.0.2.1/eth0 mtu=1024 rate=100G; soft1 link=infiniband lid=5
//! ```
//!
//! `@FILE` reads the description from a file, where `#` begins a comment and a line end ends a clause as `;` does.
//! Parsing is strict: whatever is not understood is an error with its position, and no device is offered then.

mod fault;
mod parse;
mod size;

use std::net::Ipv6Addr;
use std::path::Path;
use std::time::Duration;

pub(crate) use fault::{Call, Effect, FaultDescription, Site, When};
use rdma_sys as sys;

/// The environment variable that holds the description.
pub(crate) const VARIABLE: &str = "LINKPROOF_SOFTNIC";

/// All that a description says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Description {
    /// Processes see each other's queue pairs if they are of one fabric (and of one user).
    pub(crate) fabric: String,
    /// The devices, in their order.
    pub(crate) devices: Vec<DeviceDescription>,
}

/// One device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DeviceDescription {
    pub(crate) name: String,
    pub(crate) port: PortDescription,
    pub(crate) limits: Limits,
    pub(crate) model: Model,
    pub(crate) gpu: GpuMemory,
    pub(crate) faults: Vec<FaultDescription>,
    /// Decides what happens by chance.
    pub(crate) seed: u64,
}

/// How long messages take, beyond what copying them takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    /// From the sender to the target; an acknowledgement takes as long.
    pub(crate) latency: Duration,
    /// What the port sends in a second at most, in Gb; 0: no limit.
    pub(crate) pace_gbit: u32,
}

impl Model {
    /// Whether messages take no time.
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// By which ways memory of GPUs can be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GpuMemory {
    /// As a dma-buf.
    pub(crate) dma_buf: bool,
    /// By its address, as where nvidia-peermem is loaded.
    pub(crate) peer_memory: bool,
}

/// A device's one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortDescription {
    pub(crate) link: Link,
    /// The local identifier; 0 on Ethernet.
    pub(crate) lid: u16,
    /// One of the `IBV_MTU_*` values.
    pub(crate) mtu: sys::ibv_mtu,
    /// The rate that is shown. It slows nothing down.
    pub(crate) rate_gbit: u32,
    pub(crate) active: bool,
    pub(crate) gids: Vec<GidDescription>,
}

/// What the port's frames are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Ethernet,
    InfiniBand,
}

/// An entry of a GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GidDescription {
    /// One of the `IBV_GID_TYPE_*` values.
    pub(crate) gid_type: sys::ibv_gid_type,
    /// All zeros: an unused entry.
    pub(crate) gid: Ipv6Addr,
    pub(crate) netdev: Option<String>,
}

/// What a device has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) max_qp: u32,
    pub(crate) max_qp_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) max_inline: u32,
    pub(crate) max_cq: u32,
    pub(crate) max_cqe: u32,
    pub(crate) max_pd: u32,
    pub(crate) max_mr: u32,
    pub(crate) max_mr_size: u64,
}

impl Default for Limits {
    /// What the tables in the control segment hold at most; the others of the size that adapters have.
    fn default() -> Self {
        Self {
            max_qp: crate::shared::MAX_QPS - 1,
            max_qp_wr: 32_768,
            max_sge: 32,
            max_inline: 1024,
            max_cq: crate::shared::MAX_CQS,
            max_cqe: (1 << 22) - 1,
            max_pd: 1 << 16,
            max_mr: crate::shared::MAX_MRS - 1,
            max_mr_size: 1 << 40,
        }
    }
}

impl Default for PortDescription {
    /// An Ethernet port whose addresses are those that every machine has: programs on one machine that choose a GID
    /// by what it is come to the IPv4 one.
    fn default() -> Self {
        let lo = Some("lo".to_owned());
        let gid = |gid| GidDescription { gid_type: sys::IBV_GID_TYPE_ROCE_V2, gid, netdev: lo.clone() };
        Self {
            link: Link::Ethernet,
            lid: 0,
            mtu: sys::IBV_MTU_4096,
            rate_gbit: 100,
            active: true,
            gids: vec![
                gid(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
                gid(std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped()),
            ],
        }
    }
}

impl PortDescription {
    /// An InfiniBand port; its GID is made of its LID.
    fn infiniband(lid: u16) -> Self {
        let gid = Ipv6Addr::new(0xfe80, 0, 0, 0, 0x0200, 0x00ff, 0xfe00, lid);
        Self {
            link: Link::InfiniBand,
            lid,
            gids: vec![GidDescription { gid_type: sys::IBV_GID_TYPE_IB, gid, netdev: None }],
            ..Self::default()
        }
    }
}

impl DeviceDescription {
    /// A device with nothing special.
    fn named(name: String) -> Self {
        Self {
            name,
            port: PortDescription::default(),
            limits: Limits::default(),
            model: Model::default(),
            gpu: GpuMemory { dma_buf: true, peer_memory: true },
            faults: Vec::new(),
            seed: 1,
        }
    }
}

impl Default for Description {
    fn default() -> Self {
        Self { fabric: "default".to_owned(), devices: vec![DeviceDescription::named("soft0".to_owned())] }
    }
}

impl Description {
    /// The description in the environment, or the default.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub(crate) fn from_environment() -> Result<Self, String> {
        let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
            return Ok(Self::default());
        };
        let text = value.to_str().ok_or_else(|| format!("{VARIABLE} is not UTF-8"))?;
        match text.strip_prefix('@') {
            None => Self::parse(text).map_err(|error| error.show(VARIABLE, text)),
            Some(path) => Self::from_file(Path::new(path)),
        }
    }

    fn from_file(path: &Path) -> Result<Self, String> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
        Self::parse(&text).map_err(|error| error.show(&shown, &text))
    }
}
