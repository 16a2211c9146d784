//! Queue pairs.

use std::cell::Cell;
use std::ptr;
use std::rc::Rc;

use rdma_sys as sys;

use super::request::{post_receives, post_sends};
use super::{Change, Connection, Cq, Extended, Pd, Posted, Receive, Refused, Request};
use crate::fact::{Obstacle, Outcome};
use crate::shown::{Errno, State};

/// What a queue pair is asked to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpShape {
    pub(crate) qp_type: u32,
    pub(crate) send_wr: u32,
    pub(crate) recv_wr: u32,
    pub(crate) send_sge: u32,
    pub(crate) recv_sge: u32,
    pub(crate) inline: u32,
    /// Every request completes with a completion.
    pub(crate) signal_all: bool,
    /// The user's own number.
    pub(crate) context: usize,
}

impl Default for QpShape {
    fn default() -> Self {
        Self {
            qp_type: sys::IBV_QPT_RC,
            send_wr: 16,
            recv_wr: 16,
            send_sge: 4,
            recv_sge: 4,
            inline: 64,
            signal_all: false,
            context: 0,
        }
    }
}

/// `ibv_qp_cap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QpLimits {
    pub(crate) send_wr: u32,
    pub(crate) recv_wr: u32,
    pub(crate) send_sge: u32,
    pub(crate) recv_sge: u32,
    pub(crate) inline: u32,
}

impl QpLimits {
    fn of(cap: &sys::ibv_qp_cap) -> Self {
        Self {
            send_wr: cap.max_send_wr,
            recv_wr: cap.max_recv_wr,
            send_sge: cap.max_send_sge,
            recv_sge: cap.max_recv_sge,
            inline: cap.max_inline_data,
        }
    }
}

/// What `ibv_query_qp` answers.
pub(crate) struct Queried {
    pub(crate) attr: sys::ibv_qp_attr,
    pub(crate) init: sys::ibv_qp_init_attr,
}

impl Queried {
    /// The limits in the attributes.
    pub(crate) fn limits(&self) -> QpLimits {
        QpLimits::of(&self.attr.cap)
    }

    /// The limits in the creation attributes.
    pub(crate) fn initial_limits(&self) -> QpLimits {
        QpLimits::of(&self.init.cap)
    }
}

/// A queue pair.
pub(crate) struct Qp {
    pd: Rc<Pd>,
    send_cq: Rc<Cq>,
    recv_cq: Rc<Cq>,
    raw: *mut sys::ibv_qp,
    granted: QpLimits,
    live: Cell<bool>,
}

impl Qp {
    /// One made by `ibv_create_qp`.
    pub(crate) fn new(
        pd: &Rc<Pd>,
        send_cq: &Rc<Cq>,
        recv_cq: &Rc<Cq>,
        shape: &QpShape,
    ) -> Result<Self, Refused> {
        let mut attr = sys::ibv_qp_init_attr {
            qp_context: ptr::without_provenance_mut(shape.context),
            send_cq: send_cq.raw,
            recv_cq: recv_cq.raw,
            cap: capacity(shape),
            qp_type: shape.qp_type,
            sq_sig_all: i32::from(shape.signal_all),
            ..Default::default()
        };
        // SAFETY: domain and completion queues are alive, and outlive the queue pair, which holds them.
        let raw = unsafe { (pd.device().verbs().ibv_create_qp)(pd.raw, &mut attr) };
        Self::made(pd, send_cq, recv_cq, raw, &attr.cap).ok_or_else(|| Refused::last("ibv_create_qp"))
    }

