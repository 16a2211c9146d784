//! The way from a queue pair to its peer's memory.

use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence, fence};

use rdma_sys as sys;

use super::QueuePair;
use super::modify::Attributes;
use super::place::place;
use super::requests::Request;
use super::send::Failure;
use crate::fabric::{Barriers, Peer, Region};
use crate::shared::{QpEntry, accepts, slot_and_index};

/// Regions that a queue pair remembers: by the low bits of the key's index.
const REMEMBERED: usize = 4;

/// A connection that was found sound, and what is needed for each message.
pub(super) struct Route {
    entry: *const QpEntry,
    /// The word in the entry with which it was found so.
    accepted: u64,
    access: u32,
    pd: u32,
    /// Messages longer than this are refused: the two ends don't agree on the path MTU. `None`: they do.
    longest: Option<u64>,
    barriers: Barriers,
    regions: [Option<Arc<Region>>; REMEMBERED],
    /// Keeps the entry and the regions' keys mapped; declared last, dropped last.
    peer: Arc<Peer>,
}

// SAFETY: the entry lies in a segment that the peer keeps mapped, and is made of atomics.
unsafe impl Send for Route {}

/// Why there is no route: nobody answers.
pub(super) struct Silence;

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
            accepted,
            access: entry.access.load(Ordering::Relaxed),
            pd: entry.pd.load(Ordering::Relaxed),
            longest: (ours != theirs).then(|| 128 << ours.min(theirs)),
            barriers: qp.process.barriers(),
            regions: Default::default(),
            peer: Arc::clone(&peer),
        };
        fence(Ordering::Acquire);
        // What was read belongs together if the word is still the same.
        if entry.accepts.load(Ordering::Relaxed) == accepted { Ok(route) } else { Err(Silence) }
    }

    /// Which of the target's connections it is.
    pub(super) fn connection(&self) -> u16 {
        accepts::connection(self.accepted)
    }

    /// Whether the peer's process has not ended.
    pub(super) fn is_alive(&self) -> bool {
        self.peer.is_alive()
    }

    /// Carries out one message; `None` where the peer has closed or changed the connection.
    ///
    /// The peer, when it ends a registration or the connection, closes the entry, and waits until the mark that is
    /// set here is gone. Either it sees the mark, or what is loaded after it shows that the entry is closed.
    ///
    /// # Safety
    /// The pieces of the request are readable, and `len` bytes in all.
    #[inline(always)]
    pub(super) unsafe fn carry(
        &mut self,
        request: &Request,
        pieces: &[sys::ibv_sge],
        len: u64,
    ) -> Option<Result<(), Failure>> {
        // SAFETY: the entry lies in a segment that the peer keeps mapped.
        let entry = unsafe { &*self.entry };
        entry.inbound.busy.store(1, Ordering::Relaxed);
        match self.barriers {
            Barriers::Owner => compiler_fence(Ordering::SeqCst),
            Barriers::Peer => fence(Ordering::SeqCst),
        }
        let open = entry.accepts.load(Ordering::Acquire) == self.accepted;
        // SAFETY: the caller vouches for the pieces.
        let result = open.then(|| unsafe { self.write(request, pieces, len) });
        entry.inbound.busy.store(0, Ordering::Release);
        result
    }

    /// The region that `rkey` opens for this queue pair.
    #[inline(always)]
    fn region(&mut self, rkey: u32) -> Result<&Region, Failure> {
        let at = (rkey >> 16) as usize % REMEMBERED;
        if !self.regions[at].as_ref().is_some_and(|region| region.rkey == rkey && region.is_open()) {
            self.regions[at] = self.look_up(rkey);
        }
        self.regions[at].as_deref().ok_or(Failure::remote_access())
    }

    #[cold]
    fn look_up(&self, rkey: u32) -> Option<Arc<Region>> {
        self.peer.region(rkey).filter(|region| region.pd == self.pd)
    }

    /// Writes the message of `request` into the peer's memory.
    ///
    /// # Safety
    /// As for [`Route::carry`], with the mark set.
    #[inline(always)]
    unsafe fn write(&mut self, request: &Request, pieces: &[sys::ibv_sge], len: u64) -> Result<(), Failure> {
        if self.access & sys::IBV_ACCESS_REMOTE_WRITE == 0
            || self.longest.is_some_and(|longest| len > longest)
        {
            return Err(Failure::remote_invalid_request());
        }
        // Without bytes there is nothing to protect, and the key is not looked at.
        if len == 0 {
            return Ok(());
        }
        let region = self.region(request.rkey)?;
        let offset = request.remote_addr.wrapping_sub(region.start);
        let fits = offset <= region.len && len <= region.len - offset;
        if !fits || region.access & sys::IBV_ACCESS_REMOTE_WRITE == 0 {
            return Err(Failure::remote_access());
        }
        if region.mapped.start <= offset && offset + len <= region.mapped.end {
            let to = region.base.wrapping_add(offset as usize);
            // SAFETY: the range is mapped; the caller vouches for the pieces.
            unsafe { write_pieces(to, pieces) };
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { write_apart(region, offset, pieces) }
    }
}

/// # Safety
/// The pieces are readable, and there is room for them at `to`.
#[inline(always)]
unsafe fn write_pieces(mut to: *mut u8, pieces: &[sys::ibv_sge]) {
    for piece in pieces {
        // Each piece's last byte is its last; the message's is the last piece's.
        // SAFETY: the caller vouches for both sides.
        unsafe {
            place(to, piece.addr as *const u8, piece.length as usize);
            to = to.add(piece.length as usize);
        }
    }
}

/// Writes a message of which not all lies in mapped memory.
///
/// # Safety
/// The pieces are readable, and there is room for them in the region from `offset` on.
#[cold]
unsafe fn write_apart(region: &Region, mut offset: u64, pieces: &[sys::ibv_sge]) -> Result<(), Failure> {
    for piece in pieces {
        let (mut from, mut left) = (piece.addr as *const u8, u64::from(piece.length));
        while left > 0 {
            let mapped = &region.mapped;
            let part = match offset {
                offset if mapped.contains(&offset) => left.min(mapped.end - offset),
                offset if offset < mapped.start => left.min(mapped.start - offset),
                _ => left,
            };
            // SAFETY: the caller vouches for both sides; a mapped part is written where it is mapped.
            unsafe {
                if mapped.contains(&offset) {
                    place(region.base.wrapping_add(offset as usize), from, part as usize);
                } else {
                    let cross = region.cross.ok_or(Failure::remote_operation(0))?;
                    let to = region.address + offset;
                    cross
                        .write(to, from, part as usize)
                        .map_err(|errno| Failure::remote_operation(errno.0))?;
                }
                from = from.add(part as usize);
            }
            offset += part;
            left -= part;
        }
    }
    Ok(())
}
