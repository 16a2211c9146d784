//! The library as a table of function pointers: which file is opened, which functions it must and may have,
//! and how a failure reads. It calls none of them.

use std::ffi::OsString;
use std::sync::OnceLock;

use core::ffi::{c_char, c_int, c_uint, c_void};
pub use loader::LoadError;
use loader::library_table;

use crate::bindings::*;

/// The name opened unless [`LIBRARY_VARIABLE`] says otherwise: the soname, which run-time packages install.
pub const DEFAULT_LIBRARY: &str = "libibverbs.so.1";

/// The environment variable that names another library to open, as a path or a soname.
pub const LIBRARY_VARIABLE: &str = "LINKPROOF_IBVERBS";

library_table! {
    /// A loaded verbs library.
    ///
    /// Each field is the function of its name; those that are `Option`s are newer than the oldest library supported. A
    /// call is `(verbs.ibv_alloc_pd)(context)`, and unsafe: pointers must be what C asks for.
    pub struct Verbs opens "the verbs library";
    required {
        /// Lists the devices, NULL-terminated; NULL and errno when there is no verbs support in the kernel.
        fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
        /// Frees the list; devices not opened by then are gone.
        fn ibv_free_device_list(list: *mut *mut ibv_device);
        /// The kernel's name of a device, valid as long as the device.
        fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
        /// Opens a device; NULL and errno on failure.
        fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
        /// Closes a device; objects made on it must be gone.
        fn ibv_close_device(context: *mut ibv_context) -> c_int;
        /// The device's limits; 0 or an errno value.
        fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
        /// Writes the oldest part of a port's attributes only: call [`crate::ibv_query_port`].
        fn ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut _compat_ibv_port_attr) -> c_int;
        /// A GID by index, all zeros where the index is unused.
        fn ibv_query_gid(context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int;
        /// A partition key by index, in network byte order.
        fn ibv_query_pkey(context: *mut ibv_context, port: u8, index: c_int, pkey: *mut __be16) -> c_int;
        /// A new protection domain; NULL and errno on failure.
        fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
        /// Frees a protection domain; 0 or an errno value (EBUSY while something uses it).
        fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
        /// Registers memory, heeding no optional access flag: see [`crate::ibv_reg_mr`].
        fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
        /// Ends a registration; 0 or an errno value.
        fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
        /// A new completion queue of at least `cqe` entries; NULL and errno on failure.
        fn ibv_create_cq(
            context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void,
            channel: *mut ibv_comp_channel, comp_vector: c_int,
        ) -> *mut ibv_cq;
        /// Destroys a completion queue; 0 or an errno value. Waits for unacknowledged events.
        fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
        /// A new queue pair; NULL and errno on failure. Writes the limits granted into `attr`.
        fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
        /// Changes a queue pair's state and attributes; 0 or an errno value.
        fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
        /// Reads a queue pair's attributes; 0 or an errno value.
        fn ibv_query_qp(
            qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int, init: *mut ibv_qp_init_attr,
        ) -> c_int;
        /// Destroys a queue pair; 0 or an errno value. Waits for unacknowledged events.
        fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
        /// A completion status in words; static, and "unknown" for one it does not know.
        fn ibv_wc_status_str(status: ibv_wc_status) -> *const c_char;
        /// Waits for an asynchronous event; 0, or -1 and errno.
        fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
        /// Acknowledges an event; exactly once for each.
        fn ibv_ack_async_event(event: *mut ibv_async_event);
        /// A new completion channel; NULL and errno on failure.
        fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
        /// Destroys a completion channel; 0 or an errno value.
        fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
        /// Waits for a completion event; 0, or -1 and errno.
        fn ibv_get_cq_event(
            channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void,
        ) -> c_int;
        /// Acknowledges completion events; takes a lock, so better many at a time.
        fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint);
        /// A port state in words; static.
        fn ibv_port_state_str(state: ibv_port_state) -> *const c_char;
        /// A node type in words; static.
        fn ibv_node_type_str(node_type: ibv_node_type) -> *const c_char;
        /// An asynchronous event's type in words; static.
        fn ibv_event_type_str(event_type: ibv_event_type) -> *const c_char;
    }
    optional {
        /// A GID with its type and network interface: see [`crate::ibv_query_gid_ex`].
        fn _ibv_query_gid_ex(
            context: *mut ibv_context, port: u32, index: u32, entry: *mut ibv_gid_entry,
            flags: u32, entry_size: usize,
        ) -> c_int;
        /// All GIDs of all ports: see [`crate::ibv_query_gid_table`].
        fn _ibv_query_gid_table(
            context: *mut ibv_context, entries: *mut ibv_gid_entry, max_entries: usize,
            flags: u32, entry_size: usize,
        ) -> isize;
        /// Registers memory under an address of one's own, heeding optional access flags.
        fn ibv_reg_mr_iova2(
            pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_uint,
        ) -> *mut ibv_mr;
        /// Registers memory that a dma-buf file descriptor stands for, GPU memory for one.
        fn ibv_reg_dmabuf_mr(
            pd: *mut ibv_pd, offset: u64, length: usize, iova: u64, fd: c_int, access: c_int,
        ) -> *mut ibv_mr;
        /// The extended face of a queue pair made with `send_ops_flags`; NULL for any other.
        fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex;
        /// Keeps registered pages out of children; must come before any registration.
        fn ibv_fork_init() -> c_int;
        /// Whether a write's bytes land in order of address, so that its last byte can be polled.
        fn ibv_query_qp_data_in_order(qp: *mut ibv_qp, op: ibv_wr_opcode, flags: u32) -> c_int;
        /// A device's node GUID, in network byte order.
        fn ibv_get_device_guid(device: *mut ibv_device) -> __be64;
    }
}

impl Verbs {
    /// The process's library, opened by the first call; later calls give the same table, or the same failure.
    ///
    /// It is never unloaded: it keeps its providers open, devices and their background state in static
    /// memory, and may have installed fork handlers, so there is no moment at which unloading is known to be
    /// safe. The name comes from `LINKPROOF_IBVERBS`, else it is `libibverbs.so.1`; empty counts as unset.
    pub fn load() -> Result<&'static Self, LoadError> {
        static LOADED: OnceLock<Result<Verbs, LoadError>> = OnceLock::new();
        LOADED
            .get_or_init(|| Self::open(chosen_library(std::env::var_os(LIBRARY_VARIABLE))))
            .as_ref()
            .map_err(LoadError::clone)
    }
}

fn chosen_library(variable: Option<OsString>) -> OsString {
    variable.filter(|path| !path.is_empty()).unwrap_or_else(|| DEFAULT_LIBRARY.into())
}

#[cfg(test)]
mod tests;
