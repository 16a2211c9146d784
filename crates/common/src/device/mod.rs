//! RDMA devices and ports: which there are, which one to use, and what the chosen port is.
//!
//! Opening a device gives a [`Context`]; everything made on it holds it, so that it closes last.
#![allow(unsafe_code, reason = "devices are libibverbs' objects")]

mod choose;
mod details;
mod library;
mod list;
mod survey;

pub use choose::{ChosenPort, DeviceWish, choose};
pub use library::{Library, SOFT_ROCE, SOFTNIC};

pub use survey::{DeviceLimits, Surveyed, survey};

pub(crate) use details::of_words;
pub(crate) use list::device_node;

use details::GidDetails;

use rdma_sys as sys;
use rdma_sys::Verbs;

use crate::addresses::{HostAddress, host_addresses};
use crate::error::{Error, ErrorKind, Result, show_errno};
use crate::gid::{Gid, GidEntry, LinkLayer, LinkOffer};
use crate::host::HostFiles;
use crate::units::Bandwidth;

/// What a port's logical link can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortState(pub sys::ibv_port_state);

impl PortState {
    /// Whether traffic can pass.
    pub fn is_active(self) -> bool {
        self.0 == sys::IBV_PORT_ACTIVE
    }

    /// The specification's name for it.
    pub fn name(self) -> &'static str {
        match self.0 {
            sys::IBV_PORT_NOP => "NOP",
            sys::IBV_PORT_DOWN => "DOWN",
            sys::IBV_PORT_INIT => "INIT",
            sys::IBV_PORT_ARMED => "ARMED",
            sys::IBV_PORT_ACTIVE => "ACTIVE",
            sys::IBV_PORT_ACTIVE_DEFER => "ACTIVE_DEFER",
            _ => "unknown",
        }
    }
}

/// A port, as its device describes it.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its number, from 1.
    pub port_num: u8,
    /// Its state.
    pub state: PortState,
    /// Its frames.
    pub link_layer: LinkLayer,
    /// Its local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The MTU in force, in bytes.
    pub active_mtu: u32,
    /// Entries of its GID table.
    pub gid_table_len: u32,
    /// The largest message, in bytes.
    pub max_msg_size: u64,
    /// Whether packets need a global route header always.
    pub grh_required: bool,
    /// Its signalling rate, as the kernel states it; `None` where it does not.
    pub rate: Option<Bandwidth>,
    /// The rate in the kernel's words, for instance `100 Gb/sec (4X EDR)`.
    pub rate_words: Option<String>,
}

impl Port {
    /// For lists: `port 1 ACTIVE, Ethernet, 100 Gb/sec (4X EDR)`.
    pub fn describe(&self) -> String {
        let rate = self.rate_words.as_ref().map_or(String::new(), |rate| format!(", {rate}"));
        format!("port {} {}, {}{rate}", self.port_num, self.state.name(), self.link_layer.name())
    }
}

/// Entries of a GID table that can be used: an address handle has eight bits for the index.
const USABLE_GIDS: u32 = 256;

/// An open device.
pub struct Context {
    verbs: &'static Verbs,
    raw: *mut sys::ibv_context,
    name: String,
}

// SAFETY: libibverbs contexts may be used from any thread; the pointer is never changed after opening and freed
// once, in Drop.
unsafe impl Send for Context {}
// SAFETY: as above; every verb called through a shared reference is thread-safe by libibverbs' contract.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: everything made on the context holds an Arc of it, so nothing of it is left. A failure to close
        // leaves a file descriptor to the end of the process; there is nobody to tell.
        unsafe { (self.verbs.ibv_close_device)(self.raw) };
    }
}

