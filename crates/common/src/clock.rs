//! The clock of the measured loop.
//!
//! Bandwidth needs one reading for each batch of completions, tens of microseconds apart, so the kernel's
//! monotonic clock (about 25 ns a reading through the vDSO on bare metal) is exact enough; the cost of a reading
//! is measured and reported. The loop is generic over [`Clock`], so that tests run on a clock of their own.

use std::time::{Duration, Instant};

/// A monotonic source of nanoseconds.
pub trait Clock {
    /// Nanoseconds since some fixed moment.
    fn now_ns(&self) -> u64;
}

/// `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    origin: Instant,
}

impl MonotonicClock {
    /// A clock that starts at zero now.
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// The median cost of one reading.
    pub fn reading_cost(&self) -> Duration {
        const READINGS: u64 = 64;
        let mut batches: Vec<u64> = (0..9)
            .map(|_| {
                let begin = self.now_ns();
                for _ in 0..READINGS - 1 {
                    std::hint::black_box(self.now_ns());
                }
                (self.now_ns() - begin) / READINGS
            })
            .collect();
        batches.sort_unstable();
        Duration::from_nanos(batches[batches.len() / 2])
    }
}

impl Clock for MonotonicClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        // 64 bits of nanoseconds last 584 years.
        self.origin.elapsed().as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_runs_backwards_and_costs_something() {
        let clock = MonotonicClock::start();
        let first = clock.now_ns();
        assert!(clock.now_ns() >= first);
        assert!(clock.reading_cost() < Duration::from_millis(1));
    }
}