    /// One made by `ibv_create_qp_ex`, for the operations of `ops`.
    pub(crate) fn with_operations(
        pd: &Rc<Pd>,
        send_cq: &Rc<Cq>,
        recv_cq: &Rc<Cq>,
        shape: &QpShape,
        ops: u64,
    ) -> Result<Self, Refused> {
        let mut attr = sys::ibv_qp_init_attr_ex {
            qp_context: ptr::without_provenance_mut(shape.context),
            send_cq: send_cq.raw,
            recv_cq: recv_cq.raw,
            cap: capacity(shape),
            qp_type: shape.qp_type,
            sq_sig_all: i32::from(shape.signal_all),
            comp_mask: sys::IBV_QP_INIT_ATTR_PD | sys::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            pd: pd.raw,
            send_ops_flags: ops,
            ..Default::default()
        };
        // SAFETY: as above.
        let raw = unsafe { sys::ibv_create_qp_ex(pd.device().verbs(), pd.device().raw, &mut attr) };
        Self::made(pd, send_cq, recv_cq, raw, &attr.cap).ok_or_else(|| Refused::last("ibv_create_qp_ex"))
    }

    fn made(
        pd: &Rc<Pd>,
        send_cq: &Rc<Cq>,
        recv_cq: &Rc<Cq>,
        raw: *mut sys::ibv_qp,
        cap: &sys::ibv_qp_cap,
    ) -> Option<Self> {
        (!raw.is_null()).then(|| Self {
            pd: Rc::clone(pd),
            send_cq: Rc::clone(send_cq),
            recv_cq: Rc::clone(recv_cq),
            raw,
            granted: QpLimits::of(cap),
            live: Cell::new(true),
        })
    }

    /// Its number.
    pub(crate) fn qpn(&self) -> u32 {
        // SAFETY: the queue pair is alive.
        unsafe { (*self.raw).qp_num }
    }

    /// A number that tells it from others, as events name it.
    pub(crate) fn identity(&self) -> usize {
        self.raw.addr()
    }

    /// What creation wrote back.
    pub(crate) fn granted(&self) -> QpLimits {
        self.granted
    }

    /// What the library wrote into the `ibv_qp`: the user's context, and whether all else in it is ours.
    pub(crate) fn fields(&self) -> (usize, bool) {
        // SAFETY: the queue pair is alive.
        let qp = unsafe { &*self.raw };
        let ours = qp.context == self.pd.device().raw
            && qp.pd == self.pd.raw
            && qp.send_cq == self.send_cq.raw
            && qp.recv_cq == self.recv_cq.raw
            && qp.srq.is_null()
            && qp.qp_type == sys::IBV_QPT_RC;
        (qp.qp_context.addr(), ours)
    }

    /// The state that the library keeps in the `ibv_qp`, without asking the device.
    pub(crate) fn kept_state(&self) -> State {
        // SAFETY: the queue pair is alive.
        State(unsafe { (*self.raw).state })
    }

    /// Asks for `change`.
    pub(crate) fn modify(&self, mut change: Change) -> Errno {
        // SAFETY: the queue pair is alive and the attributes are ours; a wrong mask is what some facts are about.
        Errno(unsafe {
            (self.pd.device().verbs().ibv_modify_qp)(self.raw, &mut change.attr, change.mask as i32)
        })
    }

    /// Asks for `change`, which has to succeed for the fact to go on.
    pub(crate) fn must(&self, change: Change) -> Outcome {
        match self.modify(change) {
            Errno::DONE => Ok(()),
            errno => {
                let to = State(change.attr.qp_state);
                Err(Obstacle(format!("ibv_modify_qp to {to}, mask {:#x}: {errno}", change.mask)))
            }
        }
    }

    /// Takes a queue pair in RESET to `state`, one of INIT, RTR, RTS, SQD and ERR.
    pub(crate) fn take_to(&self, state: State, to: &Connection) -> Outcome {
        let way: &[State] = match state {
            State::RESET => &[],
            State::INIT => &[State::INIT],
            State::RTR => &[State::INIT, State::RTR],
            State::RTS => &[State::INIT, State::RTR, State::RTS],
            State::SQD => &[State::INIT, State::RTR, State::RTS, State::SQD],
            _ => &[State::INIT, State::ERR],
        };
        way.iter().try_for_each(|step| self.must(Change::toward(*step, to)))
    }

