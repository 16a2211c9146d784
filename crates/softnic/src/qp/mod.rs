//! Reliable-connected queue pairs.

mod copies;
mod create;
mod deliver;
mod extended;
mod failure;
mod local;
mod modify;
mod pace;
mod place;
mod post;
mod receive;
mod requests;
mod route;
mod send;
mod state;

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rdma_sys as sys;

use crate::context::Context;
use crate::cq::CompletionQueue;
use crate::device::Device;
use crate::events::{Acknowledged, AsyncEvent, Subject};
use crate::fabric::{Process, lock};
use crate::lock::Spin;
use crate::mr::ON_GPU;
use crate::pd::ProtectionDomain;
use crate::shared::{QpEntry, Segment, slot_and_index};

pub(crate) use create::Wanted;
use failure::Failure;
pub(crate) use post::post_send;
use receive::ReceiveQueue;
pub(crate) use receive::post_recv;
use send::SendQueue;

/// A queue pair. Shared ([`Arc`]) between the program that made it and a completion queue that looks after it.
#[repr(C)]
pub(crate) struct QueuePair {
    /// What C knows, and in part writes.
    verbs: UnsafeCell<sys::ibv_qp_ex>,
    send: Spin<SendQueue>,
    receive: Spin<ReceiveQueue>,
    /// Its asynchronous events.
    pub(crate) events: Acknowledged,
    /// The place in the send queue up to which the program has polled completions.
    retired: AtomicU32,
    /// The same in the receive queue.
    recv_retired: AtomicU32,
    /// One of the `IBV_QPS_*` values; changed by the holder of `send` only.
    state: AtomicU32,
    /// Whether requests wait.
    waiting: AtomicBool,
    /// When one of them is to be looked at next, in nanoseconds; 0: at no time that is known.
    due: AtomicU64,
    /// What peers see.
    entry: &'static QpEntry,
    /// This process's control segment, for its memory regions.
    segment: &'static Segment,
    process: &'static Process,
    index: u32,
    number: u32,
    pd_number: u32,
    pd: *mut sys::ibv_pd,
    send_cq: *mut sys::ibv_cq,
    recv_cq: *mut sys::ibv_cq,
    init: sys::ibv_qp_init_attr,
}

// SAFETY: the pointers are set once and lead to objects that outlive the queue pair, and that are made for threads;
// what C writes in `verbs` it writes under the rules of verbs, one thread at a time.
unsafe impl Sync for QueuePair {}
// SAFETY: as above.
unsafe impl Send for QueuePair {}

/// How long the end of a registration or a connection waits for a peer that is at work on it: far longer than the
/// largest copy takes, also on a busy machine.
const PEER_LIMIT: Duration = Duration::from_secs(1);

