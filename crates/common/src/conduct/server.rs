//! The server: takes no test options, learns the plan from each client, and serves one after another.

use super::{Ends, Stage, Tool, conditions, fail, perftest};
use crate::args::OutputArgs;
use crate::environment::Host;
use crate::error::{Error, ErrorKind, ExitStatus, Origin, Result};
use crate::exchange::frame::FrameLimit;
use crate::exchange::message::Stretch;
use crate::exchange::tcp::{TcpChannel, show_address};
use crate::exchange::{Channel, Message, PeerProtocol, interrupted, out_of_order, while_working};
use crate::finding::explain;
use crate::host::HostFiles;
use crate::perftest::PerftestChannel;
use crate::plan::{Plan, Role, Traffic, Transport};
use crate::report::{Conditions, Document, Layout, Output};
use crate::serve::{Client, Greeting, Manners, Server};
use crate::session::{STEP_LIMIT, Session, agree, tell_peer};
use crate::watch::PEER_SILENCE_LIMIT;

/// Runs `tool` as a server until it is stopped, or has served one client with `--once`. `test_options` are the
/// options on its command line that only a client takes.
///
/// A perftest can't tell its plan: `plan` is for its clients, by this end's own options, which the server of them takes with
/// `--peer-protocol perftest`.
pub fn run<T: Tool>(
    tool: &mut T,
    ends: Ends,
    test_options: &[String],
    plan: Result<Plan>,
    output: &OutputArgs,
) -> ExitStatus {
    let layout = if ends.peer.once { Layout::Pretty } else { Layout::Line };
    let output = Output::new(T::NAME, output, layout);
    ends.note_needless(&output);
    let plan = plan_of_perftest(ends, test_options, plan);
    match plan.and_then(|plan| Ok((listen::<T>(ends, &output)?, plan))) {
        Ok((server, plan)) => serve(tool, ends, &server, &plan, &output),
        Err(error) => fail::<T>(error, &output),
    }
}

/// The plan for perftest's clients.
fn plan_of_perftest(ends: Ends, test_options: &[String], plan: Result<Plan>) -> Result<Plan> {
    if ends.peer.peer_protocol != PeerProtocol::Perftest {
        refuse(test_options)?;
    }
    // Over TCP there are no such clients, and whether there are is seen when one comes.
    Plan { transport: Transport::Rdma, ..plan? }.for_perftest(Role::Server)
}

fn listen<T: Tool>(ends: Ends, output: &Output) -> Result<Server> {
    // The device is chosen again for each client, but a server that could serve none says so at once.
    let (files, served_with) = {
        let local = ends.local()?;
        (local.files().clone(), local.describe())
    };
    // No longer bound: whoever greets clients shall not be on the cores that measure.
    let complainer = output.clone();
    let manners = Manners {
        tool: T::NAME,
        // Without an RDMA device there is nothing for a perftest.
        protocol: match ends.transport() {
            Transport::Rdma => ends.peer.peer_protocol,
            Transport::Tcp => PeerProtocol::Linkproof,
        },
        host: Box::new(move || Host::this_machine(Role::Server, T::VERSION, &files)),
        complain: Box::new(move |error| complainer.say_failure(error)),
    };
    let server = Server::open(ends.peer.bind_source_ip, ends.peer.port, manners)?;
    output.note(&format!("serving on TCP port {} with {}; stop it with Ctrl-C", ends.peer.port, served_with));
    Ok(server)
}

fn refuse(test_options: &[String]) -> Result<()> {
    if test_options.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Usage,
        format!(
            "a server takes no test options, and without a host this is the server: {}",
            test_options.join(" ")
        ),
    )
    .hint(
        "give them to the client, which tells the server; or name the server's host to make this the client; perftest's \
         clients can't tell: --peer-protocol perftest has a server take options for them",
    ))
}

fn serve<T: Tool>(tool: &mut T, ends: Ends, server: &Server, plan: &Plan, output: &Output) -> ExitStatus {
    loop {
        let (status, go_on) = match server.next_client() {
            Ok(Some(client)) => serve_client(tool, ends, server, client, plan, output),
            // Stopped while idle: that is how a server ends.
            Ok(None) => return ExitStatus::Good,
            Err(error) => {
                output.say_failure(&error);
                return error.exit_status();
            }
        };
        if ends.peer.once || !go_on {
            return status;
        }
    }
}

