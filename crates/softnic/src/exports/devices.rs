//! Devices, ports and GIDs.

use std::ffi::CString;

use core::ffi::{c_char, c_int};
use rdma_sys as sys;

use crate::config::{Call, GidDescription};
use crate::context::{Context, copy_out};
use crate::device::{Device, PORT, devices};
use crate::errno::{Errno, Result, pointer, status};

/// The devices, NULL-terminated.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut sys::ibv_device {
    let mut list: Vec<_> = devices().iter().map(Device::raw).collect();
    if !count.is_null() {
        // SAFETY: the caller has room for the number, or gives NULL.
        unsafe { *count = list.len() as c_int };
    }
    list.push(std::ptr::null_mut());
    Box::into_raw(list.into_boxed_slice()).cast()
}

/// Frees a list; the devices stay.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut sys::ibv_device) {
    if !list.is_null() {
        let len = devices().len() + 1;
        // SAFETY: the list is one of ours, and has as many pointers as it was made with.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, len)) });
    }
}

/// A device's name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_name(device: *mut sys::ibv_device) -> *const c_char {
    // SAFETY: the device is one of ours, and lives for ever.
    unsafe { (&raw const (*device).name).cast() }
}

/// A device's GUID, in network byte order.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_guid(device: *mut sys::ibv_device) -> sys::__be64 {
    // SAFETY: the device is one of ours.
    unsafe { Device::of(device) }.guid().to_be()
}

/// A device's number in the kernel: it has none.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_index(_device: *mut sys::ibv_device) -> c_int {
    -1
}

/// Opens a device.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut sys::ibv_device) -> *mut sys::ibv_context {
    // SAFETY: the device is one of ours.
    pointer(Context::open(unsafe { Device::of(device) }))
}

/// Closes a device.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut sys::ibv_context) -> c_int {
    // SAFETY: the caller's context is open, and what was made on it is gone.
    unsafe { Context::close(context) };
    0
}

/// A device's attributes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_device(
    context: *mut sys::ibv_context,
    attr: *mut sys::ibv_device_attr,
) -> c_int {
    // SAFETY: the caller's context is open.
    let device = unsafe { Context::of(context) }.device;
    // SAFETY: the caller has room for the attributes.
    status(device.faults.call(Call::QueryDevice).map(|()| unsafe { attr.write(device.attributes()) }))
}

/// A port's attributes in their oldest form: those before the flags.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_port(
    context: *mut sys::ibv_context,
    port: u8,
    attr: *mut sys::_compat_ibv_port_attr,
) -> c_int {
    const OLDEST: usize = core::mem::offset_of!(sys::ibv_port_attr, flags);
    // SAFETY: the caller's context is open.
    let device = unsafe { Context::of(context) }.device;
    // SAFETY: the caller has room for the oldest form.
    status(device.check_port(port.into()).map(|_| unsafe {
        copy_out(&device.port_attributes(), attr.cast(), OLDEST);
    }))
}

/// A GID, all zeros for an unused entry; -1 beyond the table.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_gid(
    context: *mut sys::ibv_context,
    port: u8,
    index: c_int,
    gid: *mut sys::ibv_gid,
) -> c_int {
    // SAFETY: the caller's context is open.
    let device = unsafe { Context::of(context) }.device;
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    let raw = match device.gid(port.into(), index) {
        Ok(entry) => entry.gid.octets(),
        Err(Errno(libc::ENODATA)) => [0; 16],
        Err(errno) => {
            errno.set();
            return -1;
        }
    };
    // SAFETY: the caller has room for a GID.
    unsafe { gid.write(sys::ibv_gid { raw }) };
    0
}

/// A GID with its type and interface.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut sys::ibv_context,
    port: u32,
    index: u32,
    entry: *mut sys::ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    // SAFETY: the caller's context is open.
    let device = unsafe { Context::of(context) }.device;
    let found = if flags == 0 { device.gid(port, index) } else { Err(Errno::NOT_SUPPORTED) };
    // SAFETY: the caller has room for `entry_size` bytes.
    status(found.map(|gid| unsafe { copy_out(&gid_entry(index, gid), entry.cast(), entry_size) }))
}

/// The GIDs in use; how many, or a negative errno value.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut sys::ibv_context,
    entries: *mut sys::ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    if flags != 0 {
        return -(libc::EOPNOTSUPP as isize);
    }
    // SAFETY: the caller's context is open.
    let device = unsafe { Context::of(context) }.device;
    let all = (0..).zip(&device.port().gids);
    let used: Vec<_> = all.filter(|(_, gid)| !gid.gid.is_unspecified()).take(max_entries).collect();
    for (place, (index, gid)) in used.iter().enumerate() {
        // SAFETY: the caller has room for `max_entries` of `entry_size` bytes.
        unsafe {
            let to = entries.byte_add(place * entry_size);
            copy_out(&gid_entry(*index, gid), to.cast(), entry_size);
        }
    }
    used.len() as isize
}

fn gid_entry(index: u32, gid: &GidDescription) -> sys::ibv_gid_entry {
    let netdev = gid.netdev.as_ref().and_then(|name| CString::new(name.as_str()).ok());
    sys::ibv_gid_entry {
        gid: sys::ibv_gid { raw: gid.gid.octets() },
        gid_index: index,
        port_num: PORT.into(),
        gid_type: gid.gid_type,
        // SAFETY: the name is a C string; 0 is no interface's number.
        ndev_ifindex: netdev.map_or(0, |name| unsafe { libc::if_nametoindex(name.as_ptr()) }),
    }
}

/// A partition key, in network byte order: there is the default one only.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_pkey(
    context: *mut sys::ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut sys::__be16,
) -> c_int {
    // SAFETY: the caller's context is open.
    let device = unsafe { Context::of(context) }.device;
    let there: Result<()> = match index {
        0 => device.check_port(port.into()).map(drop),
        _ => Err(Errno::INVALID),
    };
    if let Err(errno) = there {
        errno.set();
        return -1;
    }
    // SAFETY: the caller has room for the key. 0xffff: full member of the default partition.
    unsafe { pkey.write(0xffff) };
    0
}
