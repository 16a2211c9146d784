//! Posting: what a program hands over is checked, and carried out at once where that can be.

use core::ffi::c_int;
use rdma_sys as sys;

use super::QueuePair;
use super::requests::Request;
use super::send::{Outcome, SendQueue};
use crate::errno::{Errno, Result};

impl SendQueue {
    /// # Errors
    /// `EINVAL` for a request that the queue pair was not made for.
    ///
    /// # Safety
    /// As for [`Request::pieces`].
    #[inline(always)]
    unsafe fn check(&self, request: &Request) -> Result<()> {
        if request.num_pieces > self.max_pieces || request.opcode > sys::IBV_WR_RDMA_READ {
            return Err(Errno::INVALID);
        }
        if request.is_inline() {
            // SAFETY: the caller vouches for the pieces.
            let len = unsafe { request.len() };
            if request.opcode == sys::IBV_WR_RDMA_READ || len > self.max_inline.into() {
                return Err(Errno::INVALID);
            }
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
            if !self.live {
                return self.post_slowly(qp, request, None);
            }
            match self.carry_out(qp, request) {
                Outcome::Done(len) => {
                    self.complete(qp, request, len);
                    Ok(())
                }
                outcome => self.post_slowly(qp, request, Some(outcome)),
            }
        }
    }

    /// Posts a request that may have to wait, or to fail; what became of a first attempt, if there was one.
    ///
    /// # Safety
    /// As for [`SendQueue::post`].
    #[cold]
    unsafe fn post_slowly(
        &mut self,
        qp: &QueuePair,
        request: &Request,
        first: Option<Outcome>,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the pieces.
        unsafe {
            self.may_post(qp)?;
            self.requests.keep(self.posted, request);
        }
        self.post_kept(qp, 1, first);
        Ok(())
    }

    /// # Errors
    /// `EINVAL` in a state that takes no requests, or what a fault has in mind.
    pub(super) fn may_post(&self, qp: &QueuePair) -> Result<()> {
        let takes = [sys::IBV_QPS_RTS, sys::IBV_QPS_SQD, sys::IBV_QPS_SQE, sys::IBV_QPS_ERR];
        if takes.contains(&qp.state()) { self.check_call() } else { Err(Errno::INVALID) }
    }

    /// Posts the `count` requests that are kept from the next place on; what became of a first attempt at the first of
    /// them counts, if there was one.
    fn post_kept(&mut self, qp: &QueuePair, count: u32, first: Option<Outcome>) {
        self.count_posted(count);
        if let Some(outcome) = first {
            self.settle_first(qp, outcome);
        }
        self.advance(qp);
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
            match unsafe { self.carry_out(qp, &request) } {
                Outcome::Done(len) => self.complete(qp, &request, len),
                outcome => {
                    self.post_kept(qp, left, Some(outcome));
                    return Ok(());
                }
            }
            left -= 1;
        }
        if left > 0 {
            self.may_post(qp)?;
            self.post_kept(qp, left, None);
        }
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
