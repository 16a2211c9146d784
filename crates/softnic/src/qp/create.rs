//! Making queue pairs, and taking them away.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rdma_sys as sys;

use super::send::SendQueue;
use super::{QueuePair, extended, wait_for_peer};
use crate::config::Limits;
use crate::errno::{Errno, Result};
use crate::fabric::{lock, take};
use crate::lock::Spin;
use crate::pd::ProtectionDomain;
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
        wanted.check(limits)?;
        let process = context.process;
        context.objects.qps.add(limits.max_qp)?;
        let index = take(&process.qps).inspect_err(|_| context.objects.qps.remove())?;
        process.slot().take_visitors();
        lock(&process.live_qps).insert(index);
        let number = qpn(process.slot().number(), index);
        let entry = process.segment.qp(index);
        entry.pd.store(pd.number, Ordering::Relaxed);
        let qp = Arc::new(Self {
            verbs: UnsafeCell::new(verbs(wanted, context.raw(), index, number)),
            send: Spin::new(SendQueue::new(&wanted.init)),
            retired: AtomicU32::new(0),
            state: AtomicU32::new(sys::IBV_QPS_RESET),
            waiting: AtomicBool::new(false),
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
        qp.send_cq().begin_use();
        qp.recv_cq().begin_use();
        Ok(Arc::into_raw(qp).cast_mut().cast())
    }

    /// # Safety
    /// As for [`QueuePair::of`].
    pub(crate) unsafe fn destroy(qp: *mut sys::ibv_qp) {
        // SAFETY: the caller vouches for the pointer, which Arc::into_raw gave and which is given back once.
        let qp = unsafe { Arc::from_raw(qp.cast_const().cast::<Self>()) };
        qp.shut();
        qp.process.barriers().owner();
        wait_for_peer(qp.process, qp.entry);
        {
            let mut send = qp.send.lock();
            qp.set_state(sys::IBV_QPS_RESET);
            send.reset(&qp);
        }
        let this: *const Self = &*qp;
        for cq in [qp.send_cq(), qp.recv_cq()] {
            cq.remove_waiting(this);
            cq.drop_completions_of(this);
            cq.end_use();
        }
        lock(&qp.process.live_qps).remove(&qp.index);
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
