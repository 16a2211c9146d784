//! The receive queue. Its slots lie in the control segment: the peer that sends takes them one after the other and
//! leaves in each what became of it, and this end's polls make completions of them.

use std::sync::atomic::{Ordering, fence};

use core::ffi::c_int;
use rdma_sys as sys;

use super::QueuePair;
use crate::cq::Completion;
use crate::errno::{Errno, Result};
use crate::fabric::{Process, lock};
use crate::shared::{QpEntry, ReceiveSlot, Segment};

/// A receive queue. Places in it count up for ever, modulo 2³².
pub(super) struct ReceiveQueue {
    depth: u32,
    max_pieces: u32,
    /// The place of the next receive to be posted.
    posted: u32,
    /// The place of the next receive to be completed.
    harvested: u32,
    /// The ring in the segment's heap.
    ring: Option<Ring>,
}

/// A part of the segment's heap.
struct Ring {
    offset: u64,
    len: u64,
}

impl ReceiveQueue {
    /// A queue with room for what `cap` says, shown in `entry`.
    ///
    /// # Errors
    /// `ENOMEM` where the heap has no room.
    pub(super) fn new(process: &Process, cap: &sys::ibv_qp_cap, entry: &QpEntry) -> Result<Self> {
        let (depth, max_pieces) = (cap.max_recv_wr, cap.max_recv_sge);
        let receives = &entry.receives;
        receives.slots.store(0, Ordering::Relaxed);
        receives.posted.store(0, Ordering::Relaxed);
        entry.inbound.arrived.store(0, Ordering::Relaxed);
        let ring = if depth == 0 {
            None
        } else {
            let slots = depth.next_power_of_two();
            let len = Segment::ring_len(slots, max_pieces);
            let offset = lock(&process.heap).take(len).ok_or(Errno::NO_MEMORY)?;
            receives.offset.store(offset, Ordering::Relaxed);
            receives.max_pieces.store(max_pieces, Ordering::Relaxed);
            receives.slots.store(slots, Ordering::Relaxed);
            Some(Ring { offset, len })
        };
        Ok(Self { depth, max_pieces, posted: 0, harvested: 0, ring })
    }

    /// Gives the ring back.
    pub(super) fn free(&mut self, process: &Process) {
        if let Some(ring) = self.ring.take() {
            process.segment.discard(ring.offset, ring.len);
            lock(&process.heap).give(ring.offset, ring.len);
        }
    }

    /// Forgets everything; for a change to RESET, when no peer gets in any more.
    pub(super) fn reset(&mut self, qp: &QueuePair) {
        (self.posted, self.harvested) = (0, 0);
        qp.entry.receives.posted.store(0, Ordering::Relaxed);
        qp.entry.inbound.arrived.store(0, Ordering::Relaxed);
        qp.retire_receives(0);
    }

    /// # Errors
    /// `EINVAL` where the state or the request does not allow it, `ENOMEM` where the queue is full.
    ///
    /// # Safety
    /// The pieces are readable.
    unsafe fn post(&mut self, qp: &QueuePair, wr: &sys::ibv_recv_wr) -> Result<()> {
        if qp.state() == sys::IBV_QPS_RESET || wr.num_sge.cast_unsigned() > self.max_pieces {
            return Err(Errno::INVALID);
        }
        if self.posted.wrapping_sub(qp.recv_retired.load(Ordering::Acquire)) >= self.depth {
            return Err(Errno::NO_MEMORY);
        }
        let receives = &qp.entry.receives;
        let (slot, room) = qp.segment.receive(receives, self.posted).ok_or(Errno::NO_MEMORY)?;
        let pieces = if wr.num_sge == 0 {
            &[]
        } else {
            // SAFETY: the caller vouches for the pieces.
            unsafe { std::slice::from_raw_parts(wr.sg_list, wr.num_sge as usize) }
        };
        slot.wr_id.store(wr.wr_id, Ordering::Relaxed);
        slot.num_pieces.store(pieces.len() as u32, Ordering::Relaxed);
        for (to, piece) in room.iter().zip(pieces) {
            to.addr.store(piece.addr, Ordering::Relaxed);
            to.length.store(piece.length, Ordering::Relaxed);
            to.lkey.store(piece.lkey, Ordering::Relaxed);
        }
        self.posted = self.posted.wrapping_add(1);
        receives.posted.store(self.posted, Ordering::Release);
        Ok(())
    }

