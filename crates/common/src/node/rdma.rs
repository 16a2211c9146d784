//! RDMA devices and their ports, as the kernel shows them.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

use super::{PciFunction, Unseen, net};
use crate::counters::Counters;
use crate::device::{DeviceLimits, device_node, of_words, parse_rate};
use crate::gid::{self, Gid, GidEntry, LinkLayer, LinkOffer};
use crate::host::HostFiles;
use crate::units::Bandwidth;

const DEVICES: &str = "/sys/class/infiniband";

/// An address handle has eight bits for the index.
const USABLE_GIDS: usize = 256;

/// How the node in `/dev` of a device is for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeFile {
    /// It can be opened.
    Usable,
    /// It is there, and closed to this user.
    Closed,
    /// It is not there.
    Missing,
    /// The kernel has none for the device: `ib_uverbs` is not loaded.
    None,
}

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RdmaDevice {
    /// Its kernel name, as tools show it.
    pub name: String,
    /// Its place on the PCI bus; absent for an emulation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pci: Option<PciFunction>,
    /// What emulates it, where it is an emulation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub software: Option<String>,
    /// Its firmware's version.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub firmware: Option<String>,
    /// Its board's identity.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub board: Option<String>,
    /// Its globally unique identity.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node_guid: Option<String>,
    /// The path of its node: `/dev/infiniband/uverbs0`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node_path: Option<String>,
    /// How that node is for this process; absent for a device that the kernel knows nothing of.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node_file: Option<NodeFile>,
    /// Its limits, by libibverbs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limits: Option<DeviceLimits>,
    /// Why libibverbs can't use it, where it was asked and can't.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refusal: Option<String>,
    /// Its ports, by number.
    pub ports: Vec<RdmaPort>,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RdmaPort {
    /// Its number.
    pub port_num: u8,
    /// Its state: `ACTIVE`, `DOWN`, `INIT`, …
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub state: Option<String>,
    /// The state of its physical link: `LinkUp`, `Polling`, `Disabled`, …
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub physical_state: Option<String>,
    /// Its frames.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub link_layer: Option<LinkLayer>,
    /// Its rate in the kernel's words: `400 Gb/sec (4X NDR)`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate: Option<String>,
    /// Its local identifier; 0 on Ethernet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lid: Option<u32>,
    /// The local identifier of its subnet manager; 0 where there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub subnet_manager_lid: Option<u32>,
    /// The MTU in force in bytes, by libibverbs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub active_mtu_bytes: Option<u32>,
    /// Its network interface.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub netdev: Option<String>,
    /// The used entries of its GID table.
    pub gids: Vec<GidEntry>,
    /// Whether the table could be read.
    pub gids_seen: bool,
    /// The entry that would be taken for a peer with the like of it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub chosen_gid: Option<ChosenGid>,
    /// Its counters.
    pub counters: BTreeMap<String, u64>,
}

/// Which entry a run would use, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChosenGid {
    /// The entry's index; absent: none, the port is addressed by its local identifier.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub index: Option<u32>,
    /// Why this one.
    pub reason: String,
}

impl RdmaDevice {
    /// A device of which nothing is known but its name.
    pub(super) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            pci: None,
            software: None,
            firmware: None,
            board: None,
            node_guid: None,
            node_path: None,
            node_file: None,
            limits: None,
            refusal: None,
            ports: Vec::new(),
        }
    }

    fn read(files: &HostFiles, name: &str, subnets: &[net::Subnet]) -> Self {
        let folder = format!("{DEVICES}/{name}");
        let pci = PciFunction::at(files, &format!("{folder}/device"));
        let is_software = !files.exists(&format!("{folder}/device"))
            && files.real(&folder).is_some_and(|real| real.starts_with("/sys/devices/virtual/"));
        let node_path = device_node(name, files);
        Self {
            software: is_software
                .then(|| files.words(&format!("{folder}/node_desc")).unwrap_or("software".to_owned())),
            firmware: files.words(&format!("{folder}/fw_ver")),
            board: files.words(&format!("{folder}/board_id")),
            node_guid: files.words(&format!("{folder}/node_guid")),
            node_file: Some(node_file(files, node_path.as_deref())),
            node_path,
            ports: ports(files, name, subnets),
            pci,
            ..Self::named(name)
        }
    }
}

