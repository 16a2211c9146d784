//! Open devices: the tables through which C's inline functions come here.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering};

use core::ffi::{c_int, c_void};
use rdma_sys as sys;

use crate::config::Call;
use crate::device::Device;
use crate::errno::{Errno, Result, status};
use crate::events::Pipe;
use crate::fabric::Process;

/// An open device.
#[repr(C)]
pub(crate) struct Context {
    /// What libibverbs defines. C code holds pointers to `table.context`, its last field.
    table: sys::verbs_context,
    pub(crate) device: &'static Device,
    pub(crate) process: &'static Process,
    pub(crate) objects: Objects,
    /// The asynchronous events of the device.
    pub(crate) events: Pipe,
}

/// How many objects there are on a device, to hold it to its limits.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) pds: Count,
    pub(crate) mrs: Count,
    pub(crate) cqs: Count,
    pub(crate) qps: Count,
}

/// A number of objects.
#[derive(Default)]
pub(crate) struct Count(AtomicU32);

impl Count {
    /// Counts one more.
    ///
    /// # Errors
    /// `ENOMEM` where there are `limit` already.
    pub(crate) fn add(&self, limit: u32) -> Result<()> {
        let within = |count| (count < limit).then_some(count + 1);
        let added = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
        added.map(drop).map_err(|_| Errno::NO_MEMORY)
    }

    pub(crate) fn remove(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Context {
    /// Opens `device`; freed by [`Context::close`].
    pub(crate) fn open(device: &'static Device) -> Result<*mut sys::ibv_context> {
        device.faults.call(Call::OpenDevice)?;
        let process = Process::get()?;
        let events = Pipe::new()?;
        let mut table = table(device);
        table.context.async_fd = events.read_fd();
        let context =
            Box::into_raw(Box::new(Self { table, device, process, objects: Objects::default(), events }));
        // SAFETY: just made, and nobody else's.
        let open = unsafe { &*context };
        device.opened(open);
        Ok(open.raw())
    }

    /// The context behind C's pointer.
    ///
    /// # Safety
    /// `context` came from [`Context::open`] and is not closed.
    pub(crate) unsafe fn of<'a>(context: *mut sys::ibv_context) -> &'a Self {
        const BEFORE: usize = offset_of!(Context, table) + offset_of!(sys::verbs_context, context);
        // SAFETY: the pointer leads to that field of a Context.
        unsafe { &*context.byte_sub(BEFORE).cast() }
    }

    /// # Safety
    /// As for [`Context::of`]; nothing made on it is left.
    pub(crate) unsafe fn close(context: *mut sys::ibv_context) {
        // SAFETY: it was a Box, and is freed once.
        unsafe {
            let open = Self::of(context);
            open.device.closed(open);
            drop(Box::from_raw(std::ptr::from_ref(open).cast_mut()));
        }
    }

    /// C's pointer to it.
    pub(crate) fn raw(&self) -> *mut sys::ibv_context {
        (&raw const self.table.context).cast_mut()
    }
}

fn table(device: &Device) -> sys::verbs_context {
    let context = sys::ibv_context {
        device: device.raw(),
        ops: sys::ibv_context_ops {
            poll_cq: Some(crate::cq::poll),
            req_notify_cq: Some(crate::cq::request_notification),
            post_send: Some(crate::qp::post_send),
            post_recv: Some(crate::qp::post_recv),
            ..Default::default()
        },
        cmd_fd: -1,
        async_fd: -1,
        num_comp_vectors: 1,
        // The mark of a context that the table surrounds.
        abi_compat: std::ptr::without_provenance_mut(usize::MAX),
        ..Default::default()
    };
    sys::verbs_context {
        query_port: Some(query_port),
        query_device_ex: Some(query_device_ex),
        create_qp_ex: Some(crate::exports::create_qp_ex),
        sz: size_of::<sys::verbs_context>(),
        context,
        ..Default::default()
    }
}

unsafe extern "C" fn query_port(
    context: *mut sys::ibv_context,
    port: u8,
    attr: *mut sys::ibv_port_attr,
    attr_len: usize,
) -> c_int {
    // SAFETY: the caller's context is open.
    let device = unsafe { Context::of(context) }.device;
    let found = device.faults.call(Call::QueryPort).and_then(|()| device.check_port(port.into()));
    status(found.map(|_| {
        // SAFETY: the caller has room for `attr_len` bytes of it.
        unsafe { copy_out(&device.port_attributes(), attr.cast(), attr_len) };
    }))
}

unsafe extern "C" fn query_device_ex(
    context: *mut sys::ibv_context,
    _input: *const sys::ibv_query_device_ex_input,
    attr: *mut sys::ibv_device_attr_ex,
    attr_len: usize,
) -> c_int {
    // SAFETY: the caller's context is open.
    let device = unsafe { Context::of(context) }.device;
    if let Err(errno) = device.faults.call(Call::QueryDevice) {
        return status(Err(errno));
    }
    let attributes = sys::ibv_device_attr_ex {
        orig_attr: device.attributes(),
        phys_port_cnt_ex: crate::device::PORT.into(),
        ..Default::default()
    };
    // SAFETY: the caller has room for `attr_len` bytes of it.
    unsafe { copy_out(&attributes, attr.cast(), attr_len) };
    0
}

/// Copies a struct to a caller that may know an older or newer form of it, which is shorter or longer.
///
/// # Safety
/// `to` has room for `len` bytes.
pub(crate) unsafe fn copy_out<T>(from: &T, to: *mut c_void, len: usize) {
    let known = len.min(size_of::<T>());
    // SAFETY: the caller vouches for `len` bytes; `from` has as many as are copied.
    unsafe {
        to.cast::<u8>().write_bytes(0, len);
        to.cast::<u8>().copy_from_nonoverlapping(std::ptr::from_ref(from).cast(), known);
    }
}
