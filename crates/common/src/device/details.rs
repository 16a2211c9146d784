//! What kind of packets a GID stands for, and which network interface it belongs to.

use rdma_sys as sys;

use super::{Context, Port};
use crate::gid::{GidType, LinkLayer};
use crate::host::HostFiles;

/// What a GID's own sixteen bytes don't tell.
pub(super) struct GidDetails {
    pub(super) gid_type: GidType,
    pub(super) netdev: Option<String>,
}

impl Context {
    /// The details of the GID at `index`. sysfs has told them since Linux 4.5; the verb that tells them needs rdma-core
    /// 35, and is asked about a device that sysfs does not know.
    pub(super) fn gid_details(&self, port: &Port, index: u32, files: &HostFiles) -> GidDetails {
        let attributes = format!("/sys/class/infiniband/{}/ports/{}/gid_attrs", self.name, port.port_num);
        match files.text(&format!("{attributes}/types/{index}")) {
            Some(words) => GidDetails {
                gid_type: of_words(&words, port.link_layer),
                netdev: files.text(&format!("{attributes}/ndevs/{index}")).filter(|name| !name.is_empty()),
            },
            None => self.ask_for_details(port, index),
        }
    }

    fn ask_for_details(&self, port: &Port, index: u32) -> GidDetails {
        let mut entry = sys::ibv_gid_entry::default();
        // SAFETY: the context is open and `entry` is ours.
        let errno = unsafe {
            sys::ibv_query_gid_ex(self.verbs, self.raw, port.port_num.into(), index, &mut entry, 0)
        };
        if errno != 0 {
            return GidDetails { gid_type: of_words("", port.link_layer), netdev: None };
        }
        let gid_type = match entry.gid_type {
            sys::IBV_GID_TYPE_ROCE_V2 => GidType::RoceV2,
            sys::IBV_GID_TYPE_ROCE_V1 => GidType::RoceV1,
            _ => GidType::Ib,
        };
        GidDetails { gid_type, netdev: interface_name(entry.ndev_ifindex) }
    }
}

/// The type by the kernel's words, of which one stands for two types.
pub(crate) fn of_words(words: &str, link_layer: LinkLayer) -> GidType {
    match (words, link_layer) {
        ("RoCE v2", _) => GidType::RoceV2,
        (_, LinkLayer::Ethernet) => GidType::RoceV1,
        _ => GidType::Ib,
    }
}

fn interface_name(index: u32) -> Option<String> {
    let mut name = [0_u8; libc::IF_NAMESIZE];
    // SAFETY: the name has the room that the call asks for.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr().cast()) };
    let len = name.iter().position(|&byte| byte == 0)?;
    (!found.is_null()).then(|| String::from_utf8_lossy(&name[..len]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_read_by_link_layer() {
        assert_eq!(of_words("RoCE v2", LinkLayer::Ethernet), GidType::RoceV2);
        assert_eq!(of_words("IB/RoCE v1", LinkLayer::Ethernet), GidType::RoceV1);
        assert_eq!(of_words("IB/RoCE v1", LinkLayer::InfiniBand), GidType::Ib);
        assert_eq!(of_words("", LinkLayer::Ethernet), GidType::RoceV1);
    }

    #[test]
    fn the_first_interface_is_the_loopback_and_0_is_none() {
        assert_eq!(interface_name(1).as_deref(), Some("lo"));
        assert_eq!(interface_name(0), None);
    }
}