impl RdmaPort {
    /// A port of which nothing is known but its number.
    pub(super) fn numbered(port_num: u8) -> Self {
        Self {
            port_num,
            state: None,
            physical_state: None,
            link_layer: None,
            rate: None,
            lid: None,
            subnet_manager_lid: None,
            active_mtu_bytes: None,
            netdev: None,
            gids: Vec::new(),
            gids_seen: false,
            chosen_gid: None,
            counters: BTreeMap::new(),
        }
    }

    fn read(files: &HostFiles, device: &str, port_num: u8, subnets: &[net::Subnet]) -> Self {
        let folder = format!("{DEVICES}/{device}/ports/{port_num}");
        let link_layer = files.words(&format!("{folder}/link_layer")).and_then(|words| link_layer(&words));
        let layer = link_layer.unwrap_or(LinkLayer::Unspecified);
        let (gids, gids_seen) = gids(files, &folder, layer, subnets);
        let mut port = Self {
            state: files.words(&format!("{folder}/state")).and_then(|words| after_number(&words)),
            physical_state: files
                .words(&format!("{folder}/phys_state"))
                .and_then(|words| after_number(&words)),
            link_layer,
            rate: files.words(&format!("{folder}/rate")).filter(|words| parse_rate(words).is_some()),
            lid: number_16(files, &format!("{folder}/lid")),
            subnet_manager_lid: number_16(files, &format!("{folder}/sm_lid")),
            netdev: netdev(files, device, port_num, &gids),
            counters: Counters::read(device, port_num, files).into_map(),
            gids,
            gids_seen,
            ..Self::numbered(port_num)
        };
        port.choose_gid();
        port
    }

    /// Whether traffic can pass, as far as the port's state says; `None` where it does not.
    pub fn is_active(&self) -> Option<bool> {
        self.state.as_ref().map(|state| state == "ACTIVE")
    }

    /// Its signalling rate.
    pub fn bandwidth(&self) -> Option<Bandwidth> {
        parse_rate(self.rate.as_deref()?)
    }

    /// Chooses the entry that a run would use with a peer whose table is like this one.
    pub(super) fn choose_gid(&mut self) {
        let Some(link_layer) = self.link_layer else { return };
        let offer = LinkOffer {
            link_layer,
            lid: self.lid.and_then(|lid| lid.try_into().ok()).unwrap_or(0),
            active_mtu_bytes: self.active_mtu_bytes.unwrap_or(0),
            gids: self.gids.clone(),
            gid_forced: false,
            grh_required: false,
        };
        self.chosen_gid = gid::choose(&offer, &offer).ok().map(|addressing| ChosenGid {
            index: addressing.client.map(|entry| entry.index),
            reason: addressing.reason,
        });
    }

    /// The entry that [`RdmaPort::chosen_gid`] names.
    pub fn chosen_entry(&self) -> Option<&GidEntry> {
        let index = self.chosen_gid.as_ref()?.index?;
        self.gids.iter().find(|entry| entry.index == index)
    }
}

/// Every RDMA device that the kernel shows, by name.
pub(super) fn devices(files: &HostFiles, unseen: &mut Vec<Unseen>) -> Vec<RdmaDevice> {
    let subnets = net::subnets(files);
    let mut names = files.names(DEVICES);
    names.sort_by_key(|name| natural(name));
    let devices: Vec<RdmaDevice> = names.iter().map(|name| RdmaDevice::read(files, name, &subnets)).collect();
    for device in &devices {
        let mut hidden =
            |what: &str, why: &str| unseen.push(Unseen::new(format!("{what} of {}", device.name), why));
        if device.ports.is_empty() {
            hidden("the ports", "the kernel shows none");
        }
        if device.software.is_none() && device.pci.is_none() {
            hidden("the place on the PCI bus", "its folder in /sys does not lead to a PCI function");
        }
        for port in &device.ports {
            let lacks = [
                ("state", port.state.is_none()),
                ("link layer", port.link_layer.is_none()),
                ("rate", port.rate.is_none()),
                ("GID table", !port.gids_seen),
            ];
            for (what, _) in lacks.iter().filter(|(_, lacking)| *lacking) {
                hidden(&format!("the {what} of port {}", port.port_num), "the kernel does not say");
            }
        }
    }
    devices
}

/// A name so that `mlx5_10` comes after `mlx5_9`.
pub(super) fn natural(name: &str) -> (String, u64) {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (stem, number) = name.split_at(name.len() - digits);
    (stem.to_owned(), number.parse().unwrap_or(0))
}

