//! Completion queues.

mod ring;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use core::ffi::c_int;
use rdma_sys as sys;

use crate::config::{Call, Site};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::events::{Acknowledged, AsyncEvent, Channel, Subject, record_of};
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
    /// A queue pair has receives that were used, or is in error: set by its peer, or by itself.
    pub(crate) const ARRIVED: u32 = 2;
    /// Polls may be made to fail.
    pub(crate) const FAULTS: u32 = 4;
}

/// Values of a queue's `armed`.
pub(crate) mod armed {
    pub(crate) const NONE: u32 = 0;
    /// The next completion rings.
    pub(crate) const ANY: u32 = 1;
    /// The next one rings that its sender solicited, or that is an error.
    pub(crate) const SOLICITED: u32 = 2;
}

/// A completion queue.
#[repr(C)]
pub(crate) struct CompletionQueue {
    verbs: sys::ibv_cq,
    ring: Spin<Ring>,
    entry: &'static CqEntry,
    index: u32,
    has_channel: bool,
    /// Queue pairs whose requests wait for their peer or for a time to come.
    waiting: Mutex<Vec<Arc<QueuePair>>>,
    /// Queue pairs that use it, once for sends and once for receives.
    users: Mutex<Vec<Arc<QueuePair>>>,
    /// Its events on the channel.
    pub(crate) events: Acknowledged,
    /// Its asynchronous events.
    pub(crate) async_events: Acknowledged,
}

// SAFETY: the part that C knows is not changed once it is made; the rest is made for threads.
unsafe impl Sync for CompletionQueue {}
// SAFETY: as above.
unsafe impl Send for CompletionQueue {}

impl CompletionQueue {
    /// A queue for `cqe` completions, which tells `channel` if there is one; freed by [`CompletionQueue::destroy`].
    ///
    /// # Safety
    /// The channel is alive, and outlives the queue.
    pub(crate) unsafe fn create(
        context: &Context,
        cqe: c_int,
        cq_context: *mut core::ffi::c_void,
        channel: *mut sys::ibv_comp_channel,
    ) -> Result<*mut sys::ibv_cq> {
        context.device.faults.call(Call::CreateCq)?;
        let limits = &context.device.description.limits;
        let entries = u32::try_from(cqe).ok().filter(|cqe| (1..=limits.max_cqe).contains(cqe));
        let entries = entries.ok_or(Errno::INVALID)?;
        context.objects.cqs.add(limits.max_cq)?;
        let index = take(&context.process.cqs).inspect_err(|_| context.objects.cqs.remove())?;
        let entry = context.process.segment.cq(index);
        // SAFETY: the caller vouches for the channel.
        unsafe { prepare(entry, context.process.new_generation(), channel) };
        if context.device.faults.has(Site::Call(Call::PollCq)) {
            entry.attention.store(attention::FAULTS, Ordering::Relaxed);
        }
        let verbs = sys::ibv_cq {
            context: context.raw(),
            channel,
            cq_context,
            handle: index,
            cqe,
            ..Default::default()
        };
        let queue = Box::into_raw(Box::new(Self {
            verbs,
            ring: Spin::new(Ring::new(entries)),
            entry,
            index,
            has_channel: !channel.is_null(),
            waiting: Mutex::default(),
            users: Mutex::default(),
            events: Acknowledged::default(),
            async_events: Acknowledged::default(),
        }));
        lock(&context.process.live_cqs).insert(index, queue.addr());
        Ok(queue.cast())
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

    /// Waits until its events are acknowledged, and frees it.
    ///
    /// # Errors
    /// `EBUSY` while a queue pair uses it.
    ///
    /// # Safety
    /// As for [`CompletionQueue::of`].
    pub(crate) unsafe fn destroy(cq: *mut sys::ibv_cq) -> Result<()> {
        // SAFETY: the caller vouches for the pointer; where nothing uses the queue, it was a Box and is freed once.
        unsafe {
            let queue = Self::of(cq);
            if !lock(&queue.users).is_empty() {
                return Err(Errno::BUSY);
            }
            let context = queue.context();
            lock(&context.process.live_cqs).remove(&queue.index);
            queue.events.wait();
            queue.async_events.wait();
            if queue.has_channel {
                Channel::of(queue.verbs.channel).end_use();
            }
            lock(&context.process.cqs).give(queue.index);
            context.objects.cqs.remove();
            drop(Box::from_raw(cq.cast::<Self>()));
        }
        Ok(())
    }

    fn context(&self) -> &Context {
        // SAFETY: the device is closed after everything made on it is gone.
        unsafe { Context::of(self.verbs.context) }
    }

    /// Where it stands in the control segment.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn generation(&self) -> u32 {
        self.entry.generation.load(Ordering::Relaxed)
    }

    /// Whether a program may sleep until it has a completion.
    pub(crate) fn has_channel(&self) -> bool {
        self.has_channel
    }

    pub(crate) fn begin_use(&self, qp: Arc<QueuePair>) {
        lock(&self.users).push(qp);
    }

