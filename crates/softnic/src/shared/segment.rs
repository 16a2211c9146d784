//! A control segment, mapped: a process's own, or a peer's.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use super::layout::{CqEntry, Header, MAGIC, MrEntry, QpEntry, VERSION};
use super::{MAX_CQS, MAX_MRS, MAX_QPS};
use crate::errno::{Errno, Result};
use crate::memory::{Mapping, new_memfd};

/// Where the tables begin. The file is sparse: tables that nobody uses take no memory.
const QPS_AT: usize = 4096;
const MRS_AT: usize = QPS_AT + MAX_QPS as usize * size_of::<QpEntry>();
const CQS_AT: usize = MRS_AT + MAX_MRS as usize * size_of::<MrEntry>();
const SIZE: usize = CQS_AT + MAX_CQS as usize * size_of::<CqEntry>();

/// A mapped control segment.
pub(crate) struct Segment {
    mapping: Mapping,
    /// Open in the owner as long as the segment: peers find it among the owner's descriptors.
    _file: Option<OwnedFd>,
}

impl Segment {
    /// A new one of this process; `name` shows in `/proc`.
    pub(crate) fn create(name: &str) -> Result<Self> {
        let file = new_memfd(name, SIZE as u64)?;
        let segment = Self { mapping: Mapping::shared(file.as_fd(), 0, SIZE)?, _file: Some(file) };
        segment.header().arena_fd.store(-1, Ordering::Relaxed);
        segment.header().version.store(VERSION, Ordering::Relaxed);
        segment.header().magic.store(MAGIC, Ordering::Release);
        Ok(segment)
    }

    /// A peer's, from its file.
    ///
    /// # Errors
    /// `ENODEV` where the file is no segment of this layout.
    pub(crate) fn of_peer(file: File) -> Result<Self> {
        if !is_sealed(file.as_fd()) || file.metadata()?.len() != SIZE as u64 {
            return Err(Errno::NO_DEVICE);
        }
        let segment = Self { mapping: Mapping::shared(file.as_fd(), 0, SIZE)?, _file: None };
        let header = segment.header();
        let fits = header.magic.load(Ordering::Acquire) == MAGIC
            && header.version.load(Ordering::Relaxed) == VERSION;
        fits.then_some(segment).ok_or(Errno::NO_DEVICE)
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the header lies at the beginning of the mapping, and is made of atomics, of which any bytes are
        // valid values.
        unsafe { &*self.mapping.address().cast() }
    }

    /// A queue pair's entry; the index is taken modulo their number.
    pub(crate) fn qp(&self, index: u32) -> &QpEntry {
        // SAFETY: the table has MAX_QPS entries of this type at that place, all atomics.
        unsafe { self.at(QPS_AT, index % MAX_QPS) }
    }

    /// A memory region's entry; the index is taken modulo their number.
    #[inline(always)]
    pub(crate) fn mr(&self, index: u32) -> &MrEntry {
        // SAFETY: as above.
        unsafe { self.at(MRS_AT, index % MAX_MRS) }
    }

    /// A completion queue's entry; the index is taken modulo their number.
    pub(crate) fn cq(&self, index: u32) -> &CqEntry {
        // SAFETY: as above.
        unsafe { self.at(CQS_AT, index % MAX_CQS) }
    }

    /// # Safety
    /// There is a table of more than `index` entries of type T at `offset`.
    #[inline(always)]
    unsafe fn at<T>(&self, offset: usize, index: u32) -> &T {
        // SAFETY: the caller vouches for the place; the mapping lives as long as `self`.
        unsafe { &*self.mapping.address().add(offset).cast::<T>().add(index as usize) }
    }
}

/// Whether the file can't shrink: a mapping of one that does ends in a signal.
fn is_sealed(file: BorrowedFd) -> bool {
    // SAFETY: asks about a descriptor that is open.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_sees_what_the_owner_writes() {
        let own = Segment::create("softnic-test").unwrap();
        let file = File::from(own._file.as_ref().unwrap().try_clone().unwrap());
        let seen = Segment::of_peer(file).unwrap();
        own.qp(MAX_QPS - 1).accepts.store(9, Ordering::Relaxed);
        own.cq(MAX_CQS - 1).attention.store(3, Ordering::Relaxed);
        assert_eq!(seen.qp(MAX_QPS - 1).accepts.load(Ordering::Relaxed), 9);
        assert_eq!(seen.cq(MAX_CQS - 1).attention.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn another_file_is_no_segment() {
        let other = new_memfd("softnic-test", SIZE as u64).unwrap();
        assert!(Segment::of_peer(other.into()).is_err());
        let short = new_memfd("softnic-test", 4096).unwrap();
        assert!(Segment::of_peer(short.into()).is_err());
    }
}
