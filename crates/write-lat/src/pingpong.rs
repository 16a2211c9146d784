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
//!
//! Where the data is checked, each end looks at the whole message between the samples: the server once the pong is on
//! its way, the client once the sample is taken. The server then releases the client, which begins the next sample only
//! after that, so that neither end's looking falls into one.
//!
//! ```text
//! client   post ping ──────────┐         ┌─ pong is there: end ─ looks ────────────── released: begin of the next
//!                              ▼         │                                        ▲
//! server                ping is there ── post pong ─ looks ──────────── post release
//! ```

use linkproof_common::clock::Clock;
use linkproof_common::endpoint::PingPong;
use linkproof_common::error::Result;
use linkproof_common::latency::{Latency, Samples};
use linkproof_common::memory::{Buffer, Inspector};
use linkproof_common::plan::Role;
use linkproof_common::watch::Stop;

/// What an end does with each message besides seeing it. Chosen before the loop, which is compiled for each.
pub(crate) trait Look {
    /// Whether it looks at all, and the server releases the client.
    const LOOKS: bool;

    /// Looks at message number `sequence`, which has just arrived.
    ///
    /// # Errors
    /// Those of the memory.
    fn look(&mut self, sequence: u64) -> Result<()>;
}

/// Nothing: the next sample begins where the one before has ended.
pub(crate) struct NoLook;

impl Look for NoLook {
    const LOOKS: bool = false;

    #[inline(always)]
    fn look(&mut self, _: u64) -> Result<()> {
        Ok(())
    }
}

impl<B: Buffer> Look for Inspector<'_, B> {
    const LOOKS: bool = true;

    fn look(&mut self, sequence: u64) -> Result<()> {
        Inspector::look(self, sequence)
    }
}

/// Sends `limit` pings, one after the answer to the other, and records the round trips; fewer where `stop` says so.
/// Gives how many were answered.
///
/// # Errors
/// A write that failed.
pub(crate) fn ping<P: PingPong, C: Clock, S: Samples, L: Look>(
    path: &mut P,
    limit: u64,
    clock: &C,
    stop: &Stop,
    samples: &mut S,
    look: &mut L,
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
        if L::LOOKS {
            look.look(answered)?;
            while !path.released(answered)? {
                if stop.must_abandon() {
                    return Ok(answered);
                }
            }
            begin = clock.now_ns();
        }
    }
    Ok(answered)
}

/// Answers a peer that measures longer than this end, after `answered` round trips, until `stop` says that it has left. A write
/// that fails here is how its leave looks from the adapter.
fn keep_company<P: PingPong>(path: &mut P, mut answered: u64, stop: &Stop) {
    while !stop.must_abandon() && path.send(answered + 1).is_ok() {
        loop {
            match path.arrived(answered + 1) {
                Ok(true) => break,
                Ok(false) if !stop.must_abandon() => {}
                _ => return,
            }
        }
        answered += 1;
        stop.note_completed(answered);
    }
}

/// The same where the peer's first message comes before this end's, as perftest's server has it: each ping of this end is
/// the answer to the peer's last, and its own answer is the peer's next. The last ping is not answered, so that there is a
/// sample fewer than messages. Gives how many messages were sent.
///
/// # Errors
/// As [`ping`].
pub(crate) fn follow<P: PingPong, C: Clock, S: Samples>(
    path: &mut P,
    limit: u64,
    clock: &C,
    stop: &Stop,
    samples: &mut S,
) -> Result<u64> {
    while !path.arrived(1)? {
        if stop.must_finish() {
            return Ok(0);
        }
    }
    let mut path = Shifted { path, sent: 0, answered: 1 };
    let answered = ping(&mut path, limit.saturating_sub(1), clock, stop, samples, &mut NoLook)?;
    if answered + 1 == limit {
        path.path.send(limit)?;
        return Ok(limit);
    }
    Ok(answered)
}

/// The same where this end begins, with a perftest that does not say when it is ready: the first round trip is how the ends
/// meet, and no sample.
///
/// # Errors
/// As [`ping`].
pub(crate) fn lead<P: PingPong, C: Clock, S: Samples>(
    path: &mut P,
    limit: u64,
    clock: &C,
    stop: &Stop,
    samples: &mut S,
) -> Result<u64> {
    path.send(1)?;
    while !path.arrived(1)? {
        if stop.must_finish() {
            return Ok(0);
        }
    }
    let mut path = Shifted { path, sent: 1, answered: 1 };
    Ok(1 + ping(&mut path, limit.saturating_sub(1), clock, stop, samples, &mut NoLook)?)
}