    /// Makes completions of the receives that the peer has used.
    fn harvest(&mut self, qp: &QueuePair) {
        let arrived = qp.entry.inbound.arrived.load(Ordering::Acquire);
        // A peer can't have used more than there were, whatever it says.
        while self.harvested != arrived && self.harvested != self.posted {
            let Some((slot, _)) = qp.segment.receive(&qp.entry.receives, self.harvested) else { return };
            self.harvested = self.harvested.wrapping_add(1);
            qp.recv_cq().push_quietly(arrival(qp, slot, self.harvested));
        }
    }

    /// Completes the receives that nothing will arrive for, once no peer gets in any more.
    fn flush(&mut self, qp: &QueuePair) {
        while self.harvested != self.posted {
            let Some((slot, _)) = qp.segment.receive(&qp.entry.receives, self.harvested) else { return };
            slot.status.store(sys::IBV_WC_WR_FLUSH_ERR, Ordering::Relaxed);
            slot.opcode.store(sys::IBV_WC_RECV, Ordering::Relaxed);
            slot.byte_len.store(0, Ordering::Relaxed);
            slot.wc_flags.store(0, Ordering::Relaxed);
            self.harvested = self.harvested.wrapping_add(1);
            qp.recv_cq().push(arrival(qp, slot, self.harvested));
        }
    }
}

fn arrival(qp: &QueuePair, slot: &ReceiveSlot, retires: u32) -> Completion {
    Completion {
        wr_id: slot.wr_id.load(Ordering::Relaxed),
        qp,
        qpn: qp.number,
        retires,
        byte_len: slot.byte_len.load(Ordering::Relaxed),
        vendor_err: 0,
        imm: slot.imm.load(Ordering::Relaxed),
        status: slot.status.load(Ordering::Relaxed) as u8,
        opcode: (slot.opcode.load(Ordering::Relaxed) | sys::IBV_WC_RECV) as u8,
        wc_flags: slot.wc_flags.load(Ordering::Relaxed) as u8,
        src_qp: qp.entry.peer.load(Ordering::Relaxed),
    }
}

impl QueuePair {
    /// Takes in what the peer has done: receives that it used, and an error that it found on this end. In error,
    /// completes what is left.
    pub(crate) fn take_in(&self) {
        if self.entry.fault.load(Ordering::Acquire) != 0 {
            let mut send = self.send.lock();
            if super::state::receives(self.state()) {
                self.set_state(sys::IBV_QPS_ERR);
                self.shut();
                send.flush(self);
            }
        }
        let in_error = self.state() == sys::IBV_QPS_ERR;
        if in_error {
            self.keep_peer_out();
        }
        fence(Ordering::Acquire);
        let mut receives = self.receive.lock();
        receives.harvest(self);
        if in_error {
            receives.flush(self);
        }
    }

    /// Frees the places in the receive queue before `place`.
    pub(crate) fn retire_receives(&self, place: u32) {
        self.recv_retired.store(place, Ordering::Release);
    }
}

/// `ibv_post_recv`.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut sys::ibv_qp,
    mut wr: *mut sys::ibv_recv_wr,
    bad_wr: *mut *mut sys::ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's queue pair is alive, and the list of requests with what they name is readable.
    unsafe {
        let qp = QueuePair::of(qp);
        let mut result = 0;
        {
            let mut receive = qp.receive.lock();
            while let Some(request) = wr.as_ref() {
                if let Err(errno) = receive.post(qp, request) {
                    *bad_wr = wr;
                    result = errno.0;
                    break;
                }
                wr = request.next;
            }
        }
        if qp.state() == sys::IBV_QPS_ERR {
            qp.take_in();
        }
        result
    }
}