fn ports(files: &HostFiles, device: &str, subnets: &[net::Subnet]) -> Vec<RdmaPort> {
    let mut numbers: Vec<u8> = files
        .names(&format!("{DEVICES}/{device}/ports"))
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers.into_iter().map(|port_num| RdmaPort::read(files, device, port_num, subnets)).collect()
}

fn node_file(files: &HostFiles, path: Option<&str>) -> NodeFile {
    let Some(path) = path else { return NodeFile::None };
    if files.is_recorded() {
        return if files.exists(path) { NodeFile::Usable } else { NodeFile::Missing };
    }
    match OpenOptions::new().read(true).write(true).open(files.path(path)) {
        Ok(_) => NodeFile::Usable,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => NodeFile::Closed,
        Err(_) => NodeFile::Missing,
    }
}

/// `4: ACTIVE`.
fn after_number(words: &str) -> Option<String> {
    let (number, name) = words.split_once(": ")?;
    (number.parse::<u8>().is_ok() && !name.is_empty()).then(|| name.to_owned())
}

fn link_layer(words: &str) -> Option<LinkLayer> {
    [("InfiniBand", LinkLayer::InfiniBand), ("Ethernet", LinkLayer::Ethernet)]
        .into_iter()
        .find(|(name, _)| words == *name)
        .map(|(_, layer)| layer)
}

fn number_16(files: &HostFiles, path: &str) -> Option<u32> {
    u32::from_str_radix(files.text(path)?.strip_prefix("0x")?, 16).ok()
}

/// The used entries of the table in `folder`, and whether there is a table.
fn gids(files: &HostFiles, folder: &str, layer: LinkLayer, subnets: &[net::Subnet]) -> (Vec<GidEntry>, bool) {
    let mut indexes: Vec<u32> =
        files.names(&format!("{folder}/gids")).iter().filter_map(|name| name.parse().ok()).collect();
    indexes.sort_unstable();
    indexes.truncate(USABLE_GIDS);
    let mut readable = false;
    let mut entries = Vec::new();
    for index in indexes {
        let Some(gid) = files.text(&format!("{folder}/gids/{index}")).and_then(|gid| gid.parse().ok()) else {
            continue;
        };
        readable = true;
        let gid = Gid(gid);
        let attribute = |name: &str| files.words(&format!("{folder}/gid_attrs/{name}/{index}"));
        if gid.is_empty() || layer == LinkLayer::InfiniBand && is_bare_prefix(gid.0) {
            continue;
        }
        // The kernel refuses to say the type of an entry that is not valid.
        let gid_type = attribute("types");
        if gid_type.is_none() && layer != LinkLayer::InfiniBand {
            continue;
        }
        let netdev = attribute("ndevs");
        entries.push(GidEntry {
            index,
            gid,
            gid_type: of_words(&gid_type.unwrap_or_default(), layer),
            prefix_len: net::prefix_of(subnets, netdev.as_deref(), gid.ip()),
            netdev,
        });
    }
    (entries, readable)
}

/// InfiniBand's unused entries have the subnet prefix and no identity behind it.
fn is_bare_prefix(gid: Ipv6Addr) -> bool {
    gid.segments()[4..] == [0; 4]
}

/// By the GID table, which knows of bonds; else by the device, whose interfaces count ports from 0.
fn netdev(files: &HostFiles, device: &str, port_num: u8, gids: &[GidEntry]) -> Option<String> {
    if let Some(netdev) = gids.iter().find_map(|entry| entry.netdev.clone()) {
        return Some(netdev);
    }
    if let Some(netdev) = files.words(&format!("{DEVICES}/{device}/ports/{port_num}/gid_attrs/ndevs/0")) {
        return Some(netdev);
    }
    let folder = format!("{DEVICES}/{device}/device/net");
    let names = files.names(&folder);
    let is_its = |name: &&String| {
        files.number(&format!("{folder}/{name}/dev_port")) == Some(u64::from(port_num.saturating_sub(1)))
    };
    let parent = || files.words(&format!("{DEVICES}/{device}/parent"));
    names.iter().find(is_its).cloned().or_else(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_as_people_count() {
        let mut names = ["mlx5_10", "mlx5_9", "bnxt_re0"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["bnxt_re0", "mlx5_9", "mlx5_10"]);
    }

    #[test]
    fn states_have_a_number_and_a_name() {
        assert_eq!(after_number("4: ACTIVE").as_deref(), Some("ACTIVE"));
        assert_eq!(after_number("ACTIVE"), None);
        assert_eq!(after_number("x: ACTIVE"), None);
    }
}
