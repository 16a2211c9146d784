//! Whether the loop may post: at any time, or at a limited rate.
//!
//! Chosen before the loop, which is compiled for each.

use linkproof_common::clock::Clock;
use linkproof_common::endpoint::Endpoint;
use linkproof_common::error::Result;

use crate::lane::Fill;
use crate::window::Window;

/// How the queues of a window are filled over time.
pub(crate) trait Pace {
    /// The stretch begins.
    fn begin(&mut self, now_ns: u64);

    /// Posts what may be posted now.
    ///
    /// # Errors
    /// Those of [`Endpoint::post_write`].
    fn fill<F: Fill, E: Endpoint, C: Clock>(
        &mut self,
        window: &mut Window,
        endpoint: &mut E,
        clock: &C,
    ) -> Result<()>;

    /// Collects what has completed.
    ///
    /// # Errors
    /// Those of [`Endpoint::poll`].
    fn poll<E: Endpoint>(&self, endpoint: &mut E, done: impl FnMut(usize, u32)) -> Result<()>;
}

/// As fast as the queues empty.
pub(crate) struct Unpaced;

impl Pace for Unpaced {
    #[inline(always)]
    fn begin(&mut self, _: u64) {}

    #[inline(always)]
    fn fill<F: Fill, E: Endpoint, C: Clock>(
        &mut self,
        window: &mut Window,
        endpoint: &mut E,
        _: &C,
    ) -> Result<()> {
        window.fill::<E, F>(endpoint)
    }

    #[inline(always)]
    fn poll<E: Endpoint>(&self, endpoint: &mut E, done: impl FnMut(usize, u32)) -> Result<()> {
        endpoint.poll(done)
    }
}

/// A token bucket: a token for each message, which come in at the rate and are kept up to the depth.
///
/// It begins empty, so that the number of messages posted by any moment is never more than the rate makes by then, and
/// no average over a round is ever above the limit. Its depth is what makes up for time in which the loop was away or
/// the queues were full; what comes in beyond it is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    /// Tokens in a nanosecond, as all tokens here in units of 2⁻⁴⁸: one a second is 281 475 of them, so the rate is
    /// kept to some millionths, and the deepest bucket (2¹⁴) still fits twice into 64 bits.
    per_ns: u64,
    depth: u64,
    tokens: u64,
    filled_ns: u64,
}

/// One token.
const TOKEN: u64 = 1 << 48;
/// More than any loop posts, so that one nanosecond's tokens never overflow.
const MOST_PER_NS: f64 = 16.0;

impl TokenBucket {
    /// A bucket for `per_sec` messages a second of which `depth` may go at once.
    pub(crate) fn new(per_sec: f64, depth: u32) -> Self {
        // Rounded down: the limit is not passed.
        let per_ns = (per_sec / 1e9).min(MOST_PER_NS) * TOKEN as f64;
        Self { per_ns: (per_ns as u64).max(1), depth: u64::from(depth) * TOKEN, tokens: 0, filled_ns: 0 }
    }

    /// Adds the tokens of the time since this was done last.
    #[inline]
    fn fill_up(&mut self, now_ns: u64) {
        // More than fills the bucket would only overflow.
        let passed = (now_ns - self.filled_ns).min(self.depth / self.per_ns + 1);
        self.filled_ns = now_ns;
        self.tokens = (self.tokens + passed * self.per_ns).min(self.depth);
    }

    /// Takes a token for each of so many messages; all or none.
    #[inline]
    pub(crate) fn take(&mut self, messages: u64) -> bool {
        let wanted = messages * TOKEN;
        let enough = self.tokens >= wanted;
        if enough {
            self.tokens -= wanted;
        }
        enough
    }
}

impl Pace for TokenBucket {
    fn begin(&mut self, now_ns: u64) {
        self.tokens = 0;
        self.filled_ns = now_ns;
    }

    #[inline]
    fn fill<F: Fill, E: Endpoint, C: Clock>(
        &mut self,
        window: &mut Window,
        endpoint: &mut E,
        clock: &C,
    ) -> Result<()> {
        self.fill_up(clock.now_ns());
        window.fill_in_turn::<E, F>(endpoint, self)
    }

    /// The next token does not wait for a completion.
    #[inline]
    fn poll<E: Endpoint>(&self, endpoint: &mut E, done: impl FnMut(usize, u32)) -> Result<()> {
        endpoint.poll_at_once(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(bucket: &mut TokenBucket, now_ns: u64) -> u64 {
        bucket.fill_up(now_ns);
        let mut count = 0;
        while bucket.take(1) {
            count += 1;
        }
        count
    }

    #[test]
    fn tokens_come_at_the_rate_and_the_first_not_at_once() {
        let mut bucket = TokenBucket::new(1e6, 8);
        bucket.begin(5000);
        assert_eq!(taken(&mut bucket, 5000), 0);
        assert_eq!(taken(&mut bucket, 5999), 0);
        assert_eq!(taken(&mut bucket, 6001), 1);
        assert_eq!(taken(&mut bucket, 9001), 3);
    }

    #[test]
    fn no_more_than_the_depth_is_kept() {
        let mut bucket = TokenBucket::new(1e6, 8);
        bucket.begin(0);
        assert_eq!(taken(&mut bucket, u64::MAX), 8);
        let mut fast = TokenBucket::new(f64::MAX, 16384);
        fast.begin(0);
        assert_eq!(taken(&mut fast, u64::MAX / 2), 16384);
        assert_eq!(taken(&mut fast, u64::MAX / 2 + 1), 16);
    }

    #[test]
    fn several_are_taken_together_or_not_at_all() {
        let mut bucket = TokenBucket::new(1e6, 8);
        bucket.begin(0);
        bucket.fill_up(3001);
        assert!(!bucket.take(4) && bucket.take(3) && !bucket.take(1));
    }

    #[test]
    fn the_rate_is_kept_over_a_day_and_never_passed() {
        for per_sec in [0.2, 1.0, 3.0, 799.9, 1e6 / 3.0, 123_456_789.0] {
            let mut bucket = TokenBucket::new(per_sec, 16384);
            bucket.begin(0);
            // Looks a depth apart at most, at times that have nothing to do with the rate.
            let step = ((16000.0 / per_sec * 1e9) as u64).min(86_400_000_000_000 / 1000);
            let (mut now, mut count) = (0, 0.0);
            while now < 1000 * step {
                now += step - now % 7;
                bucket.fill_up(now);
                let whole = bucket.tokens / TOKEN;
                assert!(bucket.take(whole));
                count += whole as f64;
            }
            let made = per_sec * now as f64 / 1e9;
            assert!(count <= made && count > made * 0.9999 - 1.0, "{count} of {made} at {per_sec}");
        }
    }
}
