//! What goes on beside a measured round: the end of its time, the user's Ctrl-C, the peer's words or its death,
//! and a transport that has come to a standstill.
//!
//! The loop looks at one word ([`Stop`]) and stores one number there; everything else happens in a thread of its
//! own, which sleeps on the control channel. That number is also what interval reports are made of ([`sampling`]).

pub mod sampling;
mod stop;

pub use stop::{Stop, Stops};

use std::time::{Duration, Instant};

use crate::affinity;
use crate::error::{Error, ErrorKind, Result};
use crate::exchange::{Channel, Message};
use crate::interrupt;
use crate::intervals::Intervals;
use sampling::{Sampler, Sampling};

/// How often the watcher looks around: Ctrl-C and the end of a round's time are noticed within this.
const TICK: Duration = Duration::from_millis(20);
/// A round in which nothing completes for so long has come to a standstill. Longer than a reliable connection
/// takes to give up by itself, 7 tries 1.07 s apart (see `qp`), so that its own, better, story is heard first; an
/// adapter that waits up to four times longer, as the specification allows it, is not waited for.
pub const STALL_LIMIT: Duration = Duration::from_secs(15);
/// How often an end tells the other that it lives, and how far it is: six times in the silence that a server with other
/// clients puts up with, [`crate::exchange::hold::HELD_SILENCE_IN_STRETCH`].
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// A peer that says nothing for so long is gone; it speaks all the time.
pub const PEER_SILENCE_LIMIT: Duration = Duration::from_secs(15);

/// How a watched round ended, apart from what the loop itself says.
#[derive(Debug, Default)]
pub struct Watched {
    /// The user of this end interrupted it, or has closed what a run that lasts until then is shown on.
    pub interrupted: bool,
    /// The peer's user did.
    pub stopped_by_peer: bool,
    /// The peer's failure, or the loss of the peer, or a standstill.
    pub failure: Option<Error>,
    /// How many messages the peer said that it had completed.
    pub peer_completed: u64,
    /// The round in intervals, where it was cut into them and at least one was whole.
    pub intervals: Option<Intervals>,
    /// What the peer said that belongs to the next step.
    pub early: Vec<Message>,
}

/// What ends a stretch, besides its loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Nothing.
    Done,
    /// So much time.
    Time(Duration),
    /// The peer says that it has ended its part.
    PeersEnd,
}

/// Runs `measure` while a thread watches `channel`, and tells it to finish when `until` has come. With `sampling` the
/// watcher cuts the time into intervals as well.
///
/// The channel is the watcher's for the time of the round and comes back when it is over.
///
/// # Errors
/// Those of `measure`, unless the watcher has the better story: then its own.
pub fn watched<'a, R: Send>(
    channel: &mut (dyn Channel + Send),
    until: Until,
    stop: impl Into<Stops<'a>>,
    sampling: Option<Sampling>,
    measure: impl FnOnce() -> Result<R>,
) -> (Result<R>, Watched) {
    let (waker, stop) = (channel.waker(), stop.into());
    let (result, mut watched) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| Watcher::new(channel, until, stop, sampling).run());
        let result = measure();
        stop.note_over();
        waker.wake();
        let watched = watcher.join().unwrap_or_else(|_| Watched {
            failure: Some(Error::new(ErrorKind::Protocol, "the watcher of the control channel panicked")),
            ..Watched::default()
        });
        (result, watched)
    });
    channel.put_back(std::mem::take(&mut watched.early));
    (result, watched)
}

struct Watcher<'a, 's> {
    channel: &'a mut (dyn Channel + Send),
    stop: Stops<'a>,
    until: Until,
    end: Option<Instant>,
    outcome: Watched,
    last_progress: (u64, Instant),
    last_heard: Instant,
    last_told: Instant,
    peer_is_done: bool,
    sampler: Option<Sampler<'s>>,
}

