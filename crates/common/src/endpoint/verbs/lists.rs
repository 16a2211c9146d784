//! Lists of writes, built once for a queue pair and posted over and over.
//!
//! Slots come round, and with them the lists: of 64 slots and lists of 16 there are four, which are all of the same
//! writes again each time. So each is built before the loop, and a post changes one request of it, the last: whether
//! it is signalled, and for how many writes. A list that is none of these (the last of a stretch is as long as what is
//! left) is built when it is posted.

use std::ptr::NonNull;

use rdma_sys as sys;

use super::posting::{Request, Write, signal_flags};
use crate::endpoint::{List, Signal};

/// Requests that are built beforehand for a queue pair, at most. Of 144 bytes each: with more of them they would not stay
/// in a second-level cache of 256 KiB, and building a list anew in the first-level cache is no slower.
const MOST: usize = 1024;

/// The lists of one queue pair.
pub(super) struct Lists {
    /// Lists of `len` requests one behind the other, `built` of them, and room for one more. Reached by this pointer
    /// only: the requests point to each other, which a reference to one of them would forbid.
    requests: NonNull<Request>,
    len: usize,
    built: usize,
    /// Slots from the first of a list to the first of the next one in memory.
    step: u64,
    flags: u32,
}

impl Lists {
    /// Lists of `len` of `request`, from and to slots in turn, of which there are `slots`. `write` tells what an
    /// unsignalled write of a slot is; `flags` are those of all.
    pub(super) fn new(
        request: Request,
        len: u32,
        slots: u64,
        flags: u32,
        write: impl Fn(u64) -> Write,
    ) -> Self {
        let len = len.max(1) as usize;
        let step = greatest_common_divisor(slots, len as u64);
        let all = (slots / step) as usize;
        // Writes that are posted alone have another way.
        let built = if len > 1 && all * len <= MOST { all } else { 0 };
        let requests = Box::leak(vec![request; (built + 1) * len].into_boxed_slice());
        let lists = Self { requests: NonNull::from(requests).cast(), len, built, step, flags };
        for list in 0..built {
            lists.build(list, len, (0..).map(|place| write((list as u64 * step + place) % slots)));
        }
        lists
    }

    /// Builds list number `list` of the first `count` of `writes`.
    fn build(&self, list: usize, count: usize, writes: impl Iterator<Item = Write>) {
        for (place, write) in (0..count).zip(writes) {
            let request = self.at(list, place);
            let next = if place + 1 < count { self.at(list, place + 1) } else { std::ptr::null_mut() };
            // SAFETY: the request is this value's own, and no reference to one is kept. `wr` is the first field, so that
            // a request's address is that of its `wr`.
            unsafe {
                (*request).fill(write, self.flags);
                (*request).wr.sg_list = &raw mut (*request).sge;
                (*request).wr.next = next.cast();
            }
        }
    }

    #[inline(always)]
    fn at(&self, list: usize, place: usize) -> *mut Request {
        debug_assert!(list <= self.built && place < self.len);
        // SAFETY: there are so many lists, and one more, of so many requests.
        unsafe { self.requests.as_ptr().add(list * self.len + place) }
    }

    /// The first request of `list`, whose writes are `wr_id` and `write`: ready to be posted, and unchanged until the next call.
    ///
    /// # Panics
    /// For a list that is longer than what this was made for.
    #[inline(always)]
    pub(super) fn ready(
        &mut self,
        list: List,
        wr_id: u64,
        write: impl Fn(u64, Signal) -> Write,
    ) -> *mut sys::ibv_send_wr {
        let index = list.slot / self.step;
        if list.writes as usize != self.len || index >= self.built as u64 || index * self.step != list.slot {
            return self.build_anew(list, write);
        }
        let index = index as usize;
        // SAFETY: the request is this value's own.
        unsafe {
            let last = self.at(index, self.len - 1);
            (*last).wr.wr_id = wr_id;
            (*last).wr.send_flags = signal_flags(list.signal) | self.flags;
        }
        self.at(index, 0).cast()
    }

