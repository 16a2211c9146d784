//! Pipes that carry records of one size.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;

use crate::errno::{Errno, Result};
use crate::shared::Doorbell;

/// What is written at once: a pipe keeps records of this size whole.
pub(crate) type Record = [u32; 4];

/// A pipe of this process.
pub(crate) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    inode: u64,
}

impl Pipe {
    pub(crate) fn new() -> Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: fills an array of ours; both descriptors are new and nobody else's.
        let (read, write) = unsafe {
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
                return Err(Errno::last());
            }
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        // Whoever rings must not sleep; whether who reads may is the program's to say.
        // SAFETY: sets a flag of the descriptor just made.
        unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        let inode = File::from(write.try_clone()?).metadata()?.ino();
        Ok(Self { read, write, inode })
    }

    /// The end that a program polls.
    pub(crate) fn read_fd(&self) -> RawFd {
        self.read.as_raw_fd()
    }

    /// Tells peers of it.
    pub(crate) fn show(&self, doorbell: &Doorbell) {
        doorbell.inode.store(self.inode, Ordering::Relaxed);
        doorbell.fd.store(self.write.as_raw_fd(), Ordering::Release);
    }

    /// Writes `record`. A pipe that is full of records wakes its reader anyway.
    pub(crate) fn ring(&self, record: &Record) {
        write_record(self.write.as_raw_fd(), record);
    }
}

/// The next record of the pipe that `fd` reads.
///
/// # Errors
/// `EAGAIN` where there is none and the program does not want to wait; what else the kernel has to say.
pub(super) fn read_record(fd: RawFd) -> Result<Record> {
    let mut record = Record::default();
    // SAFETY: fills an array of ours.
    let count = unsafe { libc::read(fd, record.as_mut_ptr().cast(), size_of::<Record>()) };
    if count == size_of::<Record>() as isize { Ok(record) } else { Err(Errno::last()) }
}

/// Writes `record` to a pipe, if it has room.
pub(crate) fn write_record(fd: RawFd, record: &Record) {
    // SAFETY: the kernel reads an array of ours. No signal: this process has a reading end, or opened the pipe while
    // its owner had.
    unsafe { libc::write(fd, record.as_ptr().cast(), size_of::<Record>()) };
}

/// Whether `file` is the pipe of that inode.
pub(crate) fn is_pipe(file: &File, inode: u64) -> bool {
    use std::os::unix::fs::FileTypeExt;
    file.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo() && metadata.ino() == inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_in_order_and_an_empty_pipe_says_so() {
        let pipe = Pipe::new().unwrap();
        // SAFETY: sets a flag of a descriptor that is open.
        unsafe { libc::fcntl(pipe.read_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        pipe.ring(&[1, 2, 3, 4]);
        pipe.ring(&[5, 6, 7, 8]);
        assert_eq!(read_record(pipe.read_fd()), Ok([1, 2, 3, 4]));
        assert_eq!(read_record(pipe.read_fd()), Ok([5, 6, 7, 8]));
        assert_eq!(read_record(pipe.read_fd()), Err(Errno::AGAIN));
    }

    #[test]
    fn a_pipe_is_known_by_its_inode() {
        let (one, other) = (Pipe::new().unwrap(), Pipe::new().unwrap());
        let file = File::from(one.write.try_clone().unwrap());
        assert!(is_pipe(&file, one.inode) && !is_pipe(&file, other.inode));
    }
}
