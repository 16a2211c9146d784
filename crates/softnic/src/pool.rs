//! Which entries of a table are free.

use std::collections::VecDeque;

/// Indices from `first` on, up to a table's size. One that comes back is given out again as late as possible.
pub(crate) struct Pool {
    first: u32,
    size: u32,
    offset: u32,
    fresh: u32,
    returned: VecDeque<u32>,
}

impl Pool {
    /// Indices from `first` up to `size`, begun at a place that `seed` decides.
    pub(crate) fn new(first: u32, size: u32, seed: u32) -> Self {
        let room = size - first;
        // Neighbouring seeds, as process ids are, begin far from each other.
        let offset = ((u64::from(seed.wrapping_mul(0x9e37_79b9)) * u64::from(room)) >> 32) as u32;
        Self { first, size, offset, fresh: 0, returned: VecDeque::new() }
    }

    /// A free index, if there is one.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let room = self.size - self.first;
        if self.fresh < room {
            let index = self.first + (self.offset + self.fresh) % room;
            self.fresh += 1;
            return Some(index);
        }
        self.returned.pop_front()
    }

    /// Gives `index` back.
    pub(crate) fn give(&mut self, index: u32) {
        self.returned.push_back(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_index_is_given_out_once() {
        let mut pool = Pool::new(1, 5, 1234);
        let all: BTreeSet<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(all, BTreeSet::from([1, 2, 3, 4]));
        assert_eq!(pool.take(), None);
        pool.give(2);
        pool.give(3);
        assert_eq!((pool.take(), pool.take(), pool.take()), (Some(2), Some(3), None));
    }
}
