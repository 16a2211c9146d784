//! Where the posting threads of a round wait for each other, to begin at one moment.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use linkproof_common::clock::Clock;
use linkproof_common::watch::Stop;

/// A gate that opens when all are there. They spin: a thread that sleeps wakes up some 50 µs after the others.
#[derive(Debug)]
pub(crate) struct Gate {
    missing: AtomicU32,
    /// One more than the nanoseconds at which it opened; 0 until then.
    opened: AtomicU64,
}

impl Gate {
    /// A gate for so many threads, each of which passes it once.
    pub(crate) fn new(threads: u32) -> Self {
        Self { missing: AtomicU32::new(threads), opened: AtomicU64::new(0) }
    }

    /// Waits for the others; gives the moment at which the last came, the same to all. `None` where `stop` says to leave.
    pub(crate) fn pass(&self, clock: &impl Clock, stop: &Stop) -> Option<u64> {
        if self.missing.fetch_sub(1, Ordering::Relaxed) == 1 {
            let now_ns = clock.now_ns();
            self.opened.store(now_ns + 1, Ordering::Relaxed);
            return Some(now_ns);
        }
        loop {
            match self.opened.load(Ordering::Relaxed) {
                // There may be fewer processors than threads.
                0 if !stop.must_abandon() => std::thread::yield_now(),
                0 => return None,
                opened => return Some(opened - 1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkproof_common::clock::MonotonicClock;

    #[test]
    fn all_begin_at_the_moment_at_which_the_last_came() {
        let (gate, clock, stop) = (Gate::new(4), MonotonicClock::start(), Stop::new());
        let (begins, came) = std::thread::scope(|scope| {
            let early: Vec<_> = (0..3).map(|_| scope.spawn(|| gate.pass(&clock, &stop).unwrap())).collect();
            while gate.missing.load(Ordering::Relaxed) > 1 {
                std::thread::yield_now();
            }
            let came = clock.now_ns();
            let mut begins = vec![gate.pass(&clock, &stop).unwrap()];
            begins.extend(early.into_iter().map(|thread| thread.join().unwrap()));
            (begins, came)
        });
        assert!(begins.iter().all(|&begin| begin == begins[0] && begin >= came), "{begins:?}, {came}");
    }

    #[test]
    fn who_waits_leaves_when_told_to() {
        let (gate, clock, stop) = (Gate::new(2), MonotonicClock::start(), Stop::new());
        stop.abandon();
        assert_eq!(gate.pass(&clock, &stop), None);
    }

    #[test]
    fn a_single_thread_passes_at_once() {
        assert!(Gate::new(1).pass(&MonotonicClock::start(), &Stop::new()).is_some());
    }
}
