//! The watcher's part of interval reports: it looks at what the loop says anyway, so that the loop does nothing more.

use std::time::{Duration, Instant};

use crate::histogram::Reader;
use crate::intervals::{Interval, IntervalLatency, IntervalLog, Intervals};
use crate::validate::Direction;

/// An interval that is over, and where it belongs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// The message size.
    pub size_bytes: u64,
    /// The round, from 0.
    pub round: u32,
    /// Who wrote.
    pub direction: Direction,
    /// What came in it.
    pub interval: Interval,
}

/// Who hears of each interval as soon as it is over.
pub trait Audience: Send {
    /// Hears of one; must not wait for anything.
    fn hear(&mut self, report: Report);

    /// Whether it has left for good, so that a run that lasts as long as it is watched should end.
    fn has_left(&self) -> bool;
}

/// To whom an end tells its intervals.
pub enum Tell<'a> {
    /// To the peer, over the control channel: the server has nobody who watches.
    Peer,
    /// To this end's audience, and the peer's as well.
    Here(&'a mut dyn Audience),
}

/// What a watcher needs to cut a round into intervals.
pub struct Sampling<'a> {
    /// How long an interval is meant to be.
    pub every: Duration,
    /// Where they are kept.
    pub log: IntervalLog,
    /// The round trips, where the round is of a latency.
    pub latencies: Option<Reader>,
    /// The message size of the round.
    pub size_bytes: u64,
    /// The round, from 0.
    pub round: u32,
    /// In which direction this end writes.
    pub direction: Direction,
    /// Who hears of them.
    pub tell: Tell<'a>,
}

/// A round that is being cut into intervals: at whole multiples of their length from its beginning, as near as the
/// watcher wakes up.
pub(super) struct Sampler<'a> {
    sampling: Sampling<'a>,
    begin: Instant,
    last: (Instant, u64),
    next: Instant,
}

impl<'a> Sampler<'a> {
    pub(super) fn new(sampling: Sampling<'a>, begin: Instant) -> Self {
        let next = begin + sampling.every;
        Self { sampling, begin, last: (begin, 0), next }
    }

    /// When the next interval is over.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// The interval that is over at `now`, if one is, when so many messages have completed.
    pub(super) fn take(&mut self, now: Instant, completed: u64) -> Option<Interval> {
        if now < self.next {
            return None;
        }
        let latency = self.sampling.latencies.as_mut().and_then(|reader| {
            reader.look();
            IntervalLatency::of(|| reader.bars())
        });
        let interval = Interval {
            begin_ns: nanoseconds(self.last.0 - self.begin),
            elapsed_ns: nanoseconds(now - self.last.0),
            messages: completed.saturating_sub(self.last.1),
            latency,
        };
        self.last = (now, completed);
        // A watcher that woke up late has made one interval longer; the next ends where it should have.
        let every = nanoseconds(self.sampling.every).max(1);
        let missed = nanoseconds(now - self.next) / every;
        self.next += Duration::from_nanos(every * (missed + 1));
        self.sampling.log.add(interval);
        Some(interval)
    }

    /// Tells this end's audience, if it has one, of an interval in `direction`; false where it hasn't.
    pub(super) fn tell(&mut self, direction: Direction, interval: Interval) -> bool {
        let Sampling { size_bytes, round, .. } = self.sampling;
        match &mut self.sampling.tell {
            Tell::Peer => false,
            Tell::Here(audience) => {
                audience.hear(Report { size_bytes, round, direction, interval });
                true
            }
        }
    }

    /// In which direction this end writes.
    pub(super) fn direction(&self) -> Direction {
        self.sampling.direction
    }

    /// Whether nobody listens any more.
    pub(super) fn is_alone(&self) -> bool {
        matches!(&self.sampling.tell, Tell::Here(audience) if audience.has_left())
    }

    /// All intervals.
    pub(super) fn finish(self) -> Option<Intervals> {
        self.sampling.log.finish()
    }
}

/// 64 bits of nanoseconds last 584 years.
fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;
    use crate::exchange::{Channel, Message, pair};
    use crate::plan::tests::plan;
    use crate::watch::{Stop, Until, watched};

    fn sampler(begin: Instant) -> Sampler<'static> {
        Sampler::new(Sampling { every: Duration::from_millis(100), ..sampling(Tell::Peer) }, begin)
    }

    #[test]
    fn intervals_have_their_true_length_and_do_not_drift() {
        let begin = Instant::now();
        let mut sampler = sampler(begin);
        let at = |ms: u64| begin + Duration::from_millis(ms);
        assert_eq!(sampler.take(at(99), 10), None);
        let first = sampler.take(at(107), 20).unwrap();
        assert_eq!((first.begin_ns, first.elapsed_ns, first.messages), (0, 107_000_000, 20));
        assert_eq!(sampler.next(), at(200));
        let second = sampler.take(at(200), 25).unwrap();
        assert_eq!((second.begin_ns, second.elapsed_ns, second.messages), (107_000_000, 93_000_000, 5));
        // Two boundaries missed: one long interval, and on from the next boundary.
        let long = sampler.take(at(420), 25).unwrap();
        assert_eq!((long.elapsed_ns, long.messages), (220_000_000, 0));
        assert_eq!(sampler.next(), at(500));
        assert_eq!(sampler.finish().unwrap().slowest, long);
    }

    /// Keeps what it hears.
    #[derive(Default)]
    struct Heard(Vec<Report>);

    impl Audience for Heard {
        fn hear(&mut self, report: Report) {
            self.0.push(report);
        }

        fn has_left(&self) -> bool {
            !self.0.is_empty()
        }
    }

    /// A loop that completes messages until it is told to finish.
    fn complete(stop: &Stop) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        for completed in 1.. {
            stop.note_completed(completed);
            if stop.must_finish() {
                break;
            }
            assert!(Instant::now() < deadline, "the watcher did nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn sampling(tell: Tell) -> Sampling {
        let log = IntervalLog::for_round_of(&plan());
        let every = Duration::from_millis(20);
        let direction = Direction::ClientToServer;
        Sampling { every, log, latencies: None, size_bytes: 64, round: 0, direction, tell }
    }

    #[test]
    fn a_server_tells_its_client_what_came_in_each_interval() {
        let (mut ours, mut theirs) = pair();
        let stop = Stop::new();
        let until = Until::Time(Duration::from_millis(200));
        let (result, watched) =
            watched(&mut ours, until, &stop, Some(sampling(Tell::Peer)), || complete(&stop));
        assert!(result.is_ok() && watched.failure.is_none());
        let intervals = watched.intervals.unwrap();
        assert_eq!(intervals.count, intervals.list.len() as u64);
        for told in intervals.list {
            let message = theirs.receive_within(Duration::from_secs(1)).unwrap();
            assert_eq!(message, Some(Message::Interval { interval: told }));
        }
    }

    #[test]
    fn a_client_hears_of_both_directions_and_ends_when_nobody_listens() {
        let (mut ours, mut theirs) = pair();
        let of_peer = Interval { begin_ns: 0, elapsed_ns: 7, messages: 7, latency: None };
        theirs.send(&Message::Interval { interval: of_peer }).unwrap();
        let mut heard = Heard::default();
        let stop = Stop::new();
        let (_, watched) =
            watched(&mut ours, Until::Done, &stop, Some(sampling(Tell::Here(&mut heard))), || {
                complete(&stop)
            });
        assert!(watched.interrupted && watched.failure.is_none());
        let Report { direction, interval, .. } = heard.0[0];
        assert_eq!((direction, interval), (Direction::ServerToClient, of_peer));
    }
}
