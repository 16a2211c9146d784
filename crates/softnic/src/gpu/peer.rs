//! Memory on a GPU of a peer, as this process reaches it.

use std::sync::atomic::{AtomicU64, Ordering};

use cuda_sys as sys;

use super::{Failed, Gpu, check, of_entry};
use crate::shared::{GpuEntry, Segment};

/// A region of a peer, or of this process itself.
pub(crate) struct PeerMemory {
    pub(crate) gpu: &'static Gpu,
    /// Where the region begins.
    pub(crate) pointer: sys::CUdeviceptr,
    /// The allocation of another process, which is closed with this.
    opened: Option<sys::CUdeviceptr>,
}

/// What an entry says. It belongs to the region only if the region's key is still in place after it was read.
pub(crate) struct Place {
    handle: sys::CUipcMemHandle,
    uuid: sys::CUuuid,
    offset: u64,
}

impl Place {
    pub(crate) fn read(entry: &GpuEntry) -> Self {
        let mut bytes = [0; 64];
        words(&entry.handle, &mut bytes);
        let mut uuid = sys::CUuuid::default();
        words(&entry.uuid, &mut uuid.bytes);
        let handle = sys::CUipcMemHandle { reserved: bytes.map(|byte| byte as _) };
        Self { handle, uuid, offset: entry.offset.load(Ordering::Relaxed) }
    }
}

fn words(from: &[AtomicU64], to: &mut [u8]) {
    for (word, to) in from.iter().zip(to.chunks_exact_mut(8)) {
        to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
}

impl PeerMemory {
    /// This process's own region of that key, which begins at `address`.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn own(segment: &Segment, key: u32, address: u64) -> Result<Self, Failed> {
        Ok(Self { gpu: of_entry(segment, key)?, pointer: address, opened: None })
    }

    /// Opens another process's, `len` bytes of it.
    ///
    /// # Errors
    /// The driver's: there may be none in this process, or the memory is of a kind that can't be shared.
    pub(crate) fn open(place: &Place, len: u64) -> Result<Self, Failed> {
        let gpu = Gpu::of_uuid(place.uuid)?;
        let mut base = 0;
        let flags = sys::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
        // SAFETY: the place is ours. The driver checks the handle, which the peer may have made up.
        gpu.with(|| check(unsafe { (gpu.cuda.cuIpcOpenMemHandle_v2)(&mut base, place.handle, flags) }))?;
        let opened = Self { gpu, pointer: base.wrapping_add(place.offset), opened: Some(base) };
        if opened.may_have(base, place.offset, len) {
            Ok(opened)
        } else {
            Err(Failed(sys::CUDA_ERROR_INVALID_VALUE))
        }
    }

    /// Whether the allocation at `base` has `len` bytes at `offset`, as far as the driver says. It keeps each copy within
    /// memory that this process has; within which, only this says.
    fn may_have(&self, base: sys::CUdeviceptr, offset: u64, len: u64) -> bool {
        let (gpu, mut start, mut whole) = (self.gpu, 0, 0);
        // SAFETY: the places are ours.
        let found =
            gpu.with(|| check(unsafe { (gpu.cuda.cuMemGetAddressRange_v2)(&mut start, &mut whole, base) }));
        let end = offset.checked_add(len).and_then(|end| end.checked_add(base.wrapping_sub(start)));
        let room = (whole as u64).next_multiple_of(crate::memory::page_size());
        found.is_err() || end.is_some_and(|end| end <= room)
    }
}

impl Drop for PeerMemory {
    fn drop(&mut self) {
        if let Some(base) = self.opened {
            // SAFETY: opened once by this value, and closed once. There is nobody to tell of a failure.
            let _ = self.gpu.with(|| check(unsafe { (self.gpu.cuda.cuIpcCloseMemHandle)(base) }));
        }
    }
}