/// As [`follow`] and [`lead`], whichever `role` has, but by time: no message is the last. Each end has a clock of its own, and
/// an end whose time is not over yet waits for the other's answers. This end's time is `time_ns` from the first message of the
/// other, which may take a second until it begins. Gives how many round trips were recorded, and how long they took.
///
/// # Errors
/// As [`ping`].
pub(crate) fn by_time<P: PingPong, C: Clock, S: Samples>(
    (role, time_ns): (Role, u64),
    path: &mut P,
    clock: &C,
    stop: &Stop,
    samples: &mut S,
) -> Result<(u64, u64)> {
    let sent = u64::from(role == Role::Server);
    if sent > 0 {
        path.send(sent)?;
    }
    while !path.arrived(1)? {
        if stop.must_finish() {
            return Ok((0, 0));
        }
    }
    let mut path = Shifted { path, sent, answered: 1 };
    let mut samples = Limited { samples, sum_ns: 0, time_ns, stop };
    let answered = ping(&mut path, u64::MAX, clock, stop, &mut samples, &mut NoLook)?;
    keep_company(&mut path, answered, stop);
    Ok((answered, samples.sum_ns))
}

/// Samples that take so much time together, and say when it is over. The wait for an answer that does not come is none of it.
struct Limited<'a, S> {
    samples: &'a mut S,
    sum_ns: u64,
    time_ns: u64,
    stop: &'a Stop,
}

impl<S: Samples> Samples for Limited<'_, S> {
    #[inline]
    fn record(&mut self, rtt_ns: u64) {
        self.samples.record(rtt_ns);
        self.sum_ns += rtt_ns;
        if self.sum_ns >= self.time_ns {
            self.stop.finish();
        }
    }

    fn latency(&self) -> Option<Latency> {
        self.samples.latency()
    }
}

/// A path on which messages and answers have higher numbers than those by which they are counted.
struct Shifted<'a, P> {
    path: &'a mut P,
    sent: u64,
    answered: u64,
}

impl<P: PingPong> PingPong for Shifted<'_, P> {
    #[inline]
    fn send(&mut self, sequence: u64) -> Result<()> {
        self.path.send(sequence + self.sent)
    }

    #[inline]
    fn arrived(&mut self, sequence: u64) -> Result<bool> {
        self.path.arrived(sequence + self.answered)
    }

    fn release(&mut self, sequence: u64) -> Result<()> {
        self.path.release(sequence)
    }

    fn released(&mut self, sequence: u64) -> Result<bool> {
        self.path.released(sequence)
    }
}

