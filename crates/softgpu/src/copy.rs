//! Copies. Each is done at once by whoever asks for it, which is in every stream's order.

use crate::driver::{Driver, State};
use crate::failure::{Failure, Result};

/// What an argument of a copy may point to.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    /// What GPUs reach: device memory, or host memory that is pinned.
    Device(u64),
    /// Any memory: the driver knows its own when it sees it.
    Host(*mut u8),
}

impl State {
    /// Where the driver finds `len` bytes.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` beyond the end of an allocation, and for what a GPU doesn't reach where it has to.
    fn bytes(&self, side: Side, len: u64) -> Result<*mut u8> {
        let address = match side {
            Side::Device(address) => address,
            Side::Host(pointer) => pointer.expose_provenance() as u64,
        };
        if let Some((found, offset)) = self.allocation(address) {
            return found.view(offset, len);
        }
        match side {
            Side::Host(pointer) if !pointer.is_null() => Ok(pointer),
            Side::Host(_) => Err(Failure::INVALID_VALUE),
            Side::Device(_) => {
                let (_, left) = self.pinned(address).ok_or(Failure::INVALID_VALUE)?;
                let pointer = core::ptr::with_exposed_provenance_mut(address as usize);
                (len <= left).then_some(pointer).ok_or(Failure::INVALID_VALUE)
            }
        }
    }
}

impl Driver {
    /// Copies `len` bytes.
    ///
    /// # Safety
    /// A side on the host has `len` bytes that may be read or written.
    pub(crate) unsafe fn copy(&self, to: Side, from: Side, len: usize) -> Result<()> {
        let state = self.read();
        state.current()?;
        if len > 0 {
            let (to, from) = (state.bytes(to, len as u64)?, state.bytes(from, len as u64)?);
            // SAFETY: the caller vouches for the host; device memory is mapped for as long as the state is held. Its
            // bytes may change meanwhile, as a GPU's may: they are copied and not looked at.
            unsafe { core::ptr::copy(from, to, len) };
        }
        Ok(())
    }

    /// Fills `len` bytes.
    pub(crate) fn fill(&self, to: u64, byte: u8, len: usize) -> Result<()> {
        let state = self.read();
        state.current()?;
        if len > 0 {
            let to = state.bytes(Side::Device(to), len as u64)?;
            // SAFETY: the range is one allocation's, or pinned host memory of the program, which asks for it.
            unsafe { core::ptr::write_bytes(to, byte, len) };
        }
        Ok(())
    }
}
