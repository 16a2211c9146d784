//! The devices, and what they say of themselves.

use std::ffi::c_char;
use std::sync::OnceLock;

use rdma_sys as sys;

use crate::config::{Description, DeviceDescription, GidDescription, Link, PortDescription};
use crate::errno::{Errno, Result};
use crate::fault::Faults;
use crate::port::Live;

/// The one port of each device.
pub(crate) const PORT: u8 = 1;
/// A message has 2 GiB at most (InfiniBand specification, volume 1, 9.7.6).
const MAX_MSG_SIZE: u32 = 1 << 31;

/// A device. C code holds pointers to the part that libibverbs defines, which comes first.
#[repr(C)]
pub(crate) struct Device {
    verbs: sys::ibv_device,
    index: usize,
    pub(crate) description: DeviceDescription,
    pub(crate) faults: Faults,
    pub(crate) live: Live,
}

// SAFETY: what C knows of it is not changed once it is made; the rest is made for threads.
unsafe impl Sync for Device {}
// SAFETY: as above.
unsafe impl Send for Device {}

/// What the environment describes, read once. Where it can't be read no device is offered, and stderr says why: a
/// library has no better place for it.
pub(crate) fn description() -> &'static Description {
    static DESCRIPTION: OnceLock<Description> = OnceLock::new();
    #[allow(clippy::print_stderr, reason = "a description that is wrong must not pass in silence")]
    DESCRIPTION.get_or_init(|| {
        Description::from_environment().unwrap_or_else(|what| {
            eprintln!("softnic: cannot use the description of the devices: {what}");
            Description { devices: Vec::new(), ..Description::default() }
        })
    })
}

/// The devices that there are.
pub(crate) fn devices() -> &'static [Device] {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let described = description().devices.iter().cloned().enumerate();
        described.map(|(index, description)| Device::new(index, description)).collect()
    })
}

impl Device {
    fn new(index: usize, description: DeviceDescription) -> Self {
        let mut verbs = sys::ibv_device {
            node_type: sys::IBV_NODE_CA,
            transport_type: sys::IBV_TRANSPORT_IB,
            ..Default::default()
        };
        put(&mut verbs.name, &description.name);
        put(&mut verbs.dev_name, &description.name);
        let (faults, live) = (Faults::of(&description), Live::new(description.port.active));
        Self { verbs, index, description, faults, live }
    }

    /// The device behind C's pointer.
    ///
    /// # Safety
    /// `device` is one of those that the device list gave.
    pub(crate) unsafe fn of(device: *mut sys::ibv_device) -> &'static Self {
        // SAFETY: the list gives pointers to the first field of devices that live for ever.
        unsafe { &*device.cast_const().cast() }
    }

    /// C's pointer to it.
    pub(crate) fn raw(&self) -> *mut sys::ibv_device {
        (&raw const self.verbs).cast_mut()
    }

    pub(crate) fn port(&self) -> &PortDescription {
        &self.description.port
    }

    /// Made of the place in the description: stable, and unlike those of the other devices of this process.
    pub(crate) fn guid(&self) -> u64 {
        0x0200_00ff_fe00_0000 + self.index as u64 + 1
    }

    /// # Errors
    /// `EINVAL` for any port but the one.
    pub(crate) fn check_port(&self, port: u32) -> Result<&PortDescription> {
        if port == u32::from(PORT) { Ok(self.port()) } else { Err(Errno::INVALID) }
    }

    /// A GID that is in use.
    ///
    /// # Errors
    /// `EINVAL` beyond the table, `ENODATA` for an unused entry.
    pub(crate) fn gid(&self, port: u32, index: u32) -> Result<&GidDescription> {
        let entry = self.check_port(port)?.gids.get(index as usize).ok_or(Errno::INVALID)?;
        if entry.gid.is_unspecified() { Err(Errno(libc::ENODATA)) } else { Ok(entry) }
    }

    /// The attributes of the device.
    pub(crate) fn attributes(&self) -> sys::ibv_device_attr {
        let limits = &self.description.limits;
        let int = |limit: u32| limit.min(i32::MAX as u32) as i32;
        let mut attr = sys::ibv_device_attr {
            node_guid: self.guid().to_be(),
            sys_image_guid: self.guid().to_be(),
            max_mr_size: limits.max_mr_size,
            page_size_cap: crate::memory::page_size(),
            max_qp: int(limits.max_qp),
            max_qp_wr: int(limits.max_qp_wr),
            device_cap_flags: sys::IBV_DEVICE_RC_RNR_NAK_GEN | sys::IBV_DEVICE_SYS_IMAGE_GUID,
            max_sge: int(limits.max_sge),
            max_sge_rd: int(limits.max_sge),
            max_cq: int(limits.max_cq),
            max_cqe: int(limits.max_cqe),
            max_mr: int(limits.max_mr),
            max_pd: int(limits.max_pd),
            max_qp_rd_atom: 16,
            max_res_rd_atom: 16 * int(limits.max_qp),
            max_qp_init_rd_atom: 16,
            atomic_cap: sys::IBV_ATOMIC_NONE,
            max_pkeys: 1,
            phys_port_cnt: PORT,
            ..Default::default()
        };
        put(&mut attr.fw_ver, concat!("softnic ", env!("CARGO_PKG_VERSION")));
        attr
    }

    /// The attributes of its port.
    pub(crate) fn port_attributes(&self) -> sys::ibv_port_attr {
        let port = self.port();
        let rate_gbit = match self.description.model.pace_gbit {
            0 => port.rate_gbit,
            pace => pace,
        };
        let (active_width, active_speed) = width_and_speed(rate_gbit);
        sys::ibv_port_attr {
            state: if self.is_active() { sys::IBV_PORT_ACTIVE } else { sys::IBV_PORT_DOWN },
            max_mtu: sys::IBV_MTU_4096,
            active_mtu: port.mtu,
            gid_tbl_len: port.gids.len() as i32,
            port_cap_flags: sys::IBV_PORT_CM_SUP
                | if port.link == Link::Ethernet { sys::IBV_PORT_IP_BASED_GIDS } else { 0 },
            max_msg_sz: MAX_MSG_SIZE,
            pkey_tbl_len: 1,
            lid: port.lid,
            sm_lid: port.lid,
            max_vl_num: 1,
            active_width,
            active_speed,
            // "link up" and "disabled" of the specification (volume 1, 14.2.5.6, PortPhysicalState).
            phys_state: if self.is_active() { 5 } else { 3 },
            link_layer: match port.link {
                Link::InfiniBand => sys::IBV_LINK_LAYER_INFINIBAND,
                Link::Ethernet => sys::IBV_LINK_LAYER_ETHERNET,
            } as u8,
            flags: if port.link == Link::Ethernet { sys::IBV_QPF_GRH_REQUIRED as u8 } else { 0 },
            ..Default::default()
        }
    }
}

