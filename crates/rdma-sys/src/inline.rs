//! The data path: what the C header defines inline, over the operation tables that a device's provider fills.
//!
//! Each function is one load or two and an indirect call, as in C: no check, no lock, no branch. What a
//! provider leaves NULL (an operation that the queue pair was not created for) must not be called.

use core::ffi::{c_int, c_void};

use crate::bindings::*;

/// The operation that the caller promises is there.
///
/// # Safety
///
/// `op` must be `Some`. Testing it costs a branch per post and poll, for a case in which C would crash.
#[inline(always)]
unsafe fn present<F>(op: Option<F>) -> F {
    // SAFETY: the caller promises Some; a debug build checks.
    unsafe { op.unwrap_unchecked() }
}

/// Posts a list of work requests for sending; 0 or an errno value, then with the first one refused in
/// `bad_wr`.
///
/// # Safety
///
/// `qp` must be alive; the requests, their SGE lists and inline data must stay unchanged during the call, and
/// the memory that they name registered until they complete. The NIC reads it until then, and for an RDMA
/// read or an atomic writes it.
#[inline(always)]
pub unsafe fn ibv_post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: qp is alive, hence its context; libibverbs fills the whole table of an open context.
    unsafe { present((*(*qp).context).ops.post_send)(qp, wr, bad_wr) }
}

/// Posts a list of work requests for receiving; 0 or an errno value, then with the first one refused in
/// `bad_wr`.
///
/// # Safety
///
/// As for [`ibv_post_send`]; the NIC writes the memory named at any time until the receive completes.
#[inline(always)]
pub unsafe fn ibv_post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: qp is alive, hence its context; libibverbs fills the whole table of an open context.
    unsafe { present((*(*qp).context).ops.post_recv)(qp, wr, bad_wr) }
}

/// Takes up to `num_entries` completions from the queue; how many, or negative on failure.
///
/// # Safety
///
/// `cq` must be alive and `wc` have room for `num_entries`. Of an entry with an error only `wr_id`, `status`,
/// `qp_num` and `vendor_err` are written.
#[inline(always)]
pub unsafe fn ibv_poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: cq is alive, hence its context; libibverbs fills the whole table of an open context.
    unsafe { present((*(*cq).context).ops.poll_cq)(cq, num_entries, wc) }
}

/// Asks for an event on the queue's channel at the next completion (the next solicited one, if
/// `solicited_only` is not 0); 0 or an errno value.
///
/// # Safety
///
/// `cq` must be alive and have been created with a channel.
#[inline(always)]
pub unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: cq is alive, hence its context; libibverbs fills the whole table of an open context.
    unsafe { present((*(*cq).context).ops.req_notify_cq)(cq, solicited_only) }
}

/// Opens a batch of extended work requests. Takes the queue pair's lock, if it has one, until
/// [`ibv_wr_complete`] or [`ibv_wr_abort`].
///
/// # Safety
///
/// `qp` must be alive, come from `ibv_qp_to_qp_ex`, and have no batch open.
#[inline(always)]
pub unsafe fn ibv_wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: qp is alive and extended; a provider fills this field for every such queue pair.
    unsafe { present((*qp).wr_start)(qp) }
}

/// Hands the batch to the device; 0 or an errno value, and then nothing of the batch was posted.
///
/// # Safety
///
/// A batch must be open on `qp`, each request in it complete with its data; the memory named must stay
/// registered until the requests complete, and the NIC reads (or writes) it until then.
#[inline(always)]
pub unsafe fn ibv_wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: qp is alive and extended; a provider fills this field for every such queue pair.
    unsafe { present((*qp).wr_complete)(qp) }
}

/// Drops the batch.
///
/// # Safety
///
/// A batch must be open on `qp`.
#[inline(always)]
pub unsafe fn ibv_wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: qp is alive and extended; a provider fills this field for every such queue pair.
    unsafe { present((*qp).wr_abort)(qp) }
}

/// Begins an RDMA write in the open batch; `wr_id` and `wr_flags` are read from the queue pair's own fields.
///
/// # Safety
///
/// A batch must be open on `qp`, created with [`IBV_QP_EX_WITH_RDMA_WRITE`].
#[inline(always)]
pub unsafe fn ibv_wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: the field is filled because the queue pair was created for this operation.
    unsafe { present((*qp).wr_rdma_write)(qp, rkey, remote_addr) }
}

/// Begins an RDMA write that delivers `imm_data` (network byte order) and consumes a receive at the peer.
///
/// # Safety
///
/// A batch must be open on `qp`, created with [`IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM`].
#[inline(always)]
pub unsafe fn ibv_wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, imm_data: __be32) {
    // SAFETY: the field is filled because the queue pair was created for this operation.
    unsafe { present((*qp).wr_rdma_write_imm)(qp, rkey, remote_addr, imm_data) }
}

/// Begins a send in the open batch.
///
/// # Safety
///
/// A batch must be open on `qp`, created with [`IBV_QP_EX_WITH_SEND`].
#[inline(always)]
pub unsafe fn ibv_wr_send(qp: *mut ibv_qp_ex) {
    // SAFETY: the field is filled because the queue pair was created for this operation.
    unsafe { present((*qp).wr_send)(qp) }
}

/// Gives the request begun last its data: one piece of registered memory.
///
/// # Safety
///
/// A request must have been begun in the batch open on `qp`. The memory must stay registered under `lkey`
/// until the request completes; the NIC reads it until then.
#[inline(always)]
pub unsafe fn ibv_wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: a provider fills this field for every queue pair that has an operation with data.
    unsafe { present((*qp).wr_set_sge)(qp, lkey, addr, length) }
}

/// Gives the request begun last its data: several pieces of registered memory.
///
/// # Safety
///
/// As for [`ibv_wr_set_sge`], for each piece; `sg_list` must have `num_sge` entries and is read during the
/// call.
#[inline(always)]
pub unsafe fn ibv_wr_set_sge_list(qp: *mut ibv_qp_ex, num_sge: usize, sg_list: *const ibv_sge) {
    // SAFETY: a provider fills this field for every queue pair that has an operation with data.
    unsafe { present((*qp).wr_set_sge_list)(qp, num_sge, sg_list) }
}

/// Gives the request begun last its data by copy: the memory needs no registration.
///
/// # Safety
///
/// A request must have been begun in the batch open on `qp`; `addr` must have `length` bytes, at most the
/// queue pair's `max_inline_data`, unchanged during the call and free to be reused after it.
#[inline(always)]
pub unsafe fn ibv_wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: a provider fills this field for every queue pair that has an operation with data.
    unsafe { present((*qp).wr_set_inline_data)(qp, addr, length) }
}

#[cfg(test)]
mod tests;
