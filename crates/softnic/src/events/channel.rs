//! Completion channels.

use std::sync::atomic::{AtomicU32, Ordering};

use core::ffi::c_void;
use rdma_sys as sys;

use super::pipe::{Pipe, Record, read_record};
use crate::context::Context;
use crate::cq::CompletionQueue;
use crate::errno::{Errno, Result};
use crate::fabric::lock;
use crate::shared::CqEntry;

/// A completion channel. Whoever wants an event writes a record that names the queue.
#[repr(C)]
pub(crate) struct Channel {
    verbs: sys::ibv_comp_channel,
    pub(crate) pipe: Pipe,
    users: AtomicU32,
}

// SAFETY: the part that C knows is not changed once it is made.
unsafe impl Sync for Channel {}
// SAFETY: as above.
unsafe impl Send for Channel {}

impl Channel {
    /// A new one; freed by [`Channel::destroy`].
    pub(crate) fn create(context: &Context) -> Result<*mut sys::ibv_comp_channel> {
        let pipe = Pipe::new()?;
        let verbs = sys::ibv_comp_channel { context: context.raw(), fd: pipe.read_fd(), refcnt: 0 };
        Ok(Box::into_raw(Box::new(Self { verbs, pipe, users: AtomicU32::new(0) })).cast())
    }

    /// The channel behind C's pointer.
    ///
    /// # Safety
    /// `channel` came from [`Channel::create`] and is not destroyed.
    pub(crate) unsafe fn of<'a>(channel: *mut sys::ibv_comp_channel) -> &'a Self {
        // SAFETY: the part that C knows comes first.
        unsafe { &*channel.cast_const().cast() }
    }

    /// # Errors
    /// `EBUSY` while a completion queue uses it.
    ///
    /// # Safety
    /// As for [`Channel::of`].
    pub(crate) unsafe fn destroy(channel: *mut sys::ibv_comp_channel) -> Result<()> {
        // SAFETY: the caller vouches for the pointer; where nothing uses the channel, it was a Box and is freed once.
        unsafe {
            if Self::of(channel).users.load(Ordering::Acquire) > 0 {
                return Err(Errno::BUSY);
            }
            drop(Box::from_raw(channel.cast::<Self>()));
        }
        Ok(())
    }

    pub(crate) fn begin_use(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_use(&self) {
        self.users.fetch_sub(1, Ordering::Release);
    }
}

/// The record that names the queue at `index`.
pub(crate) fn record_of(index: u32, entry: &CqEntry) -> Record {
    [index, entry.generation.load(Ordering::Relaxed), 0, 0]
}

/// Waits for an event, and counts it as taken.
///
/// # Errors
/// `EAGAIN` where the program does not want to wait; what else the kernel has to say.
///
/// # Safety
/// As for [`Channel::of`].
pub(crate) unsafe fn next_completion_event(
    channel: *mut sys::ibv_comp_channel,
) -> Result<(*mut sys::ibv_cq, *mut c_void)> {
    loop {
        // SAFETY: the caller vouches for the channel, whose context is open.
        let (fd, process) = unsafe { ((*channel).fd, Context::of((*channel).context).process) };
        let [index, generation, ..] = read_record(fd)?;
        let live = lock(&process.live_cqs);
        // An event of a queue that has gone meanwhile is nobody's.
        let queue = live.get(&index).map(|&pointer| pointer as *mut sys::ibv_cq);
        let same = process.segment.cq(index).generation.load(Ordering::Relaxed) == generation;
        if let Some(queue) = queue.filter(|_| same) {
            // SAFETY: a queue is taken from the list before it goes.
            unsafe {
                CompletionQueue::of(queue).events.take();
                return Ok((queue, (*queue).cq_context));
            }
        }
    }
}
