//! The client: makes the plan, leads through the rounds, and gives both ends the result.

use linkproof_common::environment::Host;
use linkproof_common::error::{Error, ErrorKind, ExitStatus, Result};
use linkproof_common::exchange::message::Stretch;
use linkproof_common::exchange::tcp::TcpChannel;
use linkproof_common::exchange::{Channel, Message, interrupted, out_of_order, while_working};
use linkproof_common::host::HostFiles;
use linkproof_common::plan::{Plan, Role};
use linkproof_common::report::{Document, Layout, Output, Round};
use linkproof_common::samples::CompletionLog;
use linkproof_common::session::{LocalEnd, STEP_LIMIT, Session, check_local, propose, tell_peer};
use linkproof_common::watch::PEER_SILENCE_LIMIT;

use crate::args::Args;
use crate::stretch;
use crate::{TOOL, VERSION};

/// Runs the client against `host`.
pub(crate) fn run(args: &Args, host: &str) -> ExitStatus {
    let output = Output::new(TOOL, &args.output, Layout::Pretty);
    let mut document = Document::begin(TOOL, VERSION);
    match connect(args, host, &mut document) {
        Err(error) => document.conclude(Some(error)),
        Ok((mut channel, local, plan)) => {
            let measured = measure(&mut channel, &local, plan, &mut document);
            match tell_peer(&mut channel, measured) {
                Ok(ending) => deliver(&mut channel, &mut document, ending),
                Err(error) => document.conclude(Some(error)),
            }
        }
    }
    output.show(&document)
}

/// How the rounds ended.
enum Ending {
    Complete,
    Interrupted,
}

/// Everything that can fail on this machine comes before the first packet.
fn connect(args: &Args, host: &str, document: &mut Document) -> Result<(TcpChannel, LocalEnd, Plan)> {
    if args.peer.once {
        return Err(Error::new(
            ErrorKind::Usage,
            "--once is an option of the server, and a host makes this the client",
        )
        .hint("give --once to the server, without a host"));
    }
    let plan = args.transfer.plan(TOOL, args.transport())?;
    document.plan = Some(plan.clone());
    document.hosts = vec![this_host(&HostFiles::this_machine())];
    let local = args.local_end()?;
    check_local(&plan, &local, Role::Client)?;
    let channel = TcpChannel::connect(host, args.peer.port)?;
    Ok((channel, local, plan))
}

fn this_host(files: &HostFiles) -> Host {
    Host::this_machine(Role::Client, VERSION, files)
}

fn measure(
    channel: &mut TcpChannel,
    local: &LocalEnd,
    plan: Plan,
    document: &mut Document,
) -> Result<Ending> {
    let agreed = propose(channel, local, plan, this_host(local.files()))?;
    document.hosts = agreed.hosts().to_vec();
    let session = Session::bring_up(channel, local, &agreed, Role::Client)?;
    document.link = Some(session.link().clone());
    document.memory = Some(session.memory().clone());
    let ending = all_points(channel, &session, &mut document.rounds)?;
    channel.send(&Message::Finish)?;
    document.evidence = session.evidence();
    match channel.expect_any(STEP_LIMIT)? {
        Message::Evidence { evidence } => document.evidence.extend(evidence),
        other => return Err(out_of_order("evidence", &other)),
    }
    Ok(ending)
}

fn all_points(channel: &mut TcpChannel, session: &Session, rounds: &mut Vec<Round>) -> Result<Ending> {
    let plan = session.plan();
    let mut log = CompletionLog::new();
    for point in 0..plan.sizes_bytes.len() as u32 {
        let warm_up = (plan.warmup_iterations > 0).then_some(None);
        for round in warm_up.into_iter().chain((0..plan.rounds).map(Some)) {
            if let Ending::Interrupted =
                one_stretch(channel, session, Stretch { point, round }, &mut log, rounds)?
            {
                return Ok(Ending::Interrupted);
            }
        }
    }
    Ok(Ending::Complete)
}

fn one_stretch(
    channel: &mut TcpChannel,
    session: &Session,
    stretch: Stretch,
    log: &mut CompletionLog,
    rounds: &mut Vec<Round>,
) -> Result<Ending> {
    let slots = stretch::slots(session.plan(), stretch)?;
    while_working(channel, || stretch::prepare(session, slots, stretch));
    channel.send(&Message::Begin { stretch })?;
    expect_begun(channel)?;
    let (written, outcome) = session.as_target(slots, || {
        let written = stretch::write(channel, session, slots, stretch, log)?;
        if written.interrupted {
            channel.send(&Message::Stop)?;
        }
        channel.send(&Message::End { per_qp: written.per_qp.clone() })?;
        Ok((written, expect_outcome(channel)?))
    })?;
    if let Some(mut ours) = written.round {
        ours.checked = outcome.checked;
        rounds.push(ours);
    }
    if let Some(mut theirs) = outcome.round {
        if let (true, Some(round)) = (session.plan().validate, stretch.round) {
            let check = || session.check_sinks(slots, stretch.point, round, &outcome.per_qp);
            theirs.checked = Some(while_working(channel, check));
        }
        rounds.push(theirs);
    }
    Ok(if written.interrupted { Ending::Interrupted } else { Ending::Complete })
}

fn expect_begun(channel: &mut TcpChannel) -> Result<()> {
    match channel.expect_any(STEP_LIMIT)? {
        Message::Begun => Ok(()),
        other => Err(out_of_order("begun", &other)),
    }
}

/// The server's part of a stretch.
struct Outcome {
    round: Option<Round>,
    checked: Option<linkproof_common::validate::Checked>,
    per_qp: Vec<u64>,
}

fn expect_outcome(channel: &mut TcpChannel) -> Result<Outcome> {
    match channel.expect_any(PEER_SILENCE_LIMIT)? {
        Message::Outcome { round, checked, per_qp } => Ok(Outcome { round, checked, per_qp }),
        other => Err(out_of_order("outcome", &other)),
    }
}

/// Concludes the document and gives the server the same.
fn deliver(channel: &mut TcpChannel, document: &mut Document, ending: Ending) {
    document.conclude(match ending {
        Ending::Complete => None,
        Ending::Interrupted => Some(interrupted()),
    });
    let delivered = channel.send(&Message::Result { document: Box::new(document.clone()) });
    if let Err(error) = delivered.and_then(|()| channel.expect_any(STEP_LIMIT)) {
        document
            .verdict
            .failures
            .push(error.fact("then", "the measurement was complete; the server may lack the result"));
        document.verdict.ok = false;
    }
}