/// A port's width and speed codes for a rate: four lanes of the slowest generation that reaches it.
fn width_and_speed(gbit: u32) -> (u8, u8) {
    const FOUR_LANES: u8 = 2;
    // Gb/s of four lanes and the code of the generation: SDR, DDR, QDR, FDR, EDR, HDR, NDR (specification, volume 1,
    // PortInfo LinkSpeedActive and LinkSpeedExtActive, as the kernel numbers them).
    const GENERATIONS: [(u32, u8); 7] =
        [(10, 1), (20, 2), (40, 4), (56, 16), (100, 32), (200, 64), (400, 128)];
    let code = GENERATIONS.iter().find(|&&(rate, _)| gbit <= rate).map_or(128, |&(_, code)| code);
    (FOUR_LANES, code)
}

/// Puts `text` and a 0 into a field of C, cut to its size.
fn put(field: &mut [c_char], text: &str) {
    let room = field.len() - 1;
    field.iter_mut().zip(text.bytes().take(room)).for_each(|(to, byte)| *to = byte as c_char);
}

/// A device of `description`, for tests.
#[cfg(test)]
pub(crate) fn test_device(description: DeviceDescription) -> Device {
    Device::new(0, description)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn device() -> Device {
        test_device(Description::default().devices.remove(0))
    }

    #[test]
    fn a_device_says_that_it_is_software() {
        let attr = device().attributes();
        // SAFETY: the field ends with a 0.
        let firmware = unsafe { CStr::from_ptr(attr.fw_ver.as_ptr()) }.to_str().unwrap();
        assert_eq!(firmware, concat!("softnic ", env!("CARGO_PKG_VERSION")));
        assert_eq!((attr.vendor_id, attr.vendor_part_id), (0, 0));
    }

    #[test]
    fn gids_beyond_the_table_and_unused_ones_are_told_apart() {
        let mut device = device();
        device.description.port.gids[0].gid = std::net::Ipv6Addr::UNSPECIFIED;
        assert_eq!(device.gid(1, 0).unwrap_err(), Errno(libc::ENODATA));
        assert!(device.gid(1, 1).is_ok());
        assert_eq!(device.gid(1, 2).unwrap_err(), Errno::INVALID);
        assert_eq!(device.gid(2, 1).unwrap_err(), Errno::INVALID);
    }

    #[test]
    fn a_rate_is_shown_as_four_lanes() {
        assert_eq!(width_and_speed(100), (2, 32));
        assert_eq!(width_and_speed(25), (2, 4));
        assert_eq!(width_and_speed(800), (2, 128));
    }
}
