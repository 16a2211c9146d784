//! An open device and what it says of itself.

use std::ffi::CStr;
use std::net::Ipv6Addr;
use std::ptr;
use std::rc::Rc;

use rdma_sys::{self as sys, Verbs};

use crate::fact::Obstacle;
use crate::shown::Errno;

/// A device, open until the last object made on it is gone.
pub(crate) struct Device {
    pub(super) verbs: &'static Verbs,
    pub(super) raw: *mut sys::ibv_context,
    name: String,
}

/// Soft-RoCE's vendor in `ibv_device_attr`: all ones of the 24 bits, and it is the only one without a number.
const RXE_VENDOR: u32 = 0xff_ffff;

/// Devices whose differences are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    /// Soft-RoCE, the kernel's `rdma_rxe`.
    Rxe,
    /// This project's device in user space.
    Softnic,
    /// Any other: nothing is listed.
    Other,
}

/// An entry of a GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GidEntry {
    pub(crate) index: u32,
    pub(crate) port_num: u32,
    pub(crate) gid: Ipv6Addr,
    pub(crate) gid_type: u32,
}

impl Device {
    /// Opens the device called `name`.
    pub(crate) fn open(name: &str) -> Result<Rc<Self>, Obstacle> {
        let verbs = Verbs::load().map_err(|error| Obstacle(error.to_string()))?;
        let devices = DeviceList::get(verbs)?;
        let Some(device) = devices.find(name) else {
            let names = devices.names().join(" ");
            return Err(Obstacle(format!("no RDMA device is called {name}; present: {names}")));
        };
        // SAFETY: the device is on a list that is not freed yet.
        let raw = unsafe { (verbs.ibv_open_device)(device) };
        if raw.is_null() {
            return Err(Obstacle(format!("cannot open {name}: ibv_open_device: {}", Errno::last())));
        }
        Ok(Rc::new(Self { verbs, raw, name: name.to_owned() }))
    }

    /// The name it was opened by.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The library's table.
    pub(crate) fn verbs(&self) -> &'static Verbs {
        self.verbs
    }

    /// The names of all devices, and the count that the library gave with them.
    pub(crate) fn list(&self) -> Result<(Vec<String>, i32), Obstacle> {
        let devices = DeviceList::get(self.verbs)?;
        Ok((devices.names(), devices.count))
    }

    /// The name of the context's own device.
    pub(crate) fn context_name(&self) -> String {
        // SAFETY: the context is open, and its device lives as long.
        unsafe { text((self.verbs.ibv_get_device_name)((*self.raw).device)) }
    }

    /// The GUID as the library has it, without asking the device, in network byte order.
    pub(crate) fn guid(&self) -> Option<u64> {
        // SAFETY: as above.
        self.verbs.ibv_get_device_guid.map(|guid| unsafe { guid((*self.raw).device) })
    }

    /// How many completion vectors there are.
    pub(crate) fn completion_vectors(&self) -> i32 {
        // SAFETY: the context is open.
        unsafe { (*self.raw).num_comp_vectors }
    }

    /// The limits.
    pub(crate) fn limits(&self) -> Result<sys::ibv_device_attr, Obstacle> {
        let mut attr = sys::ibv_device_attr::default();
        // SAFETY: the context is open and `attr` is ours.
        match Errno(unsafe { (self.verbs.ibv_query_device)(self.raw, &mut attr) }) {
            Errno::DONE => Ok(attr),
            errno => Err(Obstacle(format!("ibv_query_device: {errno}"))),
        }
    }

    /// The limits by the extended query.
    pub(crate) fn extended_limits(&self) -> Result<sys::ibv_device_attr_ex, Errno> {
        let mut attr = sys::ibv_device_attr_ex::default();
        // SAFETY: the context is open and `attr` is ours.
        let errno = unsafe { sys::ibv_query_device_ex(self.verbs, self.raw, ptr::null(), &mut attr) };
        done(errno, attr)
    }

    /// What kind of device it is, for the list of differences.
    pub(crate) fn kind(&self) -> DeviceKind {
        let Ok(attr) = self.limits() else { return DeviceKind::Other };
        // SAFETY: the device fills the field with a terminated string.
        let firmware = unsafe { text(attr.fw_ver.as_ptr()) };
        if firmware.starts_with("softnic") {
            DeviceKind::Softnic
        } else if attr.vendor_id == RXE_VENDOR {
            DeviceKind::Rxe
        } else {
            DeviceKind::Other
        }
    }

    /// A port's attributes.
    pub(crate) fn port(&self, port_num: u8) -> Result<sys::ibv_port_attr, Errno> {
        let mut attr = sys::ibv_port_attr::default();
        // SAFETY: the context is open and `attr` is ours.
        let errno = unsafe { sys::ibv_query_port(self.verbs, self.raw, port_num, &mut attr) };
        done(errno, attr)
    }

    /// A partition key, in host byte order.
    pub(crate) fn pkey(&self, port_num: u8, index: i32) -> Result<u16, Errno> {
        let mut pkey = 0;
        // SAFETY: the context is open and `pkey` is ours.
        let status = unsafe { (self.verbs.ibv_query_pkey)(self.raw, port_num, index, &mut pkey) };
        if status == 0 { Ok(u16::from_be(pkey)) } else { Err(Errno::last()) }
    }

    /// A GID by the oldest query: 0 or -1, and errno is not promised. `None`: refused.
    pub(crate) fn gid(&self, port_num: u8, index: i32) -> Option<Ipv6Addr> {
        let mut gid = sys::ibv_gid::default();
        // SAFETY: the context is open and `gid` is ours; both members of the union are sixteen plain bytes.
        unsafe {
            let status = (self.verbs.ibv_query_gid)(self.raw, port_num, index, &mut gid);
            (status == 0).then(|| gid.raw.into())
        }
    }

    /// A GID with its type.
    pub(crate) fn gid_entry(&self, port_num: u32, index: u32, flags: u32) -> Result<GidEntry, Errno> {
        let mut entry = sys::ibv_gid_entry::default();
        // SAFETY: the context is open and `entry` is ours.
        let errno =
            unsafe { sys::ibv_query_gid_ex(self.verbs, self.raw, port_num, index, &mut entry, flags) };
        done(errno, entry).map(|entry| GidEntry::of(&entry))
    }

    /// The GIDs of all ports, at most `room` of them.
    pub(crate) fn gid_table(&self, room: usize) -> Result<Vec<GidEntry>, Errno> {
        let mut entries = vec![sys::ibv_gid_entry::default(); room];
        // SAFETY: the context is open and there is room for as many entries.
        let found = unsafe { sys::ibv_query_gid_table(self.verbs, self.raw, entries.as_mut_ptr(), room, 0) };
        match usize::try_from(found) {
            Ok(count) => Ok(entries[..count.min(room)].iter().map(GidEntry::of).collect()),
            Err(_) => Err(Errno(i32::try_from(-found).unwrap_or(i32::MAX))),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: every object made on the context holds an Rc of it.
        unsafe { (self.verbs.ibv_close_device)(self.raw) };
    }
}

