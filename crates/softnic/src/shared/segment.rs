//! A control segment, mapped: a process's own, or a peer's.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use super::heap::Heap;
use super::layout::{
    CqEntry, GpuEntry, Header, MAGIC, MrEntry, QpEntry, ReceivePiece, ReceiveSlot, Receives, VERSION,
};
use super::{MAX_CQS, MAX_MRS, MAX_QPS};
use crate::errno::{Errno, Result};
use crate::memory::{Mapping, new_memfd};

/// Where the tables begin. The file is sparse: tables that nobody uses take no memory.
const QPS_AT: usize = 4096;
const MRS_AT: usize = QPS_AT + MAX_QPS as usize * size_of::<QpEntry>();
const CQS_AT: usize = MRS_AT + MAX_MRS as usize * size_of::<MrEntry>();
const GPUS_AT: usize = CQS_AT + MAX_CQS as usize * size_of::<CqEntry>();
const HEAP_AT: usize = GPUS_AT + MAX_MRS as usize * size_of::<GpuEntry>();
/// Room for the receives of all queue pairs together: some 10 million of one piece each.
const HEAP_SIZE: usize = 1 << 30;
const SIZE: usize = HEAP_AT + HEAP_SIZE;

/// A mapped control segment.
pub(crate) struct Segment {
    mapping: Mapping,
    /// In the owner, where peers find it among the descriptors; a peer needs it no more once it is mapped.
    file: Option<OwnedFd>,
}

impl Segment {
    /// A new one of this process, which peers don't take for one yet; `name` shows in `/proc`.
    pub(crate) fn create(name: &str) -> Result<Self> {
        let file = new_memfd(name, SIZE as u64)?;
        let segment = Self { mapping: Mapping::shared(file.as_fd(), 0, SIZE)?, file: Some(file) };
        Ok(segment)
    }

    /// Lets peers in; `arena_fd` is the owner's descriptor of its arena, -1 where it has none.
    pub(crate) fn publish(&self, arena_fd: i32) {
        self.header().arena_fd.store(arena_fd, Ordering::Relaxed);
        self.header().version.store(VERSION, Ordering::Relaxed);
        self.header().magic.store(MAGIC, Ordering::Release);
    }

    /// A peer's, from its file.
    ///
    /// # Errors
    /// `ENODEV` where the file is no segment of this layout.
    pub(crate) fn of_peer(file: File) -> Result<Self> {
        if !is_sealed(file.as_fd()) || file.metadata()?.len() != SIZE as u64 {
            return Err(Errno::NO_DEVICE);
        }
        let segment = Self { mapping: Mapping::shared(file.as_fd(), 0, SIZE)?, file: None };
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

    /// Where a memory region is on a GPU, if it is; the index is taken modulo their number.
    pub(crate) fn gpu(&self, index: u32) -> &GpuEntry {
        // SAFETY: as above.
        unsafe { self.at(GPUS_AT, index % MAX_MRS) }
    }

    /// A completion queue's entry; the index is taken modulo their number.
    pub(crate) fn cq(&self, index: u32) -> &CqEntry {
        // SAFETY: as above.
        unsafe { self.at(CQS_AT, index % MAX_CQS) }
    }

    /// A heap of all the room that there is behind the tables.
    pub(crate) fn heap() -> Heap {
        Heap::new(HEAP_AT as u64, HEAP_SIZE as u64)
    }

    /// Bytes of a ring of `slots` receives.
    pub(crate) fn ring_len(slots: u32, max_pieces: u32) -> u64 {
        u64::from(slots) * slot_stride(max_pieces)
    }

    /// A receive and its pieces, by its place, which counts for ever; `None` where the ring does not lie in the heap,
    /// which a peer may claim.
    pub(crate) fn receive(&self, receives: &Receives, place: u32) -> Option<(&ReceiveSlot, &[ReceivePiece])> {
        let (slots, max_pieces) =
            (receives.slots.load(Ordering::Relaxed), receives.max_pieces.load(Ordering::Relaxed));
        let ring = receives.offset.load(Ordering::Relaxed);
        let end = ring.checked_add(Self::ring_len(slots, max_pieces))?;
        if !slots.is_power_of_two() || ring < HEAP_AT as u64 || end > SIZE as u64 || !ring.is_multiple_of(64)
        {
            return None;
        }
        let at = ring + u64::from(place & (slots - 1)) * slot_stride(max_pieces);
        // SAFETY: the slot and its pieces lie in the mapping and are aligned; all of it is atomics, of which any bytes
        // are valid values.
        unsafe {
            let slot = self.mapping.address().add(at as usize).cast::<ReceiveSlot>();
            let pieces = slot.add(1).cast::<ReceivePiece>();
            Some((&*slot, std::slice::from_raw_parts(pieces, max_pieces as usize)))
        }
    }

    /// Gives the memory of a part of the heap back to the kernel; it reads as zeros from then on.
    pub(crate) fn discard(&self, offset: u64, len: u64) {
        let Some(file) = &self.file else { return };
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: frees pages of a file that is ours.
        unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, len as i64) };
    }

    /// # Safety
    /// There is a table of more than `index` entries of type T at `offset`.
    #[inline(always)]
    unsafe fn at<T>(&self, offset: usize, index: u32) -> &T {
        // SAFETY: the caller vouches for the place; the mapping lives as long as `self`.
        unsafe { &*self.mapping.address().add(offset).cast::<T>().add(index as usize) }
    }
}

fn slot_stride(max_pieces: u32) -> u64 {
    (size_of::<ReceiveSlot>() as u64) + u64::from(max_pieces) * size_of::<ReceivePiece>() as u64
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
        let file = || File::from(own.file.as_ref().unwrap().try_clone().unwrap());
        assert!(Segment::of_peer(file()).is_err(), "it is not ready");
        own.publish(-1);
        let seen = Segment::of_peer(file()).unwrap();
        own.qp(MAX_QPS - 1).accepts.store(9, Ordering::Relaxed);
        own.cq(MAX_CQS - 1).attention.store(3, Ordering::Relaxed);
        assert_eq!(seen.qp(MAX_QPS - 1).accepts.load(Ordering::Relaxed), 9);
        assert_eq!(seen.cq(MAX_CQS - 1).attention.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn anotherfile_is_no_segment() {
        let other = new_memfd("softnic-test", SIZE as u64).unwrap();
        assert!(Segment::of_peer(other.into()).is_err());
        let short = new_memfd("softnic-test", 4096).unwrap();
        assert!(Segment::of_peer(short.into()).is_err());
    }
}
