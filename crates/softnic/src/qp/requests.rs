//! Work requests, and the ring in which those wait that can't be carried out at once.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use rdma_sys as sys;

use crate::mr::ON_GPU;

/// A work request for sending.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Request {
    pub(super) wr_id: u64,
    pub(super) remote_addr: u64,
    /// The pieces of local memory; with `IBV_SEND_INLINE` their keys don't count.
    pub(super) pieces: *const sys::ibv_sge,
    pub(super) num_pieces: u32,
    pub(super) rkey: u32,
    /// In network byte order.
    pub(super) imm: u32,
    /// One of the `IBV_WR_*` values.
    pub(super) opcode: u32,
    /// `IBV_SEND_*` bits; while it is carried out also [`ON_GPU`].
    pub(super) flags: u32,
}

impl Request {
    /// # Safety
    /// The request's union has the fields that belong to its opcode.
    #[inline(always)]
    pub(super) unsafe fn of(wr: &sys::ibv_send_wr) -> Self {
        // SAFETY: the caller vouches for the fields. Reading those of an RDMA operation for another opcode gives
        // numbers that are not used.
        let (remote_addr, rkey) = unsafe { (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) };
        Self {
            wr_id: wr.wr_id,
            remote_addr,
            pieces: wr.sg_list,
            num_pieces: wr.num_sge as u32,
            rkey,
            // SAFETY: all fields of the union are plain numbers.
            imm: unsafe { wr.__bindgen_anon_1.imm_data },
            opcode: wr.opcode,
            flags: wr.send_flags,
        }
    }

    /// The same with the mark that a part of its memory is on a GPU.
    pub(super) fn on_gpu(self) -> Self {
        Self { flags: self.flags | ON_GPU, ..self }
    }

    #[inline(always)]
    pub(super) fn is_on_gpu(&self) -> bool {
        self.flags & ON_GPU != 0
    }

    #[inline(always)]
    pub(super) fn is_inline(&self) -> bool {
        self.flags & sys::IBV_SEND_INLINE != 0
    }

    /// The pieces.
    ///
    /// # Safety
    /// They are where the request says, and not changed meanwhile.
    #[inline(always)]
    pub(super) unsafe fn pieces<'a>(&self) -> &'a [sys::ibv_sge] {
        if self.num_pieces == 0 {
            return &[];
        }
        // SAFETY: the caller vouches for them.
        unsafe { std::slice::from_raw_parts(self.pieces, self.num_pieces as usize) }
    }

    /// The length of the message.
    ///
    /// # Safety
    /// As for [`Request::pieces`].
    #[inline(always)]
    pub(super) unsafe fn len(&self) -> u64 {
        // SAFETY: the caller vouches for the pieces.
        unsafe { self.pieces() }.iter().map(|piece| u64::from(piece.length)).sum()
    }
}

/// Slots for requests with their pieces and inline data, reached by a place that counts up for ever.
pub(super) struct Requests {
    memory: *mut u8,
    layout: Layout,
    stride: usize,
    mask: u32,
    max_pieces: u32,
    max_inline: u32,
}

// SAFETY: the memory is this value's own.
unsafe impl Send for Requests {}

impl Requests {
    pub(super) fn new(depth: u32, max_pieces: u32, max_inline: u32) -> Self {
        // Inline data needs a piece that names it.
        let pieces = max_pieces.max(1) as usize * size_of::<sys::ibv_sge>();
        let stride = (size_of::<Request>() + pieces + max_inline as usize).next_multiple_of(64);
        let slots = depth.max(1).next_power_of_two();
        let layout = Layout::from_size_align(stride * slots as usize, 64).expect("limits keep it small");
        // SAFETY: the layout is not empty. Zeroed memory of this size is not touched until it is used.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        Self { memory, layout, stride, mask: slots - 1, max_pieces: max_pieces.max(1), max_inline }
    }

    fn slot(&self, place: u32) -> *mut u8 {
        // SAFETY: the index is below the number of slots.
        unsafe { self.memory.add((place & self.mask) as usize * self.stride) }
    }