    /// Forgets `qp`, which is being destroyed.
    pub(crate) fn end_use(&self, qp: *const QueuePair) {
        lock(&self.waiting).retain(|known| !std::ptr::eq(&**known, qp));
        lock(&self.users).retain(|known| !std::ptr::eq(&**known, qp));
        self.drop_completions_of(qp);
    }

    /// Adds a completion, and rings where that was asked for.
    #[inline(always)]
    pub(crate) fn push(&self, completion: Completion) {
        let fits = self.ring.lock().push(completion);
        if self.has_channel || !fits {
            self.tell(&completion, fits);
        }
    }

    /// Adds a completion of which its maker has told already.
    pub(crate) fn push_quietly(&self, completion: Completion) {
        if !self.ring.lock().push(completion) {
            self.tell_of_overrun();
        }
    }

    #[cold]
    fn tell(&self, completion: &Completion, fits: bool) {
        if !fits {
            self.tell_of_overrun();
        }
        self.ring_if_armed(u32::from(completion.status) != sys::IBV_WC_SUCCESS);
    }

    fn tell_of_overrun(&self) {
        let subject = Subject::CompletionQueue { index: self.index, generation: self.generation() };
        let event = AsyncEvent { event_type: sys::IBV_EVENT_CQ_ERR, subject };
        self.context().events.ring(&event.to_record());
    }

    /// Rings the channel where the queue is armed for it; `urgent`: for a completion that was solicited, or an error.
    fn ring_if_armed(&self, urgent: bool) {
        if self.has_channel && take_armed(self.entry, urgent) {
            // SAFETY: the channel outlives the queue.
            unsafe { Channel::of(self.verbs.channel) }.pipe.ring(&record_of(self.index, self.entry));
        }
    }

    /// Has the next poll look after the queue pairs, and wakes who sleeps until there is one.
    pub(crate) fn call(&self) {
        self.entry.attention.fetch_or(attention::ARRIVED, Ordering::SeqCst);
        self.ring_if_armed(true);
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

    /// Does what there is to do besides taking completions off.
    ///
    /// # Errors
    /// What a fault has the poll fail with.
    #[cold]
    fn attend(&self) -> Result<()> {
        if self.entry.attention.fetch_and(!attention::ARRIVED, Ordering::SeqCst) & attention::ARRIVED != 0 {
            let users = lock(&self.users).clone();
            users.iter().for_each(|qp| qp.take_in());
        }
        let waiting = lock(&self.waiting).clone();
        waiting.iter().for_each(|qp| qp.advance());
        let mut still = lock(&self.waiting);
        still.retain(|qp| qp.is_waiting());
        if still.is_empty() {
            self.entry.attention.fetch_and(!attention::WAITING, Ordering::Relaxed);
        }
        drop(still);
        self.context().device.faults.call(Call::PollCq)
    }
}

/// Makes an entry that of a new queue.
///
/// # Safety
/// The channel is alive, or NULL.
unsafe fn prepare(entry: &CqEntry, generation: u32, channel: *mut sys::ibv_comp_channel) {
    entry.attention.store(0, Ordering::Relaxed);
    entry.armed.store(armed::NONE, Ordering::Relaxed);
    entry.generation.store(generation, Ordering::Relaxed);
    entry.channel.fd.store(-1, Ordering::Relaxed);
    if !channel.is_null() {
        // SAFETY: the caller vouches for the channel.
        let channel = unsafe { Channel::of(channel) };
        channel.begin_use();
        channel.pipe.show(&entry.channel);
    }
}

/// Whether a queue is armed for a completion, and then is not any more: whoever asks rings.
pub(crate) fn take_armed(entry: &CqEntry, urgent: bool) -> bool {
    let now = entry.armed.load(Ordering::SeqCst);
    let wanted = now == armed::ANY || (now == armed::SOLICITED && urgent);
    wanted && entry.armed.compare_exchange(now, armed::NONE, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

/// `ibv_poll_cq`.
pub(crate) unsafe extern "C" fn poll(
    cq: *mut sys::ibv_cq,
    num_entries: c_int,
    wc: *mut sys::ibv_wc,
) -> c_int {
    // SAFETY: the caller's queue is alive.
    let queue = unsafe { CompletionQueue::of(cq) };
    if queue.entry.attention.load(Ordering::Relaxed) != 0
        && let Err(errno) = queue.attend()
    {
        return -errno.0;
    }
    // SAFETY: the caller has room for `num_entries` of them; a queue pair goes after its completions.
    unsafe { queue.ring.lock().take(num_entries, wc, |completion| completion.retire()) }
}

/// `ibv_req_notify_cq`.
pub(crate) unsafe extern "C" fn request_notification(cq: *mut sys::ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller's queue is alive.
    let entry = unsafe { CompletionQueue::of(cq) }.entry;
    let wanted = if solicited_only != 0 { armed::SOLICITED } else { armed::ANY };
    // Who is armed for any completion stays so.
    let next = |now| (now != armed::ANY).then_some(wanted);
    let _ = entry.armed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    0
}