impl Context {
    /// The library.
    pub fn verbs(&self) -> &'static Verbs {
        self.verbs
    }

    /// The raw context, for verbs.
    pub fn raw(&self) -> *mut sys::ibv_context {
        self.raw
    }

    /// The kernel's name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the device is an emulation: it has no parent on any bus. The name of the emulation if so.
    pub fn software(&self, files: &HostFiles) -> Option<String> {
        let folder = format!("/sys/class/infiniband/{}", self.name);
        if files.exists(&format!("{folder}/device")) {
            return None;
        }
        let described = files.text(&format!("{folder}/node_desc")).filter(|text| !text.is_empty());
        described.or_else(|| self.firmware_name()).or(Some("software".to_owned()))
    }

    /// The first word of the firmware version where that is a word and no number: an emulation that the kernel knows
    /// nothing of gives its name there.
    fn firmware_name(&self) -> Option<String> {
        let attr = self.limits().ok()?;
        let bytes: Vec<u8> =
            attr.fw_ver.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
        let name = String::from_utf8(bytes).ok()?.split_whitespace().next()?.to_owned();
        name.starts_with(|c: char| c.is_ascii_alphabetic()).then_some(name)
    }

    /// The device's limits.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnusable`] with the errno.
    pub fn limits(&self) -> Result<sys::ibv_device_attr> {
        let mut attr = sys::ibv_device_attr::default();
        // SAFETY: the context is open and `attr` is ours.
        match unsafe { (self.verbs.ibv_query_device)(self.raw, &mut attr) } {
            0 => Ok(attr),
            errno => Err(unusable(&self.name, "ibv_query_device", errno)),
        }
    }

    /// Every port of the device.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnusable`] with the errno.
    pub fn ports(&self, files: &HostFiles) -> Result<Vec<Port>> {
        (1..=self.limits()?.phys_port_cnt).map(|port_num| self.port(port_num, files)).collect()
    }

    fn port(&self, port_num: u8, files: &HostFiles) -> Result<Port> {
        let mut attr = sys::ibv_port_attr::default();
        // SAFETY: the context is open and `attr` is ours.
        let errno = unsafe { sys::ibv_query_port(self.verbs, self.raw, port_num, &mut attr) };
        if errno != 0 {
            return Err(unusable(&self.name, &format!("ibv_query_port {port_num}"), errno));
        }
        let rate_words = files.text(&format!("/sys/class/infiniband/{}/ports/{port_num}/rate", self.name));
        Ok(Port {
            port_num,
            state: PortState(attr.state),
            link_layer: match u32::from(attr.link_layer) {
                sys::IBV_LINK_LAYER_INFINIBAND => LinkLayer::InfiniBand,
                sys::IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
                _ => LinkLayer::Unspecified,
            },
            lid: attr.lid,
            active_mtu: mtu_bytes(attr.active_mtu),
            gid_table_len: u32::try_from(attr.gid_tbl_len).unwrap_or(0),
            max_msg_size: attr.max_msg_sz.into(),
            grh_required: u32::from(attr.flags) & sys::IBV_QPF_GRH_REQUIRED != 0,
            rate: rate_words.as_deref().and_then(parse_rate),
            rate_words,
        })
    }

    /// The used entries of a port's GID table.
    pub fn gids(&self, port: &Port, files: &HostFiles) -> Vec<GidEntry> {
        let addresses = host_addresses();
        (0..port.gid_table_len.min(USABLE_GIDS))
            .filter_map(|index| self.gid(port, index, files, &addresses))
            .collect()
    }

    fn gid(&self, port: &Port, index: u32, files: &HostFiles, addresses: &[HostAddress]) -> Option<GidEntry> {
        let mut gid = sys::ibv_gid::default();
        // SAFETY: the context is open and `gid` is ours.
        let errno = unsafe { (self.verbs.ibv_query_gid)(self.raw, port.port_num, index as i32, &mut gid) };
        // SAFETY: both members of the union are sixteen plain bytes.
        let gid = Gid(unsafe { gid.raw }.into());
        if errno != 0 || gid.is_empty() {
            return None;
        }
        let GidDetails { gid_type, netdev } = self.gid_details(port, index, files);
        let prefix_len = addresses.iter().find_map(|own| own.prefix_len.filter(|_| own.ip == gid.ip()));
        Some(GidEntry { index, gid, gid_type, netdev, prefix_len })
    }

    /// What this port can offer for a connection; `forced` is the index that the user named.
    ///
    /// # Errors
    /// [`ErrorKind::GidIndex`] where `forced` names no used entry, [`ErrorKind::NoGid`] where Ethernet has none.
    pub fn link_offer(&self, port: &Port, forced: Option<u32>, files: &HostFiles) -> Result<LinkOffer> {
        let mut gids = self.gids(port, files);
        if let Some(index) = forced {
            let chosen = gids.iter().find(|entry| entry.index == index).cloned();
            gids = vec![chosen.ok_or_else(|| self.no_such_gid(port, index, &gids))?];
        }
        if gids.is_empty() && port.link_layer == LinkLayer::Ethernet {
            return Err(self.no_gid(port));
        }
        Ok(LinkOffer {
            link_layer: port.link_layer,
            lid: port.lid,
            active_mtu_bytes: port.active_mtu,
            gids,
            gid_forced: forced.is_some(),
            grh_required: port.grh_required,
        })
    }

    fn no_such_gid(&self, port: &Port, index: u32, gids: &[GidEntry]) -> Error {
        let object = format!("{} port {}", self.name, port.port_num);
        let what = if index >= USABLE_GIDS && index < port.gid_table_len {
            format!(
                "GID index {index} of {object} can't be used: a connection names entries 0 to {}",
                USABLE_GIDS - 1
            )
        } else if index < port.gid_table_len {
            format!("GID index {index} of {object} is an unused entry")
        } else {
            format!(
                "GID index {index} is outside the table of {object}, which has {} entries",
                port.gid_table_len
            )
        };
        Error::new(ErrorKind::GidIndex, what)
            .fact("in use", crate::gid::describe_all(gids))
            .hint("omit --gid-index to have one chosen to match the other end")
    }

    fn no_gid(&self, port: &Port) -> Error {
        Error::new(
            ErrorKind::NoGid,
            format!("the GID table of {} port {} is empty", self.name, port.port_num),
        )
        .fact("port", port.describe())
        .hint("give the port's network interface an IP address, and see that it is in this network namespace")
    }
}