impl<'a, 's> Watcher<'a, 's> {
    fn new(
        channel: &'a mut (dyn Channel + Send),
        until: Until,
        stop: Stops<'a>,
        sampling: Option<Sampling<'s>>,
    ) -> Self {
        let now = Instant::now();
        Self {
            channel,
            stop,
            until,
            end: match until {
                Until::Time(duration) => Some(now + duration),
                Until::Done | Until::PeersEnd => None,
            },
            outcome: Watched::default(),
            last_progress: (0, now),
            last_heard: now,
            last_told: now,
            peer_is_done: false,
            sampler: sampling.map(|sampling| Sampler::new(sampling, now)),
        }
    }

    fn run(mut self) -> Watched {
        // Not on the core that measures.
        affinity::roam();
        while !self.stop.are_over() && self.outcome.failure.is_none() {
            let now = Instant::now();
            self.look_around(now);
            let next = self.sampler.as_ref().map(Sampler::next);
            let soonest = self.end.into_iter().chain(next).min();
            let wait = soonest.map_or(TICK, |moment| moment.saturating_duration_since(now).min(TICK));
            self.listen(wait);
        }
        if self.outcome.failure.is_some() {
            self.stop.abandon();
        }
        Watched { intervals: self.sampler.and_then(Sampler::finish), ..self.outcome }
    }

    fn look_around(&mut self, now: Instant) {
        self.sample(now);
        if self.end.is_some_and(|end| now >= end) {
            self.stop.finish();
            self.end = None;
        }
        // Heard here: the steps that end the run in good order must not find the wish again.
        if interrupt::take() {
            self.outcome.interrupted = true;
            self.stop.finish();
        }
        let completed = self.stop.completed();
        if completed != self.last_progress.0 {
            self.last_progress = (completed, now);
        } else if now - self.last_progress.1 > STALL_LIMIT {
            self.fail(standstill());
        }
        if now - self.last_told > PROGRESS_EVERY {
            self.last_told = now;
            if let Err(error) = self.channel.send(&Message::Progress { completed }) {
                self.fail(error);
            }
        }
        if !self.peer_is_done && now - self.last_heard > PEER_SILENCE_LIMIT {
            self.fail(silence(PEER_SILENCE_LIMIT));
        }
    }

    /// Once nothing more is posted the queues drain: that is no interval to be compared with the others.
    fn sample(&mut self, now: Instant) {
        let Some(sampler) = self.sampler.as_mut().filter(|_| !self.stop.must_finish()) else { return };
        if sampler.is_alone() {
            self.outcome.interrupted = true;
            self.stop.finish();
        }
        let Some(interval) = sampler.take(now, self.stop.completed()) else { return };
        if !sampler.tell(sampler.direction(), interval)
            && let Err(error) = self.channel.send(&Message::Interval { interval })
        {
            self.fail(error);
        }
    }

    fn listen(&mut self, wait: Duration) {
        match self.channel.receive_within(wait) {
            Ok(None) => {}
            Ok(Some(message)) => self.heard(message),
            Err(error) => self.fail(error),
        }
    }

    fn heard(&mut self, message: Message) {
        self.last_heard = Instant::now();
        match message {
            Message::Progress { completed } => self.outcome.peer_completed = completed,
            Message::Stop => {
                self.outcome.stopped_by_peer = true;
                self.stop.finish();
            }
            Message::Interval { interval } => {
                if let Some(sampler) = &mut self.sampler {
                    sampler.tell(sampler.direction().reversed(), interval);
                }
            }
            Message::Abort { error } => self.fail(error.from_peer(&self.channel.peer())),
            early => {
                // A peer that has gone on to the next step says nothing until this end follows.
                self.peer_is_done = true;
                if self.until == Until::PeersEnd {
                    self.stop.finish();
                }
                self.outcome.early.push(early);
            }
        }
    }

    fn fail(&mut self, error: Error) {
        self.outcome.failure.get_or_insert(error);
    }
}

fn standstill() -> Error {
    Error::new(
        ErrorKind::Stalled,
        format!("no write has completed for {} s, and none has failed", STALL_LIMIT.as_secs()),
    )
}

