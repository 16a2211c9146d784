//! The server: takes no test options, learns the plan from each client, and serves one after another.

use std::net::{SocketAddr, TcpStream};

use linkproof_common::args::{Parsed, TransferArgs};
use linkproof_common::environment::Host;
use linkproof_common::error::{Error, ErrorKind, ExitStatus, Origin, Result};
use linkproof_common::exchange::message::Stretch;
use linkproof_common::exchange::tcp::{TcpChannel, show_address};
use linkproof_common::exchange::{Channel, Message, interrupted, out_of_order, while_working};
use linkproof_common::plan::Role;
use linkproof_common::report::{Document, Layout, Output};
use linkproof_common::samples::CompletionLog;
use linkproof_common::serve::Listener;
use linkproof_common::session::{STEP_LIMIT, Session, agree, tell_peer};
use linkproof_common::watch::PEER_SILENCE_LIMIT;

use crate::args::Args;
use crate::stretch;
use crate::{TOOL, VERSION};

/// How long the server waits for the client between two stretches: it may be checking gigabytes.
const NEXT_STEP_LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

/// Runs the server until it is stopped, or has served one client with `--once`.
pub(crate) fn run(parsed: &Parsed<Args>) -> ExitStatus {
    let args = &parsed.args;
    let layout = if args.peer.once { Layout::Pretty } else { Layout::Line };
    let output = Output::new(TOOL, &args.output, layout);
    match listen(parsed, &output) {
        Ok(listener) => serve(args, &listener, &output),
        Err(error) => {
            let mut document = Document::begin(TOOL, VERSION);
            document.conclude(Some(error));
            output.show(&document)
        }
    }
}

fn listen(parsed: &Parsed<Args>, output: &Output) -> Result<Listener> {
    let args = &parsed.args;
    refuse_test_options(&parsed.given)?;
    // The device is chosen again for each client, but a server that could serve none says so at once.
    let local = args.local_end()?;
    let listener = Listener::bind(args.peer.port)?;
    output.note(&format!(
        "serving on TCP port {} with {}; stop it with Ctrl-C",
        args.peer.port,
        local.describe()
    ));
    Ok(listener)
}

fn refuse_test_options(given: &[String]) -> Result<()> {
    let options = TransferArgs::given(given);
    if options.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Usage,
        format!(
            "a server takes no test options, and without a host this is the server: {}",
            options.join(" ")
        ),
    )
    .hint(
        "give them to the client, which tells the server; or name the server's host to make this the client",
    ))
}

fn serve(args: &Args, listener: &Listener, output: &Output) -> ExitStatus {
    loop {
        let (status, go_on) = match listener.next_client() {
            Ok(Some((socket, from))) => serve_client(args, socket, from, output),
            // Stopped while idle: that is how a server ends.
            Ok(None) => return ExitStatus::Good,
            Err(error) => {
                output.say_failure(&error);
                return error.exit_status();
            }
        };
        if args.peer.once || !go_on {
            return status;
        }
    }
}

/// Serves one client; gives the status of its run, and whether to go on to the next: a client may be interrupted
/// without the server being so.
fn serve_client(args: &Args, socket: TcpStream, from: SocketAddr, output: &Output) -> (ExitStatus, bool) {
    let mut document = Document::begin(TOOL, VERSION);
    let served = TcpChannel::accept(socket, from).and_then(|mut channel| {
        let result = converse(args, &mut channel, &mut document);
        tell_peer(&mut channel, result)
    });
    match served {
        Ok(result) => (output.show(&result), true),
        Err(error) => {
            let own_wish = error.kind == ErrorKind::Interrupted && error.origin == Origin::Local;
            document.conclude(Some(error.fact("client", show_address(from))));
            (output.show(&document), !own_wish)
        }
    }
}

/// The whole conversation with one client; gives the client's document.
fn converse(args: &Args, channel: &mut TcpChannel, document: &mut Document) -> Result<Document> {
    let local = args.local_end()?;
    let host = Host::this_machine(Role::Server, VERSION, local.files());
    let agreed = agree(channel, &local, TOOL, host)?;
    document.plan = Some(agreed.plan().clone());
    document.hosts = agreed.hosts().to_vec();
    let session = Session::bring_up(channel, &local, &agreed, Role::Server)?;
    document.link = Some(session.link().clone());
    document.memory = Some(session.memory().clone());
    let mut log = CompletionLog::new();
    loop {
        match channel.expect_any(NEXT_STEP_LIMIT)? {
            Message::Begin { stretch } => one_stretch(channel, &session, stretch, &mut log)?,
            Message::Finish => return take_result(channel, &session),
            other => return Err(out_of_order("begin", &other)),
        }
    }
}

fn one_stretch(
    channel: &mut TcpChannel,
    session: &Session,
    stretch: Stretch,
    log: &mut CompletionLog,
) -> Result<()> {
    let plan = session.plan();
    let slots = stretch::slots(plan, stretch)?;
    while_working(channel, || stretch::prepare(session, slots, stretch));
    let (written, arrived) = session.as_target(slots, || {
        channel.send(&Message::Begun)?;
        let written = plan
            .is_initiator(Role::Server)
            .then(|| stretch::write(channel, session, slots, stretch, log))
            .transpose()?;
        if written.as_ref().is_some_and(|written| written.interrupted) {
            return Err(interrupted());
        }
        Ok((written, expect_end(channel, session, stretch)?))
    })?;
    let checked = match stretch.round {
        Some(round) if plan.validate => {
            Some(while_working(channel, || session.check_sinks(slots, stretch.point, round, &arrived)))
        }
        _ => None,
    };
    let (round, per_qp) = written.map_or((None, Vec::new()), |written| (written.round, written.per_qp));
    channel.send(&Message::Outcome { round, checked, per_qp })
}

/// Waits for the end of the client's writes; a client that goes is told with how far it had got.
fn expect_end(channel: &mut TcpChannel, session: &Session, stretch: Stretch) -> Result<Vec<u64>> {
    let plan = session.plan();
    let mut completed = 0;
    let got = |completed: u64| {
        format!("{}: the client had reported {completed} writes completed", stretch::describe(plan, stretch))
    };
    match channel.expect_with(PEER_SILENCE_LIMIT, &mut |so_far| completed = so_far) {
        Ok(Message::End { per_qp }) => Ok(per_qp),
        Ok(other) => Err(out_of_order("end", &other)),
        Err(error) => Err(error.fact("got so far", got(completed))),
    }
}

fn take_result(channel: &mut TcpChannel, session: &Session) -> Result<Document> {
    channel.send(&Message::Evidence { evidence: session.evidence() })?;
    match channel.expect_any(STEP_LIMIT)? {
        Message::Result { document } => {
            channel.send(&Message::Goodbye)?;
            Ok(*document)
        }
        other => Err(out_of_order("result", &other)),
    }
}
