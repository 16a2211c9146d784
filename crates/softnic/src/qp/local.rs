//! A piece of this process's memory on its way, wherever it is.

use rdma_sys as sys;

use super::copies::{read_range, write_range};
use super::failure::Failure;

use crate::fabric::Region;
use crate::gpu::{Failed, Gpu, Side, of_entry};
use crate::mr::ON_GPU;
use crate::shared::Segment;

/// Bytes that go from a GPU to a peer's host memory at a time: by way of a buffer, from which they are put in the order
/// that a polling peer relies on, and which no GPU's copy promises.
const BUFFER: u64 = 1 << 20;

/// Where a piece is.
#[derive(Clone, Copy)]
pub(super) enum Local {
    Host(*mut u8),
    Device(&'static Gpu, u64),
}

impl Local {
    /// Where `piece` is, which was checked; `own` is this process's segment where one of its message's is on a GPU.
    #[inline(always)]
    pub(super) fn of(own: Option<&Segment>, piece: &sys::ibv_sge) -> Result<Self, Failure> {
        match own {
            None => Ok(Self::Host(piece.addr as *mut u8)),
            Some(own) => Self::look_up(own, piece),
        }
    }

    #[cold]
    fn look_up(own: &Segment, piece: &sys::ibv_sge) -> Result<Self, Failure> {
        let access = own.mr(piece.lkey >> 16).access.load(std::sync::atomic::Ordering::Relaxed);
        if access & ON_GPU == 0 {
            return Ok(Self::Host(piece.addr as *mut u8));
        }
        let gpu = of_entry(own, piece.lkey).map_err(|Failed(result)| Failure::local_operation(result))?;
        Ok(Self::Device(gpu, piece.addr))
    }

    /// What is `len` bytes further on.
    #[inline(always)]
    pub(super) fn after(self, len: u64) -> Self {
        match self {
            Self::Host(pointer) => Self::Host(pointer.wrapping_add(len as usize)),
            Self::Device(gpu, pointer) => Self::Device(gpu, pointer.wrapping_add(len)),
        }
    }

    fn side(self) -> Side {
        match self {
            Self::Host(pointer) => Side::Host(pointer),
            Self::Device(_, pointer) => Side::Device(pointer),
        }
    }

    /// Reads a byte of host memory as the processor does. The driver's copy finds device memory wherever it is told to
    /// look; inline data, which nobody has asked the registration of, has to be host memory as elsewhere.
    fn touch(self) {
        if let Self::Host(pointer) = self {
            // SAFETY: the caller of the copy vouches for the bytes, of which there is one at least.
            let _ = unsafe { pointer.read_volatile() };
        }
    }

    /// How a copy between it and `region` has failed: whose memory is not there decides.
    fn failure(self, region: &Region, Failed(result): Failed) -> Failure {
        match self {
            Self::Device(gpu, pointer) if region.gpu.is_none() || !gpu.knows(pointer) => {
                Failure::local_operation(result)
            }
            _ => Failure::remote_operation(result),
        }
    }

    /// Writes `len` bytes of it to a region.
    ///
    /// # Safety
    /// It has them, readable, and the range lies in the region.
    pub(super) unsafe fn write_to(self, region: &Region, offset: u64, len: u64) -> Result<(), Failure> {
        match (self, &region.gpu) {
            _ if len == 0 => Ok(()),
            // SAFETY: the caller vouches for both sides.
            (Self::Host(from), None) => unsafe { write_range(region, offset, from, len) },
            (_, Some(there)) => {
                self.touch();
                let to = Side::Device(there.pointer.wrapping_add(offset));
                // SAFETY: as above.
                let copied = unsafe { there.gpu.copy(to, self.side(), len as usize) };
                copied.map_err(|failed| self.failure(region, failed))
            }
            (Self::Device(..), None) => {
                self.by_buffer(offset, len, |local, offset, buffer| {
                    // SAFETY: the buffer is as long as the part.
                    unsafe {
                        local.gather(buffer)?;
                        write_range(region, offset, buffer.as_ptr(), buffer.len() as u64)
                    }
                })
            }
        }
    }

    /// Reads `len` bytes of a region into it.
    ///
    /// # Safety
    /// It has them, writable, and the range lies in the region.
    pub(super) unsafe fn read_from(self, region: &Region, offset: u64, len: u64) -> Result<(), Failure> {
        match (self, &region.gpu) {
            _ if len == 0 => Ok(()),
            // SAFETY: the caller vouches for both sides.
            (Self::Host(to), None) => unsafe { read_range(region, offset, to, len) },
            (_, Some(there)) => {
                let from = Side::Device(there.pointer.wrapping_add(offset));
                // SAFETY: as above.
                let copied = unsafe { there.gpu.copy(self.side(), from, len as usize) };
                copied.map_err(|failed| self.failure(region, failed))
            }
            (Self::Device(gpu, _), None) => self.by_buffer(offset, len, |local, offset, buffer| {
                // SAFETY: the buffer is as long as the part.
                let copied = unsafe {
                    read_range(region, offset, buffer.as_mut_ptr(), buffer.len() as u64)?;
                    gpu.copy(local.side(), Side::Host(buffer.as_mut_ptr()), buffer.len())
                };
                copied.map_err(|failed| local.failure(region, failed))
            }),
        }
    }

    /// Copies what it has to `buffer`.
    ///
    /// # Safety
    /// It has as many bytes.
    pub(super) unsafe fn gather(self, buffer: &mut [u8]) -> Result<(), Failure> {
        match self {
            Self::Host(from) => {
                // SAFETY: the caller vouches for the source; the buffer is this call's alone.
                unsafe { buffer.as_mut_ptr().copy_from_nonoverlapping(from, buffer.len()) };
                Ok(())
            }
            Self::Device(gpu, _) => {
                // SAFETY: as above.
                let copied = unsafe { gpu.copy(Side::Host(buffer.as_mut_ptr()), self.side(), buffer.len()) };
                copied.map_err(|Failed(result)| Failure::local_operation(result))
            }
        }
    }

    /// Does `part` for as much at a time as the buffer holds.
    fn by_buffer(
        self,
        offset: u64,
        len: u64,
        mut part: impl FnMut(Self, u64, &mut [u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut buffer = vec![0; len.min(BUFFER) as usize];
        let mut done = 0;
        while done < len {
            let step = (len - done).min(BUFFER);
            part(self.after(done), offset + done, &mut buffer[..step as usize])?;
            done += step;
        }
        Ok(())
    }
}
