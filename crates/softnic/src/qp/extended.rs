//! `ibv_wr_*`: requests that are built in their slots, and carried out when the batch is complete.

use core::ffi::{c_int, c_void};
use rdma_sys as sys;

use super::QueuePair;
use super::requests::Request;
use super::send::SendQueue;
use crate::errno::{Errno, Result};

/// Operations that a queue pair can be made for.
pub(super) const SUPPORTED: u64 = (sys::IBV_QP_EX_WITH_RDMA_WRITE
    | sys::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | sys::IBV_QP_EX_WITH_SEND
    | sys::IBV_QP_EX_WITH_SEND_WITH_IMM
    | sys::IBV_QP_EX_WITH_RDMA_READ) as u64;

/// An open batch.
#[derive(Default)]
pub(super) struct Batch {
    count: u32,
    room: u32,
    error: Option<Errno>,
}

impl Batch {
    /// How many requests it has.
    ///
    /// # Errors
    /// What went wrong while it was built.
    #[inline(always)]
    pub(super) fn finish(&self) -> Result<u32> {
        self.error.map_or(Ok(self.count), Err)
    }
}

/// Fills the table of a queue pair that is made for extended posting.
pub(super) fn fill(verbs: &mut sys::ibv_qp_ex) {
    verbs.wr_start = Some(start);
    verbs.wr_complete = Some(complete);
    verbs.wr_abort = Some(abort);
    verbs.wr_rdma_write = Some(rdma_write);
    verbs.wr_rdma_write_imm = Some(rdma_write_imm);
    verbs.wr_rdma_read = Some(rdma_read);
    verbs.wr_send = Some(send);
    verbs.wr_send_imm = Some(send_imm);
    verbs.wr_set_sge = Some(set_sge);
    verbs.wr_set_sge_list = Some(set_sge_list);
    verbs.wr_set_inline_data = Some(set_inline_data);
    verbs.wr_set_inline_data_list = Some(set_inline_data_list);
}

/// # Safety
/// `qp` is the extended face of a queue pair that is alive.
#[inline(always)]
unsafe fn of<'a>(qp: *mut sys::ibv_qp_ex) -> &'a QueuePair {
    // SAFETY: the caller vouches for the pointer.
    unsafe { QueuePair::of(qp.cast()) }
}

unsafe extern "C" fn start(qp: *mut sys::ibv_qp_ex) {
    // SAFETY: the caller's queue pair is alive; the lock is held from here on.
    unsafe {
        let qp = of(qp);
        qp.send.take();
        let send = qp.send.held();
        send.batch = Batch { count: 0, room: send.room(qp), error: None };
    }
}

unsafe extern "C" fn abort(qp: *mut sys::ibv_qp_ex) {
    // SAFETY: the caller has a batch open, hence the lock.
    unsafe { of(qp).send.give() };
}

unsafe extern "C" fn complete(qp: *mut sys::ibv_qp_ex) -> c_int {
    // SAFETY: the caller has a batch open, hence the lock, which is given back at the end.
    unsafe {
        let qp = of(qp);
        let result = qp.send.held().complete_batch(qp);
        qp.send.give();
        match result {
            Ok(()) => 0,
            Err(errno) => errno.0,
        }
    }
}

impl SendQueue {
    /// Begins a request of the batch.
    #[inline(always)]
    fn begin(&mut self, request: Request) {
        if self.batch.count == self.batch.room {
            self.batch.error = Some(Errno::NO_MEMORY);
            return;
        }
        let place = self.posted.wrapping_add(self.batch.count);
        let pieces = self.requests.pieces_at(place);
        *self.requests.at(place) = Request { pieces, ..request };
        self.batch.count += 1;
    }

    /// The place of the request begun last; `None` where there is none to be filled.
    #[inline(always)]
    fn current(&self) -> Option<u32> {
        let open = self.batch.error.is_none() && self.batch.count > 0;
        open.then(|| self.posted.wrapping_add(self.batch.count - 1))
    }
}

