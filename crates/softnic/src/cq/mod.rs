//! Completion queues.

mod ring;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use core::ffi::c_int;
use rdma_sys as sys;

use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::fabric::{lock, take};
use crate::lock::Spin;
use crate::qp::QueuePair;
use crate::shared::CqEntry;

pub(crate) use ring::Completion;
use ring::Ring;

/// Bits of a queue's `attention`: work for the next poll, besides taking completions off.
pub(crate) mod attention {
    /// A queue pair has requests that wait.
    pub(crate) const WAITING: u32 = 1;
}

/// A completion queue.
#[repr(C)]
pub(crate) struct CompletionQueue {
    verbs: sys::ibv_cq,
    ring: Spin<Ring>,
    entry: &'static CqEntry,
    index: u32,
    /// Queue pairs whose requests wait for their peer or for a time to come.
    waiting: Mutex<Vec<Arc<QueuePair>>>,
    users: AtomicU32,
}

// SAFETY: the part that C knows is not changed once it is made; the rest is made for threads.
unsafe impl Sync for CompletionQueue {}
// SAFETY: as above.
unsafe impl Send for CompletionQueue {}

impl CompletionQueue {
    /// A queue for `cqe` completions; freed by [`CompletionQueue::destroy`].
    pub(crate) fn create(
        context: &Context,
        cqe: c_int,
        cq_context: *mut core::ffi::c_void,
    ) -> Result<*mut sys::ibv_cq> {
        let limits = &context.device.description.limits;
        let entries = u32::try_from(cqe).ok().filter(|cqe| (1..=limits.max_cqe).contains(cqe));
        let entries = entries.ok_or(Errno::INVALID)?;
        context.objects.cqs.add(limits.max_cq)?;
        let index = take(&context.process.cqs).inspect_err(|_| context.objects.cqs.remove())?;
        let entry = context.process.segment.cq(index);
        entry.attention.store(0, Ordering::Relaxed);
        let verbs =
            sys::ibv_cq { context: context.raw(), cq_context, handle: index, cqe, ..Default::default() };
        let queue = Self {
            verbs,
            ring: Spin::new(Ring::new(entries)),
            entry,
            index,
            waiting: Mutex::default(),
            users: AtomicU32::new(0),
        };
        Ok(Box::into_raw(Box::new(queue)).cast())
    }

    /// The queue behind C's pointer.
    ///
    /// # Safety
    /// `cq` came from [`CompletionQueue::create`] and is not destroyed.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(cq: *mut sys::ibv_cq) -> &'a Self {
        // SAFETY: the part that C knows comes first.
        unsafe { &*cq.cast_const().cast() }
    }

    /// # Errors
    /// `EBUSY` while a queue pair uses it.
    ///
    /// # Safety
    /// As for [`CompletionQueue::of`].
    pub(crate) unsafe fn destroy(cq: *mut sys::ibv_cq) -> Result<()> {
        // SAFETY: the caller vouches for the pointer; where nothing uses the queue, it was a Box and is freed once.
        unsafe {
            let queue = Self::of(cq);
            if queue.users.load(Ordering::Acquire) > 0 {
                return Err(Errno::BUSY);
            }
            let context = Context::of(queue.verbs.context);
            lock(&context.process.cqs).give(queue.index);
            context.objects.cqs.remove();
            drop(Box::from_raw(cq.cast::<Self>()));
        }
        Ok(())
    }

    pub(crate) fn begin_use(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_use(&self) {
        self.users.fetch_sub(1, Ordering::Release);
    }

    /// Adds a completion.
    #[inline(always)]
    pub(crate) fn push(&self, completion: Completion) {
        self.ring.lock().push(completion);
    }

    /// Drops the completions of `qp`, which is reset or destroyed: a program that polls afterwards has no use for
    /// them, and adapters do the same.
    pub(crate) fn drop_completions_of(&self, qp: *const QueuePair) {
        self.ring.lock().drop_of(qp);
    }

    /// From now on polls look after `qp`, too.
    pub(crate) fn add_waiting(&self, qp: &QueuePair) {
        let mut waiting = lock(&self.waiting);
        if !waiting.iter().any(|known| std::ptr::eq(&**known, qp)) {
            waiting.push(qp.keep());
        }
        self.entry.attention.fetch_or(attention::WAITING, Ordering::Relaxed);
    }

    /// Forgets `qp`, which is being destroyed.
    pub(crate) fn remove_waiting(&self, qp: *const QueuePair) {
        lock(&self.waiting).retain(|known| !std::ptr::eq(&**known, qp));
    }

    #[cold]
    fn attend(&self) {
        let waiting = lock(&self.waiting).clone();
        waiting.iter().for_each(|qp| qp.advance());
        let mut still = lock(&self.waiting);
        still.retain(|qp| qp.is_waiting());
        if still.is_empty() {
            self.entry.attention.fetch_and(!attention::WAITING, Ordering::Relaxed);
        }
    }
}

/// `ibv_poll_cq`.
pub(crate) unsafe extern "C" fn poll(
    cq: *mut sys::ibv_cq,
    num_entries: c_int,
    wc: *mut sys::ibv_wc,
) -> c_int {
    // SAFETY: the caller's queue is alive.
    let queue = unsafe { CompletionQueue::of(cq) };
    if queue.entry.attention.load(Ordering::Relaxed) != 0 {
        queue.attend();
    }
    // SAFETY: the caller has room for `num_entries` of them.
    unsafe { queue.ring.lock().take(num_entries, wc) }
}

/// `ibv_req_notify_cq`.
pub(crate) unsafe extern "C" fn request_notification(_cq: *mut sys::ibv_cq, _solicited_only: c_int) -> c_int {
    libc::EOPNOTSUPP
}
