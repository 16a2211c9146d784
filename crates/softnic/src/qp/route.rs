//! The way from a queue pair to its peer's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence, fence};

use rdma_sys as sys;

use super::QueuePair;
use super::copies::{place_pieces, write_each};
use super::failure::Failure;
use super::modify::Attributes;
use super::requests::Request;
use crate::events::Record;
use crate::fabric::{Barriers, Peer, Region, is_alive};
use crate::shared::{Doorbell, QpEntry, Segment, accepts, slot_and_index};

/// Regions that a queue pair remembers: by the low bits of the key's index.
const REMEMBERED: usize = 4;

/// A connection that was found sound, and what is needed for each message.
pub(super) struct Route {
    entry: *const QpEntry,
    /// The word that tells whether the peer's process lives.
    life: *const AtomicU32,
    index: u32,
    /// The word in the entry with which it was found so.
    accepted: u64,
    access: u32,
    pd: u32,
    /// Messages longer than this are refused: the two ends don't agree on the path MTU. `None`: they do.
    longest: Option<u64>,
    barriers: Barriers,
    /// This process's segment, for its memory regions.
    own: &'static Segment,
    regions: [Option<Arc<Region>>; REMEMBERED],
    /// Keeps the entry and the regions' keys mapped; declared last, dropped last.
    peer: Arc<Peer>,
}

// SAFETY: the entry lies in a segment that the peer keeps mapped, and is made of atomics.
unsafe impl Send for Route {}

/// Why there is no route: nobody answers.
pub(super) struct Silence;

/// What became of a message.
pub(super) enum Carried {
    Done,
    Failed(Failure),
    /// The target has no receive for it: the code of the time to wait.
    NotReady(u8),
    /// The target has closed or changed the connection.
    Closed,
}

impl Route {
    /// Looks for the queue pair that `attr` names, and whether it and `qp` are made for each other. A packet that is
    /// not for it would be dropped without a word by an adapter, and so is every reason here.
    pub(super) fn find(qp: &QueuePair, attr: &Attributes) -> Result<Self, Silence> {
        let (slot, index) = slot_and_index(attr.verbs.dest_qp_num);
        let peer = qp.process.peer(slot).map_err(|_| Silence)?;
        let entry = peer.segment().qp(index);
        let accepted = entry.accepts.load(Ordering::Acquire);
        if accepts::peer(accepted) != Some(qp.number) || !attr.is_addressed_to(entry) {
            return Err(Silence);
        }
        let theirs = entry.path_mtu.load(Ordering::Relaxed);
        let ours = attr.verbs.path_mtu;
        let route = Self {
            entry,
            life: &peer.segment().header().life,
            index,
            accepted,
            access: entry.access.load(Ordering::Relaxed),
            pd: entry.pd.load(Ordering::Relaxed),
            longest: (ours != theirs).then(|| 128 << ours.min(theirs)),
            barriers: qp.process.barriers(),
            own: qp.segment,
            regions: Default::default(),
            peer: Arc::clone(&peer),
        };
        fence(Ordering::Acquire);
        // What was read belongs together if the word is still the same.
        if entry.accepts.load(Ordering::Relaxed) != accepted {
            return Err(Silence);
        }
        route.tell_of_connection();
        Ok(route)
    }

    /// Which of the target's connections it is.
    pub(super) fn connection(&self) -> u16 {
        accepts::connection(self.accepted)
    }

    pub(super) fn entry_pointer(&self) -> *const QpEntry {
        self.entry
    }

    pub(super) fn entry(&self) -> &QpEntry {
        // SAFETY: the entry lies in a segment that the peer keeps mapped.
        unsafe { &*self.entry }
    }

    pub(super) fn segment(&self) -> &Segment {
        self.peer.segment()
    }

    pub(super) fn segment_pointer(&self) -> *const Segment {
        self.peer.segment()
    }

    /// The target's index in its process.
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// The target's access flags.
    pub(super) fn access(&self) -> u32 {
        self.access
    }

    /// Writes a record into a pipe of the peer.
    pub(super) fn ring(&self, doorbell: &Doorbell, record: &Record) {
        self.peer.ring(doorbell, record);
    }

