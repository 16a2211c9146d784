//! The word between the loops of a round and their watcher.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const RUN: u8 = 0;
const FINISH: u8 = 1;
const ABANDON: u8 = 2;

/// Set in the count of completed messages once the loop has returned.
const OVER: u64 = 1 << 63;

/// The word between a loop and its watcher. On cache lines of its own (two, since some processors fetch them in pairs):
/// each of several loops looks at its own in every turn, and would wait for the others' counts otherwise.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Stop {
    order: AtomicU8,
    completed: AtomicU64,
}

impl Stop {
    /// For a new round.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether to post nothing more than it takes to complete what is outstanding.
    #[inline]
    pub fn must_finish(&self) -> bool {
        self.order.load(Ordering::Relaxed) != RUN
    }

    /// Whether to leave at once: what is outstanding will not complete.
    #[inline]
    pub fn must_abandon(&self) -> bool {
        self.order.load(Ordering::Relaxed) == ABANDON
    }

    /// Tells the watcher how many messages have completed.
    #[inline]
    pub fn note_completed(&self, completed: u64) {
        self.completed.store(completed, Ordering::Relaxed);
    }

    /// How many messages had completed when the loop said so last.
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed) & !OVER
    }

    /// Orders the loop to finish.
    pub fn finish(&self) {
        let _ = self.order.compare_exchange(RUN, FINISH, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Orders the loop to leave at once.
    pub fn abandon(&self) {
        self.order.store(ABANDON, Ordering::Relaxed);
    }
}

/// The words of all loops of a round; their watcher treats them as one.
#[derive(Clone, Copy, Debug)]
pub struct Stops<'a>(&'a [Stop]);

impl<'a> From<&'a Stop> for Stops<'a> {
    fn from(stop: &'a Stop) -> Self {
        Self(std::slice::from_ref(stop))
    }
}

impl<'a> From<&'a [Stop]> for Stops<'a> {
    fn from(stops: &'a [Stop]) -> Self {
        Self(stops)
    }
}

impl<'a> Stops<'a> {
    /// The word of the loop number `index`, if there are so many.
    pub fn get(self, index: usize) -> Option<&'a Stop> {
        self.0.get(index)
    }

    /// How many messages had completed when the loops said so last.
    pub fn completed(self) -> u64 {
        self.0.iter().map(Stop::completed).sum()
    }

    /// Whether any loop was told to finish; mostly all were.
    pub fn must_finish(self) -> bool {
        self.0.iter().any(Stop::must_finish)
    }

    /// Orders all loops to finish.
    pub fn finish(self) {
        self.0.iter().for_each(Stop::finish);
    }

    /// Orders all loops to leave at once.
    pub fn abandon(self) {
        self.0.iter().for_each(Stop::abandon);
    }

    /// Tells the watcher that all loops have returned.
    pub(super) fn note_over(self) {
        self.0.iter().for_each(|stop| {
            stop.completed.fetch_or(OVER, Ordering::Release);
        });
    }

    /// Whether they have.
    pub(super) fn are_over(self) -> bool {
        self.0.iter().all(|stop| stop.completed.load(Ordering::Acquire) & OVER != 0)
    }
}
