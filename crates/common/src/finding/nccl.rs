//! What NCCL is told, and what is doubtful about it.

use super::device::name_of;
use super::{Code, Finding};
use crate::gid::{GidFamily, GidType, LinkLayer};
use crate::node::Node;

pub(super) fn check(node: &Node) -> Vec<Finding> {
    let switches = [("NCCL_IB_DISABLE", Code::NcclIbDisabled), ("NCCL_P2P_DISABLE", Code::NcclP2p)];
    let on = switches.iter().filter(|(name, _)| node.nccl.is_on(name));
    let mut found: Vec<Finding> = on.map(|(name, code)| Finding::new(*code, told(node, name))).collect();
    found.extend(sockets(node));
    found.extend(adapters(node));
    found.extend(gid_index(node));
    found.extend(interfaces(node));
    found.extend(gpudirect(node));
    found
}

/// `NCCL_NET=Socket`.
fn told(node: &Node, name: &str) -> String {
    format!("{name}={}", node.nccl.setting(name).unwrap_or_default())
}

fn sockets(node: &Node) -> Option<Finding> {
    let net = node.nccl.setting("NCCL_NET")?;
    net.eq_ignore_ascii_case("socket").then(|| Finding::new(Code::NcclSocket, told(node, "NCCL_NET")))
}

/// A list as NCCL reads it: `^` for what is not wanted, `=` for whole names instead of their beginnings.
struct Choice<'a> {
    excludes: bool,
    exact: bool,
    names: Vec<&'a str>,
}

impl<'a> Choice<'a> {
    fn of(text: &'a str) -> Self {
        let (excludes, rest) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
        let (exact, rest) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
        Self {
            excludes,
            exact,
            names: rest.split(',').map(str::trim).filter(|name| !name.is_empty()).collect(),
        }
    }

    fn takes(&self, name: &str) -> bool {
        let named = self.names.iter().any(|wanted| {
            // A device may be named with its port: mlx5_0:1.
            let wanted = wanted.split(':').next().unwrap_or_default();
            if self.exact { name == wanted } else { name.starts_with(wanted) }
        });
        named != self.excludes
    }
}

/// The devices that NCCL would use.
fn chosen(node: &Node) -> impl Fn(&str) -> bool {
    let choice = node.nccl.setting("NCCL_IB_HCA").filter(|text| !text.is_empty()).map(Choice::of);
    move |name| choice.as_ref().is_none_or(|choice| choice.takes(name))
}

fn adapters(node: &Node) -> Option<Finding> {
    let takes = chosen(node);
    if node.devices.is_empty() || node.devices.iter().any(|device| takes(&device.name)) {
        return None;
    }
    let present: Vec<&str> = node.devices.iter().map(|device| device.name.as_str()).collect();
    let seen = format!("{} takes none of {}", told(node, "NCCL_IB_HCA"), present.join(", "));
    Some(Finding::new(Code::NcclHca, seen))
}

fn gid_index(node: &Node) -> Vec<Finding> {
    let text = told(node, "NCCL_IB_GID_INDEX");
    // -1 lets NCCL choose.
    let index = node.nccl.setting("NCCL_IB_GID_INDEX").and_then(|index| index.parse::<u32>().ok());
    let Some(index) = index else { return Vec::new() };
    let takes = chosen(node);
    let ports = node.ports().filter(|(device, port)| {
        takes(&device.name)
            && port.link_layer == Some(LinkLayer::Ethernet)
            && port.gids_seen
            && !port.gids.is_empty()
    });
    let finding = |(device, port): (_, &crate::node::RdmaPort)| {
        let seen = match port.gids.iter().find(|entry| entry.index == index) {
            None => format!("{text}, and the GID table has no such entry"),
            Some(entry) if entry.gid_type == GidType::RoceV1 => format!("{text}, and that entry is RoCE v1"),
            Some(entry) if entry.gid.family() == GidFamily::LinkLocal => {
                format!("{text}, and that entry is link-local")
            }
            Some(_) => return None,
        };
        Some(Finding::new(Code::NcclGidIndex, seen).on(name_of(device, port)))
    };
    ports.filter_map(finding).collect()
}

fn interfaces(node: &Node) -> Option<Finding> {
    let choice = Choice::of(node.nccl.setting("NCCL_SOCKET_IFNAME").filter(|text| !text.is_empty())?);
    let names = &node.system.interfaces;
    if names.is_empty() || names.iter().any(|name| choice.takes(name)) {
        return None;
    }
    let seen = format!("{} takes none of {}", told(node, "NCCL_SOCKET_IFNAME"), names.join(", "));
    Some(Finding::new(Code::NcclIfname, seen))
}

fn gpudirect(node: &Node) -> Option<Finding> {
    let level = node.nccl.setting("NCCL_NET_GDR_LEVEL").filter(|level| matches!(*level, "0" | "LOC"));
    if level.is_some() {
        return Some(Finding::new(Code::NcclGdr, told(node, "NCCL_NET_GDR_LEVEL")));
    }
    let without_dma_buf = node.nccl.setting("NCCL_DMABUF_ENABLE") == Some("0");
    let without_module = node.gpu_driver.as_ref().is_some_and(|driver| driver.peer_memory.is_none());
    (without_dma_buf && without_module).then(|| {
        let seen = format!("{}, and no peer-memory module is loaded", told(node, "NCCL_DMABUF_ENABLE"));
        Finding::new(Code::NcclGdr, seen)
    })
}
