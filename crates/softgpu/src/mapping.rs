//! The memory itself: a file in memory, mapped where the driver alone knows, and addresses that nobody may touch.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::{Failure, Result};

/// What real allocations of some size are aligned to, and taken from a GPU's memory in.
pub(crate) const GRANULE: u64 = 2 << 20;
/// What a dma-buf's range is aligned to: the host's pages.
pub(crate) const PAGE: u64 = 4096;

/// A range of this process's addresses, unmapped when dropped.
pub(crate) struct Mapping {
    address: *mut u8,
    len: usize,
}

// SAFETY: a range of addresses belongs to no thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; the bytes behind it are shared with other processes anyway, and only copied.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(len: u64, protection: i32, flags: i32, fd: i32) -> Result<Self> {
        let len = usize::try_from(len).map_err(|_| Failure::OUT_OF_MEMORY)?;
        // SAFETY: a new mapping, where nothing is.
        let address = unsafe { libc::mmap(core::ptr::null_mut(), len, protection, flags, fd, 0) };
        if address == libc::MAP_FAILED {
            return Err(Failure::OUT_OF_MEMORY);
        }
        Ok(Self { address: address.cast(), len })
    }

    /// The bytes of `file`.
    pub(crate) fn of_file(file: &File, len: u64) -> Result<Self> {
        Self::new(len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd())
    }

    /// Memory of this process alone.
    pub(crate) fn private(len: u64) -> Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Self::new(len, libc::PROT_READ | libc::PROT_WRITE, flags, -1)
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.address
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: ours, and unmapped once.
        unsafe { libc::munmap(self.address.cast(), self.len) };
    }
}

/// Where device memory begins: 16 TiB, far from where the kernel and the loader put anything.
const FIRST_ADDRESS: u64 = 1 << 44;

/// The first of the addresses that stand for `len` bytes of device memory: a fault for whoever touches them, at a whole
/// [`GRANULE`], and no other memory's of this process, before or later.
///
/// Nothing is mapped there. A mapping that may not be read would do for the processor, but not for the kernel: for an adapter
/// that only reads, it pins such pages all the same, and finds zeros.
pub(crate) fn device_addresses(len: u64) -> Result<u64> {
    static NEXT: AtomicU64 = AtomicU64::new(FIRST_ADDRESS);
    let len = len.checked_next_multiple_of(GRANULE).ok_or(Failure::OUT_OF_MEMORY)?;
    Ok(NEXT.fetch_add(len, Ordering::Relaxed))
}

/// A file of `len` zeros in memory, which can't change its length any more: whoever maps it can rely on its bytes.
pub(crate) fn new_file(len: u64) -> Result<File> {
    // SAFETY: the name is a C string; the descriptor that comes back is nobody else's.
    let file = unsafe {
        let fd = libc::memfd_create(c"softgpu".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        if fd < 0 {
            return Err(Failure::OUT_OF_MEMORY);
        }
        File::from_raw_fd(fd)
    };
    file.set_len(len).map_err(|_| Failure::OUT_OF_MEMORY)?;
    // SAFETY: seals a file that is ours.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW) };
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_addresses_are_aligned_and_not_readable() {
        let mut seen = std::collections::HashSet::new();
        for _ in 0..3 {
            let address = device_addresses(PAGE + 1).unwrap();
            assert_eq!(address % GRANULE, 0);
            assert!(seen.insert(address));
            let mut byte = 0_u8;
            let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
            let there = libc::iovec { iov_base: address as *mut _, iov_len: 1 };
            // SAFETY: the kernel reads, and says that it can't.
            let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &there, 1, 0) };
            assert_eq!((read, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EFAULT)));
        }
    }

    #[test]
    fn two_mappings_of_a_file_have_the_same_bytes_and_its_length_stays() {
        let file = new_file(PAGE).unwrap();
        let (first, second) =
            (Mapping::of_file(&file, PAGE).unwrap(), Mapping::of_file(&file, PAGE).unwrap());
        // SAFETY: within the page.
        unsafe {
            first.address().write_volatile(7);
            assert_eq!(second.address().read_volatile(), 7);
        }
        assert!(file.set_len(0).is_err());
    }
}
