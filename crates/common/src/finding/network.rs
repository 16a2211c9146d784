//! Addresses, the interfaces behind them, and their MTU.

use std::collections::BTreeMap;

use super::device::{is_usable, name_of};
use super::{Code, Finding, Severity};
use crate::gid::{GidFamily, GidType, LinkLayer};
use crate::node::{Netdev, Node, RdmaPort, Subnet, roce_mtu};

pub(super) fn check(node: &Node) -> Vec<Finding> {
    let mut found = addresses(node);
    found.extend(mtus(node));
    found.extend(same_subnet(node));
    found.extend(reverse_path(node));
    found.extend(bonds(node));
    found.extend(default_routes(node));
    found
}

fn addresses(node: &Node) -> Vec<Finding> {
    let any_usable = node.ports().any(|(device, port)| is_usable(node, device, port));
    let blocking = if any_usable { Severity::Warning } else { Severity::Unfit };
    let on_ethernet =
        node.ports().filter(|(_, port)| port.link_layer == Some(LinkLayer::Ethernet) && port.gids_seen);
    let finding = |(device, port)| {
        let finding = addressing(port)?;
        let severity = if finding.code == Code::NoGid { blocking } else { finding.severity };
        Some(finding.on(name_of(device, port)).as_bad_as(severity))
    };
    on_ethernet.filter_map(finding).collect()
}

fn addressing(port: &RdmaPort) -> Option<Finding> {
    let all = |test: fn(&crate::gid::GidEntry) -> bool| port.gids.iter().all(test);
    if port.gids.is_empty() {
        // A port that is down has lost its addresses, and the port's state is the cause.
        return (port.is_active() == Some(true)).then(|| {
            let netdev = port
                .netdev
                .as_ref()
                .map_or(String::new(), |name| format!("; its network interface is {name}"));
            Finding::new(Code::NoGid, format!("its GID table is empty{netdev}"))
        });
    }
    if all(|entry| entry.gid_type == GidType::RoceV1) {
        return Some(Finding::new(Code::RoceV1Only, "every entry of its GID table is RoCE v1"));
    }
    all(|entry| entry.gid.family() == GidFamily::LinkLocal)
        .then(|| Finding::new(Code::LinkLocalOnly, "every entry of its GID table is link-local (fe80::/10)"))
}

fn mtus(node: &Node) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut by_mtu: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (device, port) in node.ports().filter(|(_, port)| port.link_layer == Some(LinkLayer::Ethernet)) {
        let Some((netdev, mtu)) = node.netdev_of(port).and_then(|netdev| Some((netdev, netdev.mtu_bytes?)))
        else {
            continue;
        };
        let name = format!("{} ({})", name_of(device, port), netdev.name);
        let expected = roce_mtu(mtu);
        if let Some(active) = port.active_mtu_bytes.filter(|&active| active != expected) {
            let seen = format!(
                "the interface's MTU of {mtu} makes room for {expected}, and the active MTU is {active}"
            );
            found.push(Finding::new(Code::MtuStale, seen).on(&name));
        }
        if expected < 4096 {
            let seen = format!(
                "the interface's MTU is {mtu}, so the port's is {expected}: the largest of 256 to 4096 that fits with 96 bytes of headers"
            );
            found.push(Finding::new(Code::MtuSmall, seen).on(&name));
        }
        if port.is_active() == Some(true) {
            by_mtu.entry(mtu).or_default().push(netdev.name.clone());
        }
    }
    if by_mtu.len() > 1 {
        let each: Vec<String> =
            by_mtu.iter().map(|(mtu, names)| format!("{mtu} on {}", names.join(", "))).collect();
        found.push(Finding::new(Code::MtuDiffers, format!("the interfaces' MTUs are {}", each.join("; "))));
    }
    found
}

/// The interfaces of RDMA ports that packets are sent by: a member of a bond has no address of its own.
fn carriers(node: &Node) -> Vec<&Netdev> {
    node.netdevs.iter().filter(|netdev| netdev.master.is_none()).collect()
}

fn same_subnet(node: &Node) -> Vec<Finding> {
    let mut members: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for netdev in carriers(node) {
        for subnet in &netdev.subnets {
            members.entry(Subnet::describe(subnet)).or_default().push(&netdev.name);
        }
    }
    let shared = members.into_iter().filter(|(_, names)| names.len() > 1);
    let finding = |(subnet, names): (String, Vec<&str>)| {
        let finding = Finding::new(Code::SameSubnet, format!("{} interfaces are in {subnet}", names.len()));
        names.into_iter().fold(finding, Finding::on)
    };
    shared.map(finding).collect()
}

/// With one interface there is no other way for an answer.
fn reverse_path(node: &Node) -> Vec<Finding> {
    let addressed: Vec<&Netdev> =
        carriers(node).into_iter().filter(|netdev| !netdev.subnets.is_empty()).collect();
    if addressed.len() < 2 {
        return Vec::new();
    }
    let strict = addressed.iter().filter(|netdev| netdev.reverse_path_filter == Some(1));
    strict
        .map(|netdev| {
            let seen =
                format!("rp_filter is 1 (strict), and {} RDMA interfaces have addresses", addressed.len());
            Finding::new(Code::ReversePath, seen).on(&netdev.name)
        })
        .collect()
}

fn bonds(node: &Node) -> Vec<Finding> {
    let mut found = Vec::new();
    for netdev in &node.netdevs {
        let Some(bond) = &netdev.bond else { continue };
        let seen = format!("{} bonds {} ({})", netdev.name, bond.members.join(", "), bond.mode);
        found.push(Finding::new(Code::BondedPort, seen).on(&netdev.name));
        let down = bond.members.iter().filter_map(|name| node.netdev(name)).filter(|member| {
            member.state.as_deref().is_some_and(|state| state != "up") || member.carrier == Some(false)
        });
        found.extend(down.map(|member| {
            let state = member.state.as_deref().unwrap_or("without a carrier");
            Finding::new(Code::BondMemberDown, format!("it is {state}, and part of {}", netdev.name))
                .on(&member.name)
        }));
    }
    found
}

fn default_routes(node: &Node) -> Option<Finding> {
    let through: Vec<&str> = node
        .netdevs
        .iter()
        .filter(|netdev| netdev.default_route)
        .map(|netdev| netdev.name.as_str())
        .collect();
    (through.len() > 1).then(|| {
        let finding =
            Finding::new(Code::DefaultRoutes, "default routes lead through several RDMA interfaces");
        through.into_iter().fold(finding, Finding::on)
    })
}
