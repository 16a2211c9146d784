//! Device memory.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};

use cuda_sys as sys;

use crate::driver::{Driver, State};
use crate::failure::{Failure, Result};
use crate::ipc::Key;
use crate::mapping::{GRANULE, Mapping, PAGE, device_addresses, new_file};

/// A piece of device memory: this process's own, or another's that it has opened.
pub(crate) struct Allocation {
    pub(crate) gpu: usize,
    /// As asked for.
    pub(crate) bytes: u64,
    /// Unlike those of all others of the process.
    pub(crate) id: u64,
    pub(crate) sync_memops: bool,
    pub(crate) owner: Owner,
    pub(crate) file: File,
    /// What programs know it by.
    address: u64,
    /// Where the bytes are.
    view: Mapping,
}

/// Whose memory it is.
pub(crate) enum Owner {
    This,
    /// Another process's, opened so many times.
    Other {
        key: Key,
        opened: u32,
    },
}

impl Allocation {
    /// The memory in `file`, which has whole pages for `bytes`.
    pub(crate) fn new(gpu: usize, bytes: u64, id: u64, file: File, owner: Owner) -> Result<Self> {
        let view = Mapping::of_file(&file, bytes.next_multiple_of(PAGE))?;
        Ok(Self { gpu, bytes, id, sync_memops: false, owner, file, address: device_addresses(bytes)?, view })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Where the driver finds `len` bytes that begin `offset` bytes into it.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` beyond its end.
    pub(crate) fn view(&self, offset: u64, len: u64) -> Result<*mut u8> {
        let end = offset.checked_add(len).filter(|&end| end <= self.bytes);
        end.ok_or(Failure::INVALID_VALUE)?;
        Ok(self.view.address().wrapping_add(offset as usize))
    }
}

impl State {
    /// The device memory that `address` lies in, and how far from its beginning.
    pub(crate) fn allocation(&self, address: u64) -> Option<(&Allocation, u64)> {
        let (base, found) = self.allocations.range(..=address).next_back()?;
        let offset = address - base;
        (offset < found.bytes).then_some((found, offset))
    }

    /// Bytes of `gpu`'s memory that are taken by this process.
    pub(crate) fn used(&self, gpu: usize) -> u64 {
        let own = |it: &&Allocation| it.gpu == gpu && matches!(it.owner, Owner::This);
        self.allocations.values().filter(own).map(|it| it.bytes.next_multiple_of(GRANULE)).sum()
    }
}

impl Driver {
    /// Device memory of this thread's GPU.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY` where the GPU has no room; each process has a GPU's memory for itself.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<u64> {
        let mut state = self.write();
        let gpu = state.current()?;
        let taken = bytes.checked_next_multiple_of(GRANULE).and_then(|it| it.checked_add(state.used(gpu)));
        if bytes == 0 {
            return Err(Failure::INVALID_VALUE);
        }
        taken.filter(|&taken| taken <= self.config.memory).ok_or(Failure::OUT_OF_MEMORY)?;
        let (id, file) = (state.number(), new_file(bytes.next_multiple_of(PAGE))?);
        let made = Allocation::new(gpu, bytes, id, file, Owner::This)?;
        let address = made.address();
        state.allocations.insert(address, made);
        Ok(address)
    }

    /// Frees what begins at `address`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` where nothing of this process's own does.
    pub(crate) fn free(&self, address: u64) -> Result<()> {
        let mut state = self.write();
        state.current()?;
        match state.allocations.get(&address).map(|found| &found.owner) {
            Some(Owner::This) => _ = state.allocations.remove(&address),
            Some(Owner::Other { .. }) => return Err(Failure::INVALID_VALUE),
            None if address == 0 => {}
            None => return Err(Failure::INVALID_VALUE),
        }
        Ok(())
    }

    /// Free and whole memory of this thread's GPU in bytes.
    pub(crate) fn memory(&self) -> Result<(usize, usize)> {
        let state = self.read();
        let used = state.used(state.current()?);
        Ok((self.config.memory.saturating_sub(used) as usize, self.config.memory as usize))
    }

    /// A descriptor in a dma-buf's place: the memory's own file, whose beginning is the allocation's and not the
    /// range's. The caller closes it.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` unless the range is whole pages of one allocation.
    pub(crate) fn export(&self, pointer: u64, bytes: u64, kind: u32, flags: u64) -> Result<RawFd> {
        if !self.config.dma_buf {
            return Err(Failure::NOT_SUPPORTED);
        }
        let known = kind == sys::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
            && (flags == 0
                || flags == sys::CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE && self.config.pcie_mapping);
        if !known || bytes == 0 || !pointer.is_multiple_of(PAGE) || !bytes.is_multiple_of(PAGE) {
            return Err(Failure::INVALID_VALUE);
        }
        let state = self.read();
        state.current()?;
        let (found, offset) = state.allocation(pointer).ok_or(Failure::INVALID_VALUE)?;
        // The rest of the last page belongs to it, as with a GPU, whose pages are larger.
        let end = offset.checked_add(bytes).filter(|&end| end <= found.bytes.next_multiple_of(PAGE));
        end.ok_or(Failure::INVALID_VALUE)?;
        // SAFETY: duplicates a descriptor that is open.
        let fd = unsafe { libc::fcntl(found.file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
        if fd < 0 { Err(Failure::OUT_OF_MEMORY) } else { Ok(fd) }
    }
}
