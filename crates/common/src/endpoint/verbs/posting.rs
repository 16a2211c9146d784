//! The ways in which writes are posted, each a type of its own: the loop is compiled for each.

#![allow(unsafe_code, reason = "the data path is libibverbs")]

use std::marker::PhantomData;

use rdma_sys as sys;

use super::lists::Lists;
use super::{Signal, WritePath, write};
use crate::endpoint::List;
use crate::plan::Slots;
use crate::qp::QueuePair;

/// How writes reach the queue. Chosen once for a run, so that the loop has no branch on it.
pub trait Posting {
    /// The flags of every request.
    const FLAGS: u32;

    /// Posts one write; 0 or an errno value.
    ///
    /// # Safety
    /// `lane` belongs to a queue pair in RTS whose memory is registered on both ends, and is not used elsewhere.
    unsafe fn post(lane: &mut Lane, write: Write) -> i32;
}

/// How a write's bytes reach the adapter. Chosen once for a size.
pub trait Source {
    /// The flag of the work request. The extended calls say it by their name, but Soft-RoCE's provider hands the flags
    /// on to the kernel, which looks for the data by them; perftest sets it for all devices.
    const FLAGS: u32;

    /// Gives the request begun last in the open batch of `qp` its bytes.
    ///
    /// # Safety
    /// As for [`sys::ibv_wr_set_sge`]; `local_addr` has `size` bytes that may be read.
    unsafe fn set(qp: *mut sys::ibv_qp_ex, lkey: u32, local_addr: u64, size: u32);
}

/// The adapter reads them from memory.
pub struct Fetched;

/// They are copied into the request.
pub struct Inline;

impl Source for Fetched {
    const FLAGS: u32 = 0;

    #[inline(always)]
    unsafe fn set(qp: *mut sys::ibv_qp_ex, lkey: u32, local_addr: u64, size: u32) {
        // SAFETY: the caller vouches for the open batch and the memory.
        unsafe { sys::ibv_wr_set_sge(qp, lkey, local_addr, size) }
    }
}

impl Source for Inline {
    const FLAGS: u32 = sys::IBV_SEND_INLINE;

    #[inline(always)]
    unsafe fn set(qp: *mut sys::ibv_qp_ex, _lkey: u32, local_addr: u64, size: u32) {
        // SAFETY: as above; the queue pair was made for `size` bytes of inline data at least, and they are copied
        // during the call.
        unsafe { sys::ibv_wr_set_inline_data(qp, local_addr as *mut core::ffi::c_void, size as usize) }
    }
}

/// One write on one queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub(super) local_addr: u64,
    pub(super) remote_addr: u64,
    pub(super) wr_id: u64,
    pub(super) signal: Signal,
}

/// `ibv_wr_*`: the provider writes the work queue entry with no request structure in between.
pub struct Extended<S>(PhantomData<S>);

/// `ibv_post_send` with requests prebuilt for each queue pair.
pub struct Classic<S>(PhantomData<S>);

/// What posting on one queue pair needs, side by side.
pub struct Lane {
    extended: *mut sys::ibv_qp_ex,
    pub(super) qp: *mut sys::ibv_qp,
    pub(super) path: WritePath,
    size: u32,
    request: Request,
    lists: Lists,
}

impl Lane {
    /// Of queue pair number `index`, for messages in `slots`, and lists of up to `post_list` of them with `flags`.
    pub(super) fn new(
        (index, qp): (usize, &QueuePair),
        path: WritePath,
        slots: Slots,
        post_list: u32,
        flags: u32,
    ) -> Self {
        let size = slots.size as u32;
        let wr = sys::ibv_send_wr {
            opcode: sys::IBV_WR_RDMA_WRITE,
            num_sge: 1,
            wr: sys::ibv_send_wr__bindgen_ty_2 {
                rdma: sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
                    remote_addr: path.remote_addr,
                    rkey: path.rkey,
                },
            },
            ..Default::default()
        };
        let sge = sys::ibv_sge { addr: path.local_addr, length: size, lkey: path.lkey };
        let request = Request { wr, sge };
        let unsignalled = |slot| write(path, slots.stride, index, slot, Signal::None);
        let lists = Lists::new(request, post_list, slots.count, flags, unsignalled);
        Lane { extended: qp.extended(), qp: qp.raw(), path, size, request, lists }
    }

    /// Posts several writes with one call, `wr_id` the last one's; 0 or an errno value. `write` tells what the write of a slot
    /// is.
    ///
    /// `ibv_post_send`, also where the provider has `ibv_wr_*`: those take two calls into the provider for each write,
    /// and this takes one for all of them.
    ///
    /// # Safety
    /// As for [`Posting::post`].
    #[inline(always)]
    pub(super) unsafe fn post_list(
        &mut self,
        list: List,
        wr_id: u64,
        write: impl Fn(u64, Signal) -> Write,
    ) -> i32 {
        let first = self.lists.ready(list, wr_id, write);
        let mut bad = std::ptr::null_mut();
        // SAFETY: the caller vouches for queue pair and memory; the provider copies the requests before it returns, and
        // nothing changes them meanwhile.
        unsafe { sys::ibv_post_send(self.qp, first, &mut bad) }
    }
}

/// A prebuilt work request and the piece of memory that it names.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Request {
    pub(super) wr: sys::ibv_send_wr,
    pub(super) sge: sys::ibv_sge,
}

impl Request {
    /// All that differs from write to write, but for the address of `sge`.
    #[inline(always)]
    pub(super) fn fill(&mut self, write: Write, flags: u32) {
        self.sge.addr = write.local_addr;
        self.wr.wr_id = write.wr_id;
        self.wr.send_flags = signal_flags(write.signal) | flags;
        self.wr.wr.rdma.remote_addr = write.remote_addr;
    }
}

impl<S: Source> Posting for Extended<S> {
    const FLAGS: u32 = S::FLAGS;

    #[inline(always)]
    unsafe fn post(lane: &mut Lane, write: Write) -> i32 {
        let qp = lane.extended;
        // SAFETY: the caller vouches for the queue pair, which was made for RDMA writes; the adapter reads the
        // source until the completion, and the loop refills it only between rounds.
        unsafe {
            sys::ibv_wr_start(qp);
            (*qp).wr_id = write.wr_id;
            (*qp).wr_flags = signal_flags(write.signal) | S::FLAGS;
            sys::ibv_wr_rdma_write(qp, lane.path.rkey, write.remote_addr);
            S::set(qp, lane.path.lkey, write.local_addr, lane.size);
            sys::ibv_wr_complete(qp)
        }
    }
}

impl<S: Source> Posting for Classic<S> {
    const FLAGS: u32 = S::FLAGS;

    #[inline(always)]
    unsafe fn post(lane: &mut Lane, write: Write) -> i32 {
        let request = &mut lane.request;
        request.fill(write, S::FLAGS);
        request.wr.sg_list = &mut request.sge;
        let mut bad = std::ptr::null_mut();
        // SAFETY: as above; the provider copies the request before it returns.
        unsafe { sys::ibv_post_send(lane.qp, &mut request.wr, &mut bad) }
    }
}

#[inline(always)]
pub(super) fn signal_flags(signal: Signal) -> u32 {
    match signal {
        Signal::None => 0,
        Signal::Covering(_) => sys::IBV_SEND_SIGNALED,
    }
}
