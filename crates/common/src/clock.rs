//! The clock of the measured loop.
//!
//! Bandwidth needs one reading for each batch of completions, tens of microseconds apart, so the kernel's
//! monotonic clock (about 25 ns a reading through the vDSO on bare metal) is exact enough. The loop is generic over [`Clock`], so that tests run on a clock of their own.

use std::time::Instant;

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
    fn never_runs_backwards() {
        let clock = MonotonicClock::start();
        let first = clock.now_ns();
        assert!(clock.now_ns() >= first);
    }
}
