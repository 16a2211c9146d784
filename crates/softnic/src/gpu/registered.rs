//! Memory on a GPU that this process registers.

use std::ops::Range;
use std::sync::atomic::Ordering;

use core::ffi::{c_int, c_uint};
use cuda_sys as sys;
use cuda_sys::Cuda;

use super::device::uuid_of;
use super::{Failed, Gpu, check, load, loaded};
use crate::errno::{Errno, Result};
use crate::memory::page_size;
use crate::shared::{GpuEntry, Segment};

/// A range of a GPU's memory.
#[derive(Clone, Debug)]
pub(crate) struct Registered {
    ordinal: i32,
    uuid: sys::CUuuid,
    handle: [u8; 64],
    /// From the allocation's beginning.
    offset: u64,
}

/// What `range` is on a GPU; `None` where it is none of a GPU's that this process knows.
///
/// # Errors
/// `beyond` where it begins in an allocation and ends behind it.
pub(crate) fn registered(range: &Range<u64>, to_load: bool, beyond: Errno) -> Result<Option<Registered>> {
    let Some(cuda) = (if to_load { load() } else { loaded() }) else { return Ok(None) };
    let Some(ordinal) = gpu_of(cuda, range.start) else { return Ok(None) };
    let (mut base, mut len) = (0, 0);
    // SAFETY: both are ours.
    let found = check(unsafe { (cuda.cuMemGetAddressRange_v2)(&mut base, &mut len, range.start) });
    // A GPU's pages are no smaller than the host's: the rest of the last one belongs to the allocation.
    let end = (base + len as u64).next_multiple_of(page_size());
    if found.is_err() || range.start < base || range.end > end {
        return Err(beyond);
    }
    let uuid = uuid_of(cuda, ordinal).map_err(|_| beyond)?;
    let handle = ipc_handle(ordinal, base).map_err(|_| Errno::NO_MEMORY)?;
    Ok(Some(Registered { ordinal, uuid, handle, offset: range.start - base }))
}

/// The number of the GPU that has the memory at `pointer`; `None` for host memory.
pub(super) fn gpu_of(cuda: &Cuda, pointer: u64) -> Option<i32> {
    let (mut kind, mut ordinal): (c_uint, c_int) = (0, -1);
    // SAFETY: both are ours, and of the attributes' types.
    unsafe {
        let which = sys::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        check((cuda.cuPointerGetAttribute)((&raw mut kind).cast(), which, pointer)).ok()?;
        let which = sys::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        check((cuda.cuPointerGetAttribute)((&raw mut ordinal).cast(), which, pointer)).ok()?;
    }
    (kind == sys::CU_MEMORYTYPE_DEVICE).then_some(ordinal)
}

/// What another process opens the allocation at `base` by; zeros where it is of a kind that can't be shared so.
fn ipc_handle(ordinal: i32, base: u64) -> std::result::Result<[u8; 64], Failed> {
    let gpu = Gpu::get(ordinal)?;
    let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
    // SAFETY: `handle` is ours.
    let given = gpu.with(|| check(unsafe { (gpu.cuda.cuIpcGetMemHandle)(&mut handle, base) }));
    Ok(if given.is_ok() { handle.reserved.map(|byte| byte as u8) } else { [0; 64] })
}

impl Registered {
    /// Shows peers where it is; before the region's key opens it.
    pub(crate) fn show(&self, entry: &GpuEntry) {
        let words = |bytes: &[u8], to: &[std::sync::atomic::AtomicU64]| {
            for (to, word) in to.iter().zip(bytes.chunks_exact(8)) {
                to.store(
                    word.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
                    Ordering::Relaxed,
                );
            }
        };
        words(&self.handle, &entry.handle);
        words(&self.uuid.bytes, &entry.uuid);
        entry.offset.store(self.offset, Ordering::Relaxed);
        entry.ordinal.store(self.ordinal.cast_unsigned(), Ordering::Relaxed);
    }
}

/// The GPU of a region of this process that is on one, by its key.
///
/// # Errors
/// The driver's.
pub(crate) fn of_entry(segment: &Segment, key: u32) -> std::result::Result<&'static Gpu, Failed> {
    Gpu::get(segment.gpu(key >> 16).ordinal.load(Ordering::Relaxed).cast_signed())
}
