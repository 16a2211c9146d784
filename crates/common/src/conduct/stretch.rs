//! A stretch of writes (a warm-up or a round) on one end: the part that client and server, and all tools, share.

use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Origin, Result};
use crate::exchange::message::Stretch;
use crate::exchange::{Channel, Message, while_working};
use crate::histogram::Reader;
use crate::intervals::IntervalLog;
use crate::memory::{EndBuffer, Inspector};
use crate::plan::{Plan, Slots, Traffic};
use crate::report::Round;
use crate::session::{Measure, MeasureInTurn, Session};
use crate::units::ByteSize;
use crate::validate::Checked;
use crate::watch::sampling::{Audience, Sampling, Tell};
use crate::watch::{Stop, Stops, Until, Watched, watched};

/// How long a failed end waits for the peer's side of the story: a killed process's sockets close within
/// milliseconds, but under load not at once.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Where a tool performs: the session, and the stretch of the plan that it is in.
pub struct Stage<'a> {
    /// The control channel.
    pub(super) channel: &'a mut (dyn Channel + Send),
    /// The connection.
    pub session: &'a Session,
    /// Which stretch it is.
    pub stretch: Stretch,
    /// Where its messages lie.
    pub slots: Slots,
    /// Who hears of the round's intervals; nobody at a server, which tells them its client.
    audience: Option<&'a mut dyn Audience>,
}

/// What an end did in a stretch.
pub struct Performed {
    /// Messages completed on each queue pair.
    pub per_qp: Vec<u64>,
    /// The round, for the report; `None` for a warm-up, and for an end that has nothing to report.
    pub round: Option<Round>,
    /// What this end found in the messages that it looked at one by one, if it did.
    pub inspected: Option<Checked>,
    /// The user of this end asked to stop.
    pub interrupted: bool,
}

impl<'a> Stage<'a> {
    /// The stage of `stretch`, which may come from a peer.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] where the plan has no such point or round.
    pub(super) fn new(
        channel: &'a mut (dyn Channel + Send),
        session: &'a Session,
        stretch: Stretch,
        audience: Option<&'a mut dyn Audience>,
    ) -> Result<Self> {
        let plan = session.plan();
        let size = plan.sizes_bytes.get(stretch.point as usize).copied();
        let in_plan = stretch.round.is_none_or(|round| round < plan.rounds);
        let slots = size.filter(|_| in_plan).map(|size| plan.slots(size)).ok_or_else(|| {
            Error::new(ErrorKind::Protocol, "the peer began a round that the plan does not have")
        })?;
        Ok(Self { channel, session, stretch, slots, audience })
    }