    /// Closes the target's end, unless its owner has just changed it.
    pub(super) fn close(&self) {
        let _ = self.entry().accepts.compare_exchange(self.accepted, 0, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// This process's segment where a part of the request's memory is on a GPU.
    #[inline(always)]
    pub(super) fn locals(&self, request: &Request) -> Option<&'static Segment> {
        request.is_on_gpu().then_some(self.own)
    }

    /// Whether the two ends understand a message of this length.
    pub(super) fn is_too_long(&self, len: u64) -> bool {
        self.longest.is_some_and(|longest| len > longest)
    }

    /// Carries out one message of which a piece is on a GPU.
    ///
    /// # Safety
    /// As for [`Route::carry`], but that pieces on a GPU are the driver's to read or write.
    #[cold]
    pub(super) unsafe fn carry_from_gpu(
        &mut self,
        request: &Request,
        pieces: &[sys::ibv_sge],
        len: u64,
    ) -> Carried {
        // SAFETY: the caller vouches for the pieces.
        unsafe { self.carry::<true>(&request.on_gpu(), pieces, len) }
    }

    /// Carries out one message; `FROM_GPU` where a piece of it is marked to be on a GPU.
    ///
    /// The peer, when it ends a registration or the connection, closes the entry, and waits until the mark that is
    /// set here is gone. Either it sees the mark, or what is loaded after it shows that the entry is closed.
    ///
    /// # Safety
    /// The pieces of the request are readable (for a read, writable), and `len` bytes in all.
    #[inline(always)]
    pub(super) unsafe fn carry<const FROM_GPU: bool>(
        &mut self,
        request: &Request,
        pieces: &[sys::ibv_sge],
        len: u64,
    ) -> Carried {
        // SAFETY: the entry lies in a segment that the peer keeps mapped.
        let entry = unsafe { &*self.entry };
        entry.inbound.busy.store(1, Ordering::Relaxed);
        match self.barriers {
            Barriers::Owner => compiler_fence(Ordering::SeqCst),
            Barriers::Peer => fence(Ordering::SeqCst),
        }
        // SAFETY: as above.
        let life = unsafe { &*self.life };
        let open = entry.accepts.load(Ordering::Acquire) == self.accepted && is_alive(life);
        let carried = if open {
            // SAFETY: the caller vouches for the pieces.
            unsafe { self.carry_open::<FROM_GPU>(request, pieces, len) }
        } else {
            Carried::Closed
        };
        entry.inbound.busy.store(0, Ordering::Release);
        carried
    }

    /// # Safety
    /// As for [`Route::carry`], with the mark set.
    #[inline(always)]
    unsafe fn carry_open<const FROM_GPU: bool>(
        &mut self,
        request: &Request,
        pieces: &[sys::ibv_sge],
        len: u64,
    ) -> Carried {
        // SAFETY: the caller vouches for the pieces.
        unsafe {
            if FROM_GPU || request.opcode != sys::IBV_WR_RDMA_WRITE {
                return self.carry_other(request, pieces, len);
            }
            match self.write(request, pieces, len) {
                Ok(()) => Carried::Done,
                Err(failure) => self.refused(failure),
            }
        }
    }

    /// Carries out a message that is no plain write of host memory.
    ///
    /// # Safety
    /// As for [`Route::carry`], with the mark set.
    #[inline(never)]
    unsafe fn carry_other(&mut self, request: &Request, pieces: &[sys::ibv_sge], len: u64) -> Carried {
        // SAFETY: the caller vouches for the pieces.
        unsafe {
            match request.opcode {
                sys::IBV_WR_RDMA_WRITE => match self.write_pieces(request, pieces, len) {
                    Ok(()) => Carried::Done,
                    Err(failure) => self.refused(failure),
                },
                sys::IBV_WR_RDMA_WRITE_WITH_IMM => self.write_with_imm(request, pieces, len),
                sys::IBV_WR_RDMA_READ => self.read(request, pieces, len),
                _ => self.send(request, pieces, len),
            }
        }
    }

    /// The region that `key` opens for this queue pair.
    #[inline(always)]
    pub(super) fn region(&mut self, key: u32) -> Result<&Region, Failure> {
        let at = (key >> 16) as usize % REMEMBERED;
        if !self.regions[at].as_ref().is_some_and(|region| region.rkey == key && region.is_open()) {
            self.regions[at] = self.look_up(key);
        }
        self.regions[at].as_deref().ok_or(Failure::remote_access())
    }

    #[cold]
    fn look_up(&self, key: u32) -> Option<Arc<Region>> {
        self.peer.region(key).filter(|region| region.pd == self.pd)
    }

    /// Writes the message of `request`, which is in host memory, into the peer's memory.
    ///
    /// # Safety
    /// As for [`Route::carry`], with the mark set.
    #[inline(always)]
    unsafe fn write(&mut self, request: &Request, pieces: &[sys::ibv_sge], len: u64) -> Result<(), Failure> {
        if self.access & sys::IBV_ACCESS_REMOTE_WRITE == 0 || self.is_too_long(len) {
            return Err(Failure::remote_invalid_request());
        }
        // Without bytes there is nothing to protect, and the key is not looked at.
        if len == 0 {
            return Ok(());
        }
        let region = self.region(request.rkey)?;
        let offset = region.offset(request.remote_addr, len, sys::IBV_ACCESS_REMOTE_WRITE);
        let offset = offset.ok_or(Failure::remote_access())?;
        // Nothing of a region on a GPU is mapped.
        if region.mapped.start <= offset && offset + len <= region.mapped.end {
            // SAFETY: the range is mapped; the caller vouches for the pieces.
            unsafe { place_pieces(region.base.wrapping_add(offset as usize), pieces) };
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { write_each(None, region, offset, pieces) }
    }

    /// The same wherever the message is. The checks are those of [`Route::write`], once more: in one function for both
    /// they cost that one 12 instructions a message.
    ///
    /// # Safety
    /// As for [`Route::carry_from_gpu`], with the mark set.
    pub(super) unsafe fn write_pieces(
        &mut self,
        request: &Request,
        pieces: &[sys::ibv_sge],
        len: u64,
    ) -> Result<(), Failure> {
        let own = self.locals(request);
        if own.is_none() {
            // SAFETY: the caller vouches for the pieces.
            return unsafe { self.write(request, pieces, len) };
        }
        if self.access & sys::IBV_ACCESS_REMOTE_WRITE == 0 || self.is_too_long(len) {
            return Err(Failure::remote_invalid_request());
        }
        if len == 0 {
            return Ok(());
        }
        let region = self.region(request.rkey)?;
        let offset = region.offset(request.remote_addr, len, sys::IBV_ACCESS_REMOTE_WRITE);
        let offset = offset.ok_or(Failure::remote_access())?;
        // SAFETY: as above.
        unsafe { write_each(own, region, offset, pieces) }
    }
}
