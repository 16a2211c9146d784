//! Room in a control segment for what has no fixed size: rings of receives.

use std::collections::BTreeMap;

/// Which parts of a range are free, in pages.
pub(crate) struct Heap {
    /// Begin and length of each free part; neighbours are joined.
    free: BTreeMap<u64, u64>,
}

const PAGE: u64 = 4096;

impl Heap {
    /// A heap from `start` on, `len` bytes long.
    pub(crate) fn new(start: u64, len: u64) -> Self {
        Self { free: BTreeMap::from([(start, len)]) }
    }

    /// Takes `len` bytes, on a page; `None` where there is no room.
    pub(crate) fn take(&mut self, len: u64) -> Option<u64> {
        let len = len.next_multiple_of(PAGE);
        let (&start, &room) = self.free.iter().find(|&(_, &room)| room >= len)?;
        self.free.remove(&start);
        if room > len {
            self.free.insert(start + len, room - len);
        }
        Some(start)
    }

    /// Gives back what was taken.
    pub(crate) fn give(&mut self, mut start: u64, len: u64) {
        let mut len = len.next_multiple_of(PAGE);
        if let Some(after) = self.free.remove(&(start + len)) {
            len += after;
        }
        if let Some((&before, &room)) =
            self.free.range(..start).next_back().filter(|&(at, room)| at + room == start)
        {
            self.free.remove(&before);
            start = before;
            len += room;
        }
        self.free.insert(start, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_can_be_taken_again_whole() {
        let mut heap = Heap::new(PAGE, 4 * PAGE);
        let parts: Vec<_> = [1, PAGE, PAGE + 1].map(|len| heap.take(len).unwrap()).into();
        assert_eq!(parts, [PAGE, 2 * PAGE, 3 * PAGE]);
        assert_eq!(heap.take(1), None);
        heap.give(parts[1], PAGE);
        assert_eq!(heap.take(2 * PAGE), None);
        heap.give(parts[0], 1);
        heap.give(parts[2], PAGE + 1);
        assert_eq!(heap.take(4 * PAGE), Some(PAGE));
    }
}
