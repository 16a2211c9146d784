//! Completion queues, completions, and the channel that tells of them.

use std::cell::Cell;
use std::fmt;
use std::ptr;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use rdma_sys as sys;
use serde::{Deserialize, Serialize};

use super::event::{make_nonblocking, readable};
use super::{Device, MOMENT, Refused, SOON, WHILE};
use crate::fact::Obstacle;
use crate::shown::{Errno, Opcode, Status, list};

/// A completion, of which everything but `id`, `status` and `qpn` holds only for a successful one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Completion {
    pub(crate) id: u64,
    pub(crate) status: Status,
    pub(crate) opcode: Opcode,
    pub(crate) byte_len: u32,
    /// The immediate data in host byte order, where there is some.
    pub(crate) imm: Option<u32>,
    pub(crate) qpn: u32,
}

impl Completion {
    fn of(wc: &sys::ibv_wc) -> Self {
        let with_imm = wc.wc_flags & sys::IBV_WC_WITH_IMM != 0;
        Self {
            id: wc.wr_id,
            status: Status(wc.status),
            opcode: Opcode(wc.opcode),
            byte_len: wc.byte_len,
            // SAFETY: both members of the union are four plain bytes.
            imm: with_imm.then(|| u32::from_be(unsafe { wc.__bindgen_anon_1.imm_data })),
            qpn: wc.qp_num,
        }
    }
}

impl fmt::Display for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id, self.status)
    }
}

/// A completion queue.
pub(crate) struct Cq {
    device: Rc<Device>,
    channel: Option<Rc<Channel>>,
    pub(super) raw: *mut sys::ibv_cq,
    live: Cell<bool>,
}

impl Cq {
    /// A queue of at least `entries`, with `context` for the user, telling `channel`, on the first vector.
    pub(super) fn new(
        device: &Rc<Device>,
        entries: i32,
        context: usize,
        channel: Option<&Rc<Channel>>,
        vector: i32,
    ) -> Result<Rc<Self>, Refused> {
        let raw_channel = channel.map_or(ptr::null_mut(), |channel| channel.raw);
        let user = ptr::without_provenance_mut(context);
        // SAFETY: the context is open, and the channel outlives the queue, which holds it.
        let raw = unsafe { (device.verbs.ibv_create_cq)(device.raw, entries, user, raw_channel, vector) };
        if raw.is_null() {
            return Err(Refused::last("ibv_create_cq"));
        }
        let channel = channel.cloned();
        Ok(Rc::new(Self { device: Rc::clone(device), channel, raw, live: Cell::new(true) }))
    }

    /// How many entries it has.
    pub(crate) fn entries(&self) -> i32 {
        // SAFETY: the queue is alive.
        unsafe { (*self.raw).cqe }
    }

    /// What the library wrote into the `ibv_cq`: the user's context, and whether context and channel are ours.
    pub(crate) fn fields(&self) -> (usize, bool) {
        // SAFETY: the queue is alive.
        let cq = unsafe { &*self.raw };
        let channel = self.channel.as_ref().map_or(ptr::null_mut(), |channel| channel.raw);
        (cq.cq_context.addr(), cq.context == self.device.raw && cq.channel == channel)
    }

    /// A number that tells it from others, as events name it.
    pub(crate) fn identity(&self) -> usize {
        self.raw.addr()
    }

    /// Takes up to `room` completions; the verb's own answer where it is negative.
    pub(crate) fn poll(&self, room: usize) -> Result<Vec<Completion>, Obstacle> {
        let mut wcs = vec![sys::ibv_wc::default(); room];
        // SAFETY: the queue is alive and there is room for as many.
        let found = unsafe { sys::ibv_poll_cq(self.raw, room as i32, wcs.as_mut_ptr()) };
        match usize::try_from(found) {
            Ok(count) if count <= room => Ok(wcs[..count].iter().map(Completion::of).collect()),
            _ => Err(Obstacle(format!("ibv_poll_cq with room for {room} answered {found}"))),
        }
    }

    /// The next `count` completions, in the order they were polled in.
    pub(crate) fn take(&self, count: usize) -> Result<Vec<Completion>, Obstacle> {
        let taken = self.collect(SOON, |taken| taken.len() >= count)?;
        if taken.len() == count {
            return Ok(taken);
        }
        let (came, words) = (taken.len(), list(taken));
        Err(Obstacle(format!("{came} of {count} completions came within {SOON:?}: {words}")))
    }

    /// What comes of `count` completions in a while.
    pub(crate) fn some(&self, count: usize) -> Result<String, Obstacle> {
        self.collect(WHILE, |taken| taken.len() >= count).map(list)
    }

    /// The completions up to that of `id`.
    pub(crate) fn up_to(&self, id: u64) -> Result<String, Obstacle> {
        self.collect(SOON, |taken| taken.last().is_some_and(|last| last.id == id)).map(list)
    }