/// The peer's process may live, but it does not speak.
pub fn silence(limit: Duration) -> Error {
    Error::new(ErrorKind::PeerTimeout, format!("the peer has said nothing for {} s", limit.as_secs()))
        .hint("its host may be down or cut off, or its process stopped")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::pair;

    fn wait_until(stop: &Stop, condition: impl Fn(&Stop) -> bool) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !condition(stop) {
            assert!(Instant::now() < deadline, "the watcher did nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    #[test]
    fn the_end_of_the_time_lets_the_loop_finish() {
        let (mut ours, _theirs) = pair();
        let stop = Stop::new();
        let begin = Instant::now();
        let (result, watched) =
            watched(&mut ours, Until::Time(Duration::from_millis(50)), &stop, None, || {
                wait_until(&stop, Stop::must_finish)
            });
        assert!(result.is_ok() && watched.failure.is_none());
        assert!(begin.elapsed() >= Duration::from_millis(50));
        assert!(!stop.must_abandon());
    }

    #[test]
    fn several_loops_are_watched_as_one() {
        let (mut ours, _theirs) = pair();
        let stops: Vec<Stop> = (0..3).map(|_| Stop::new()).collect();
        let until = Until::Time(Duration::from_millis(50));
        let (result, watched) = watched(&mut ours, until, &stops[..], None, || {
            stops.iter().zip(1..).for_each(|(stop, completed)| stop.note_completed(completed));
            stops.iter().try_for_each(|stop| wait_until(stop, Stop::must_finish))
        });
        assert!(result.is_ok() && watched.failure.is_none());
        assert_eq!(Stops::from(&stops[..]).completed(), 1 + 2 + 3);
        let lines: Vec<usize> = stops.iter().map(|stop| std::ptr::from_ref(stop).addr() / 128).collect();
        assert!(lines.windows(2).all(|pair| pair[0] != pair[1]), "two counts share a cache line: {lines:?}");
    }

    #[test]
    fn a_vanished_peer_ends_the_round() {
        let (mut ours, theirs) = pair();
        drop(theirs);
        let stop = Stop::new();
        let (_, watched) =
            watched(&mut ours, Until::Done, &stop, None, || wait_until(&stop, Stop::must_abandon));
        assert_eq!(watched.failure.unwrap().kind, ErrorKind::PeerLost);
    }

    #[test]
    fn the_peers_failure_ends_the_round_and_is_marked() {
        let (mut ours, mut theirs) = pair();
        theirs.send(&Message::Progress { completed: 7 }).unwrap();
        theirs.send(&Message::Abort { error: Error::new(ErrorKind::Memlock, "too little") }).unwrap();
        let stop = Stop::new();
        let (_, watched) =
            watched(&mut ours, Until::Done, &stop, None, || wait_until(&stop, Stop::must_abandon));
        assert_eq!(watched.peer_completed, 7);
        let failure = watched.failure.unwrap();
        assert!(failure.what.contains("could not go on: too little"), "{}", failure.what);
    }

    #[test]
    fn the_peers_wish_to_stop_lets_the_loop_finish() {
        let (mut ours, mut theirs) = pair();
        theirs.send(&Message::Stop).unwrap();
        let stop = Stop::new();
        let (result, watched) =
            watched(&mut ours, Until::Done, &stop, None, || wait_until(&stop, Stop::must_finish));
        assert!(result.is_ok() && watched.stopped_by_peer && !watched.interrupted);
    }

    #[test]
    fn what_belongs_to_the_next_step_is_put_back() {
        let (mut ours, mut theirs) = pair();
        theirs.send(&Message::Ready).unwrap();
        let stop = Stop::new();
        let (_, watched) = watched(&mut ours, Until::Time(Duration::from_millis(60)), &stop, None, || {
            wait_until(&stop, Stop::must_finish)
        });
        assert!(watched.failure.is_none());
        assert_eq!(ours.receive_within(Duration::from_secs(1)).unwrap(), Some(Message::Ready));
    }
}
