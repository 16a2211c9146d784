//! Requests on a device with faults, or on which messages take time: each has a plan, made when it is posted, of when
//! it is carried out, when it completes, and what goes wrong.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rdma_sys as sys;

use super::QueuePair;
use super::failure::Failure;
use super::local::Local;
use super::requests::Request;
use super::send::{Outcome, SendQueue};
use crate::clock;
use crate::config::{Effect, Site};
use crate::device::Device;
use crate::mr::ON_GPU;

/// The plans of the requests in a queue.
pub(super) struct Pace {
    device: &'static Device,
    /// As the how many-th queue pair of the device it was made.
    ordinal: u32,
    plans: Box<[Plan]>,
    /// The place of the next request to be carried out. It is ahead of those to be completed.
    carried: u32,
    /// What became of the next request, where earlier ones have to complete first.
    stuck: Option<Failure>,
}

/// One request's plan. Times are in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Plan {
    carry_at: u64,
    complete_at: u64,
    len: u64,
    effect: Option<Effect>,
}

/// Whether requests on `device` need plans.
fn is_needed(device: &Device) -> bool {
    let call = Site::Call(crate::config::Call::PostSend);
    let faulty = [Site::Send, Site::Port, call].into_iter().any(|site| device.faults.has(site));
    faulty || !device.description.model.is_none() || !device.port().active
}

impl Pace {
    /// For a queue of `depth` requests; `None` where requests on `device` are carried out as they are posted.
    pub(super) fn new(device: &'static Device, depth: u32) -> Option<Box<Self>> {
        let ordinal = device.live.made_qps.fetch_add(1, Ordering::Relaxed);
        let plans = || vec![Plan::default(); depth.max(1).next_power_of_two() as usize].into_boxed_slice();
        is_needed(device).then(|| Box::new(Self { device, ordinal, plans: plans(), carried: 0, stuck: None }))
    }

    /// Begins anew.
    pub(super) fn reset(&mut self) {
        self.carried = 0;
        self.stuck = None;
    }

    fn plan(&mut self, place: u32) -> &mut Plan {
        let mask = self.plans.len() - 1;
        &mut self.plans[place as usize & mask]
    }

    /// Makes the plan of the request at `place`, of `len` bytes.
    pub(super) fn make_plan(&mut self, place: u32, len: u64) {
        let effect = self.device.faults.send(self.ordinal);
        self.device.count_request();
        let delay = match effect {
            Some(Effect::Delay(delay)) => delay,
            _ => Duration::ZERO,
        };
        let left = self.device.departure(clock::now(), len);
        let carry_at = left + nanoseconds(self.device.description.model.latency + delay);
        *self.plan(place) = Plan { carry_at, complete_at: 0, len: 0, effect };
    }