    /// The request at `place`, to be filled or read.
    #[inline(always)]
    pub(super) fn at(&mut self, place: u32) -> &mut Request {
        // SAFETY: every slot begins with a request, and all zeros is one.
        unsafe { &mut *self.slot(place).cast() }
    }

    /// Where the pieces of the request at `place` are kept.
    #[inline(always)]
    pub(super) fn pieces_at(&mut self, place: u32) -> *mut sys::ibv_sge {
        // SAFETY: they follow the request in its slot.
        unsafe { self.slot(place).add(size_of::<Request>()).cast() }
    }

    /// Where its inline data is kept.
    #[inline(always)]
    pub(super) fn inline_at(&mut self, place: u32) -> *mut u8 {
        // SAFETY: it follows the pieces, of which there is room for `max_pieces`.
        unsafe { self.pieces_at(place).add(self.max_pieces as usize).cast() }
    }

    /// Keeps a copy of `request`, its pieces and its inline data at `place`.
    ///
    /// # Safety
    /// As for [`Request::pieces`]; the inline data is readable. Neither is more than the queue pair was made for.
    pub(super) unsafe fn keep(&mut self, place: u32, request: &Request) {
        // SAFETY: the caller vouches for the pieces.
        let pieces = unsafe { request.pieces() };
        let kept = self.pieces_at(place);
        *self.at(place) = Request { pieces: kept, ..*request };
        if request.is_inline() {
            // SAFETY: the caller vouches for the data.
            unsafe {
                self.keep_inline(place, pieces.iter().map(|piece| (piece.addr as *const u8, piece.length)))
            };
        } else {
            debug_assert!(pieces.len() <= self.max_pieces as usize);
            // SAFETY: there is room for as many pieces as a request may have.
            unsafe { kept.copy_from(pieces.as_ptr(), pieces.len()) };
        }
    }

    /// Gathers inline data of the request at `place`.
    ///
    /// # Safety
    /// Each part is readable, and together they are not longer than the inline data that the queue pair was made for.
    #[inline(always)]
    pub(super) unsafe fn keep_inline(&mut self, place: u32, parts: impl Iterator<Item = (*const u8, u32)>) {
        let data = self.inline_at(place);
        let mut len = 0;
        for (from, part) in parts {
            debug_assert!(len + part <= self.max_inline);
            // SAFETY: the caller vouches for the source and for the sum.
            unsafe { data.add(len as usize).copy_from_nonoverlapping(from, part as usize) };
            len += part;
        }
        // SAFETY: there is room for one piece at least.
        unsafe { self.pieces_at(place).write(sys::ibv_sge { addr: data as u64, length: len, lkey: 0 }) };
        self.at(place).num_pieces = 1;
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.memory, self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_request_needs_nothing_of_the_callers_any_more() {
        let mut requests = Requests::new(3, 2, 16);
        let mut data = [1_u8, 2, 3, 4, 5];
        let at = data.as_ptr() as u64;
        let mut pieces = [
            sys::ibv_sge { addr: at, length: 2, lkey: 7 },
            sys::ibv_sge { addr: at + 2, length: 3, lkey: 8 },
        ];
        let request = Request {
            wr_id: 9,
            remote_addr: 0,
            pieces: pieces.as_ptr(),
            num_pieces: 2,
            rkey: 0,
            imm: 0,
            opcode: 0,
            flags: 0,
        };
        // SAFETY: the pieces and the data are this test's, and fit.
        unsafe {
            requests.keep(6, &request);
            requests.keep(7, &Request { flags: sys::IBV_SEND_INLINE, ..request });
        }
        pieces[0].lkey = 0;
        data[0] = 99;
        std::hint::black_box((&pieces, &data));
        let (plain, inline) = (*requests.at(2), *requests.at(3));
        // SAFETY: the pieces are in the slots, the inline data too.
        unsafe {
            assert_eq!((plain.wr_id, plain.len(), plain.pieces()[0].lkey), (9, 5, 7));
            assert_eq!((inline.len(), inline.pieces().len()), (5, 1));
            assert_eq!((inline.pieces()[0].addr as *const [u8; 5]).read(), [1, 2, 3, 4, 5]);
        }
    }
}
