//! The send queue: requests are carried out when they are posted, by whoever posts them. Only where that can't be
//! (nobody answers, or an earlier request waits) are they kept, and looked at again when the program posts or polls.

use std::sync::atomic::Ordering;

use rdma_sys as sys;

use super::QueuePair;
use super::extended::Batch;
use super::failure::Failure;
use super::modify::Attributes;
use super::pace::Pace;
use super::requests::{Request, Requests};
use super::route::{Carried, Route, Silence};
use crate::cq::Completion;
use crate::device::Device;
use crate::errno::Result;
use crate::progress;
use crate::retry::{Patience, Reason};

/// A send queue. Places in it count up for ever, modulo 2³².
pub(super) struct SendQueue {
    /// Requests are carried out at once.
    pub(super) live: bool,
    signal_all: bool,
    depth: u32,
    pub(super) max_pieces: u32,
    pub(super) max_inline: u32,
    /// The place of the next request to be posted.
    pub(super) posted: u32,
    /// The place of the next request to be carried out.
    done: u32,
    route: Option<Route>,
    /// Which of the peer's connections this one's began with.
    joined: Option<u16>,
    patience: Option<Patience>,
    /// Plans, where requests are not carried out as they are posted.
    pace: Option<Box<Pace>>,
    pub(super) requests: Requests,
    pub(super) batch: Batch,
    pub(super) attr: Attributes,
}

/// What became of an attempt.
pub(super) enum Outcome {
    Done(u64),
    Failed(Failure),
    /// Nobody answers.
    Silent,
    /// The target has no receive: the code of the time to wait.
    NotReady(u8),
}

impl SendQueue {
    pub(super) fn new(init: &sys::ibv_qp_init_attr, device: &'static Device) -> Self {
        let cap = &init.cap;
        Self {
            live: false,
            signal_all: init.sq_sig_all != 0,
            depth: cap.max_send_wr,
            max_pieces: cap.max_send_sge,
            max_inline: cap.max_inline_data,
            posted: 0,
            done: 0,
            route: None,
            joined: None,
            patience: None,
            pace: Pace::new(device, cap.max_send_wr),
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
        self.forget_patience();
        self.pace.iter_mut().for_each(|pace| pace.reset());
        self.joined = None;
        self.attr = Attributes::default();
        qp.retire(0);
        self.settle(qp);
    }

    /// The peer may have changed, or this end has.
    pub(super) fn forget_peer(&mut self) {
        self.route = None;
    }

    /// A new connection begins.
    pub(super) fn begin_connection(&mut self) {
        self.forget_peer();
        self.joined = None;
    }

    /// The place of the next request to be completed.
    pub(super) fn done(&self) -> u32 {
        self.done
    }

    /// Whether it is too early for another try of the first request that is kept.
    pub(super) fn is_to_wait(&mut self) -> bool {
        self.patience.as_mut().is_some_and(|patience| !patience.may_try())
    }

    /// Whether the first request that is kept waits for the peer.
    pub(super) fn is_patient(&self) -> bool {
        self.patience.is_some()
    }

    pub(super) fn forget_patience(&mut self) {
        self.patience = None;
    }

    /// Counts the `count` requests that are kept from the next place on as posted.
    pub(super) fn count_posted(&mut self, count: u32) {
        if let Some(pace) = &mut self.pace {
            for place in (0..count).map(|place| self.posted.wrapping_add(place)) {
                // SAFETY: a kept request has its pieces in its slot.
                pace.make_plan(place, unsafe { self.requests.at(place).len() });
            }
        }
        self.posted = self.posted.wrapping_add(count);
    }

    /// # Errors
    /// What a fault has a call for posting fail with.
    pub(super) fn check_call(&self) -> Result<()> {
        self.pace.as_ref().map_or(Ok(()), |pace| pace.check_call())
    }

    /// Places that are free.
    #[inline(always)]
    pub(super) fn room(&self, qp: &QueuePair) -> u32 {
        self.depth - self.posted.wrapping_sub(qp.retired.load(Ordering::Acquire))
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
            opcode: wc_opcode(request.opcode),
            wc_flags: 0,
            src_qp: 0,
        }
    }

    /// Carries out what is kept, as far as it can be.
    pub(super) fn advance(&mut self, qp: &QueuePair) {
        match self.pace.take() {
            Some(mut pace) => {
                self.advance_by_plan(qp, &mut pace);
                self.pace = Some(pace);
            }
            None => self.advance_at_once(qp),
        }
        if qp.state() == sys::IBV_QPS_ERR {
            self.flush(qp);
        }
        self.settle(qp);
    }

    fn advance_at_once(&mut self, qp: &QueuePair) {
        while self.done != self.posted && qp.state() == sys::IBV_QPS_RTS && !self.is_to_wait() {
            let request = *self.requests.at(self.done);
            // SAFETY: a kept request has its pieces in its slot; the program keeps their memory until completion.
            let outcome = unsafe { self.carry_out(qp, &request) };
            if !self.settle_first(qp, outcome) {
                break;
            }
        }
    }