    /// The plan.
    pub fn plan(&self) -> &'a Plan {
        self.session.plan()
    }

    /// The stretch in words: `round 2 of 3 at 64 KiB`.
    pub fn describe(&self) -> String {
        let size = ByteSize(self.slots.size);
        match self.stretch.round {
            Some(round) => format!("round {} of {} at {size}", round + 1, self.plan().rounds),
            None => format!("the warm-up at {size}"),
        }
    }

    /// Does `work` that is not part of the measurement and may take seconds, while the peer is told that this end lives.
    pub fn working<R>(&mut self, work: impl FnOnce() -> R) -> R {
        while_working(self.channel, work)
    }

    /// Makes this end's memory ready: what it will write, and, where the data is checked, what can't be mistaken
    /// for it.
    ///
    /// # Errors
    /// Those of the memory.
    pub(super) fn prepare(&mut self) -> Result<()> {
        let (session, slots, stretch) = (self.session, self.slots, self.stretch);
        let (plan, role) = (session.plan(), session.role());
        self.working(|| {
            let round = stretch.round.unwrap_or(0);
            // Without checking, the same data will do for every round: the memory only has to hold something.
            if plan.is_initiator(role) && (plan.validate || stretch.round.is_none_or(|round| round == 0)) {
                session.fill_sources(slots, stretch.point, round)?;
            }
            if plan.is_target(role) && plan.validate && stretch.round.is_some() {
                session.poison_sinks(slots, stretch.point, round)?;
            }
            // A perftest that begins the next size does not wait for this end. Its sizes grow, so that no byte that is looked
            // at has been written before.
            if plan.traffic == Traffic::PingPong && !session.with_perftest() {
                session.clear_marks(slots)?;
            }
            session.clear_flags();
            Ok(())
        })
    }

    /// What looks at each message that arrives in turn, where the data is checked.
    pub fn inspector(&self) -> Option<Inspector<'a, EndBuffer>> {
        let round = self.stretch.round.filter(|_| self.plan().validate)?;
        Some(self.session.inspector(self.slots, self.stretch.point, round))
    }

    /// Looks at the cores before a round. Before the other end is told to start: it takes a part of a millisecond.
    pub(super) fn observe(&self) {
        if self.stretch.round.is_some() {
            self.session.observer().begin_round();
        }
    }

    /// Runs each of `measures` over its part of the session's connections, with the control channel watched, until
    /// `until` at the latest. There is one for each of the plan's threads, and a word to stop it.
    ///
    /// # Errors
    /// The watcher's story before the endpoints'; an endpoint's with what the control channel says of the peer.
    pub fn watch<M: Measure + Send>(
        &mut self,
        until: Until,
        stops: &[Stop],
        measures: Vec<M>,
    ) -> Result<Watched> {
        let (session, slots, stops) = (self.session, self.slots, Stops::from(stops));
        self.watch_over(until, stops, None, || session.measure(slots, stops, measures))
    }

    /// The same for ends that write in turn. `latencies` reads the round trips for the round's intervals, if it has any.
    ///
    /// # Errors
    /// As [`Stage::watch`].
    pub fn watch_in_turn<M: MeasureInTurn>(
        &mut self,
        until: Until,
        stop: &Stop,
        latencies: Option<Reader>,
        measure: M,
    ) -> Result<Watched> {
        let (session, slots) = (self.session, self.slots);
        self.watch_over(until, stop.into(), latencies, || session.measure_in_turn(slots, stop, measure))
    }

    fn watch_over(
        &mut self,
        until: Until,
        stop: Stops,
        latencies: Option<Reader>,
        measure: impl FnOnce() -> Result<()>,
    ) -> Result<Watched> {
        let plan = self.plan();
        let direction = self.session.role().writes();
        let reports = plan.reported_directions().contains(&direction);
        let cut = self.stretch.round.zip(plan.interval()).filter(|_| reports);
        let sampling = cut.map(|(round, every)| Sampling {
            every,
            log: IntervalLog::for_round_of(plan),
            latencies,
            size_bytes: self.slots.size,
            round,
            direction,
            tell: match &mut self.audience {
                Some(audience) => Tell::Here(*audience),
                None => Tell::Peer,
            },
        });
        let (result, watched) = watched(self.channel, until, stop, sampling, measure);
        match (watched.failure, result) {
            (Some(failure), _) => Err(self.session.with_counters(failure)),
            (None, Err(failure)) => Err(self.with_peers_story(failure)),
            (None, Ok(())) => Ok(Watched { failure: None, ..watched }),
        }
    }

    /// A write that fails because the peer is gone looks like a lost path; the control channel knows better.
    fn with_peers_story(&mut self, failure: Error) -> Error {
        match last_words(self.channel) {
            Some(peer) if peer.kind == ErrorKind::PeerLost => peer.fact("then", failure.what),
            Some(peer) if peer.origin == Origin::Peer => peer.fact("then", failure.what),
            _ => failure.fact("peer", "still connected on the control channel"),
        }
    }
}

/// The failure that the peer tells within [`LAST_WORDS`], or that it is gone.
fn last_words(channel: &mut dyn Channel) -> Option<Error> {
    let deadline = Instant::now() + LAST_WORDS;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        match channel.receive_within(left) {
            Ok(Some(Message::Abort { error })) => return Some(error.from_peer(&channel.peer())),
            // That it lives does not lengthen the wait, and a run that has failed has no next step.
            Ok(_) => {}
            Err(error) => return Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::pair;

    #[test]
    fn a_peer_that_goes_on_living_has_no_last_words() {
        let (mut ours, mut theirs) = pair();
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    theirs.send(&Message::Progress { completed: 1 }).unwrap();
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
            assert_eq!(last_words(&mut ours), None);
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }

    #[test]
    fn the_peers_failure_and_its_end_are_heard() {
        let (mut ours, mut theirs) = pair();
        theirs.send(&Message::Ready).unwrap();
        theirs.send(&Message::Abort { error: Error::new(ErrorKind::Completion, "no") }).unwrap();
        assert_eq!(last_words(&mut ours).unwrap().origin, Origin::Peer);
        drop(theirs);
        assert_eq!(last_words(&mut ours).unwrap().kind, ErrorKind::PeerLost);
    }
}
