//! How often each address is counted.

use std::collections::BTreeMap;
use std::ops::Range;

/// Counts over ranges of addresses: each key begins a stretch that has its count, up to the next key.
#[derive(Default)]
pub(super) struct Counts(BTreeMap<u64, u32>);

impl Counts {
    /// Counts every address of `range` once more.
    pub(super) fn add(&mut self, range: &Range<u64>) {
        self.split(range);
        self.0.range_mut(range.clone()).for_each(|(_, count)| *count += 1);
    }

    /// Counts every address of `range`, which was added, once less; gives the parts that nobody counts any more.
    pub(super) fn remove(&mut self, range: &Range<u64>) -> Vec<Range<u64>> {
        self.split(range);
        self.0.range_mut(range.clone()).for_each(|(_, count)| *count = count.saturating_sub(1));
        let left = self.parts(range, |count| count == 0);
        self.join();
        left
    }

    /// The parts of `range` that are not counted.
    pub(super) fn missing(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        self.parts(range, |count| count == 0)
    }

    /// The parts of `range` that are.
    pub(super) fn present(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        self.parts(range, |count| count > 0)
    }

    fn parts(&self, range: &Range<u64>, wanted: impl Fn(u32) -> bool) -> Vec<Range<u64>> {
        let mut parts: Vec<Range<u64>> = Vec::new();
        let starts = self.0.range(range.clone()).map(|(&start, &count)| (start, count));
        let mut stretches: Vec<_> =
            std::iter::once((range.start, self.count_at(range.start))).chain(starts).collect();
        stretches.push((range.end, 0));
        for pair in stretches.windows(2) {
            let stretch = pair[0].0..pair[1].0;
            if stretch.is_empty() || !wanted(pair[0].1) {
                continue;
            }
            match parts.last_mut().filter(|last| last.end == stretch.start) {
                Some(last) => last.end = stretch.end,
                None => parts.push(stretch),
            }
        }
        parts
    }

    fn count_at(&self, address: u64) -> u32 {
        self.0.range(..=address).next_back().map_or(0, |(_, &count)| count)
    }

    fn split(&mut self, range: &Range<u64>) {
        for address in [range.start, range.end] {
            let count = self.count_at(address);
            self.0.entry(address).or_insert(count);
        }
    }

    /// Forgets the keys at which nothing changes.
    fn join(&mut self) {
        let mut before = 0;
        self.0.retain(|_, count| std::mem::replace(&mut before, *count) != *count);
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
mod tests {
    use super::*;

    #[test]
    fn overlapping_ranges_are_counted_part_by_part() {
        let mut counts = Counts::default();
        counts.add(&(10..20));
        counts.add(&(15..30));
        assert_eq!(counts.missing(&(0..40)), [0..10, 30..40]);
        assert_eq!(counts.present(&(0..16)), [10..16]);
        assert_eq!(counts.remove(&(10..20)), [10..15]);
        assert_eq!(counts.present(&(0..40)), [15..30]);
        assert_eq!(counts.remove(&(15..30)), [15..30]);
        assert!(counts.0.is_empty(), "{:?}", counts.0);
    }

    #[test]
    fn a_range_may_be_added_many_times() {
        let mut counts = Counts::default();
        (0..3).for_each(|_| counts.add(&(0..8)));
        assert_eq!(counts.remove(&(0..8)), []);
        assert_eq!(counts.remove(&(0..8)), []);
        assert_eq!(counts.remove(&(0..8)), [0..8]);
    }
}