/// Serves one client; gives the status of its run, and whether to go on to the next: a client may be interrupted
/// without the server being so.
fn serve_client<T: Tool>(
    tool: &mut T,
    ends: Ends,
    server: &Server,
    client: Client,
    plan: &Plan,
    output: &Output,
) -> (ExitStatus, bool) {
    let mut document = Document::begin(T::NAME, T::VERSION);
    let Client { mut channel, from, greeting } = client;
    let explained = |error| explain(error, &HostFiles::this_machine());
    let hosts = match greeting {
        Greeting::Linkproof(hosts) => hosts,
        Greeting::Perftest(version) => {
            let mut channel = PerftestChannel::new(channel, version, Role::Server);
            let served =
                perftest::serve(tool, &mut channel, ends, server, plan.clone(), &mut document, output);
            let failure = served.map_err(explained).err();
            let own_wish = failure.as_ref().is_some_and(|error| error.kind == ErrorKind::Interrupted);
            document.conclude(failure.map(|error| error.fact("client", show_address(from))));
            return (output.show(&document), !own_wish);
        }
    };
    // Before the client is told: it shows what explains the failure here.
    let result = converse(tool, ends, server, &mut channel, hosts, &mut document).map_err(explained);
    match tell_peer(&mut channel, result) {
        Ok(result) => (output.show(&result), true),
        Err(error) => {
            let own_wish = error.kind == ErrorKind::Interrupted && error.origin == Origin::Local;
            document.conclude(Some(error.fact("client", show_address(from))));
            (output.show(&document), !own_wish)
        }
    }
}

/// The whole conversation with one client; gives the client's document.
fn converse<T: Tool>(
    tool: &mut T,
    ends: Ends,
    server: &Server,
    channel: &mut TcpChannel,
    hosts: Vec<Host>,
    document: &mut Document,
) -> Result<Document> {
    let local = ends.local()?;
    let agreed = agree(channel, &local, hosts)?;
    document.plan = Some(agreed.plan().clone());
    document.hosts = agreed.hosts().to_vec();
    channel.allow_frames(FrameLimit::Run);
    channel.limit_hold(Some(server.hold_of_step()));
    let session = Session::bring_up(channel, &local, &agreed, Role::Server)?;
    document.link = Some(session.link().clone());
    document.memory = Some(session.memory().clone());
    document.conditions = vec![session.conditions().clone()];
    loop {
        channel.limit_hold(Some(server.hold_of_step()));
        match channel.expect_any(STEP_LIMIT)? {
            Message::Begin { stretch } => {
                channel.limit_hold(Some(server.hold_of_stretch()));
                one_stretch(tool, channel, &session, stretch)?;
            }
            Message::Finish => {
                channel.limit_hold(Some(server.hold_of_step()));
                channel.allow_frames(FrameLimit::Result);
                return take_result(channel, &session, conditions(tool, &session));
            }
            other => return Err(out_of_order("begin", &other)),
        }
    }
}

fn one_stretch<T: Tool>(
    tool: &mut T,
    channel: &mut TcpChannel,
    session: &Session,
    stretch: Stretch,
) -> Result<()> {
    let plan = session.plan();
    let mut stage = Stage::new(channel, session, stretch, None)?;
    stage.prepare()?;
    stage.observe();
    let slots = stage.slots;
    let (performed, arrived) = session.as_target(slots, || {
        stage.channel.send(&Message::Begun)?;
        let performed = plan.is_initiator(Role::Server).then(|| tool.perform(&mut stage)).transpose()?;
        if performed.as_ref().is_some_and(|performed| performed.interrupted) {
            return Err(interrupted());
        }
        Ok((performed, expect_end(&mut stage)?))
    })?;
    session.observer().end_round();
    let checked = match (&performed, stretch.round) {
        (Some(performed), _) if plan.traffic == Traffic::PingPong => performed.inspected,
        (_, Some(round)) if plan.validate => {
            Some(while_working(channel, || session.check_sinks(slots, stretch.point, round, &arrived))?)
        }
        _ => None,
    };
    let (round, per_qp) =
        performed.map_or((None, Vec::new()), |performed| (performed.round, performed.per_qp));
    channel.send(&Message::Outcome { round, checked, per_qp })
}

/// Waits for the end of the client's writes; a client that goes is told with how far it had got.
fn expect_end(stage: &mut Stage) -> Result<Vec<u64>> {
    let mut completed = 0;
    let where_it_was = stage.describe();
    match stage.channel.expect_with(PEER_SILENCE_LIMIT, &mut |so_far| completed = so_far) {
        Ok(Message::End { per_qp }) => Ok(per_qp),
        Ok(other) => Err(out_of_order("end", &other)),
        Err(error) => {
            let got = format!("{where_it_was}: the client had reported {completed} writes completed");
            Err(error.fact("got so far", got))
        }
    }
}

fn take_result(channel: &mut TcpChannel, session: &Session, conditions: Conditions) -> Result<Document> {
    let evidence = session.evidence();
    channel.send(&Message::Evidence { evidence, conditions: Box::new(conditions) })?;
    match channel.expect_any(STEP_LIMIT)? {
        Message::Result { document } => {
            channel.send(&Message::Goodbye)?;
            Ok(*document)
        }
        other => Err(out_of_order("result", &other)),
    }
}
