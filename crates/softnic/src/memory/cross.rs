//! Reaching another process's memory through the kernel, where it can't be mapped.

use std::sync::Once;

use crate::errno::{Errno, Result};

/// The memory of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CrossMemory {
    pid: i32,
}

impl CrossMemory {
    pub(crate) fn of(pid: i32) -> Self {
        Self { pid }
    }

    /// Lets other processes of this user write to this one's memory where Yama restricts that to its ancestors. They
    /// may then also trace it, which without Yama they may anyway.
    pub(crate) fn allow() {
        static ONCE: Once = Once::new();
        // SAFETY: sets an attribute of this process; where there is no Yama it fails, and is not needed.
        ONCE.call_once(|| unsafe {
            libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0);
        });
    }

    /// Copies `len` bytes from `from` to `to` over there, the last byte last.
    ///
    /// # Errors
    /// The kernel's: `ESRCH` where the process is gone, `EPERM` where this one may not, `EFAULT` where memory is gone.
    ///
    /// # Safety
    /// `from` has `len` bytes that may be read.
    pub(crate) unsafe fn write(self, to: u64, from: *const u8, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        // SAFETY: the caller vouches for the bytes; the kernel checks the other side.
        unsafe {
            self.write_piece(to, from, len - 1)?;
            self.write_piece(to + len as u64 - 1, from.add(len - 1), 1)
        }
    }

    /// Copies `len` bytes from `from` over there to `to`.
    ///
    /// # Errors
    /// As for [`CrossMemory::write`].
    ///
    /// # Safety
    /// `to` has `len` bytes that may be written.
    pub(crate) unsafe fn read(self, from: u64, to: *mut u8, len: usize) -> Result<()> {
        // SAFETY: the caller vouches for the bytes.
        unsafe { self.transfer(libc::process_vm_readv, from, to, len) }
    }

    /// # Safety
    /// As for [`CrossMemory::write`].
    unsafe fn write_piece(self, to: u64, from: *const u8, len: usize) -> Result<()> {
        // SAFETY: the caller vouches for the bytes, which are only read.
        unsafe { self.transfer(libc::process_vm_writev, to, from.cast_mut(), len) }
    }

    /// # Safety
    /// `call` may use `len` bytes at `here`.
    unsafe fn transfer(self, call: Transfer, there: u64, here: *mut u8, len: usize) -> Result<()> {
        let mut done = 0;
        while done < len {
            let local = libc::iovec { iov_base: here.wrapping_add(done).cast(), iov_len: len - done };
            let remote = libc::iovec { iov_base: (there + done as u64) as *mut _, iov_len: len - done };
            // SAFETY: the caller vouches for the local bytes; the kernel checks the other process's.
            match unsafe { call(self.pid, &local, 1, &remote, 1, 0) } {
                moved @ 1.. => done += moved as usize,
                _ => return Err(Errno::last()),
            }
        }
        Ok(())
    }
}

/// The kernel's calls for either direction.
type Transfer = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_reach_the_other_side_and_a_bad_address_is_a_fault() {
        let own = CrossMemory::of(std::process::id() as i32);
        let (from, mut to) = ([1_u8, 2, 3, 4], [0_u8; 6]);
        // SAFETY: both are arrays of this test.
        unsafe {
            own.write(to.as_mut_ptr() as u64 + 1, from.as_ptr(), 4).unwrap();
            assert_eq!(own.write(8, from.as_ptr(), 4), Err(Errno::FAULT));
            own.write(8, from.as_ptr(), 0).unwrap();
            assert_eq!(to, [0, 1, 2, 3, 4, 0]);
            own.read(from.as_ptr() as u64 + 2, to.as_mut_ptr(), 2).unwrap();
            assert_eq!(own.read(8, to.as_mut_ptr(), 2), Err(Errno::FAULT));
        }
        assert_eq!(to, [3, 4, 2, 3, 4, 0]);
    }
}
