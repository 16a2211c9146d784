//! The RDMA port of one rank.

use linkproof_common::gid::{GidEntry, LinkLayer};
use linkproof_common::report::DeviceKind;
use serde::{Deserialize, Serialize};

/// The port that a rank reaches the others through. What is absent is unknown, or has no meaning there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankPort {
    /// The device.
    pub device: String,
    /// What the device is.
    pub device_kind: DeviceKind,
    /// Present where the device is an emulation: which.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub software: Option<String>,
    /// Its port.
    pub port_num: u8,
    /// The port's link layer.
    pub link_layer: LinkLayer,
    /// The port's local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The GID entries used, by the first rank that each is used with; none where ranks are addressed by LID.
    pub gids: Vec<GidEntry>,
    /// The port's active MTU.
    pub active_mtu_bytes: u32,
    /// Bytes of payload in a packet to the rank that takes the least; absent where there is no other rank.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path_mtu_bytes: Option<u32>,
    /// The port's signalling rate.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate_gbit_per_sec: Option<f64>,
}

impl RankPort {
    /// For the header: `soft0 port 1, 1 ::ffff:127.0.0.1 (RoCE v2), path MTU 4096`.
    pub fn describe(&self) -> String {
        let address = match self.gids.as_slice() {
            [] if self.link_layer == LinkLayer::InfiniBand => format!(", LID {}", self.lid),
            [] => String::new(),
            gids => format!(", {}", linkproof_common::gid::describe_all(gids)),
        };
        let mtu = self.path_mtu_bytes.map_or(String::new(), |bytes| format!(", path MTU {bytes}"));
        format!("{} port {}{address}{mtu}", self.device, self.port_num)
    }
}
