//! Making queue pairs, and taking them away.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rdma_sys as sys;

use super::receive::ReceiveQueue;
use super::send::SendQueue;
use super::{QueuePair, extended};
use crate::config::{Call, Limits};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::events::Acknowledged;
use crate::fabric::{lock, take};
use crate::lock::Spin;
use crate::pd::ProtectionDomain;
use crate::progress;
use crate::shared::qpn;

/// What a program asks for.
pub(crate) struct Wanted {
    pub(crate) pd: *mut sys::ibv_pd,
    pub(crate) init: sys::ibv_qp_init_attr,
    /// `IBV_QP_EX_WITH_*` bits; `None`: no extended posting.
    pub(crate) send_ops: Option<u64>,
}

impl Wanted {
    /// # Errors
    /// `EINVAL` for what can't be, `EOPNOTSUPP` for what other devices might do.
    fn check(&self, limits: &Limits) -> Result<()> {
        let init = &self.init;
        if init.qp_type != sys::IBV_QPT_RC || !init.srq.is_null() {
            return Err(Errno::NOT_SUPPORTED);
        }
        if self.send_ops.is_some_and(|ops| ops & !extended::SUPPORTED != 0) {
            return Err(Errno::NOT_SUPPORTED);
        }
        let cap = &init.cap;
        let fits = !self.pd.is_null()
            && !init.send_cq.is_null()
            && !init.recv_cq.is_null()
            && cap.max_send_wr <= limits.max_qp_wr
            && cap.max_recv_wr <= limits.max_qp_wr
            && cap.max_send_sge <= limits.max_sge
            && cap.max_recv_sge <= limits.max_sge
            && cap.max_inline_data <= limits.max_inline;
        if fits { Ok(()) } else { Err(Errno::INVALID) }
    }
}

impl QueuePair {
    /// A queue pair in RESET; freed by [`QueuePair::destroy`].
    ///
    /// # Safety
    /// The domain and the completion queues are alive, and outlive it.
    pub(crate) unsafe fn create(wanted: &Wanted) -> Result<*mut sys::ibv_qp> {
        if wanted.pd.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller vouches for the domain.
        let pd = unsafe { ProtectionDomain::of(wanted.pd) };
        let context = pd.context();
        let limits = &context.device.description.limits;
        let call = if wanted.send_ops.is_some() { Call::CreateQpEx } else { Call::CreateQp };
        context.device.faults.call(call)?;
        wanted.check(limits)?;
        let process = context.process;
        context.objects.qps.add(limits.max_qp)?;
        let index = take(&process.qps).inspect_err(|_| context.objects.qps.remove())?;
        process.slot().take_visitors();
        let number = qpn(process.slot().number(), index);
        let entry = process.segment.qp(index);
        let receive = ReceiveQueue::new(process, &wanted.init.cap, entry).inspect_err(|_| {
            lock(&process.qps).give(index);
            context.objects.qps.remove();
        })?;
        let qp = Arc::new(Self {
            verbs: UnsafeCell::new(verbs(wanted, context.raw(), index, number)),
            send: Spin::new(SendQueue::new(&wanted.init, context.device)),
            receive: Spin::new(receive),
            events: Acknowledged::default(),
            retired: AtomicU32::new(0),
            recv_retired: AtomicU32::new(0),
            state: AtomicU32::new(sys::IBV_QPS_RESET),
            waiting: AtomicBool::new(false),
            due: AtomicU64::new(0),
            entry,
            segment: &process.segment,
            process,
            index,
            number,
            pd_number: pd.number,
            pd: wanted.pd,
            send_cq: wanted.init.send_cq,
            recv_cq: wanted.init.recv_cq,
            init: wanted.init,
        });
        pd.begin_use();
        qp.show(context);
        let raw = Arc::into_raw(Arc::clone(&qp)).cast_mut();
        qp.send_cq().begin_use(Arc::clone(&qp));
        qp.recv_cq().begin_use(Arc::clone(&qp));
        lock(&process.live_qps).insert(index, raw.addr());
        Ok(raw.cast())
    }

    /// Fills the part of the entry that stays as it is.
    fn show(&self, context: &Context) {
        let entry = self.entry;
        entry.pd.store(self.pd_number, Ordering::Relaxed);
        entry.state.store(sys::IBV_QPS_RESET, Ordering::Relaxed);
        entry.send_cq.store(self.send_cq().index(), Ordering::Relaxed);
        entry.recv_cq.store(self.recv_cq().index(), Ordering::Relaxed);
        entry.generation.store(self.process.new_generation(), Ordering::Relaxed);
        entry.fault.store(0, Ordering::Relaxed);
        context.events.show(&entry.events);
    }

    /// Waits until its events are acknowledged, and frees it.
    ///
    /// # Safety
    /// As for [`QueuePair::of`].
    pub(crate) unsafe fn destroy(qp: *mut sys::ibv_qp) {
        // SAFETY: the caller vouches for the pointer, which Arc::into_raw gave and which is given back once.
        let qp = unsafe { Arc::from_raw(qp.cast_const().cast::<Self>()) };
        lock(&qp.process.live_qps).remove(&qp.index);
        qp.events.wait();
        qp.keep_peer_out();
        {
            let mut send = qp.send.lock();
            qp.set_state(sys::IBV_QPS_RESET);
            send.reset(&qp);
        }
        {
            let mut receive = qp.receive.lock();
            receive.reset(&qp);
            receive.free(qp.process);
        }
        progress::forget(&*qp);
        qp.send_cq().end_use(&*qp);
        qp.recv_cq().end_use(&*qp);
        lock(&qp.process.qps).give(qp.index);
        qp.context().objects.qps.remove();
        qp.pd().end_use();
    }

    /// Its extended face; NULL where it was made without.
    pub(crate) fn extended(&self) -> *mut sys::ibv_qp_ex {
        // SAFETY: the field is set once.
        let has = unsafe { (*self.verbs.get()).wr_start.is_some() };
        if has { self.verbs.get() } else { std::ptr::null_mut() }
    }
}

/// What is granted is what was asked for.
fn verbs(wanted: &Wanted, context: *mut sys::ibv_context, index: u32, number: u32) -> sys::ibv_qp_ex {
    let qp_base = sys::ibv_qp {
        context,
        qp_context: wanted.init.qp_context,
        pd: wanted.pd,
        send_cq: wanted.init.send_cq,
        recv_cq: wanted.init.recv_cq,
        handle: index,
        qp_num: number,
        state: sys::IBV_QPS_RESET,
        qp_type: sys::IBV_QPT_RC,
        ..Default::default()
    };
    let mut verbs = sys::ibv_qp_ex { qp_base, ..Default::default() };
    if wanted.send_ops.is_some() {
        extended::fill(&mut verbs);
    }
    verbs
}