/// The MTU in bytes that one of the `IBV_MTU_*` values stands for; 0 for a value that is none.
pub fn mtu_bytes(mtu: sys::ibv_mtu) -> u32 {
    if (sys::IBV_MTU_256..=sys::IBV_MTU_4096).contains(&mtu) { 128 << mtu } else { 0 }
}

/// The `IBV_MTU_*` value of an MTU in bytes; the largest that fits where it is none of the five.
pub fn mtu_value(bytes: u32) -> sys::ibv_mtu {
    (sys::IBV_MTU_256..=sys::IBV_MTU_4096)
        .rev()
        .find(|&mtu| mtu_bytes(mtu) <= bytes)
        .unwrap_or(sys::IBV_MTU_256)
}

/// `100 Gb/sec (4X EDR)` as a bandwidth.
pub(crate) fn parse_rate(words: &str) -> Option<Bandwidth> {
    let (number, unit) = words.split_once(' ')?;
    unit.starts_with("Gb/sec").then_some(())?;
    number.parse().ok().filter(|&rate: &f64| rate > 0.0).map(Bandwidth::from_gbit_per_sec)
}

fn unusable(name: &str, call: &str, errno: i32) -> Error {
    Error::new(ErrorKind::DeviceUnusable, format!("cannot query {name}: {call}: {}", show_errno(errno)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_values_and_bytes_are_inverse() {
        for bytes in crate::plan::PATH_MTUS {
            assert_eq!(mtu_bytes(mtu_value(bytes)), bytes);
        }
        assert_eq!(mtu_bytes(0), 0);
        assert_eq!(mtu_bytes(mtu_value(1500)), 1024);
    }

    #[test]
    fn rates_are_read_from_the_kernels_words() {
        assert_eq!(parse_rate("100 Gb/sec (4X EDR)").unwrap().gbit_per_sec(), 100.0);
        assert_eq!(parse_rate("2.5 Gb/sec (1X SDR)").unwrap().gbit_per_sec(), 2.5);
        assert_eq!(parse_rate("0 Gb/sec"), None);
        assert_eq!(parse_rate("nonsense"), None);
    }
}
