//! Device memory of other processes.
//!
//! A handle names the process and its descriptor of the memory's file, which any process of the same user in the same
//! PID namespace can open; CUDA's handles do not work across such namespaces either.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use cuda_sys::CUipcMemHandle;

use crate::allocations::{Allocation, Owner};
use crate::driver::{Driver, State};
use crate::failure::{Failure, Result};
use crate::mapping::PAGE;

const MAGIC: [u8; 8] = *b"softgpu1";

/// Which memory of which process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pid: u32,
    fd: i32,
    bytes: u64,
    /// The file's: the descriptor may be another's by the time that it is opened.
    inode: u64,
}

impl Key {
    /// As the handle's bytes: magic, pid, fd, bytes, inode, zeros.
    fn to_handle(self) -> CUipcMemHandle {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.pid.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.fd.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.inode.to_le_bytes());
        CUipcMemHandle { reserved: bytes.map(|byte| byte as _) }
    }

    /// `None` for what no call here has given.
    fn of_handle(handle: &CUipcMemHandle) -> Option<Self> {
        let bytes = handle.reserved.map(|byte| byte as u8);
        let number = |at: usize| Some(u64::from_le_bytes(bytes[at..at + 8].try_into().ok()?));
        let half = |at: usize| Some(u32::from_le_bytes(bytes[at..at + 4].try_into().ok()?));
        (bytes[..8] == MAGIC).then_some(())?;
        let key = Self { pid: half(8)?, fd: half(12)?.cast_signed(), bytes: number(16)?, inode: number(24)? };
        (key.bytes > 0 && key.bytes <= u64::MAX - PAGE && key.fd >= 0).then_some(key)
    }

    /// The file, where it is still the one.
    fn open(&self) -> Option<File> {
        let path = format!("/proc/{}/fd/{}", self.pid, self.fd);
        // The path may lead to a pipe or a device meanwhile: neither is to be waited for, or opened for good.
        let file = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
        let found = file.metadata().ok()?;
        // SAFETY: asks about a descriptor that is open.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        let same = found.ino() == self.inode && found.len() == self.bytes.next_multiple_of(PAGE);
        (same && seals >= 0 && seals & libc::F_SEAL_SHRINK != 0).then_some(file)
    }
}

impl State {
    /// The address of memory that is open already.
    fn opened(&self, key: Key) -> Option<u64> {
        let same = |it: &&Allocation| matches!(it.owner, Owner::Other { key: known, .. } if known == key);
        self.allocations.values().find(same).map(Allocation::address)
    }

    fn times_opened(&mut self, address: u64) -> Option<&mut u32> {
        match &mut self.allocations.get_mut(&address)?.owner {
            Owner::Other { opened, .. } => Some(opened),
            Owner::This => None,
        }
    }
}

impl Driver {
    /// A handle of the allocation that `pointer` lies in.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` where it is no memory of this process's own.
    pub(crate) fn ipc_handle(&self, pointer: u64) -> Result<CUipcMemHandle> {
        let state = self.read();
        state.current()?;
        let (found, _) = state.allocation(pointer).ok_or(Failure::INVALID_VALUE)?;
        if let Owner::Other { .. } = found.owner {
            return Err(Failure::INVALID_VALUE);
        }
        let inode = found.file.metadata().map_err(|_| Failure::MAP_FAILED)?.ino();
        let (pid, fd) = (std::process::id(), found.file.as_raw_fd());
        Ok(Key { pid, fd, bytes: found.bytes, inode }.to_handle())
    }

    /// Opens another process's memory, and gives the address of its beginning: the same each time, until it is closed as
    /// often.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_CONTEXT` for this process's own, as with CUDA; `CUDA_ERROR_MAP_FAILED` where the memory or
    /// its process is gone.
    pub(crate) fn ipc_open(&self, handle: &CUipcMemHandle) -> Result<u64> {
        let key = Key::of_handle(handle).ok_or(Failure::INVALID_VALUE)?;
        let mut state = self.write();
        let gpu = state.current()?;
        if key.pid == std::process::id() {
            return Err(Failure::INVALID_CONTEXT);
        }
        if let Some(address) = state.opened(key) {
            *state.times_opened(address).ok_or(Failure::INVALID_VALUE)? += 1;
            return Ok(address);
        }
        let file = key.open().ok_or(Failure::MAP_FAILED)?;
        let id = state.number();
        let made = Allocation::new(gpu, key.bytes, id, file, Owner::Other { key, opened: 1 })?;
        let address = made.address();
        state.allocations.insert(address, made);
        Ok(address)
    }

    /// Closes it once.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` where `address` is no beginning of such memory.
    pub(crate) fn ipc_close(&self, address: u64) -> Result<()> {
        let mut state = self.write();
        state.current()?;
        let opened = state.times_opened(address).ok_or(Failure::INVALID_VALUE)?;
        *opened -= 1;
        if *opened == 0 {
            state.allocations.remove(&address);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_keeps_what_it_names_and_others_are_refused() {
        let key = Key { pid: 77, fd: 5, bytes: 4097, inode: 1 << 40 };
        let mut handle = key.to_handle();
        assert_eq!(Key::of_handle(&handle), Some(key));
        handle.reserved[0] = 0;
        assert_eq!(Key::of_handle(&handle), None);
        assert_eq!(Key::of_handle(&Key { bytes: u64::MAX, ..key }.to_handle()), None);
    }
}
