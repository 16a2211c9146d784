//! How requests fail.

use core::ffi::c_int;
use rdma_sys as sys;

/// What the peer found wrong on the target's end, which goes into error for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A request that it may not make.
    Access = 1,
    /// A request that makes no sense.
    Request = 2,
    /// A receive that the message can't go into; its completion tells.
    Receive = 3,
}

/// How a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: sys::ibv_wc_status,
    pub(super) vendor_err: u32,
    /// What it is to the target.
    fault: Option<Fault>,
}

impl Failure {
    pub(super) fn of(status: sys::ibv_wc_status) -> Self {
        Self { status, vendor_err: 0, fault: None }
    }

    pub(super) fn remote_access() -> Self {
        Self { fault: Some(Fault::Access), ..Self::of(sys::IBV_WC_REM_ACCESS_ERR) }
    }

    pub(super) fn remote_invalid_request() -> Self {
        Self { fault: Some(Fault::Request), ..Self::of(sys::IBV_WC_REM_INV_REQ_ERR) }
    }

    /// The target's end can't do it; `errno` is the kernel's reason, or the CUDA driver's, if it is one of
    /// theirs.
    pub(super) fn remote_operation(errno: c_int) -> Self {
        let fault = Some(Fault::Request);
        Self { status: sys::IBV_WC_REM_OP_ERR, vendor_err: errno as u32, fault }
    }

    /// This end can't do it; `result` is the CUDA driver's reason.
    pub(super) fn local_operation(result: c_int) -> Self {
        Self { vendor_err: result as u32, ..Self::of(sys::IBV_WC_LOC_QP_OP_ERR) }
    }

    /// What it is to the target.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.fault
    }
}