impl GidEntry {
    fn of(entry: &sys::ibv_gid_entry) -> Self {
        Self {
            index: entry.gid_index,
            port_num: entry.port_num,
            // SAFETY: both members of the union are sixteen plain bytes.
            gid: unsafe { entry.gid.raw }.into(),
            gid_type: entry.gid_type,
        }
    }
}

/// The library's list of devices.
struct DeviceList {
    verbs: &'static Verbs,
    raw: *mut *mut sys::ibv_device,
    count: i32,
}

impl DeviceList {
    fn get(verbs: &'static Verbs) -> Result<Self, Obstacle> {
        let mut count = 0;
        // SAFETY: `count` is ours.
        let raw = unsafe { (verbs.ibv_get_device_list)(&mut count) };
        if raw.is_null() {
            return Err(Obstacle(format!("ibv_get_device_list: {}", Errno::last())));
        }
        Ok(Self { verbs, raw, count })
    }

    /// The devices up to the NULL at the end, whatever the count says.
    fn devices(&self) -> impl Iterator<Item = *mut sys::ibv_device> {
        // SAFETY: the list is terminated by NULL, and no entry after it is read.
        (0..).map(|index| unsafe { *self.raw.add(index) }).take_while(|device| !device.is_null())
    }

    fn name_of(&self, device: *mut sys::ibv_device) -> String {
        // SAFETY: the device is on the list, which is not freed yet.
        unsafe { text((self.verbs.ibv_get_device_name)(device)) }
    }

    fn names(&self) -> Vec<String> {
        self.devices().map(|device| self.name_of(device)).collect()
    }

    fn find(&self, name: &str) -> Option<*mut sys::ibv_device> {
        self.devices().find(|device| self.name_of(*device) == name)
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the list is ours and freed once; devices that were opened from it stay.
        unsafe { (self.verbs.ibv_free_device_list)(self.raw) };
    }
}

/// # Safety
/// `words` must be NULL or a terminated string.
pub(super) unsafe fn text(words: *const std::ffi::c_char) -> String {
    if words.is_null() {
        return "NULL".into();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
}

fn done<T>(errno: i32, value: T) -> Result<T, Errno> {
    if errno == 0 { Ok(value) } else { Err(Errno(errno)) }
}
