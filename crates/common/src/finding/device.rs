//! Devices, their nodes in `/dev`, and their ports.

use std::collections::BTreeMap;

use super::{Code, Finding, Severity};
use crate::gid::LinkLayer;
use crate::node::{Node, NodeFile, RdmaDevice, RdmaPort};

/// Whether everything that a run needs of `port` was seen, and is as it should be.
pub fn is_usable(node: &Node, device: &RdmaDevice, port: &RdmaPort) -> bool {
    let reachable = match device.node_file {
        Some(NodeFile::Usable) => true,
        Some(_) => false,
        // The kernel does not know it: the library has to.
        None => device.limits.is_some(),
    };
    let addressed = match port.link_layer {
        Some(LinkLayer::InfiniBand) => true,
        Some(LinkLayer::Ethernet) => !port.gids.is_empty(),
        Some(LinkLayer::Unspecified) | None => false,
    };
    reachable
        && node.library_missing.is_none()
        && device.refusal.is_none()
        && !has_no_guid(device)
        && port.is_active() == Some(true)
        && addressed
}

/// `mlx5_0 port 1`.
pub(super) fn name_of(device: &RdmaDevice, port: &RdmaPort) -> String {
    format!("{} port {}", device.name, port.port_num)
}

pub(super) fn check(node: &Node) -> Vec<Finding> {
    let any_usable = node.ports().any(|(device, port)| is_usable(node, device, port));
    // What stops one device is a warning where another works.
    let blocking = if any_usable { Severity::Warning } else { Severity::Unfit };
    let mut found = idle_adapters(node);
    if node.devices.is_empty() {
        found.push(Finding::new(
            Code::NoDevice,
            "/sys/class/infiniband is empty or not there, and no library lists a device",
        ));
    }
    for device in &node.devices {
        found.extend(blocked(node, device).map(|finding| finding.on(&device.name).as_bad_as(blocking)));
        found.extend(remarks(device).into_iter().map(|finding| finding.on(&device.name)));
        for port in &device.ports {
            let name = name_of(device, port);
            found.extend(port_blocked(node, port).map(|finding| finding.on(&name).as_bad_as(blocking)));
            found.extend(lane_lost(port).map(|finding| finding.on(&name)));
            if is_usable(node, device, port) {
                found.push(Finding::new(Code::PortUsable, describe(port)).on(&name));
            }
        }
    }
    found.extend(firmware(node));
    let explained = found.iter().any(|finding| finding.severity == Severity::Unfit);
    if !any_usable && !explained {
        found.push(Finding::new(
            Code::NoUsablePort,
            "no port is known to be ACTIVE, addressed and open to this process",
        ));
    }
    found
}

fn describe(port: &RdmaPort) -> String {
    let layer = port.link_layer.map_or("", LinkLayer::name);
    let rate = port.rate.as_ref().map_or(String::new(), |rate| format!(", {rate}"));
    format!("ACTIVE, {layer}{rate}")
}

fn idle_adapters(node: &Node) -> Vec<Finding> {
    let severity = if node.devices.is_empty() { Severity::Unfit } else { Severity::Warning };
    let finding = |adapter: &crate::node::Adapter| {
        let driver = adapter
            .driver
            .as_ref()
            .map_or("without a driver".to_owned(), |driver| format!("with the driver {driver}"));
        let seen = format!("{} is on the PCI bus {driver}, and has no RDMA device", adapter.identity);
        Finding::new(Code::AdapterIdle, seen).on(&adapter.address).as_bad_as(severity)
    };
    node.idle_adapters.iter().map(finding).collect()
}

/// What keeps every program from the device; the first cause only.
fn blocked(node: &Node, device: &RdmaDevice) -> Option<Finding> {
    let path = device.node_path.as_deref().unwrap_or("its node");
    match device.node_file {
        Some(NodeFile::None) => {
            return Some(Finding::new(Code::UverbsMissing, "the kernel has no uverbs node for it"));
        }
        Some(NodeFile::Missing) => {
            return Some(Finding::new(Code::NodeMissing, format!("{path} is not there")));
        }
        Some(NodeFile::Closed) => {
            return Some(Finding::new(
                Code::NodeClosed,
                format!("{path} can't be opened for reading and writing: EACCES"),
            ));
        }
        Some(NodeFile::Usable) | None => {}
    }
    if let Some(missing) = &node.library_missing {
        return Some(Finding::new(Code::LibraryMissing, missing.clone()));
    }
    if let Some(refusal) = &device.refusal {
        return Some(Finding::new(Code::DeviceUnusable, refusal.clone()));
    }
    has_no_guid(device).then(|| Finding::new(Code::GuidZero, "its node GUID is all zeros"))
}

fn has_no_guid(device: &RdmaDevice) -> bool {
    let is_function = device.pci.as_ref().is_some_and(|pci| pci.virtual_function);
    let is_zero = |guid: &String| guid.chars().all(|c| c == '0' || c == ':') && guid.contains('0');
    is_function && device.node_guid.as_ref().is_some_and(is_zero)
}

fn port_blocked(node: &Node, port: &RdmaPort) -> Option<Finding> {
    let state = port.state.as_deref()?;
    if state == "ACTIVE" {
        return None;
    }
    let physical =
        port.physical_state.as_ref().map_or(String::new(), |state| format!(", its physical link {state}"));
    if port.link_layer == Some(LinkLayer::InfiniBand) && matches!(state, "INIT" | "ARMED") {
        return Some(Finding::new(Code::NoSubnetManager, format!("the port is {state}{physical}")));
    }
    let netdev = node.netdev_of(port).map_or(String::new(), |netdev| {
        let carrier = if netdev.carrier == Some(false) { " without a carrier" } else { "" };
        let state = netdev.state.as_ref().map_or(String::new(), |state| format!(" is {state}{carrier}"));
        format!("; its network interface {}{state}", netdev.name)
    });
    Some(Finding::new(Code::PortDown, format!("the port is {state}{physical}{netdev}")))
}

/// HDR100 has two lanes by design; one lane is a damaged cable wherever there are four.
fn lane_lost(port: &RdmaPort) -> Option<Finding> {
    let rate = port.rate.as_ref().filter(|rate| rate.contains("(1X"))?;
    (port.link_layer == Some(LinkLayer::InfiniBand) && port.is_active() == Some(true))
        .then(|| Finding::new(Code::LaneLost, format!("the link runs at {rate}: one lane")))
}

fn remarks(device: &RdmaDevice) -> Vec<Finding> {
    let software = device
        .software
        .as_ref()
        .map(|what| Finding::new(Code::SoftwareDevice, format!("it is emulated in software ({what})")));
    let function = device.pci.as_ref().filter(|pci| pci.virtual_function);
    let function = function.map(|_| Finding::new(Code::VirtualFunction, "it is a virtual function"));
    software.into_iter().chain(function).collect()
}

fn firmware(node: &Node) -> Vec<Finding> {
    let mut of_board: BTreeMap<&str, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for device in &node.devices {
        if let (Some(board), Some(firmware)) = (&device.board, &device.firmware) {
            of_board.entry(board).or_default().entry(firmware).or_default().push(&device.name);
        }
    }
    let differing = of_board.into_iter().filter(|(_, versions)| versions.len() > 1);
    let finding = |(board, versions): (&str, BTreeMap<&str, Vec<&str>>)| {
        let each: Vec<String> =
            versions.iter().map(|(version, names)| format!("{version} on {}", names.join(", "))).collect();
        Finding::new(Code::FirmwareDiffers, format!("adapters {board} have firmware {}", each.join("; ")))
    };
    differing.map(finding).collect()
}
