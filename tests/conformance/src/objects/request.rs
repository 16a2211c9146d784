//! Work requests, and what posting them says.

use std::fmt;
use std::ptr;

use rdma_sys as sys;
use serde::{Deserialize, Serialize};

use crate::shown::Errno;

/// A piece of local memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sge {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
}

impl Sge {
    pub(super) fn raw(self) -> sys::ibv_sge {
        sys::ibv_sge { addr: self.addr, length: self.len, lkey: self.lkey }
    }
}

/// A place in the peer's memory.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Remote {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
}

/// A work request for the send queue, signalled unless said otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) opcode: sys::ibv_wr_opcode,
    pub(crate) flags: u32,
    pub(crate) sges: Vec<Sge>,
    pub(crate) remote: Remote,
    /// Immediate data, in host byte order.
    pub(crate) imm: u32,
}

impl Request {
    fn new(id: u64, opcode: sys::ibv_wr_opcode, sges: &[Sge]) -> Self {
        let flags = sys::IBV_SEND_SIGNALED;
        Self { id, opcode, flags, sges: sges.to_vec(), remote: Remote::default(), imm: 0 }
    }

    pub(crate) fn write(id: u64, sges: &[Sge], remote: Remote) -> Self {
        Self { remote, ..Self::new(id, sys::IBV_WR_RDMA_WRITE, sges) }
    }

    pub(crate) fn write_imm(id: u64, sges: &[Sge], remote: Remote, imm: u32) -> Self {
        Self { remote, imm, ..Self::new(id, sys::IBV_WR_RDMA_WRITE_WITH_IMM, sges) }
    }

    pub(crate) fn send(id: u64, sges: &[Sge]) -> Self {
        Self::new(id, sys::IBV_WR_SEND, sges)
    }

    pub(crate) fn send_imm(id: u64, sges: &[Sge], imm: u32) -> Self {
        Self { imm, ..Self::new(id, sys::IBV_WR_SEND_WITH_IMM, sges) }
    }

    /// Without a completion if it succeeds.
    pub(crate) fn unsignalled(mut self) -> Self {
        self.flags &= !sys::IBV_SEND_SIGNALED;
        self
    }

    /// With the data in the request.
    pub(crate) fn inline(mut self) -> Self {
        self.flags |= sys::IBV_SEND_INLINE;
        self
    }

    /// With a solicited event at the target.
    pub(crate) fn solicited(mut self) -> Self {
        self.flags |= sys::IBV_SEND_SOLICITED;
        self
    }

    fn raw(&self, sges: *mut sys::ibv_sge) -> sys::ibv_send_wr {
        let mut wr = sys::ibv_send_wr {
            wr_id: self.id,
            next: ptr::null_mut(),
            sg_list: sges,
            num_sge: self.sges.len() as i32,
            opcode: self.opcode,
            send_flags: self.flags,
            ..Default::default()
        };
        wr.__bindgen_anon_1.imm_data = self.imm.to_be();
        wr.wr.rdma.remote_addr = self.remote.addr;
        wr.wr.rdma.rkey = self.remote.rkey;
        wr
    }
}

/// A work request for the receive queue.
#[derive(Clone, Debug)]
pub(crate) struct Receive {
    pub(crate) id: u64,
    pub(crate) sges: Vec<Sge>,
}

impl Receive {
    pub(crate) fn new(id: u64, sges: &[Sge]) -> Self {
        Self { id, sges: sges.to_vec() }
    }

    /// One that takes no data.
    pub(crate) fn empty(id: u64) -> Self {
        Self { id, sges: Vec::new() }
    }

    fn raw(&self, sges: *mut sys::ibv_sge) -> sys::ibv_recv_wr {
        sys::ibv_recv_wr {
            wr_id: self.id,
            next: ptr::null_mut(),
            sg_list: sges,
            num_sge: self.sges.len() as i32,
        }
    }
}

/// What posting a list of requests said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Posted {
    pub(crate) errno: Errno,
    /// The place in the list of the first request refused.
    pub(crate) refused: Option<usize>,
}

impl Posted {
    /// All of it was taken.
    pub(crate) const ALL: Self = Self { errno: Errno::DONE, refused: None };

    /// The request at `place` was refused.
    pub(crate) fn refused(errno: Errno, place: usize) -> Self {
        Self { errno, refused: Some(place) }
    }
}

impl fmt::Display for Posted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.refused {
            Some(place) => write!(f, "{}, bad_wr is request {place}", self.errno),
            None if self.errno == Errno::DONE => f.write_str("done"),
            None => write!(f, "{}, bad_wr is none of the requests", self.errno),
        }
    }
}

/// Lays out `requests` as C has them and hands the first to `post`.
pub(super) fn post_sends(
    requests: &[Request],
    post: impl FnOnce(*mut sys::ibv_send_wr, *mut *mut sys::ibv_send_wr) -> i32,
) -> Posted {
    let mut sges: Vec<Vec<sys::ibv_sge>> =
        requests.iter().map(|request| request.sges.iter().map(|sge| sge.raw()).collect()).collect();
    let raw = requests.iter().zip(&mut sges).map(|(request, sges)| request.raw(sges.as_mut_ptr()));
    post_chain(raw.collect(), |request, next| request.next = next, post)
}

/// The same for receives.
pub(super) fn post_receives(
    receives: &[Receive],
    post: impl FnOnce(*mut sys::ibv_recv_wr, *mut *mut sys::ibv_recv_wr) -> i32,
) -> Posted {
    let mut sges: Vec<Vec<sys::ibv_sge>> =
        receives.iter().map(|receive| receive.sges.iter().map(|sge| sge.raw()).collect()).collect();
    let raw = receives.iter().zip(&mut sges).map(|(receive, sges)| receive.raw(sges.as_mut_ptr()));
    post_chain(raw.collect(), |receive, next| receive.next = next, post)
}

/// Links each request to the one after it, posts the first, and tells which one was refused.
fn post_chain<W>(
    mut raw: Vec<W>,
    link: impl Fn(&mut W, *mut W),
    post: impl FnOnce(*mut W, *mut *mut W) -> i32,
) -> Posted {
    let start = raw.as_mut_ptr();
    for place in 1..raw.len() {
        // In bounds; only the address is made.
        link(&mut raw[place - 1], start.wrapping_add(place));
    }
    let mut bad = ptr::null_mut();
    let errno = Errno(post(start, &mut bad));
    let place = (0..raw.len()).find(|place| start.wrapping_add(*place) == bad);
    // Where all was taken bad_wr is not promised to be anything.
    Posted { errno, refused: if errno == Errno::DONE { None } else { place } }
}
