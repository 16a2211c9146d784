//! A rank's buffers on its GPU: plain device memory, as most programs have it, or NCCL's own, registered with it.

use std::ffi::c_void;
use std::sync::Arc;

use linkproof_common::cuda::{DeviceBuffer, GpuContext};
use linkproof_common::error::{Error, ErrorKind, Result};
use nccl_sys as sys;

use super::comm::{Comm, Handle};
use super::library::Library;

/// The buffers of a rank: the input, and the result, which in place holds both.
pub(super) struct Memory {
    /// Ended before the memory is given back.
    _registrations: Vec<Registration>,
    pub(super) send: DeviceBuffer,
    pub(super) recv: DeviceBuffer,
    /// Where ranks meet: what goes out, and from the middle on what comes in.
    pub(super) meeting: DeviceBuffer,
}

impl Memory {
    /// Room for both; with a `registrar` in NCCL's memory and registered with it.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`]; [`ErrorKind::LibraryMissing`] where the library is too old to register; the library's.
    pub(super) fn new(
        context: &Arc<GpuContext>,
        registrar: Option<&Comm>,
        send_bytes: u64,
        recv_bytes: u64,
        n_ranks: u32,
    ) -> Result<Self> {
        let mut registrations = Vec::new();
        let mut room = |bytes: u64| {
            let Some(comm) = registrar else { return DeviceBuffer::new(context, bytes) };
            let buffer = allocate(comm.library(), context, bytes.max(1))?;
            registrations.push(Registration::new(comm, &buffer)?);
            Ok(buffer)
        };
        let (send, recv) = (room(send_bytes)?, room(recv_bytes.max(send_bytes))?);
        let meeting = DeviceBuffer::new(context, 2 * meeting_bytes(n_ranks))?;
        Ok(Self { _registrations: registrations, send, recv, meeting })
    }
}

/// What each rank sends where ranks meet: the smallest block to every rank.
pub(super) fn meeting_bytes(n_ranks: u32) -> u64 {
    16 * u64::from(n_ranks)
}

/// Memory that NCCL finds the best for its transports.
fn allocate(library: &'static Library, context: &Arc<GpuContext>, bytes: u64) -> Result<DeviceBuffer> {
    let table = library.table();
    let (Some(allocate), Some(free)) = (table.ncclMemAlloc, table.ncclMemFree) else {
        return Err(too_old(library, "ncclMemAlloc"));
    };
    let mut pointer = std::ptr::null_mut();
    // SAFETY: `pointer` is ours; the memory is given back when the buffer is dropped.
    let result = unsafe { allocate(&mut pointer, bytes as usize) };
    library.check(result, "ncclMemAlloc").map_err(|error| {
        error
            .fact("bytes", bytes)
            .hint("see who holds the GPU's memory (nvidia-smi), or measure smaller sizes")
    })?;
    // SAFETY: NCCL has just allocated it, for this buffer alone; it is given back to NCCL, once.
    Ok(unsafe {
        DeviceBuffer::of_library(context, pointer as u64, bytes, move |address| {
            free(address as *mut c_void);
        })
    })
}

/// A buffer that NCCL knows.
struct Registration {
    comm: Arc<Handle>,
    raw: *mut c_void,
}

// SAFETY: the handle is NCCL's, which looks at it when it is given back, from whatever thread.
unsafe impl Send for Registration {}

impl Registration {
    fn new(comm: &Comm, buffer: &DeviceBuffer) -> Result<Self> {
        let library = comm.library();
        let Some(register) = library.table().ncclCommRegister else {
            return Err(too_old(library, "ncclCommRegister"));
        };
        let (handle, mut raw) = (comm.handle(), std::ptr::null_mut());
        // SAFETY: the communicator is alive, the buffer outlives the registration, `raw` is ours.
        let result = unsafe {
            register(handle.raw(), buffer.address() as *mut c_void, buffer.len() as usize, &mut raw)
        };
        library.check(result, "ncclCommRegister")?;
        Ok(Self { comm: handle, raw })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.comm.while_alive(|library, comm| {
            if let Some(deregister) = library.table().ncclCommDeregister {
                let _: sys::ncclResult_t =
                    // SAFETY: the communicator is alive; the registration is its own and ended once.
                    unsafe { deregister(comm, self.raw) };
            }
        });
    }
}

fn too_old(library: &Library, call: &str) -> Error {
    Error::new(ErrorKind::LibraryMissing, format!("{} has no {call}, which -R 1 needs", library.describe()))
        .hint("use NCCL 2.19 or newer (--nccl-lib), or leave -R out")
}
