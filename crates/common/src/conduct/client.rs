//! The client: makes the plan, leads through the rounds, and gives both ends the result.

use super::{Ends, Stage, Tool, conditions, perftest};
use crate::args::PeerArgs;
use crate::environment::Host;
use crate::error::{Error, ErrorKind, ExitStatus, Result};
use crate::exchange::message::Stretch;
use crate::exchange::tcp::{Greeted, TcpChannel};
use crate::exchange::{Channel, Message, interrupted, out_of_order, while_working};
use crate::finding::explain;
use crate::host::HostFiles;
use crate::plan::{Plan, Role};
use crate::report::{Document, Live, Output, Round};
use crate::session::{LocalEnd, STEP_LIMIT, Session, check_local, propose, tell_peer};
use crate::validate::Checked;
use crate::watch::PEER_SILENCE_LIMIT;
use crate::watch::sampling::Audience;

/// Runs `tool` as the client of the server at `host`, by the plan that the options gave.
pub fn run<T: Tool>(tool: &mut T, ends: Ends, host: &str, plan: Result<Plan>, output: &Output) -> ExitStatus {
    let mut document = Document::begin(T::NAME, T::VERSION);
    ends.note_needless(output);
    match plan.and_then(|plan| connect::<T>(ends, host, plan, &mut document)) {
        Err(error) => document.conclude(Some(explain(error, &HostFiles::this_machine()))),
        Ok((Greeted::Perftest(mut channel), local, plan)) => {
            let ended = perftest::lead(tool, &mut channel, &local, plan, &mut document, output);
            let ended = ended.map_err(|error| explain(error, local.files()));
            document.conclude(ended.map_or_else(Some, Ending::failure));
        }
        Ok((Greeted::Linkproof(mut channel), local, plan)) => {
            let teller = output.clone();
            channel.when_told_to_wait(move |turn| teller.note(&turn));
            let measured = measure(tool, &mut channel, &local, plan, &mut document, output)
                .map_err(|error| explain(error, local.files()));
            match tell_peer(&mut channel, measured) {
                Ok(ending) => deliver(&mut channel, &mut document, ending),
                Err(error) => document.conclude(Some(error)),
            }
        }
    }
    output.show(&document)
}

/// How the rounds ended.
pub(super) enum Ending {
    Complete,
    Interrupted,
}

impl Ending {
    /// What it is in the verdict.
    fn failure(self) -> Option<Error> {
        match self {
            Self::Complete => None,
            Self::Interrupted => Some(interrupted()),
        }
    }
}

/// Everything that can fail on this machine comes before the first packet.
fn connect<T: Tool>(
    ends: Ends,
    host: &str,
    plan: Plan,
    document: &mut Document,
) -> Result<(Greeted, LocalEnd, Plan)> {
    if ends.peer.once {
        return Err(Error::new(
            ErrorKind::Usage,
            "--once is an option of the server, and a host makes this the client",
        )
        .hint("give --once to the server, without a host"));
    }
    document.plan = Some(plan.clone());
    // Before this thread is bound: the host has the cores that the process may use.
    document.hosts = vec![Host::this_machine(Role::Client, T::VERSION, &HostFiles::this_machine())];
    let local = ends.local()?;
    check_local(&plan, &local, Role::Client)?;
    let PeerArgs { port, bind_source_ip, peer_protocol, .. } = *ends.peer;
    Ok((TcpChannel::connect(host, port, bind_source_ip, peer_protocol)?, local, plan))
}

fn measure<T: Tool>(
    tool: &mut T,
    channel: &mut TcpChannel,
    local: &LocalEnd,
    plan: Plan,
    document: &mut Document,
    output: &Output,
) -> Result<Ending> {
    let this_host = document.hosts[0].clone();
    let agreed = propose(channel, local, plan, this_host)?;
    document.hosts = agreed.hosts().to_vec();
    let session = Session::bring_up(channel, local, &agreed, Role::Client)?;
    document.link = Some(session.link().clone());
    document.memory = Some(session.memory().clone());
    document.conditions = vec![session.conditions().clone()];
    let mut live = output.live(document);
    let ending = all_points(tool, channel, &session, &mut live, &mut document.rounds)?;
    output.finish(live)?;
    document.conditions = vec![conditions(tool, &session)];
    channel.send(&Message::Finish)?;
    document.evidence = session.evidence();
    match channel.expect_any(STEP_LIMIT)? {
        Message::Evidence { evidence, conditions } => {
            document.evidence.extend(evidence);
            document.conditions.push(*conditions);
        }
        other => return Err(out_of_order("evidence", &other)),
    }
    Ok(ending)
}