/// Begins a request of the batch.
///
/// # Safety
/// A batch is open on `qp`, hence the lock held.
#[inline(always)]
unsafe fn begin(
    qp: *mut sys::ibv_qp_ex,
    opcode: sys::ibv_wr_opcode,
    (rkey, remote_addr): (u32, u64),
    imm: u32,
) {
    // SAFETY: the caller holds the lock; the fields are C's to set before.
    unsafe {
        let request = Request {
            wr_id: (*qp).wr_id,
            remote_addr,
            pieces: std::ptr::null(),
            num_pieces: 0,
            rkey,
            imm,
            opcode,
            // How the data comes is said by the call that brings it.
            flags: (*qp).wr_flags & !sys::IBV_SEND_INLINE,
        };
        of(qp).send.held().begin(request);
    }
}

unsafe extern "C" fn rdma_write(qp: *mut sys::ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: the caller has a batch open.
    unsafe { begin(qp, sys::IBV_WR_RDMA_WRITE, (rkey, remote_addr), 0) };
}

unsafe extern "C" fn rdma_write_imm(qp: *mut sys::ibv_qp_ex, rkey: u32, remote_addr: u64, imm: sys::__be32) {
    // SAFETY: as above.
    unsafe { begin(qp, sys::IBV_WR_RDMA_WRITE_WITH_IMM, (rkey, remote_addr), imm) };
}

unsafe extern "C" fn rdma_read(qp: *mut sys::ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: as above.
    unsafe { begin(qp, sys::IBV_WR_RDMA_READ, (rkey, remote_addr), 0) };
}

unsafe extern "C" fn send(qp: *mut sys::ibv_qp_ex) {
    // SAFETY: as above.
    unsafe { begin(qp, sys::IBV_WR_SEND, (0, 0), 0) };
}

unsafe extern "C" fn send_imm(qp: *mut sys::ibv_qp_ex, imm: sys::__be32) {
    // SAFETY: as above.
    unsafe { begin(qp, sys::IBV_WR_SEND_WITH_IMM, (0, 0), imm) };
}

unsafe extern "C" fn set_sge(qp: *mut sys::ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: the caller has a batch open, hence the lock.
    unsafe {
        let send = of(qp).send.held();
        let Some(place) = send.current() else { return };
        send.requests.pieces_at(place).write(sys::ibv_sge { addr, length, lkey });
        send.requests.at(place).num_pieces = 1;
    }
}

unsafe extern "C" fn set_sge_list(qp: *mut sys::ibv_qp_ex, num_sge: usize, sg_list: *const sys::ibv_sge) {
    // SAFETY: the caller has a batch open, hence the lock, and the list is readable.
    unsafe {
        let send = of(qp).send.held();
        let Some(place) = send.current() else { return };
        if num_sge > send.max_pieces as usize {
            send.batch.error = Some(Errno::INVALID);
            return;
        }
        send.requests.pieces_at(place).copy_from(sg_list, num_sge);
        send.requests.at(place).num_pieces = num_sge as u32;
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut sys::ibv_qp_ex, addr: *mut c_void, length: usize) {
    let part = sys::ibv_data_buf { addr, length };
    // SAFETY: as for the list.
    unsafe { set_inline_data_list(qp, 1, &part) };
}

unsafe extern "C" fn set_inline_data_list(
    qp: *mut sys::ibv_qp_ex,
    num_buf: usize,
    buf_list: *const sys::ibv_data_buf,
) {
    // SAFETY: the caller has a batch open, hence the lock, and the list and its data are readable.
    unsafe {
        let send = of(qp).send.held();
        let Some(place) = send.current() else { return };
        let list = if num_buf == 0 { &[] } else { std::slice::from_raw_parts(buf_list, num_buf) };
        if list.iter().map(|part| part.length).sum::<usize>() > send.max_inline as usize {
            send.batch.error = Some(Errno::INVALID);
            return;
        }
        let parts = list.iter().map(|part| (part.addr as *const u8, part.length as u32));
        send.requests.keep_inline(place, parts);
        send.requests.at(place).flags |= sys::IBV_SEND_INLINE;
    }
}
