//! The two loops.
//!
//! ```text
//! client   post ping ────────────┐           ┌─ pong is there: end of this sample and begin of the next
//!                                ▼           │
//! server                  ping is there ── post pong
//! ```
//!
//! A sample is a whole round trip: from just before the post of the ping to the moment at which the last byte of the
//! pong is seen, with one reading of the clock between two samples. The answer costs the server one look and one post.

use linkproof_common::clock::Clock;
use linkproof_common::endpoint::PingPong;
use linkproof_common::error::Result;
use linkproof_common::latency::Samples;
use linkproof_common::watch::Stop;

/// Sends `limit` pings, one after the answer to the other, and records the round trips; fewer where `stop` says so.
/// Gives how many were answered.
///
/// # Errors
/// A write that failed.
pub(crate) fn ping<P: PingPong, C: Clock, S: Samples>(
    path: &mut P,
    limit: u64,
    clock: &C,
    stop: &Stop,
    samples: &mut S,
) -> Result<u64> {
    let mut answered = 0;
    let mut begin = clock.now_ns();
    while answered < limit && !stop.must_finish() {
        path.send(answered + 1)?;
        while !path.arrived(answered + 1)? {
            if stop.must_abandon() {
                return Ok(answered);
            }
        }
        let end = clock.now_ns();
        samples.record(end - begin);
        begin = end;
        answered += 1;
        stop.note_completed(answered);
    }
    Ok(answered)
}

/// Answers pings until `stop` says that there will be no more. Gives how many it answered.
///
/// # Errors
/// A write that failed.
pub(crate) fn pong<P: PingPong>(path: &mut P, stop: &Stop) -> Result<u64> {
    let mut answered = 0;
    loop {
        while !path.arrived(answered + 1)? {
            if stop.must_finish() {
                return Ok(answered);
            }
        }
        answered += 1;
        path.send(answered)?;
        stop.note_completed(answered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkproof_common::latency::RawSamples;
    use std::cell::Cell;

    /// A peer that answers after `looks` looks; the clock advances by one at each look.
    struct Mirror<'a> {
        sent: u64,
        looks: u64,
        left: u64,
        now: &'a Cell<u64>,
        stop_after: Option<(u64, &'a Stop)>,
    }

    impl PingPong for Mirror<'_> {
        fn send(&mut self, sequence: u64) -> Result<()> {
            assert_eq!(sequence, self.sent + 1, "messages are numbered from 1 without a gap");
            self.sent = sequence;
            self.left = self.looks;
            Ok(())
        }

        fn arrived(&mut self, sequence: u64) -> Result<bool> {
            assert_eq!(sequence, self.sent);
            self.now.set(self.now.get() + 1);
            self.left -= 1;
            if let Some((_, stop)) = self.stop_after.filter(|(limit, _)| self.sent >= *limit) {
                stop.finish();
            }
            Ok(self.left == 0)
        }
    }

    struct Ticks<'a>(&'a Cell<u64>);

    impl Clock for Ticks<'_> {
        fn now_ns(&self) -> u64 {
            self.0.get()
        }
    }

    #[test]
    fn every_round_trip_is_a_sample_of_its_own_length() {
        let now = Cell::new(0);
        let mut mirror = Mirror { sent: 0, looks: 7, left: 0, now: &now, stop_after: None };
        let mut samples = RawSamples::with_capacity(50);
        assert_eq!(ping(&mut mirror, 50, &Ticks(&now), &Stop::new(), &mut samples).unwrap(), 50);
        assert_eq!(samples.rtts_ns(), [7; 50]);
    }

    #[test]
    fn a_round_told_to_finish_ends_with_the_answer_under_way() {
        let now = Cell::new(0);
        let stop = Stop::new();
        let mut mirror = Mirror { sent: 0, looks: 3, left: 0, now: &now, stop_after: Some((10, &stop)) };
        let mut samples = RawSamples::with_capacity(1000);
        assert_eq!(ping(&mut mirror, 1000, &Ticks(&now), &stop, &mut samples).unwrap(), 10);
        assert_eq!(samples.rtts_ns().len(), 10);
    }
}