fn all_points<T: Tool>(
    tool: &mut T,
    channel: &mut TcpChannel,
    session: &Session,
    live: &mut Option<Live>,
    rounds: &mut Vec<Round>,
) -> Result<Ending> {
    let plan = session.plan();
    for point in 0..plan.sizes_bytes.len() as u32 {
        let warm_up = (plan.warmup_iterations > 0).then_some(None);
        for round in warm_up.into_iter().chain((0..plan.rounds).map(Some)) {
            let audience = live.as_mut().map(|live| live as &mut dyn Audience);
            let stage = Stage::new(channel, session, Stretch { point, round }, audience)?;
            if let Ending::Interrupted = one_stretch(tool, stage, rounds)? {
                return Ok(Ending::Interrupted);
            }
        }
    }
    Ok(Ending::Complete)
}

fn one_stretch<T: Tool>(tool: &mut T, mut stage: Stage, rounds: &mut Vec<Round>) -> Result<Ending> {
    let (session, stretch) = (stage.session, stage.stretch);
    stage.prepare()?;
    stage.observe();
    stage.channel.send(&Message::Begin { stretch })?;
    expect_begun(stage.channel)?;
    let slots = stage.slots;
    let (performed, outcome) = session.as_target(slots, || {
        let performed = tool.perform(&mut stage)?;
        if performed.interrupted {
            stage.channel.send(&Message::Stop)?;
        }
        stage.channel.send(&Message::End { per_qp: performed.per_qp.clone() })?;
        Ok((performed, expect_outcome(stage.channel)?))
    })?;
    session.observer().end_round();
    // A run that only its user ends is complete then, if there is anything to show.
    let has_begun = performed.round.as_ref().is_some_and(|round| round.messages > 0);
    let is_regular_end = session.plan().is_until_stopped() && has_begun;
    if let Some(mut ours) = performed.round {
        ours.checked = outcome.checked;
        ours.answers_checked = performed.inspected;
        rounds.push(ours);
    }
    if let Some(mut theirs) = outcome.round {
        if let (true, Some(round)) = (session.plan().validate, stretch.round) {
            let check = || session.check_sinks(slots, stretch.point, round, &outcome.per_qp);
            theirs.checked = Some(while_working(stage.channel, check)?);
        }
        rounds.push(theirs);
    }
    Ok(if performed.interrupted && !is_regular_end { Ending::Interrupted } else { Ending::Complete })
}

fn expect_begun(channel: &mut dyn Channel) -> Result<()> {
    match channel.expect_any(STEP_LIMIT)? {
        Message::Begun => Ok(()),
        other => Err(out_of_order("begun", &other)),
    }
}

/// The server's part of a stretch.
struct Outcome {
    round: Option<Round>,
    checked: Option<Checked>,
    per_qp: Vec<u64>,
}

fn expect_outcome(channel: &mut dyn Channel) -> Result<Outcome> {
    match channel.expect_any(PEER_SILENCE_LIMIT)? {
        Message::Outcome { round, checked, per_qp } => Ok(Outcome { round, checked, per_qp }),
        other => Err(out_of_order("outcome", &other)),
    }
}

/// Concludes the document and gives the server the same.
fn deliver(channel: &mut TcpChannel, document: &mut Document, ending: Ending) {
    document.conclude(ending.failure());
    let delivered = channel.send(&Message::Result { document: Box::new(document.clone()) });
    if let Err(error) = delivered.and_then(|()| channel.expect_any(STEP_LIMIT)) {
        document
            .verdict
            .failures
            .push(error.fact("then", "the measurement was complete; the server may lack the result"));
        document.verdict.ok = false;
    }
}
