//! Extended posting: batches of requests, built call by call.

use rdma_sys as sys;

use super::{Qp, Remote, Sge};
use crate::shown::Errno;

/// The extended face of a queue pair.
pub(crate) struct Extended<'a> {
    raw: *mut sys::ibv_qp_ex,
    // The face is part of the queue pair.
    _qp: &'a Qp,
}

impl<'a> Extended<'a> {
    pub(super) fn new(qp: &'a Qp, raw: *mut sys::ibv_qp_ex) -> Option<Self> {
        (!raw.is_null()).then_some(Self { raw, _qp: qp })
    }

    /// Opens a batch.
    pub(crate) fn start(&mut self) -> Batch<'_> {
        // SAFETY: the queue pair is alive and has no batch open: the batch borrows this.
        unsafe { sys::ibv_wr_start(self.raw) };
        Batch { raw: self.raw, open: true, _borrow: std::marker::PhantomData }
    }
}

/// An open batch; dropped, it is aborted.
pub(crate) struct Batch<'a> {
    raw: *mut sys::ibv_qp_ex,
    open: bool,
    _borrow: std::marker::PhantomData<&'a mut ()>,
}

impl Batch<'_> {
    /// Number and flags of the requests that follow.
    fn set(&mut self, id: u64, signalled: bool) {
        // SAFETY: the queue pair is alive; a caller may set these two fields while a batch is open.
        unsafe {
            (*self.raw).wr_id = id;
            (*self.raw).wr_flags = if signalled { sys::IBV_SEND_SIGNALED } else { 0 };
        }
    }

    /// Begins an RDMA write, signalled.
    pub(crate) fn write(&mut self, id: u64, remote: Remote) -> &mut Self {
        self.set(id, true);
        // SAFETY: a batch is open, and the facts create the queue pair for the operations that they use.
        unsafe { sys::ibv_wr_rdma_write(self.raw, remote.rkey, remote.addr) };
        self
    }

    /// Begins an RDMA write without a completion.
    pub(crate) fn silent_write(&mut self, id: u64, remote: Remote) -> &mut Self {
        self.set(id, false);
        // SAFETY: as above.
        unsafe { sys::ibv_wr_rdma_write(self.raw, remote.rkey, remote.addr) };
        self
    }

    /// Begins an RDMA write with immediate data (host byte order), signalled.
    pub(crate) fn write_imm(&mut self, id: u64, remote: Remote, imm: u32) -> &mut Self {
        self.set(id, true);
        // SAFETY: as above.
        unsafe { sys::ibv_wr_rdma_write_imm(self.raw, remote.rkey, remote.addr, imm.to_be()) };
        self
    }

    /// Begins a send, signalled.
    pub(crate) fn send(&mut self, id: u64) -> &mut Self {
        self.set(id, true);
        // SAFETY: as above.
        unsafe { sys::ibv_wr_send(self.raw) };
        self
    }

    /// The data of the request begun last.
    pub(crate) fn sge(&mut self, sge: Sge) -> &mut Self {
        // SAFETY: a request was begun; the memory is registered by regions that outlive the queue pair, or not at
        // all.
        unsafe { sys::ibv_wr_set_sge(self.raw, sge.lkey, sge.addr, sge.len) };
        self
    }

    /// The data of the request begun last, in pieces.
    pub(crate) fn sges(&mut self, sges: &[Sge]) -> &mut Self {
        let raw: Vec<sys::ibv_sge> = sges.iter().map(|sge| sge.raw()).collect();
        // SAFETY: as above; the list is read during the call.
        unsafe { sys::ibv_wr_set_sge_list(self.raw, raw.len(), raw.as_ptr()) };
        self
    }

    /// The data of the request begun last, copied now.
    pub(crate) fn inline(&mut self, bytes: &[u8]) -> &mut Self {
        // SAFETY: as above; the bytes are read during the call and not written, whatever C's type says.
        unsafe { sys::ibv_wr_set_inline_data(self.raw, bytes.as_ptr().cast_mut().cast(), bytes.len()) };
        self
    }

    /// Hands the batch to the device.
    pub(crate) fn complete(mut self) -> Errno {
        self.open = false;
        // SAFETY: the batch is open, and is closed by this.
        Errno(unsafe { sys::ibv_wr_complete(self.raw) })
    }

    /// Drops the batch.
    pub(crate) fn abort(mut self) {
        self.open = false;
        // SAFETY: as above.
        unsafe { sys::ibv_wr_abort(self.raw) };
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if self.open {
            // SAFETY: the batch is open, and is closed by this.
            unsafe { sys::ibv_wr_abort(self.raw) };
        }
    }
}
