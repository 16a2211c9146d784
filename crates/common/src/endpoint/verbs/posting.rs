//! The ways in which writes are posted, each a type of its own: the loop is compiled for each.

#![allow(unsafe_code, reason = "the data path is libibverbs")]

use std::marker::PhantomData;

use rdma_sys as sys;

use super::{Signal, WritePath};
use crate::qp::QueuePair;

/// How writes reach the queue. Chosen once for a run, so that the loop has no branch on it.
pub trait Posting {
    /// Posts one write; 0 or an errno value.
    ///
    /// # Safety
    /// `lane` belongs to a queue pair in RTS whose memory is registered on both ends, and is not used elsewhere.
    unsafe fn post(lane: &mut Lane, write: Write) -> i32;

    /// Posts several and rings the doorbell once; 0 or an errno value.
    ///
    /// # Safety
    /// As for [`Posting::post`].
    unsafe fn post_list(lane: &mut Lane, writes: impl Iterator<Item = Write>) -> i32;
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
    // Room for the longest list from the start; chained anew for each.
    list: Vec<Request>,
}

impl Lane {
    pub(super) fn new(qp: &QueuePair, path: WritePath, size: u32, post_list: u32) -> Self {
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
        Lane {
            extended: qp.extended(),
            qp: qp.raw(),
            path,
            size,
            request: Request { wr, sge },
            list: Vec::with_capacity(post_list as usize),
        }
    }
}

/// A prebuilt work request and the piece of memory that it names.
#[derive(Clone, Copy)]
struct Request {
    wr: sys::ibv_send_wr,
    sge: sys::ibv_sge,
}

impl Request {
    #[inline(always)]
    fn fill<S: Source>(&mut self, write: Write) {
        self.sge.addr = write.local_addr;
        self.wr.wr_id = write.wr_id;
        self.wr.send_flags = flags(write.signal) | S::FLAGS;
        self.wr.sg_list = &mut self.sge;
        self.wr.wr.rdma.remote_addr = write.remote_addr;
    }
}

impl<S: Source> Extended<S> {
    /// Adds `write` to the open batch.
    ///
    /// # Safety
    /// As for [`Posting::post`], with a batch open on the lane's queue pair.
    #[inline(always)]
    unsafe fn add(lane: &Lane, write: Write) {
        let qp = lane.extended;
        // SAFETY: the caller vouches for the queue pair, which was made for RDMA writes; the adapter reads the
        // source until the completion, and the loop refills it only between rounds.
        unsafe {
            (*qp).wr_id = write.wr_id;
            (*qp).wr_flags = flags(write.signal) | S::FLAGS;
            sys::ibv_wr_rdma_write(qp, lane.path.rkey, write.remote_addr);
            S::set(qp, lane.path.lkey, write.local_addr, lane.size);
        }
    }
}

impl<S: Source> Posting for Extended<S> {
    #[inline(always)]
    unsafe fn post(lane: &mut Lane, write: Write) -> i32 {
        // SAFETY: the caller vouches for the queue pair.
        unsafe {
            sys::ibv_wr_start(lane.extended);
            Self::add(lane, write);
            sys::ibv_wr_complete(lane.extended)
        }
    }

    #[inline(always)]
    unsafe fn post_list(lane: &mut Lane, writes: impl Iterator<Item = Write>) -> i32 {
        // SAFETY: as above. Making the writes runs no code of anyone else's, so the batch is always closed.
        unsafe {
            sys::ibv_wr_start(lane.extended);
            writes.for_each(|write| Self::add(lane, write));
            sys::ibv_wr_complete(lane.extended)
        }
    }
}

impl<S: Source> Posting for Classic<S> {
    #[inline(always)]
    unsafe fn post(lane: &mut Lane, write: Write) -> i32 {
        lane.request.fill::<S>(write);
        let mut bad = std::ptr::null_mut();
        // SAFETY: as above; the provider copies the request before it returns.
        unsafe { sys::ibv_post_send(lane.qp, &mut lane.request.wr, &mut bad) }
    }

    #[inline(always)]
    unsafe fn post_list(lane: &mut Lane, writes: impl Iterator<Item = Write>) -> i32 {
        lane.list.clear();
        for write in writes {
            lane.list.push(lane.request);
            if let Some(request) = lane.list.last_mut() {
                request.fill::<S>(write);
            }
        }
        chain(&mut lane.list);
        let Some(first) = lane.list.first_mut() else { return 0 };
        let mut bad = std::ptr::null_mut();
        // SAFETY: as above; the chain lies in the lane's vector, which nothing changes during the call.
        unsafe { sys::ibv_post_send(lane.qp, &mut first.wr, &mut bad) }
    }
}

/// Makes each request point to its own piece of memory and to the request after it.
#[inline(always)]
fn chain(list: &mut [Request]) {
    let mut next = std::ptr::null_mut();
    for request in list.iter_mut().rev() {
        request.wr.sg_list = &mut request.sge;
        request.wr.next = next;
        next = &mut request.wr;
    }
}

#[inline(always)]
fn flags(signal: Signal) -> u32 {
    match signal {
        Signal::None => 0,
        Signal::Covering(_) => sys::IBV_SEND_SIGNALED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_chained_in_order_each_with_its_own_memory() {
        let request = Request { wr: sys::ibv_send_wr::default(), sge: sys::ibv_sge::default() };
        let mut list = vec![request; 3];
        for (request, local_addr) in list.iter_mut().zip([10, 20, 30]) {
            let signal = if local_addr == 30 { Signal::Covering(3) } else { Signal::None };
            request.fill::<Inline>(Write { local_addr, remote_addr: 7, wr_id: local_addr, signal });
        }
        chain(&mut list);
        assert_eq!(list[0].wr.next, (&raw const list[1].wr).cast_mut());
        assert_eq!(list[1].wr.next, (&raw const list[2].wr).cast_mut());
        assert!(list[2].wr.next.is_null());
        assert_eq!(list[1].wr.sg_list, (&raw const list[1].sge).cast_mut());
        assert_eq!(list[1].sge.addr, 20);
        assert_eq!(
            list.iter().map(|request| request.wr.send_flags).collect::<Vec<_>>(),
            [sys::IBV_SEND_INLINE, sys::IBV_SEND_INLINE, sys::IBV_SEND_INLINE | sys::IBV_SEND_SIGNALED]
        );
    }
}
