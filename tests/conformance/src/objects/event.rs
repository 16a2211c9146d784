//! Asynchronous events, and waiting for a file descriptor.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdma_sys as sys;

use super::{Device, MOMENT, SOON};
use crate::fact::{Obstacle, Outcome};
use crate::shown::{Errno, EventType};

/// An event that a device raised.
pub(crate) struct AsyncEvent<'a> {
    device: &'a Device,
    raw: sys::ibv_async_event,
}

impl AsyncEvent<'_> {
    /// Its type.
    pub(crate) fn event_type(&self) -> EventType {
        EventType(self.raw.event_type)
    }

    /// What it is about, to be compared with the identity of a queue pair or completion queue.
    pub(crate) fn element(&self) -> usize {
        // SAFETY: of this union the facts look at the pointers only, and compare addresses.
        unsafe { self.raw.element.qp }.addr()
    }

    /// Says that it was dealt with, so that what it is about can be destroyed.
    pub(crate) fn acknowledge(mut self) {
        // SAFETY: the event came from this library, and is acknowledged once, since this consumes it.
        unsafe { (self.device.verbs.ibv_ack_async_event)(&mut self.raw) };
    }
}

impl Device {
    /// The event that is there, else the errno. The descriptor is made non-blocking first.
    pub(crate) fn event(&self) -> Result<Result<AsyncEvent<'_>, Errno>, Obstacle> {
        make_nonblocking(self.async_fd())?;
        let mut raw = sys::ibv_async_event::default();
        // SAFETY: the context is open and `raw` is ours.
        Ok(match unsafe { (self.verbs.ibv_get_async_event)(self.raw, &mut raw) } {
            0 => Ok(AsyncEvent { device: self, raw }),
            _ => Err(Errno::last()),
        })
    }

    /// The next event.
    pub(crate) fn next_event(&self) -> Result<AsyncEvent<'_>, Obstacle> {
        if !readable(self.async_fd(), SOON)? {
            return Err(Obstacle(format!("no asynchronous event within {SOON:?}")));
        }
        self.event()?.map_err(|errno| Obstacle(format!("ibv_get_async_event: {errno}")))
    }

    /// Whether an event is there, or comes within a moment.
    pub(crate) fn has_event(&self) -> Result<bool, Obstacle> {
        readable(self.async_fd(), MOMENT)
    }

    fn async_fd(&self) -> i32 {
        // SAFETY: the context is open.
        unsafe { (*self.raw).async_fd }
    }
}

/// Lets reads from `fd` fail rather than wait.
pub(super) fn make_nonblocking(fd: i32) -> Outcome {
    // SAFETY: the caller keeps the object alive that the descriptor belongs to.
    let fd = unsafe { borrowed(fd) }?;
    let flags = fcntl(fd, FcntlArg::F_GETFL).map(OFlag::from_bits_retain);
    let set = flags.and_then(|flags| fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)));
    set.map(drop).map_err(|errno| Obstacle(format!("fcntl: {errno}")))
}

/// Whether there is something to read within `limit`.
pub(super) fn readable(fd: i32, limit: Duration) -> Result<bool, Obstacle> {
    // SAFETY: as above.
    let fd = unsafe { borrowed(fd) }?;
    let timeout = PollTimeout::try_from(limit).map_err(|error| Obstacle(format!("poll: {error}")))?;
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut fds, timeout).map(|ready| ready == 1).map_err(|errno| Obstacle(format!("poll: {errno}")))
}

/// # Safety
/// A descriptor that is one must stay open while it is borrowed.
unsafe fn borrowed(fd: i32) -> Result<BorrowedFd<'static>, Obstacle> {
    if fd < 0 {
        return Err(Obstacle(format!("the library gives {fd} as a file descriptor")));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}