impl QueuePair {
    /// The queue pair behind C's pointer.
    ///
    /// # Safety
    /// `qp` came from [`QueuePair::create`] and is not destroyed.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(qp: *mut sys::ibv_qp) -> &'a Self {
        // SAFETY: the part that C knows comes first.
        unsafe { &*qp.cast_const().cast() }
    }

    /// C's pointer to it.
    pub(crate) fn raw(&self) -> *mut sys::ibv_qp {
        self.verbs.get().cast()
    }

    /// Another holder.
    pub(crate) fn keep(&self) -> Arc<Self> {
        // SAFETY: every queue pair is made by Arc::into_raw, and alive while it is borrowed.
        unsafe {
            Arc::increment_strong_count(self);
            Arc::from_raw(self)
        }
    }

    fn context(&self) -> &Context {
        // SAFETY: the device is closed after everything made on it is gone.
        unsafe { Context::of((*self.raw()).context) }
    }

    fn pd(&self) -> &ProtectionDomain {
        // SAFETY: the domain is freed after everything in it.
        unsafe { ProtectionDomain::of(self.pd) }
    }

    fn send_cq(&self) -> &CompletionQueue {
        // SAFETY: the completion queue is destroyed after the queue pairs that use it.
        unsafe { CompletionQueue::of(self.send_cq) }
    }

    fn recv_cq(&self) -> &CompletionQueue {
        // SAFETY: as above.
        unsafe { CompletionQueue::of(self.recv_cq) }
    }

    fn state(&self) -> sys::ibv_qp_state {
        self.state.load(Ordering::Relaxed)
    }

    /// Only for the holder of the send queue.
    fn set_state(&self, state: sys::ibv_qp_state) {
        self.state.store(state, Ordering::Relaxed);
        self.entry.state.store(state, Ordering::Relaxed);
        // SAFETY: C reads the field, and only for show.
        unsafe { (&raw mut (*self.raw()).state).write_volatile(state) };
    }

    /// Frees the places in the send queue before `place`.
    #[inline(always)]
    pub(crate) fn retire(&self, place: u32) {
        self.retired.store(place, Ordering::Release);
    }

    /// Whether requests wait for the peer or for a time to come.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Goes on with requests that wait, as far as they can be.
    pub(crate) fn advance(&self) {
        self.send.lock().advance(self);
    }

    /// When a request that waits is to be looked at next, as [`crate::clock`] counts; 0: at no time that is known.
    pub(crate) fn next_due(&self) -> u64 {
        self.due.load(Ordering::Relaxed)
    }

    /// Its device.
    pub(crate) fn device(&self) -> &'static Device {
        self.context().device
    }

    /// Whether this process's memory that `pieces` name is registered for the queue pair, with the rights `access`;
    /// gives [`ON_GPU`] where one of them is.
    #[inline(always)]
    fn check_local(&self, pieces: &[sys::ibv_sge], access: u32) -> Result<u32, Failure> {
        let mut kinds = 0;
        let all = pieces.iter().all(|piece| {
            let entry = self.segment.mr(piece.lkey >> 16);
            let has = entry.access.load(Ordering::Relaxed);
            kinds |= has;
            let offset = piece.addr.wrapping_sub(entry.start.load(Ordering::Relaxed));
            let len = entry.len.load(Ordering::Relaxed);
            entry.key.load(Ordering::Acquire) == piece.lkey
                && entry.pd.load(Ordering::Relaxed) == self.pd_number
                && has & access == access
                && offset <= len
                && u64::from(piece.length) <= len - offset
        });
        if all { Ok(kinds & ON_GPU) } else { Err(Failure::of(sys::IBV_WC_LOC_PROT_ERR)) }
    }

    /// Tells this queue pair from others that had its number before.
    pub(crate) fn generation(&self) -> u32 {
        self.entry.generation.load(Ordering::Relaxed)
    }

    /// Raises an asynchronous event of this queue pair.
    fn raise(&self, event_type: u32) {
        let subject = Subject::QueuePair { index: self.index, generation: self.generation() };
        self.context().events.ring(&AsyncEvent { event_type, subject }.to_record());
    }

    /// Closes the entry to its peer. [`QueuePair::keep_peer_out`] tells when a message under way has ended.
    pub(crate) fn shut(&self) {
        self.entry.accepts.store(0, Ordering::Release);
    }

    /// Whether receives are posted that nothing has arrived for.
    fn has_receives(&self) -> bool {
        let posted = self.entry.receives.posted.load(Ordering::Relaxed);
        posted != self.entry.inbound.arrived.load(Ordering::Relaxed)
    }

    /// Closes the entry, and waits until the peer has ended the message that it may be at.
    fn keep_peer_out(&self) {
        self.shut();
        self.process.barriers().owner();
        wait_for_peer(self.process, self.entry);
    }
}

/// Waits until no peer is at work on this process's memory that began before this process closed it: by then each has
/// either ended its message or seen that it may not begin.
pub(crate) fn wait_for_peers(process: &'static Process) {
    process.barriers().owner();
    let indices: Vec<u32> = lock(&process.live_qps).keys().copied().collect();
    for index in indices {
        wait_for_peer(process, process.segment.qp(index));
    }
}

fn wait_for_peer(process: &'static Process, entry: &QpEntry) {
    let begin = Instant::now();
    while entry.inbound.busy.load(Ordering::Acquire) != 0 {
        std::thread::yield_now();
        if begin.elapsed() < Duration::from_millis(10) {
            continue;
        }
        // A process that was killed at work leaves its mark for ever.
        let (slot, _) = slot_and_index(entry.peer.load(Ordering::Relaxed));
        if begin.elapsed() > PEER_LIMIT || process.peer(slot).is_err() {
            entry.inbound.busy.store(0, Ordering::Relaxed);
        }
    }
}
