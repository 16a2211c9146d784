//! The send queue: requests are carried out when they are posted, by whoever posts them. Only where that can't be
//! (nobody answers, or an earlier request waits) are they kept, and looked at again when the program posts or polls.

use std::sync::atomic::Ordering;

use core::ffi::c_int;
use rdma_sys as sys;

use super::QueuePair;
use super::extended::Batch;
use super::modify::Attributes;
use super::requests::{Request, Requests};
use super::route::{Route, Silence};
use crate::cq::Completion;
use crate::errno::{Errno, Result};
use crate::retry::Patience;

/// Kilobytes and messages that are sent before the peer is asked whether it lives: some milliseconds' worth. The
/// memory of a process that was killed is still there for who has it mapped, and would swallow writes for ever.
const TRUST: i32 = 1 << 14;

/// A send queue. Places in it count up for ever, modulo 2³².
pub(super) struct SendQueue {
    /// Requests are carried out at once.
    live: bool,
    signal_all: bool,
    depth: u32,
    max_pieces: u32,
    max_inline: u32,
    /// The place of the next request to be posted.
    pub(super) posted: u32,
    /// The place of the next request to be carried out.
    done: u32,
    trust: i32,
    route: Option<Route>,
    /// Which of the peer's connections this one's began with.
    joined: Option<u16>,
    patience: Option<Patience>,
    pub(super) requests: Requests,
    pub(super) batch: Batch,
    pub(super) attr: Attributes,
}

/// How a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    status: sys::ibv_wc_status,
    vendor_err: u32,
}

impl Failure {
    pub(super) fn of(status: sys::ibv_wc_status) -> Self {
        Self { status, vendor_err: 0 }
    }

    pub(super) fn remote_access() -> Self {
        Self::of(sys::IBV_WC_REM_ACCESS_ERR)
    }

    pub(super) fn remote_invalid_request() -> Self {
        Self::of(sys::IBV_WC_REM_INV_REQ_ERR)
    }

    /// The kernel would not write to the peer's memory, for the reason `errno`.
    pub(super) fn remote_operation(errno: c_int) -> Self {
        Self { status: sys::IBV_WC_REM_OP_ERR, vendor_err: errno as u32 }
    }
}

/// What became of an attempt.
enum Outcome {
    Done(u64),
    Failed(Failure),
    /// Nobody answers.
    Silent,
}

impl SendQueue {
    pub(super) fn new(init: &sys::ibv_qp_init_attr) -> Self {
        let cap = &init.cap;
        Self {
            live: false,
            signal_all: init.sq_sig_all != 0,
            depth: cap.max_send_wr,
            max_pieces: cap.max_send_sge,
            max_inline: cap.max_inline_data,
            posted: 0,
            done: 0,
            trust: TRUST,
            route: None,
            joined: None,
            patience: None,
            requests: Requests::new(cap.max_send_wr, cap.max_send_sge, cap.max_inline_data),
            batch: Batch::default(),
            attr: Attributes::default(),
        }
    }

    /// As it was made; for a change to RESET.
    pub(super) fn reset(&mut self, qp: &QueuePair) {
        self.live = false;
        self.posted = 0;
        self.done = 0;
        self.forget_peer();
        self.joined = None;
        self.attr = Attributes::default();
        qp.retire(0);
        self.settle(qp);
    }

    /// The peer may have changed, or this end has.
    pub(super) fn forget_peer(&mut self) {
        self.route = None;
        self.trust = TRUST;
    }

    /// A new connection begins.
    pub(super) fn begin_connection(&mut self) {
        self.forget_peer();
        self.joined = None;
    }

    /// Pieces that a request may have.
    pub(super) fn max_pieces(&self) -> u32 {
        self.max_pieces
    }

    /// Bytes of inline data that a request may have.
    #[inline(always)]
    pub(super) fn max_inline(&self) -> u32 {
        self.max_inline
    }

    /// Places that are free.
    #[inline(always)]
    pub(super) fn room(&self, qp: &QueuePair) -> u32 {
        self.depth - self.posted.wrapping_sub(qp.retired.load(Ordering::Acquire))
    }

