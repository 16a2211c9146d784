//! The completions that wait to be polled.

use std::mem::MaybeUninit;

use core::ffi::c_int;
use rdma_sys as sys;

use crate::qp::QueuePair;

/// A completion.
#[derive(Clone, Copy)]
pub(crate) struct Completion {
    pub(crate) wr_id: u64,
    /// Whose it is. Completions of a queue pair are dropped before it goes.
    pub(crate) qp: *const QueuePair,
    pub(crate) qpn: u32,
    /// The place in its queue up to which requests are done with.
    pub(crate) retires: u32,
    pub(crate) byte_len: u32,
    pub(crate) vendor_err: u32,
    /// In network byte order.
    pub(crate) imm: u32,
    pub(crate) status: u8,
    pub(crate) opcode: u8,
    pub(crate) wc_flags: u8,
    pub(crate) src_qp: u32,
}

/// Completions in the order of their making.
pub(super) struct Ring {
    slots: Box<[MaybeUninit<Completion>]>,
    entries: u32,
    produced: u32,
    consumed: u32,
    overrun: bool,
}

// SAFETY: the pointers in it are only followed while their queue pairs live, and those are made for threads.
unsafe impl Send for Ring {}

impl Ring {
    /// A ring with room for `entries`.
    pub(super) fn new(entries: u32) -> Self {
        let slots = Box::new_uninit_slice(entries.next_power_of_two() as usize);
        Self { slots, entries, produced: 0, consumed: 0, overrun: false }
    }

    #[inline(always)]
    fn slot(&mut self, position: u32) -> &mut MaybeUninit<Completion> {
        let mask = self.slots.len() - 1;
        // SAFETY: the length is a power of two, so the index is below it.
        unsafe { self.slots.get_unchecked_mut(position as usize & mask) }
    }

    /// Adds one. Where the ring is full it is dropped and the ring in error, which is false to say, once.
    #[inline(always)]
    #[must_use]
    pub(super) fn push(&mut self, completion: Completion) -> bool {
        if self.produced.wrapping_sub(self.consumed) == self.entries {
            return std::mem::replace(&mut self.overrun, true);
        }
        let position = self.produced;
        self.slot(position).write(completion);
        self.produced = position.wrapping_add(1);
        true
    }

    /// Takes up to `count` off, giving each to `retire`; how many, or negative where the ring has overrun and there is
    /// none left.
    ///
    /// # Safety
    /// `wc` has room for `count`.
    #[inline(always)]
    pub(super) unsafe fn take(
        &mut self,
        count: c_int,
        wc: *mut sys::ibv_wc,
        retire: impl Fn(&Completion),
    ) -> c_int {
        let ready = self.produced.wrapping_sub(self.consumed);
        let taken = ready.min(count.max(0) as u32);
        for at in 0..taken {
            let position = self.consumed.wrapping_add(at);
            // SAFETY: the slots between consumed and produced are filled; the caller has room.
            unsafe {
                let completion = self.slot(position).assume_init_ref();
                retire(completion);
                wc.add(at as usize).write(completion.to_wc());
            }
        }
        self.consumed = self.consumed.wrapping_add(taken);
        if taken == 0 && self.overrun { -1 } else { taken as c_int }
    }

    /// Drops the completions of `qp`, keeping the others' order.
    pub(super) fn drop_of(&mut self, qp: *const QueuePair) {
        let (from, to) = (self.consumed, self.produced);
        self.produced = from;
        for at in 0..to.wrapping_sub(from) {
            // SAFETY: the slots between consumed and produced are filled.
            let completion = unsafe { self.slot(from.wrapping_add(at)).assume_init_read() };
            if !std::ptr::eq(completion.qp, qp) {
                let _fits = self.push(completion);
            }
        }
    }
}

impl Completion {
    /// Whether it is of a receive.
    fn is_receive(&self) -> bool {
        self.opcode & sys::IBV_WC_RECV as u8 != 0
    }

    /// Frees the places in its queue that it stands for.
    ///
    /// # Safety
    /// Its queue pair is alive.
    #[inline(always)]
    pub(super) unsafe fn retire(&self) {
        // SAFETY: the caller vouches for the queue pair.
        let qp = unsafe { &*self.qp };
        if self.is_receive() { qp.retire_receives(self.retires) } else { qp.retire(self.retires) }
    }

    #[inline(always)]
    fn to_wc(self) -> sys::ibv_wc {
        sys::ibv_wc {
            wr_id: self.wr_id,
            status: self.status.into(),
            opcode: self.opcode.into(),
            vendor_err: self.vendor_err,
            byte_len: self.byte_len,
            __bindgen_anon_1: sys::ibv_wc__bindgen_ty_1 { imm_data: self.imm },
            qp_num: self.qpn,
            src_qp: self.src_qp,
            wc_flags: self.wc_flags.into(),
            pkey_index: 0,
            slid: 0,
            sl: 0,
            dlid_path_bits: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(wr_id: u64, qp: usize) -> Completion {
        Completion {
            wr_id,
            qp: std::ptr::without_provenance(qp),
            qpn: 5,
            retires: 0,
            byte_len: 7,
            vendor_err: 0,
            imm: 0,
            status: 0,
            opcode: sys::IBV_WC_RECV as u8,
            wc_flags: 0,
            src_qp: 0,
        }
    }

    fn taken(ring: &mut Ring, count: usize) -> Vec<u64> {
        let mut wc = vec![sys::ibv_wc::default(); count];
        // SAFETY: there is room for `count`.
        let taken = unsafe { ring.take(count as c_int, wc.as_mut_ptr(), |_| ()) };
        wc.iter().take(taken.max(0) as usize).map(|wc| wc.wr_id).collect()
    }

    #[test]
    fn completions_come_in_order_and_as_many_as_asked_for() {
        let mut ring = Ring::new(3);
        for lap in 0..5 {
            (0..3).for_each(|at| assert!(ring.push(receive(lap * 3 + at, 1))));
            assert_eq!(taken(&mut ring, 2), [lap * 3, lap * 3 + 1]);
            assert_eq!(taken(&mut ring, 2), [lap * 3 + 2]);
        }
        assert!(taken(&mut ring, 1).is_empty());
    }

    #[test]
    fn a_ring_that_overran_gives_what_it_has_and_then_an_error() {
        let mut ring = Ring::new(2);
        let fits: Vec<_> = (0..4).map(|at| ring.push(receive(at, 1))).collect();
        assert_eq!(fits, [true, true, false, true], "it is told once");
        assert_eq!(taken(&mut ring, 4), [0, 1]);
        let mut wc = sys::ibv_wc::default();
        // SAFETY: there is room for one.
        assert_eq!(unsafe { ring.take(1, &mut wc, |_| ()) }, -1);
    }

    #[test]
    fn completions_of_one_queue_pair_can_be_dropped() {
        let mut ring = Ring::new(4);
        (0..4).for_each(|at| assert!(ring.push(receive(at, at as usize % 2 + 1))));
        ring.drop_of(std::ptr::without_provenance(1));
        assert_eq!(taken(&mut ring, 4), [1, 3]);
    }
}
