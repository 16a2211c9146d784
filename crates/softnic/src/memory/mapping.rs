//! Mappings and the files behind them.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::errno::{Errno, Result};

/// Pages of a file, mapped for reading and writing until dropped.
pub(crate) struct Mapping {
    address: *mut u8,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and is reached through raw pointers or atomics only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` bytes of `file` from `offset`, a multiple of the page size.
    pub(crate) fn shared(file: BorrowedFd, offset: u64, len: usize) -> Result<Self> {
        Self::new(file, offset, len, 0)
    }

    /// The same with all pages present, so that no later access is slowed by a fault.
    pub(crate) fn populated(file: BorrowedFd, offset: u64, len: usize) -> Result<Self> {
        Self::new(file, offset, len, libc::MAP_POPULATE)
    }

    fn new(file: BorrowedFd, offset: u64, len: usize, flags: i32) -> Result<Self> {
        let flags = flags | libc::MAP_SHARED | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a mapping at an address of the kernel's choosing touches nothing that exists.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, flags, file.as_raw_fd(), offset as i64)
        };
        if address == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        // A child of this process has no business here, and would see its parent's queues.
        // SAFETY: advises about the mapping just made.
        unsafe { libc::madvise(address, len, libc::MADV_DONTFORK) };
        Ok(Self { address: address.cast(), len })
    }

    #[inline(always)]
    pub(crate) fn address(&self) -> *mut u8 {
        self.address
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing that borrows it is left.
        unsafe { libc::munmap(self.address.cast(), self.len) };
    }
}

/// A file in memory of `size` bytes, all holes, whose size can't be changed. It is gone with the last process that
/// has it open or mapped, however that ends.
pub(crate) fn new_memfd(name: &str, size: u64) -> Result<OwnedFd> {
    let name = CString::new(name).map_err(|_| Errno::INVALID)?;
    // SAFETY: the name is a C string; the descriptor is new and nobody else's.
    let file = unsafe {
        let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        if fd < 0 {
            return Err(Errno::last());
        }
        OwnedFd::from_raw_fd(fd)
    };
    allow_size(size)?;
    // SAFETY: changes the size and the seals of the file just made.
    unsafe {
        if libc::ftruncate(file.as_raw_fd(), size as i64) != 0 {
            return Err(Errno::last());
        }
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        if libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) != 0 {
            return Err(Errno::last());
        }
    }
    Ok(file)
}

/// A file beyond the limit on file sizes would not be refused but end this process by a signal.
fn allow_size(size: u64) -> Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills a struct of ours.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } == 0;
    if known && limit.rlim_cur < size { Err(Errno(libc::EFBIG)) } else { Ok(()) }
}

/// The size of a page of this machine.
pub(crate) fn page_size() -> u64 {
    // SAFETY: asks for a constant.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}