    /// # Errors
    /// `EINVAL` for a request that the queue pair was not made for.
    ///
    /// # Safety
    /// As for [`Request::pieces`].
    #[inline(always)]
    unsafe fn check(&self, request: &Request) -> Result<()> {
        if request.num_pieces > self.max_pieces || request.opcode != sys::IBV_WR_RDMA_WRITE {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller vouches for the pieces.
        if request.is_inline() && unsafe { request.len() } > self.max_inline.into() {
            return Err(Errno::INVALID);
        }
        Ok(())
    }

    /// Posts one request.
    ///
    /// # Errors
    /// `ENOMEM` where the queue is full, `EINVAL` where the request or the state does not allow it.
    ///
    /// # Safety
    /// As for [`Request::pieces`]; the memory that they name is readable.
    #[inline(always)]
    unsafe fn post(&mut self, qp: &QueuePair, request: &Request) -> Result<()> {
        if self.room(qp) == 0 {
            return Err(Errno::NO_MEMORY);
        }
        // SAFETY: the caller vouches for the pieces and their memory.
        unsafe {
            self.check(request)?;
            if self.live
                && let Outcome::Done(len) = self.carry_out(qp, request)
            {
                self.complete(qp, request, len);
                return Ok(());
            }
            self.post_slowly(qp, request)
        }
    }

    /// Counts a request that was carried out at once, and signals it where it asks for that.
    #[inline(always)]
    pub(super) fn complete(&mut self, qp: &QueuePair, request: &Request, len: u64) {
        self.posted = self.posted.wrapping_add(1);
        self.done = self.posted;
        self.signal(qp, request, len);
    }

    #[inline(always)]
    fn signal(&self, qp: &QueuePair, request: &Request, len: u64) {
        if self.signal_all || request.flags & sys::IBV_SEND_SIGNALED != 0 {
            qp.send_cq().push(self.completion(qp, request, len));
        }
    }

    #[inline(always)]
    fn completion(&self, qp: &QueuePair, request: &Request, len: u64) -> Completion {
        Completion {
            wr_id: request.wr_id,
            qp,
            qpn: qp.number,
            retires: self.done,
            byte_len: len as u32,
            vendor_err: 0,
            imm: 0,
            status: sys::IBV_WC_SUCCESS as u8,
            opcode: sys::IBV_WC_RDMA_WRITE as u8,
            wc_flags: 0,
        }
    }

    /// Posts a request that may have to wait, or to fail.
    ///
    /// # Safety
    /// As for [`SendQueue::post`].
    #[cold]
    unsafe fn post_slowly(&mut self, qp: &QueuePair, request: &Request) -> Result<()> {
        // SAFETY: the caller vouches for the pieces.
        unsafe {
            self.may_post(qp)?;
            self.requests.keep(self.posted, request);
        }
        self.post_kept(qp, 1);
        Ok(())
    }

    /// # Errors
    /// `EINVAL` in a state that takes no requests.
    pub(super) fn may_post(&self, qp: &QueuePair) -> Result<()> {
        let takes = [sys::IBV_QPS_RTS, sys::IBV_QPS_SQD, sys::IBV_QPS_SQE, sys::IBV_QPS_ERR];
        if takes.contains(&qp.state()) { Ok(()) } else { Err(Errno::INVALID) }
    }

    /// Posts the `count` requests that are kept from the next place on.
    pub(super) fn post_kept(&mut self, qp: &QueuePair, count: u32) {
        self.posted = self.posted.wrapping_add(count);
        self.advance(qp);
    }

    /// Carries out what is kept, as far as it can be.
    pub(super) fn advance(&mut self, qp: &QueuePair) {
        while self.done != self.posted && qp.state() == sys::IBV_QPS_RTS {
            let request = *self.requests.at(self.done);
            // SAFETY: a kept request has its pieces in its slot; the program keeps their memory until completion.
            match unsafe { self.carry_out(qp, &request) } {
                Outcome::Done(len) => {
                    self.patience = None;
                    self.done = self.done.wrapping_add(1);
                    self.signal(qp, &request, len);
                }
                Outcome::Failed(failure) => self.fail(qp, failure),
                Outcome::Silent => {
                    let attr = &self.attr.verbs;
                    let patience = self.patience.get_or_insert_with(|| Patience::unanswered(attr));
                    if !patience.is_over() {
                        break;
                    }
                    self.fail(qp, Failure::of(sys::IBV_WC_RETRY_EXC_ERR));
                }
            }
        }
        if qp.state() == sys::IBV_QPS_ERR {
            self.flush(qp);
        }
        self.settle(qp);
    }

    /// Decides what the next post does, and whether polls have to look after this queue.
    fn settle(&mut self, qp: &QueuePair) {
        let idle = self.done == self.posted;
        self.live = idle && qp.state() == sys::IBV_QPS_RTS;
        let waits = !idle && qp.state() == sys::IBV_QPS_RTS;
        if waits != qp.waiting.swap(waits, Ordering::Relaxed) && waits {
            qp.send_cq().add_waiting(qp);
        }
    }

    /// The first request that is kept has failed: it completes with an error, and the queue pair is in error.
    fn fail(&mut self, qp: &QueuePair, failure: Failure) {
        qp.set_state(sys::IBV_QPS_ERR);
        qp.shut();
        self.complete_with(qp, failure);
    }

    /// Posts the requests of a complete batch, all of them or none.
    ///
    /// # Errors
    /// That of building it, or `EINVAL` in a state that takes no requests.
    ///
    /// # Safety
    /// The memory that the requests name is readable.
    #[inline(always)]
    pub(super) unsafe fn complete_batch(&mut self, qp: &QueuePair) -> Result<()> {
        let mut left = self.batch.finish()?;
        while left > 0 && self.live {
            let request = *self.requests.at(self.posted);
            // SAFETY: the request has its pieces in its slot; the caller vouches for their memory.
            let Outcome::Done(len) = (unsafe { self.carry_out(qp, &request) }) else { break };
            self.complete(qp, &request, len);
            left -= 1;
        }
        if left > 0 {
            self.may_post(qp)?;
            self.post_kept(qp, left);
        }
        Ok(())
    }

    /// Completes what is kept without doing it.
    pub(super) fn flush(&mut self, qp: &QueuePair) {
        while self.done != self.posted {
            self.complete_with(qp, Failure::of(sys::IBV_WC_WR_FLUSH_ERR));
        }
        self.settle(qp);
    }

    fn complete_with(&mut self, qp: &QueuePair, failure: Failure) {
        let request = *self.requests.at(self.done);
        self.done = self.done.wrapping_add(1);
        qp.send_cq().push(Completion {
            status: failure.status as u8,
            vendor_err: failure.vendor_err,
            ..self.completion(qp, &request, 0)
        });
    }

    /// Carries out one request.
    ///
    /// # Safety
    /// As for [`SendQueue::post`].
    #[inline(always)]
    unsafe fn carry_out(&mut self, qp: &QueuePair, request: &Request) -> Outcome {
        // SAFETY: the caller vouches for the pieces.
        let (pieces, len) = unsafe { (request.pieces(), request.len()) };
        self.trust -= 1 + (len >> 10) as i32;
        if (self.trust < 0 || self.route.is_none()) && self.reach(qp).is_err() {
            return Outcome::Silent;
        }
        if !request.is_inline()
            && let Err(failure) = qp.check_local(pieces, 0)
        {
            return Outcome::Failed(failure);
        }
        let Some(route) = &mut self.route else { return Outcome::Silent };
        // SAFETY: the pieces were checked, or are inline data.
        match unsafe { route.carry(request, pieces, len) } {
            Some(Ok(())) => Outcome::Done(len),
            Some(Err(failure)) => Outcome::Failed(failure),
            None => self.changed(),
        }
    }

    /// The peer has changed its end: what was known of it does not count any more.
    #[cold]
    fn changed(&mut self) -> Outcome {
        self.forget_peer();
        Outcome::Silent
    }

    /// Finds the peer, or whether it still lives.
    #[cold]
    fn reach(&mut self, qp: &QueuePair) -> std::result::Result<(), Silence> {
        self.trust = TRUST;
        if self.route.as_ref().is_some_and(Route::is_alive) {
            return Ok(());
        }
        self.route = None;
        if self.patience.as_mut().is_some_and(|patience| !patience.may_try()) {
            return Err(Silence);
        }
        let route = Route::find(qp, &self.attr)?;
        // An end that began anew expects sequence numbers that this one does not send any more.
        if self.joined.is_some_and(|joined| joined != route.connection()) {
            return Err(Silence);
        }
        self.joined = Some(route.connection());
        self.route = Some(route);
        Ok(())
    }
}

/// `ibv_post_send`.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut sys::ibv_qp,
    mut wr: *mut sys::ibv_send_wr,
    bad_wr: *mut *mut sys::ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's queue pair is alive, and the list of requests with what they name is readable.
    unsafe {
        let qp = QueuePair::of(qp);
        let mut send = qp.send.lock();
        while let Some(request) = wr.as_ref() {
            if let Err(errno) = send.post(qp, &Request::of(request)) {
                *bad_wr = wr;
                return errno.0;
            }
            wr = request.next;
        }
    }
    0
}