/// Answers pings until `stop` says that there will be no more. Gives how many it answered.
///
/// # Errors
/// A write that failed.
pub(crate) fn pong<P: PingPong, L: Look>(path: &mut P, stop: &Stop, look: &mut L) -> Result<u64> {
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
        if L::LOOKS {
            look.look(answered)?;
            path.release(answered)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkproof_common::error::{Error, ErrorKind};
    use linkproof_common::latency::RawSamples;
    use std::cell::Cell;

    /// A peer that answers after `looks` looks; the clock advances by one at each look.
    struct Mirror<'a> {
        sent: u64,
        looks: u64,
        left: u64,
        now: &'a Cell<u64>,
        looked: &'a Cell<u64>,
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

        fn release(&mut self, _: u64) -> Result<()> {
            panic!("the client releases nobody")
        }

        fn released(&mut self, sequence: u64) -> Result<bool> {
            assert_eq!(sequence, self.looked.take(), "the client has looked before it waits for the server");
            self.now.set(self.now.get() + 1000);
            Ok(true)
        }
    }

    /// Takes a hundred ticks for each message.
    struct Slow<'a>(&'a Cell<u64>, &'a Cell<u64>);

    impl Look for Slow<'_> {
        const LOOKS: bool = true;

        fn look(&mut self, sequence: u64) -> Result<()> {
            self.0.set(self.0.get() + 100);
            self.1.set(sequence);
            Ok(())
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
        let looked = Cell::new(0);
        let mut mirror = Mirror { sent: 0, looks: 7, left: 0, now: &now, looked: &looked, stop_after: None };
        let mut samples = RawSamples::with_capacity(50);
        assert_eq!(ping(&mut mirror, 50, &Ticks(&now), &Stop::new(), &mut samples, &mut NoLook).unwrap(), 50);
        assert_eq!(samples.rtts_ns(), [7; 50]);
    }

    #[test]
    fn a_round_told_to_finish_ends_with_the_answer_under_way() {
        let now = Cell::new(0);
        let stop = Stop::new();
        let looked = Cell::new(0);
        let stop_after = Some((10, &stop));
        let mut mirror = Mirror { sent: 0, looks: 3, left: 0, now: &now, looked: &looked, stop_after };
        let mut samples = RawSamples::with_capacity(1000);
        assert_eq!(ping(&mut mirror, 1000, &Ticks(&now), &stop, &mut samples, &mut NoLook).unwrap(), 10);
        assert_eq!(samples.rtts_ns().len(), 10);
    }

    #[test]
    fn neither_ends_looking_falls_into_a_sample() {
        let (now, looked) = (Cell::new(0), Cell::new(0));
        let mut mirror = Mirror { sent: 0, looks: 7, left: 0, now: &now, looked: &looked, stop_after: None };
        let mut samples = RawSamples::with_capacity(20);
        let mut look = Slow(&now, &looked);
        assert_eq!(ping(&mut mirror, 20, &Ticks(&now), &Stop::new(), &mut samples, &mut look).unwrap(), 20);
        assert_eq!(samples.rtts_ns(), [7; 20]);
        assert_eq!(now.get(), 20 * (7 + 100 + 1000), "every message was looked at, the last as well");
    }

    /// A perftest that answers at the next look, and leaves after so many messages. Each look takes a tick.
    struct Leaving<'a> {
        messages: u64,
        stop: &'a Stop,
        now: &'a Cell<u64>,
        sent: u64,
    }

    impl PingPong for Leaving<'_> {
        fn send(&mut self, sequence: u64) -> Result<()> {
            assert_eq!(sequence, self.sent + 1, "messages are numbered from 1 without a gap");
            self.sent = sequence;
            Ok(())
        }

        fn arrived(&mut self, sequence: u64) -> Result<bool> {
            self.now.set(self.now.get() + 1);
            if sequence > self.messages {
                self.stop.abandon();
            }
            Ok(sequence <= self.messages)
        }

        fn release(&mut self, _: u64) -> Result<()> {
            panic!("perftest releases nobody")
        }

        fn released(&mut self, _: u64) -> Result<bool> {
            panic!("perftest releases nobody")
        }
    }

    /// What a run of `time` ticks as `role` recorded, how long that took, and how many messages it sent in all.
    fn timed(role: Role, time: u64, messages: u64) -> (u64, u64, u64) {
        let (stop, now) = (Stop::new(), Cell::new(0));
        let mut peer = Leaving { messages, stop: &stop, now: &now, sent: 0 };
        let mut samples = RawSamples::with_capacity(1000);
        let (count, took) = by_time((role, time), &mut peer, &Ticks(&now), &stop, &mut samples).unwrap();
        assert_eq!(samples.rtts_ns().len() as u64, count);
        (count, took, peer.sent)
    }

    #[test]
    fn an_end_whose_time_is_over_goes_on_answering_one_whose_is_not() {
        assert_eq!(timed(Role::Client, 50, 200), (50, 50, 200));
        assert_eq!(timed(Role::Server, 50, 200), (50, 50, 201));
    }

    #[test]
    fn an_answer_that_does_not_come_ends_the_round_and_is_no_part_of_it() {
        assert_eq!(timed(Role::Client, 50, 20), (19, 19, 20));
        assert_eq!(timed(Role::Server, 50, 20), (19, 19, 21));
    }

    /// A client that goes after two pings; what the server did for it.
    #[derive(Default)]
    struct Client {
        story: Vec<String>,
    }

    impl PingPong for Client {
        fn send(&mut self, sequence: u64) -> Result<()> {
            self.story.push(format!("pong {sequence}"));
            Ok(())
        }

        fn arrived(&mut self, sequence: u64) -> Result<bool> {
            if sequence > 2 {
                return Err(Error::new(ErrorKind::PeerLost, "it has gone"));
            }
            Ok(true)
        }

        fn release(&mut self, sequence: u64) -> Result<()> {
            self.story.push(format!("release {sequence}"));
            Ok(())
        }

        fn released(&mut self, _: u64) -> Result<bool> {
            panic!("nobody releases the server")
        }
    }

    #[test]
    fn the_server_answers_first_and_releases_the_client_once_it_has_looked() {
        let (now, looked) = (Cell::new(0), Cell::new(0));
        let mut client = Client::default();
        assert!(pong(&mut client, &Stop::new(), &mut Slow(&now, &looked)).is_err());
        assert_eq!(client.story, ["pong 1", "release 1", "pong 2", "release 2"]);
        assert_eq!((looked.get(), now.get()), (2, 200));
        let mut client = Client::default();
        assert!(pong(&mut client, &Stop::new(), &mut NoLook).is_err());
        assert_eq!(client.story, ["pong 1", "pong 2"]);
    }
}