    /// All attributes, as the device has them.
    pub(crate) fn query(&self) -> Result<Queried, Obstacle> {
        // Every attribute that RC has.
        const MASK: u32 = 0x1f_ffff;
        let mut attr = sys::ibv_qp_attr::default();
        let mut init = sys::ibv_qp_init_attr::default();
        // SAFETY: the queue pair is alive; both structures are ours.
        let errno = Errno(unsafe {
            (self.pd.device().verbs().ibv_query_qp)(self.raw, &mut attr, MASK as i32, &mut init)
        });
        match errno {
            Errno::DONE => Ok(Queried { attr, init }),
            errno => Err(Obstacle(format!("ibv_query_qp: {errno}"))),
        }
    }

    /// The state, as the device has it.
    pub(crate) fn state(&self) -> Result<State, Obstacle> {
        Ok(State(self.query()?.attr.qp_state))
    }

    /// Posts `requests` in one call.
    pub(crate) fn post(&self, requests: &[Request]) -> Posted {
        // SAFETY: the queue pair is alive, the list lives during the call, and the memory that it names is
        // registered by regions that outlive the queue pair, or not at all.
        post_sends(requests, |wr, bad| unsafe { sys::ibv_post_send(self.raw, wr, bad) })
    }

    /// Posts `receives` in one call.
    pub(crate) fn post_recv(&self, receives: &[Receive]) -> Posted {
        // SAFETY: as above.
        post_receives(receives, |wr, bad| unsafe { sys::ibv_post_recv(self.raw, wr, bad) })
    }

    /// Posts `requests`, which have to be taken for the fact to go on.
    pub(crate) fn must_post(&self, requests: &[Request]) -> Outcome {
        taken("ibv_post_send", self.post(requests))
    }

    /// Posts `receives`, which have to be taken for the fact to go on.
    pub(crate) fn must_receive(&self, receives: &[Receive]) -> Outcome {
        taken("ibv_post_recv", self.post_recv(receives))
    }

    /// Its face for extended posting; `None` where it has none.
    pub(crate) fn extended(&self) -> Option<Extended<'_>> {
        let convert = self.pd.device().verbs().ibv_qp_to_qp_ex?;
        // SAFETY: the queue pair is alive.
        Extended::new(self, unsafe { convert(self.raw) })
    }

    /// Destroys it, or is told why not.
    pub(crate) fn destroy(&self) -> Errno {
        // SAFETY: the queue pair is alive: only a call that succeeds destroys it, and that is remembered.
        let errno = Errno(unsafe { (self.pd.device().verbs().ibv_destroy_qp)(self.raw) });
        self.live.set(errno != Errno::DONE);
        errno
    }

    /// What another thread needs to destroy it. The queue pair counts as destroyed from now on.
    pub(crate) fn destroyer(&self) -> impl FnOnce() -> Errno + Send + use<> {
        self.live.set(false);
        let call = self.pd.device().verbs().ibv_destroy_qp;
        let raw = self.raw.expose_provenance();
        // SAFETY: verbs may be called from any thread; the caller waits for this one before the device is closed.
        move || Errno(unsafe { call(ptr::with_exposed_provenance_mut(raw)) })
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        if self.live.get() {
            self.destroy();
        }
    }
}

fn taken(call: &str, posted: Posted) -> Outcome {
    if posted == Posted::ALL { Ok(()) } else { Err(Obstacle(format!("{call}: {posted}"))) }
}

fn capacity(shape: &QpShape) -> sys::ibv_qp_cap {
    sys::ibv_qp_cap {
        max_send_wr: shape.send_wr,
        max_recv_wr: shape.recv_wr,
        max_send_sge: shape.send_sge,
        max_recv_sge: shape.recv_sge,
        max_inline_data: shape.inline,
    }
}
