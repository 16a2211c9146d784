//! Messages that use a receive of the target, seen from whoever sends them.

use std::sync::atomic::Ordering;

use rdma_sys as sys;

use super::failure::{Failure, Fault};
use super::local::Local;
use super::requests::Request;
use super::route::{Carried, Route};
use crate::cq::{attention, take_armed};
use crate::events::{AsyncEvent, Subject, record_of};
use crate::shared::{QpEntry, ReceivePiece, ReceiveSlot};

/// What becomes of a receive.
struct Arrival {
    status: sys::ibv_wc_status,
    opcode: sys::ibv_wc_opcode,
    byte_len: u64,
}

/// Whether the message is of a kind that carries immediate data.
fn has_imm(request: &Request) -> bool {
    [sys::IBV_WR_SEND_WITH_IMM, sys::IBV_WR_RDMA_WRITE_WITH_IMM].contains(&request.opcode)
}

/// The receives of the target, of which one is used.
struct Used<'a> {
    entry: &'a QpEntry,
    slot: &'a ReceiveSlot,
    pieces: &'a [ReceivePiece],
    place: u32,
}

impl Route {
    /// The next receive of the target; `None` where none is posted.
    ///
    /// # Safety
    /// The caller carries a message, and does not keep the receive beyond it.
    unsafe fn next_receive<'a>(&self) -> Option<Used<'a>> {
        // SAFETY: the segment stays mapped while the route has the peer; the caller vouches for the rest.
        let (entry, segment) = unsafe { (&*self.entry_pointer(), &*self.segment_pointer()) };
        let place = entry.inbound.arrived.load(Ordering::Relaxed);
        if entry.receives.posted.load(Ordering::Acquire) == place {
            return None;
        }
        let (slot, pieces) = segment.receive(&entry.receives, place)?;
        let count = slot.num_pieces.load(Ordering::Relaxed) as usize;
        Some(Used { entry, slot, pieces: pieces.get(..count)?, place })
    }

    fn not_ready(&self) -> Carried {
        Carried::NotReady(self.entry().receives.min_rnr_timer.load(Ordering::Relaxed) as u8)
    }

    /// Sends the message into the target's next receive.
    ///
    /// # Safety
    /// As for [`Route::carry`], with the mark set.
    pub(super) unsafe fn send(&mut self, request: &Request, pieces: &[sys::ibv_sge], len: u64) -> Carried {
        // SAFETY: a message is being carried.
        let Some(used) = (unsafe { self.next_receive() }) else { return self.not_ready() };
        let room: u64 = used.pieces.iter().map(|piece| u64::from(piece.length.load(Ordering::Relaxed))).sum();
        let outcome = if len > room || self.is_too_long(len) {
            Err((sys::IBV_WC_LOC_LEN_ERR, Failure::remote_invalid_request()))
        } else {
            // SAFETY: the caller vouches for the pieces.
            unsafe { self.scatter(&used, request, pieces) }
                .map_err(|failure| (sys::IBV_WC_LOC_PROT_ERR, failure))
        };
        match outcome {
            Ok(()) => {
                self.arrive(&used, request, sys::IBV_WC_RECV, len);
                Carried::Done
            }
            Err((status, failure)) => {
                used.complete(request, &Arrival { status, opcode: sys::IBV_WC_RECV, byte_len: 0 });
                self.blame(Fault::Receive);
                Carried::Failed(failure)
            }
        }
    }

    /// Writes the message, and tells the target by its next receive.
    ///
    /// # Safety
    /// As for [`Route::carry`], with the mark set.
    pub(super) unsafe fn write_with_imm(
        &mut self,
        request: &Request,
        pieces: &[sys::ibv_sge],
        len: u64,
    ) -> Carried {
        // SAFETY: a message is being carried; the caller vouches for the pieces.
        unsafe {
            let Some(used) = self.next_receive() else { return self.not_ready() };
            if let Err(failure) = self.write_pieces(request, pieces, len) {
                return self.refused(failure);
            }
            self.arrive(&used, request, sys::IBV_WC_RECV_RDMA_WITH_IMM, len);
        }
        Carried::Done
    }

    /// Copies the message into the memory of a receive, piece after piece on both sides.
    ///
    /// # Safety
    /// The pieces of the message are readable.
    unsafe fn scatter(
        &mut self,
        used: &Used,
        request: &Request,
        pieces: &[sys::ibv_sge],
    ) -> Result<(), Failure> {
        let own = self.locals(request);
        let mut targets = used.pieces.iter();
        let (mut to, mut room, mut key) = (0, 0, 0);
        for piece in pieces {
            let (mut from, mut left) = (Local::of(own, piece)?, u64::from(piece.length));
            while left > 0 {
                if room == 0 {
                    let Some(next) = targets.next() else { return Err(Failure::remote_operation(0)) };
                    to = next.addr.load(Ordering::Relaxed);
                    room = u64::from(next.length.load(Ordering::Relaxed));
                    key = next.lkey.load(Ordering::Relaxed);
                    continue;
                }
                let part = left.min(room);
                let region = self.region(key).map_err(|_| Failure::remote_operation(0))?;
                let offset = region.offset(to, part, sys::IBV_ACCESS_LOCAL_WRITE);
                let offset = offset.ok_or(Failure::remote_operation(0))?;
                // SAFETY: the caller vouches for the source; the range lies in the region.
                unsafe { from.write_to(region, offset, part)? };
                from = from.after(part);
                (to, room, left) = (to + part, room - part, left - part);
            }
        }
        Ok(())
    }

