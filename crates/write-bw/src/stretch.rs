//! A stretch of writes (a warm-up or a round) on one end: the part that client and server share.

use linkproof_common::clock::MonotonicClock;
use linkproof_common::endpoint::Endpoint;
use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::exchange::Channel;
use linkproof_common::exchange::message::Stretch;
use linkproof_common::plan::{Plan, Slots};
use linkproof_common::report::Round;
use linkproof_common::samples::CompletionLog;
use linkproof_common::session::{Measure, Session};
use linkproof_common::units::ByteSize;
use linkproof_common::watch::{Stop, watched};

use crate::window::{Window, pump};

/// How long a failed end waits for the peer's side of the story: a killed process's sockets close within
/// milliseconds, but under load not at once.
const LAST_WORDS: std::time::Duration = std::time::Duration::from_secs(1);

/// What this end wrote in a stretch.
pub(crate) struct Written {
    /// Messages completed on each queue pair.
    pub(crate) per_qp: Vec<u64>,
    /// The round, for the report; `None` for a warm-up.
    pub(crate) round: Option<Round>,
    /// The user asked to stop.
    pub(crate) interrupted: bool,
}

/// A stretch in words: `round 2 of 3 at 64 KiB`.
pub(crate) fn describe(plan: &Plan, stretch: Stretch) -> String {
    let size = plan
        .sizes_bytes
        .get(stretch.point as usize)
        .map_or("an unknown size".to_owned(), |&size| ByteSize(size).to_string());
    match stretch.round {
        Some(round) => format!("round {} of {} at {size}", round + 1, plan.rounds),
        None => format!("the warm-up at {size}"),
    }
}

/// The slots of a stretch's messages.
///
/// # Errors
/// [`ErrorKind::Protocol`] where the plan has no such point or round: the stretch may come from a peer.
pub(crate) fn slots(plan: &Plan, stretch: Stretch) -> Result<Slots> {
    let size = plan.sizes_bytes.get(stretch.point as usize).copied();
    let in_plan = stretch.round.is_none_or(|round| round < plan.rounds);
    size.filter(|_| in_plan)
        .map(Slots::of)
        .ok_or_else(|| Error::new(ErrorKind::Protocol, "the peer began a round that the plan does not have"))
}

/// Makes this end's memory ready for a stretch: what it will write, and where it can't be mistaken for what has
/// arrived.
pub(crate) fn prepare(session: &Session, slots: Slots, stretch: Stretch) {
    let (plan, role) = (session.plan(), session.role());
    let round = stretch.round.unwrap_or(0);
    // Without checking, the same data will do for every round: the memory only has to hold something.
    if plan.is_initiator(role) && (plan.validate || stretch.round.is_none_or(|round| round == 0)) {
        session.fill_sources(slots, stretch.point, round);
    }
    if plan.is_target(role) && plan.validate && stretch.round.is_some() {
        session.poison_sinks(slots, stretch.point, round);
    }
}

/// The loop over whichever endpoint the session has.
struct Pump<'a> {
    window: &'a mut Window,
    stop: &'a Stop,
    log: &'a mut CompletionLog,
}

impl Measure for Pump<'_> {
    type Output = ();

    fn run<E: Endpoint>(self, endpoint: &mut E) -> Result<()> {
        pump(endpoint, self.window, &MonotonicClock::start(), self.stop, self.log)
    }
}

/// Writes this end's part of a stretch, with the control channel watched.
///
/// # Errors
/// A failed write, with how far it got; the peer's failure or death, where that is the better story.
pub(crate) fn write(
    channel: &mut (dyn Channel + Send),
    session: &Session,
    slots: Slots,
    stretch: Stretch,
    log: &mut CompletionLog,
) -> Result<Written> {
    let plan = session.plan();
    let (limit, duration) = match stretch.round {
        Some(_) => (plan.round_iterations().unwrap_or(u64::MAX), plan.round_duration()),
        None => (plan.warmup_iterations, None),
    };
    let stop = Stop::new();
    let mut window = Window::new(plan.qps, plan.tx_depth, plan.signal_every(slots.size), slots.count, limit);
    log.clear();
    let (result, watched) = {
        let pump = Pump { window: &mut window, stop: &stop, log };
        watched(channel, duration, &stop, || session.measure(slots, &stop, pump))
    };
    let failure = match (watched.failure, result) {
        (Some(failure), _) => Some(failure),
        (None, Err(failure)) => Some(with_peers_story(channel, failure)),
        (None, Ok(())) => None,
    };
    if let Some(failure) = failure {
        return Err(failure.fact("got so far", progress(plan, stretch, &window)));
    }
    let target = limit.saturating_mul(plan.qps.into());
    let cut_short = watched.interrupted || watched.stopped_by_peer;
    let partial = cut_short && (duration.is_some() || window.completed() < target);
    Ok(Written {
        per_qp: window.per_qp(),
        round: stretch.round.map(|number| round(session, slots, number, log, partial)),
        interrupted: watched.interrupted,
    })
}

fn round(session: &Session, slots: Slots, number: u32, log: &CompletionLog, partial: bool) -> Round {
    let plan = session.plan();
    let messages = log.last().completed;
    // A stretch that the depth of the queues alone can't fill, and a tenth of the round: see docs/measuring.md.
    let window = (messages / 10).max(2 * u64::from(plan.tx_depth) * u64::from(plan.qps));
    Round {
        size_bytes: slots.size,
        round: number,
        direction: session.role().writes(),
        messages,
        elapsed_ns: log.last().at_ns,
        peak_messages_per_sec: log.peak_rate(window),
        partial,
        checked: None,
    }
}

/// How far a stretch got that failed.
fn progress(plan: &Plan, stretch: Stretch, window: &Window) -> String {
    let (posted, completed) = (window.posted(), window.completed());
    format!(
        "{}: {posted} writes posted, {completed} completed, {} outstanding; nothing after them is counted",
        describe(plan, stretch),
        posted - completed
    )
}

/// A write that fails because the peer is gone looks like a lost path; the control channel knows better.
fn with_peers_story(channel: &mut dyn Channel, failure: Error) -> Error {
    match channel.expect_any(LAST_WORDS) {
        Err(peer) if matches!(peer.kind, ErrorKind::PeerLost) => peer.fact("then", failure.what),
        Err(peer) if peer.origin == linkproof_common::error::Origin::Peer => peer.fact("then", failure.what),
        _ => failure.fact("peer", "still connected on the control channel"),
    }
}