    #[inline(never)]
    fn build_anew(&mut self, list: List, write: impl Fn(u64, Signal) -> Write) -> *mut sys::ibv_send_wr {
        let count = list.writes as usize;
        assert!((1..=self.len).contains(&count), "a list of {count} writes in room for {}", self.len);
        self.build(self.built, count, list.each().map(|(slot, signal)| write(slot, signal)));
        self.at(self.built, 0).cast()
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        let requests =
            std::ptr::slice_from_raw_parts_mut(self.requests.as_ptr(), (self.built + 1) * self.len);
        // SAFETY: leaked by `new` with this length, and freed once.
        drop(unsafe { Box::from_raw(requests) });
    }
}

fn greatest_common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(slot: u64, signal: Signal) -> Write {
        let wr_id = match signal {
            Signal::None => 0,
            Signal::Covering(writes) => writes.into(),
        };
        Write { local_addr: 1000 + slot, remote_addr: 2000 + slot, wr_id, signal }
    }

    fn lists(len: u32, slots: u64) -> Lists {
        let request = Request { wr: sys::ibv_send_wr::default(), sge: sys::ibv_sge::default() };
        Lists::new(request, len, slots, sys::IBV_SEND_INLINE, |slot| write(slot, Signal::None))
    }

    /// What a provider finds in a chain: the slot of each write, and the signalled ones with their `wr_id`.
    fn found(mut wr: *const sys::ibv_send_wr) -> (Vec<u64>, Vec<(usize, u64)>) {
        let (mut slots, mut signals) = (Vec::new(), Vec::new());
        // SAFETY: the chain and its pieces are alive and ends in null.
        while let Some(request) = unsafe { wr.as_ref() } {
            // SAFETY: as above; a write has these fields.
            let (local, remote) = unsafe { ((*request.sg_list).addr, request.wr.rdma.remote_addr) };
            assert_eq!(local - 1000, remote - 2000);
            assert!(request.send_flags & sys::IBV_SEND_INLINE != 0);
            if request.send_flags & sys::IBV_SEND_SIGNALED != 0 {
                signals.push((slots.len(), request.wr_id));
            } else {
                assert_eq!(request.wr_id, 0);
            }
            slots.push(local - 1000);
            wr = request.next;
        }
        (slots, signals)
    }

    /// Posts so many writes in lists, every second one signalled, and looks at what a provider would find.
    fn check(len: u32, slots: u64, writes: u64) {
        let mut lists = lists(len, slots);
        let (mut slot, mut posted, mut unsignalled) = (0, 0, 0);
        while posted < writes {
            let count = (writes - posted).min(len.into()) as u32;
            unsignalled += count;
            let signalled = unsignalled > len || posted + u64::from(count) == writes;
            let signal = if signalled { Signal::Covering(unsignalled) } else { Signal::None };
            let list = List { slot, slots, writes: count, signal };
            let wr_id = if signalled { unsignalled.into() } else { 0 };
            let (found_slots, signals) = found(lists.ready(list, wr_id, write));
            let wanted: Vec<_> = (0..u64::from(count)).map(|place| (slot + place) % slots).collect();
            assert_eq!(found_slots, wanted, "lists of {len} through {slots} slots, after {posted}");
            let wanted = if signalled { vec![(count as usize - 1, wr_id)] } else { Vec::new() };
            assert_eq!(signals, wanted);
            unsignalled = if signalled { 0 } else { unsignalled };
            (slot, posted) = ((slot + u64::from(count)) % slots, posted + u64::from(count));
        }
    }

    #[test]
    fn a_list_has_its_writes_in_order_and_its_signal_at_the_end() {
        for (len, slots) in [(16, 64), (16, 1), (128, 64), (3, 64), (10, 21), (1, 64), (100, 64), (64, 64)] {
            check(len, slots, 1000);
        }
    }

    #[test]
    fn lists_that_would_not_stay_in_the_cache_are_built_when_they_are_posted() {
        assert_eq!([lists(16, 64).built, lists(3, 64).built, lists(16, 1).built], [4, 64, 1]);
        assert_eq!([lists(1, 64).built, lists(8191, 64).built], [0, 0]);
        check(8191, 64, 20_000);
    }

    #[test]
    fn a_list_that_begins_elsewhere_is_built_when_it_is_posted() {
        let mut lists = lists(16, 64);
        let list = List { slot: 5, slots: 64, writes: 16, signal: Signal::Covering(16) };
        let (slots, signals) = found(lists.ready(list, 16, write));
        assert_eq!(slots, (5..21).collect::<Vec<_>>());
        assert_eq!(signals, [(15, 16)]);
    }
}