    /// # Errors
    /// What a fault has a call for posting fail with.
    pub(super) fn check_call(&self) -> crate::errno::Result<()> {
        self.device.faults.call(crate::config::Call::PostSend)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl SendQueue {
    /// Goes on with what is kept, as far as its plans allow.
    pub(super) fn advance_by_plan(&mut self, qp: &QueuePair, pace: &mut Pace) {
        let now = clock::now();
        loop {
            let carried = self.carry_next(qp, pace, now);
            let completed = self.complete_next(qp, pace, now);
            if !carried && !completed {
                break;
            }
        }
        if qp.state() != sys::IBV_QPS_RTS {
            pace.carried = self.posted;
            pace.stuck = None;
        }
        // A peer that is waited for comes when it comes.
        let due = if self.is_patient() { 0 } else { self.next_due(pace) };
        qp.due.store(due, Ordering::Relaxed);
    }

    /// When something is to be done next; 0: not by any plan.
    fn next_due(&self, pace: &mut Pace) -> u64 {
        let carry = (pace.carried != self.posted).then(|| pace.plan(pace.carried).carry_at);
        let complete = (self.done() != pace.carried).then(|| pace.plan(self.done()).complete_at);
        carry.into_iter().chain(complete).min().unwrap_or(0)
    }

    /// Carries out the next request if its time has come; whether it did anything.
    fn carry_next(&mut self, qp: &QueuePair, pace: &mut Pace, now: u64) -> bool {
        if pace.carried == self.posted || qp.state() != sys::IBV_QPS_RTS || self.is_to_wait() {
            return false;
        }
        let plan = *pace.plan(pace.carried);
        if now < plan.carry_at {
            return false;
        }
        let first = self.done() == pace.carried;
        let outcome = match pace.stuck {
            Some(failure) => Outcome::Failed(failure),
            None => self.attempt(qp, pace, plan.effect),
        };
        match outcome {
            Outcome::Done(len) => {
                self.forget_patience();
                let complete_at = plan.carry_at + nanoseconds(pace.device.description.model.latency);
                *pace.plan(pace.carried) = Plan { len, complete_at, ..plan };
                pace.carried = pace.carried.wrapping_add(1);
                true
            }
            Outcome::Failed(failure) if !first => {
                pace.stuck = Some(failure);
                false
            }
            _ if !first => false,
            outcome => self.settle_first(qp, outcome),
        }
    }

    /// Completes the next request if its time has come; whether it did.
    fn complete_next(&mut self, qp: &QueuePair, pace: &mut Pace, now: u64) -> bool {
        if self.done() == pace.carried || qp.state() != sys::IBV_QPS_RTS {
            return false;
        }
        let plan = *pace.plan(self.done());
        if now < plan.complete_at {
            return false;
        }
        self.settle_first(qp, Outcome::Done(plan.len))
    }

    /// Tries the next request, with what goes wrong with it.
    fn attempt(&mut self, qp: &QueuePair, pace: &Pace, effect: Option<Effect>) -> Outcome {
        let request = *self.requests.at(pace.carried);
        if !pace.device.is_active() {
            return Outcome::Silent;
        }
        match effect {
            Some(Effect::Lost) => Outcome::Silent,
            Some(Effect::Status(status)) => Outcome::Failed(Failure::of(status)),
            // SAFETY: a kept request has its pieces in its slot; the program keeps their memory until completion.
            Some(Effect::Corrupt(offset)) => unsafe { self.carry_out_corrupted(qp, pace, &request, offset) },
            // SAFETY: as above.
            _ => unsafe { self.carry_out(qp, &request) },
        }
    }

    /// Carries out a request with one byte of its message changed.
    ///
    /// # Safety
    /// As for [`SendQueue::carry_out`].
    unsafe fn carry_out_corrupted(
        &mut self,
        qp: &QueuePair,
        pace: &Pace,
        request: &Request,
        offset: Option<u64>,
    ) -> Outcome {
        // SAFETY: the caller vouches for the pieces.
        let (pieces, len) = unsafe { (request.pieces(), request.len()) };
        let local = if request.is_inline() { Ok(0) } else { qp.check_local(pieces, 0) };
        let (Ok(kind), false, false) = (local, len == 0, request.opcode == sys::IBV_WR_RDMA_READ) else {
            // SAFETY: as above.
            return unsafe { self.carry_out(qp, request) };
        };
        let own = (kind & ON_GPU != 0).then_some(qp.segment);
        let mut message = vec![0; len as usize];
        let mut rest = &mut message[..];
        for piece in pieces {
            let (part, behind) = rest.split_at_mut(piece.length as usize);
            // SAFETY: the pieces are readable, and the part is as long as the piece.
            if let Err(failure) = unsafe { Local::of(own, piece).and_then(|local| local.gather(part)) } {
                return Outcome::Failed(failure);
            }
            rest = behind;
        }
        message[pace.device.faults.offset(offset, len) as usize] ^= 0xff;
        let whole = sys::ibv_sge { addr: message.as_ptr() as u64, length: len as u32, lkey: 0 };
        let flags = request.flags | sys::IBV_SEND_INLINE;
        // SAFETY: the one piece is the message just made; inline, its key does not count.
        unsafe { self.carry_out(qp, &Request { pieces: &whole, num_pieces: 1, flags, ..*request }) }
    }
}
