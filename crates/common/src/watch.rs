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
use crate::exchange::{Channel, Message, PROGRESS_EVERY};
use crate::interrupt;
use crate::intervals::Intervals;
use sampling::{Sampler, Sampling};

/// A round in which nothing completes for so long has come to a standstill. Longer than a reliable connection
/// takes to give up by itself, 7 tries 1.07 s apart (see `qp`), so that its own, better, story is heard first; an
/// adapter that waits up to four times longer, as the specification allows it, is not waited for.
pub const STALL_LIMIT: Duration = Duration::from_secs(15);
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
    /// The peer has left, which it does by a clock of its own, and after so much time at most. The loop abandons then what it
    /// waits for.
    PeersLeave(Duration),
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
        let result = {
            // A signal goes to the watcher then, whose sleep it ends.
            let _undisturbed = interrupt::Undisturbed::begin();
            measure()
        };
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
                Until::Time(duration) | Until::PeersLeave(duration) => Some(now + duration),
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
            self.listen(self.next_due().saturating_duration_since(now));
        }
        if self.outcome.failure.is_some() {
            self.stop.abandon();
        }
        Watched { intervals: self.sampler.and_then(Sampler::finish), ..self.outcome }
    }

    /// When there is something to do without anybody's having said a word. Not sooner: where both loops and both watchers
    /// share two processors, one that looked around every 20 ms cost a round trip of 1.8 ms 2 % of its median, and one of
    /// 16 us a third of its 99th percentile (Soft-RoCE, 2026-11-29).
    fn next_due(&self) -> Instant {
        let next = self.sampler.as_ref().map(Sampler::next);
        let moments = self.end.into_iter().chain(next);
        moments.fold(self.last_told + PROGRESS_EVERY, Instant::min)
    }

    fn look_around(&mut self, now: Instant) {
        self.sample(now);
        if self.end.is_some_and(|end| now >= end) {
            self.end_of_time();
        }
        // Heard here: the steps that end the run in good order must not find the wish again.
        if interrupt::take() {
            self.outcome.interrupted = true;
            match self.until {
                Until::PeersLeave(_) => self.stop.abandon(),
                _ => self.stop.finish(),
            }
        }
        let completed = self.stop.completed();
        if completed != self.last_progress.0 {
            self.last_progress = (completed, now);
        } else if now - self.last_progress.1 > STALL_LIMIT {
            self.fail(standstill());
        }
        if now - self.last_told >= PROGRESS_EVERY {
            self.last_told = now;
            if let Err(error) = self.channel.send(&Message::Progress { completed }) {
                self.fail(error);
            }
        }
        if !self.peer_is_done && now - self.last_heard > PEER_SILENCE_LIMIT {
            self.fail(silence(PEER_SILENCE_LIMIT));
        }
    }

    fn end_of_time(&mut self) {
        self.end = None;
        match self.until {
            Until::PeersLeave(limit) => self.fail(still_there(limit)),
            _ => self.stop.finish(),
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
                match self.until {
                    Until::PeersEnd => self.stop.finish(),
                    Until::PeersLeave(_) => self.stop.abandon(),
                    Until::Done | Until::Time(_) => {}
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

/// Of our own tools none leaves without a word.
fn still_there(limit: Duration) -> Error {
    let seconds = limit.as_secs_f64();
    Error::new(
        ErrorKind::PerftestPeer,
        format!("perftest has not ended its test by time within {seconds:.1} s"),
    )
    .hint("give the same -D on both ends")
}

/// The peer's process may live, but it does not speak.
pub fn silence(limit: Duration) -> Error {
    Error::new(ErrorKind::PeerTimeout, format!("the peer has said nothing for {} s", limit.as_secs()))
        .hint("its host may be down or cut off, or its process stopped")
}

#[cfg(test)]
mod tests;