    /// Does with the first request that is kept what an attempt has come to; false: it waits.
    pub(super) fn settle_first(&mut self, qp: &QueuePair, outcome: Outcome) -> bool {
        let attr = self.attr.verbs;
        let (over, status) = match outcome {
            Outcome::Done(len) => {
                let request = *self.requests.at(self.done);
                self.patience = None;
                self.done = self.done.wrapping_add(1);
                self.signal(qp, &request, len);
                return true;
            }
            Outcome::Failed(failure) => {
                self.fail(qp, failure);
                return true;
            }
            Outcome::Silent => (
                self.is_out_of_patience(Reason::Silence, || Patience::unanswered(&attr)),
                sys::IBV_WC_RETRY_EXC_ERR,
            ),
            Outcome::NotReady(timer) => (
                self.is_out_of_patience(Reason::NotReady, || Patience::not_ready(&attr, timer)),
                sys::IBV_WC_RNR_RETRY_EXC_ERR,
            ),
        };
        if over {
            self.fail(qp, Failure::of(status));
        }
        over
    }

    /// A try has failed for `reason`: whether it was the last.
    fn is_out_of_patience(&mut self, reason: Reason, begin: impl FnOnce() -> Patience) -> bool {
        if self.patience.as_ref().is_none_or(|patience| patience.reason() != reason) {
            self.patience = Some(begin());
        }
        self.patience.as_mut().is_some_and(Patience::is_over)
    }

    /// Decides what the next post does, and whether polls have to look after this queue.
    fn settle(&mut self, qp: &QueuePair) {
        let idle = self.done == self.posted;
        self.live = idle && qp.state() == sys::IBV_QPS_RTS && self.pace.is_none();
        let waits = !idle && qp.state() == sys::IBV_QPS_RTS;
        if waits != qp.waiting.swap(waits, Ordering::Relaxed) && waits {
            qp.send_cq().add_waiting(qp);
            // A target that polls its memory would wait for ever for a message whose sender polls its own.
            if qp.send_cq().has_channel() || self.pace.is_some() {
                progress::look_after(qp.keep());
            }
        }
    }

    /// The first request that is kept has failed: it completes with an error, and the queue pair is in error.
    fn fail(&mut self, qp: &QueuePair, failure: Failure) {
        qp.set_state(sys::IBV_QPS_ERR);
        qp.shut();
        self.patience = None;
        self.complete_with(qp, failure);
        if qp.has_receives() {
            qp.recv_cq().call();
        }
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
    pub(super) unsafe fn carry_out(&mut self, qp: &QueuePair, request: &Request) -> Outcome {
        // SAFETY: the caller vouches for the pieces.
        let (pieces, len) = unsafe { (request.pieces(), request.len()) };
        if self.route.is_none() && self.reach(qp).is_err() {
            return Outcome::Silent;
        }
        let reads = request.opcode == sys::IBV_WR_RDMA_READ;
        let access = if reads { sys::IBV_ACCESS_LOCAL_WRITE } else { 0 };
        if !request.is_inline() {
            match qp.check_local(pieces, access) {
                Ok(0) => {}
                // SAFETY: the pieces were checked.
                Ok(_) => return unsafe { self.carry_out_from_gpu(request, pieces, len) },
                Err(failure) => return Outcome::Failed(failure),
            }
        }
        let Some(route) = &mut self.route else { return Outcome::Silent };
        // SAFETY: the pieces were checked, or are inline data.
        match unsafe { route.carry::<false>(request, pieces, len) } {
            Carried::Done => Outcome::Done(len),
            Carried::Failed(failure) => Outcome::Failed(failure),
            Carried::NotReady(timer) => Outcome::NotReady(timer),
            Carried::Closed => self.changed(),
        }
    }

    /// Carries out a request of which a piece is on a GPU.
    ///
    /// # Safety
    /// As for [`SendQueue::post`]; the pieces were checked.
    #[cold]
    unsafe fn carry_out_from_gpu(&mut self, request: &Request, pieces: &[sys::ibv_sge], len: u64) -> Outcome {
        let Some(route) = &mut self.route else { return Outcome::Silent };
        // SAFETY: the caller vouches for the pieces.
        match unsafe { route.carry_from_gpu(request, pieces, len) } {
            Carried::Done => Outcome::Done(len),
            Carried::Failed(failure) => Outcome::Failed(failure),
            Carried::NotReady(timer) => Outcome::NotReady(timer),
            Carried::Closed => self.changed(),
        }
    }

    /// The peer has changed its end: what was known of it does not count any more.
    #[cold]
    fn changed(&mut self) -> Outcome {
        self.forget_peer();
        Outcome::Silent
    }

    /// Finds the peer.
    #[cold]
    fn reach(&mut self, qp: &QueuePair) -> std::result::Result<(), Silence> {
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

/// The opcode of the completion of a request.
#[inline(always)]
fn wc_opcode(opcode: sys::ibv_wr_opcode) -> u8 {
    let opcode = match opcode {
        sys::IBV_WR_RDMA_WRITE | sys::IBV_WR_RDMA_WRITE_WITH_IMM => sys::IBV_WC_RDMA_WRITE,
        sys::IBV_WR_RDMA_READ => sys::IBV_WC_RDMA_READ,
        _ => sys::IBV_WC_SEND,
    };
    opcode as u8
}
