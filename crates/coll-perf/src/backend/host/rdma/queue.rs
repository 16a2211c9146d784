//! A queue pair, and what is posted to it.
#![allow(unsafe_code, reason = "the data path is libibverbs")]

use linkproof_common::error::{Error, ErrorKind, Result, show_errno};
use linkproof_common::qp::{Depth, QueuePair};
use rdma_sys as sys;

use super::control::{ADVERTS, SLOTS};
use super::message::{Message, Ticket};

/// Requests that are posted and not known to be complete, at most. With one in [`SIGNAL_EVERY`] and those of large pieces
/// signalled, there is always one whose completion makes room.
const SENDS: u32 = 64;
const SIGNAL_EVERY: u32 = 16;
/// Messages that can come before the completion of the first was polled: pieces, adverts, ends of what was advertised, and
/// words of free slots.
const RECEIVES: u32 = (SLOTS + 2 * ADVERTS) as u32 + CREDITS_UNDER_WAY;
/// Two are told of by the half of the slots each; one more may be a late one.
const CREDITS_UNDER_WAY: u32 = 4;
/// The room of a queue pair, and completions that it may have in the queue.
pub(super) const DEPTH: Depth = Depth { sends: SENDS, receives: RECEIVES };
pub(super) const COMPLETIONS: u32 = SENDS + RECEIVES;

/// A request to be posted.
pub(super) struct Request {
    pub(super) local: u64,
    pub(super) lkey: u32,
    pub(super) bytes: u64,
    pub(super) remote: u64,
    pub(super) rkey: u32,
    pub(super) flags: u32,
}

/// The queue pair of rank `own` for rank `rank`.
pub(super) struct Queue {
    pub(super) own: u32,
    pub(super) rank: u32,
    pub(super) qp: QueuePair,
    posted: u64,
    completed: u64,
    unsignalled: u32,
}

impl Queue {
    pub(super) fn new(own: u32, rank: u32, qp: QueuePair) -> Self {
        Self { own, rank, qp, posted: 0, completed: 0, unsignalled: 0 }
    }

    /// Posts all receives; in INIT or later.
    ///
    /// # Errors
    /// `completion`, with the errno.
    pub(super) fn post_receives(&self) -> Result<()> {
        (0..RECEIVES).try_for_each(|_| self.post_receive())
    }

    /// Posts one, for one that has been taken.
    ///
    /// # Errors
    /// As [`Queue::post_receives`].
    #[inline]
    pub(super) fn post_receive(&self) -> Result<()> {
        let wr_id = Ticket { peer: self.rank, number: 0 }.encode();
        let mut wr = sys::ibv_recv_wr { wr_id, ..Default::default() };
        let mut bad = std::ptr::null_mut();
        // SAFETY: the queue pair is alive; the request names no memory, and is copied by the call.
        match unsafe { sys::ibv_post_recv(self.qp.raw(), &mut wr, &mut bad) } {
            0 => Ok(()),
            errno => Err(self.refused("a receive", errno)),
        }
    }

    #[cold]
    fn refused(&self, what: &str, errno: i32) -> Error {
        let what = format!(
            "rank {} cannot post {what} to rank {} on QP {}: {}",
            self.own,
            self.rank,
            self.qp.qpn(),
            show_errno(errno)
        );
        Error::new(ErrorKind::Completion, what)
    }

    /// Whether one more request can be posted.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.posted - self.completed < u64::from(SENDS)
    }

    /// Posts `request`, with `message` as its immediate data unless it is in the middle of a piece; its number.
    ///
    /// # Errors
    /// `completion`, with the errno.
    #[inline]
    pub(super) fn post(&mut self, request: Request, message: Option<Message>) -> Result<u64> {
        let mut sge = sys::ibv_sge { addr: request.local, length: request.bytes as u32, lkey: request.lkey };
        self.unsignalled += 1;
        let wanted = request.flags & sys::IBV_SEND_SIGNALED != 0 || self.unsignalled == SIGNAL_EVERY;
        let signalled = if wanted { sys::IBV_SEND_SIGNALED } else { 0 };
        let mut wr = sys::ibv_send_wr {
            wr_id: Ticket { peer: self.rank, number: self.posted + 1 }.encode(),
            sg_list: &mut sge,
            num_sge: i32::from(request.bytes > 0),
            opcode: sys::IBV_WR_RDMA_WRITE,
            send_flags: request.flags | signalled,
            wr: sys::ibv_send_wr__bindgen_ty_2 {
                rdma: sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
                    remote_addr: request.remote,
                    rkey: request.rkey,
                },
            },
            ..Default::default()
        };
        if let Some(message) = message {
            wr.opcode = sys::IBV_WR_RDMA_WRITE_WITH_IMM;
            wr.__bindgen_anon_1 = sys::ibv_send_wr__bindgen_ty_1 { imm_data: message.encode().to_be() };
        }
        let mut bad = std::ptr::null_mut();
        // SAFETY: the queue pair is in RTS and has room; the request and its piece are copied by the call. The memory that
        // they name is registered and kept until the end of the exchange at least, and inline data is copied.
        match unsafe { sys::ibv_post_send(self.qp.raw(), &mut wr, &mut bad) } {
            0 => {}
            errno => return Err(self.refused("a write", errno)),
        }
        self.posted += 1;
        self.unsignalled = if wanted { 0 } else { self.unsignalled };
        Ok(self.posted)
    }

    /// Flags of a write of `bytes`.
    #[inline]
    pub(super) fn inline_flag(&self, bytes: u64) -> u32 {
        if bytes <= u64::from(self.qp.inline_bytes()) { sys::IBV_SEND_INLINE } else { 0 }
    }

    /// Whether the request with this number is complete, and its memory free.
    #[inline]
    pub(super) fn is_complete(&self, number: u64) -> bool {
        self.completed >= number
    }

    /// The request with this number, and all before it, are complete.
    #[inline]
    pub(super) fn complete(&mut self, ticket: Ticket) {
        self.completed = ticket.number;
    }
}