    /// The next completion.
    pub(crate) fn one(&self) -> Result<Completion, Obstacle> {
        Ok(self.take(1)?[0])
    }

    /// What comes within a moment, where nothing should.
    pub(crate) fn rest(&self) -> Result<String, Obstacle> {
        self.collect(MOMENT, |_| false).map(list)
    }

    /// Polls one by one until the completions taken are `enough`, or `limit` is over.
    fn collect(
        &self,
        limit: Duration,
        enough: impl Fn(&[Completion]) -> bool,
    ) -> Result<Vec<Completion>, Obstacle> {
        let mut taken = Vec::new();
        let deadline = Instant::now() + limit;
        while !enough(&taken) {
            match self.poll(1)?.pop() {
                Some(completion) => taken.push(completion),
                None if Instant::now() >= deadline => break,
                // A device in software, and the peer's process, may need this processor.
                None => thread::yield_now(),
            }
        }
        Ok(taken)
    }

    /// Asks for an event at the next completion.
    pub(crate) fn arm(&self, wanted: CqEvent) -> Errno {
        // SAFETY: the queue is alive; facts arm only those with a channel.
        Errno(unsafe { sys::ibv_req_notify_cq(self.raw, i32::from(wanted == CqEvent::Solicited)) })
    }

    /// Says that `count` of its events were dealt with.
    pub(crate) fn acknowledge(&self, count: u32) {
        // SAFETY: the queue is alive, and the events were taken from its channel.
        unsafe { (self.device.verbs.ibv_ack_cq_events)(self.raw, count) };
    }

    /// Destroys it, or is told why not.
    pub(crate) fn destroy(&self) -> Errno {
        // SAFETY: the queue is alive: only a call that succeeds destroys it, and that is remembered.
        let errno = Errno(unsafe { (self.device.verbs.ibv_destroy_cq)(self.raw) });
        self.live.set(errno != Errno::DONE);
        errno
    }

    /// What another thread needs to destroy it. The queue counts as destroyed from now on.
    pub(crate) fn destroyer(&self) -> impl FnOnce() -> Errno + Send + use<> {
        self.live.set(false);
        let call = self.device.verbs.ibv_destroy_cq;
        let raw = self.raw.expose_provenance();
        // SAFETY: verbs may be called from any thread; the caller waits for this one before the device is closed.
        move || Errno(unsafe { call(ptr::with_exposed_provenance_mut(raw)) })
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        if self.live.get() {
            self.destroy();
        }
    }
}

/// Which completions raise an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CqEvent {
    /// Any.
    Any,
    /// Receives that the sender marked as solicited, and failures.
    Solicited,
}

/// A completion channel, not blocking.
pub(crate) struct Channel {
    device: Rc<Device>,
    pub(super) raw: *mut sys::ibv_comp_channel,
    live: Cell<bool>,
}

impl Channel {
    pub(super) fn new(device: &Rc<Device>) -> Result<Rc<Self>, Obstacle> {
        // SAFETY: the context is open.
        let raw = unsafe { (device.verbs.ibv_create_comp_channel)(device.raw) };
        if raw.is_null() {
            return Err(Refused::last("ibv_create_comp_channel").into());
        }
        let channel = Self { device: Rc::clone(device), raw, live: Cell::new(true) };
        make_nonblocking(channel.fd())?;
        Ok(Rc::new(channel))
    }

    fn fd(&self) -> i32 {
        // SAFETY: the channel is alive.
        unsafe { (*self.raw).fd }
    }

    /// The event that is there: which queue, and its user's context. Else the errno.
    pub(crate) fn event(&self) -> Result<(usize, usize), Errno> {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is alive and the two pointers are ours.
        match unsafe { (self.device.verbs.ibv_get_cq_event)(self.raw, &mut cq, &mut context) } {
            0 => Ok((cq.addr(), context.addr())),
            _ => Err(Errno::last()),
        }
    }

    /// The next event, slept for.
    pub(crate) fn next(&self) -> Result<(usize, usize), Obstacle> {
        if !readable(self.fd(), SOON)? {
            return Err(Obstacle(format!("no completion event within {SOON:?}")));
        }
        self.event().map_err(|errno| Obstacle(format!("ibv_get_cq_event: {errno}")))
    }

    /// Whether an event is there, or comes within a moment.
    pub(crate) fn has_event(&self) -> Result<bool, Obstacle> {
        readable(self.fd(), MOMENT)
    }

    /// Destroys it, or is told why not.
    pub(crate) fn destroy(&self) -> Errno {
        // SAFETY: the channel is alive: only a call that succeeds destroys it, and that is remembered.
        let errno = Errno(unsafe { (self.device.verbs.ibv_destroy_comp_channel)(self.raw) });
        self.live.set(errno != Errno::DONE);
        errno
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if self.live.get() {
            self.destroy();
        }
    }
}
