//! Host memory that GPUs reach: the driver's, or a program's that is registered.

use crate::driver::{Driver, State};
use crate::failure::{Failure, Result};
use crate::mapping::{Mapping, PAGE};

/// A range of it.
pub(crate) struct Pinned {
    pub(crate) gpu: usize,
    len: u64,
    /// Where it is the driver's.
    memory: Option<Mapping>,
}

impl State {
    /// The pinned memory that `address` lies in, and how many bytes of it begin there.
    pub(crate) fn pinned(&self, address: u64) -> Option<(&Pinned, u64)> {
        let (base, found) = self.pinned.range(..=address).next_back()?;
        let left = found.len.checked_sub(address - base).filter(|&left| left > 0)?;
        Some((found, left))
    }
}

impl Driver {
    /// `len` bytes of host memory.
    pub(crate) fn allocate_host(&self, len: u64) -> Result<*mut u8> {
        let mut state = self.write();
        let gpu = state.current()?;
        let whole = len.checked_next_multiple_of(PAGE).filter(|&whole| whole > 0);
        let memory = Mapping::private(whole.ok_or(Failure::INVALID_VALUE)?)?;
        let address = memory.address();
        state.pinned.insert(address.addr() as u64, Pinned { gpu, len, memory: Some(memory) });
        Ok(address)
    }

    /// Frees what [`Driver::allocate_host`] gave.
    pub(crate) fn free_host(&self, address: u64) -> Result<()> {
        let mut state = self.write();
        state.current()?;
        let own = state.pinned.get(&address).is_some_and(|found| found.memory.is_some());
        own.then(|| state.pinned.remove(&address)).map(drop).ok_or(Failure::INVALID_VALUE)
    }

    /// Pins memory that the program has.
    ///
    /// # Errors
    /// `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED` where a part of it is.
    pub(crate) fn register_host(&self, address: u64, len: u64) -> Result<()> {
        let mut state = self.write();
        let gpu = state.current()?;
        let end = address.checked_add(len).filter(|&end| address != 0 && end > address);
        let end = end.ok_or(Failure::INVALID_VALUE)?;
        let before = state.pinned.range(..end).next_back();
        if before.is_some_and(|(base, found)| base + found.len > address) {
            return Err(Failure::ALREADY_REGISTERED);
        }
        state.pinned.insert(address, Pinned { gpu, len, memory: None });
        Ok(())
    }

    /// Ends that.
    pub(crate) fn unregister_host(&self, address: u64) -> Result<()> {
        let mut state = self.write();
        state.current()?;
        let registered = state.pinned.get(&address).is_some_and(|found| found.memory.is_none());
        registered.then(|| state.pinned.remove(&address)).map(drop).ok_or(Failure::NOT_REGISTERED)
    }
}