    fn arrive(&self, used: &Used, request: &Request, opcode: sys::ibv_wc_opcode, byte_len: u64) {
        used.complete(request, &Arrival { status: sys::IBV_WC_SUCCESS, opcode, byte_len });
        let urgent = request.flags & sys::IBV_SEND_SOLICITED != 0;
        self.notify(used.entry.recv_cq.load(Ordering::Relaxed), urgent);
    }

    /// Has the target's next poll look at its queue pairs, and wakes it where it asked for that.
    fn notify(&self, cq: u32, urgent: bool) {
        let entry = self.segment().cq(cq);
        entry.attention.fetch_or(attention::ARRIVED, Ordering::SeqCst);
        if take_armed(entry, urgent) {
            self.ring(&entry.channel, &record_of(cq, entry));
        }
    }

    /// A failure that the target's end has a part in.
    pub(super) fn refused(&self, failure: Failure) -> Carried {
        if let Some(fault) = failure.fault() {
            self.blame(fault);
        }
        Carried::Failed(failure)
    }

    /// Puts the target's end into error.
    fn blame(&self, fault: Fault) {
        let entry = self.entry();
        entry.fault.store(fault as u32, Ordering::Release);
        self.close();
        let event_type = match fault {
            Fault::Access => Some(sys::IBV_EVENT_QP_ACCESS_ERR),
            Fault::Request => Some(sys::IBV_EVENT_QP_REQ_ERR),
            Fault::Receive => None,
        };
        event_type.into_iter().for_each(|event_type| self.raise(event_type));
        self.notify(entry.send_cq.load(Ordering::Relaxed), true);
        self.notify(entry.recv_cq.load(Ordering::Relaxed), true);
    }

    /// Raises an asynchronous event of the target's queue pair.
    fn raise(&self, event_type: u32) {
        let entry = self.entry();
        let generation = entry.generation.load(Ordering::Relaxed);
        let subject = Subject::QueuePair { index: self.index(), generation };
        self.ring(&entry.events, &AsyncEvent { event_type, subject }.to_record());
    }

    /// Tells a target that is not ready to send yet, once, that its peer has got through.
    pub(super) fn tell_of_connection(&self) {
        let entry = self.entry();
        if entry.state.load(Ordering::Relaxed) == sys::IBV_QPS_RTR
            && entry.inbound.established.swap(1, Ordering::Relaxed) == 0
        {
            self.raise(sys::IBV_EVENT_COMM_EST);
        }
    }

    /// Reads the peer's memory into that of this process.
    ///
    /// # Safety
    /// As for [`Route::carry`], with the mark set; the pieces are writable.
    pub(super) unsafe fn read(&mut self, request: &Request, pieces: &[sys::ibv_sge], len: u64) -> Carried {
        if self.access() & sys::IBV_ACCESS_REMOTE_READ == 0 || self.is_too_long(len) {
            return self.refused(Failure::remote_invalid_request());
        }
        if len == 0 {
            return Carried::Done;
        }
        let own = self.locals(request);
        let found = self.region(request.rkey).and_then(|region| {
            let offset = region.offset(request.remote_addr, len, sys::IBV_ACCESS_REMOTE_READ);
            offset.map(|offset| (region, offset)).ok_or(Failure::remote_access())
        });
        let result = found.and_then(|(region, mut offset)| {
            for piece in pieces {
                // SAFETY: the caller vouches for the pieces; the range lies in the region.
                unsafe { Local::of(own, piece)?.read_from(region, offset, piece.length.into())? };
                offset += u64::from(piece.length);
            }
            Ok(())
        });
        match result {
            Ok(()) => Carried::Done,
            Err(failure) => self.refused(failure),
        }
    }
}

impl Used<'_> {
    /// Leaves in the receive what became of it.
    fn complete(&self, request: &Request, arrival: &Arrival) {
        let slot = self.slot;
        let imm = has_imm(request) && arrival.status == sys::IBV_WC_SUCCESS;
        slot.status.store(arrival.status, Ordering::Relaxed);
        slot.opcode.store(arrival.opcode, Ordering::Relaxed);
        slot.byte_len.store(arrival.byte_len as u32, Ordering::Relaxed);
        slot.imm.store(if imm { request.imm } else { 0 }, Ordering::Relaxed);
        slot.wc_flags.store(if imm { sys::IBV_WC_WITH_IMM } else { 0 }, Ordering::Relaxed);
        self.entry.inbound.arrived.store(self.place.wrapping_add(1), Ordering::Release);
    }
}
