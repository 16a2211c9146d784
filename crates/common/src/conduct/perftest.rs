//! How a run goes with a perftest at the other end: it has its options from its own user, takes part in what they say,
//! and the ends meet only where its protocol lets them.

mod options;

use std::time::Duration;

use self::options::{check_last_message, check_length, check_report};
use super::client::Ending;
use super::{Ends, Stage, Tool, conditions};
use crate::environment::Host;
use crate::error::{Error, ErrorKind, Result};
use crate::exchange::interrupted;
use crate::exchange::message::Stretch;
use crate::host::HostFiles;
use crate::perftest::{Leave, PerftestChannel, Report, with_repeats};
use crate::plan::{Plan, Role, RoundLength, Traffic};
use crate::report::{BandwidthUnit, Conditions, Document, Live, Output, Peer, ResultRow, Round, summarise};
use crate::serve::Server;
use crate::session::{LocalEnd, Session, check_local};
use crate::units::Bandwidth;
use crate::validate::Direction;
use crate::watch::PEER_SILENCE_LIMIT;
use crate::watch::sampling::Audience;

/// Measures as the client of a perftest.
///
/// # Errors
/// As a run between two ends of ours, and [`ErrorKind::PerftestPeer`].
pub(super) fn lead<T: Tool>(
    tool: &mut T,
    channel: &mut PerftestChannel,
    local: &LocalEnd,
    plan: Plan,
    document: &mut Document,
    output: &Output,
) -> Result<Ending> {
    let plan = plan.for_perftest(Role::Client)?;
    let peer = document.peer.insert(Peer::perftest(channel.version(), &plan, Role::Client)).clone();
    document.plan = Some(plan.clone());
    let measured = measure(tool, channel, local, plan, Role::Client, document, output);
    measured.map_err(|error| with_options(error, &peer))
}

/// Serves a perftest by the plan that this end's own options gave.
///
/// # Errors
/// As [`lead`].
pub(super) fn serve<T: Tool>(
    tool: &mut T,
    channel: &mut PerftestChannel,
    ends: Ends,
    server: &Server,
    plan: Plan,
    document: &mut Document,
    output: &Output,
) -> Result<()> {
    document.hosts = vec![Host::this_machine(Role::Server, T::VERSION, &HostFiles::this_machine())];
    let takes_only = plan.traffic == Traffic::Unidirectional;
    // How large the messages are it does not say: room for all that it has by itself.
    let largest = plan.largest().max(PERFTEST_LARGEST);
    let plan = if takes_only { Plan { sizes_bytes: vec![largest], qps: 1, ..plan } } else { plan };
    let peer = document.peer.insert(Peer::perftest(channel.version(), &plan, Role::Server)).clone();
    let local = ends.local()?;
    check_local(&plan, &local, Role::Server)?;
    channel.limit_hold(Some(server.hold_of_perftest()));
    let served = if takes_only {
        take(channel, &local, plan, document)
    } else {
        document.plan = Some(plan.clone());
        measure(tool, channel, &local, plan, Role::Server, document, output).and_then(|ending| match ending {
            Ending::Complete => Ok(()),
            Ending::Interrupted => Err(interrupted()),
        })
    };
    served.map_err(|error| with_options(error, &peer))
}

/// What a server's first bytes hold until its client writes there: of any data of a perftest's, zeros or random, one byte differs.
const MARK: u8 = 0x5a;

/// A latency test waits for the server's first message instead.
const WRITES_NOTHING: &str =
    "the client has written nothing: ib_write_lat measures against write-lat, ib_write_bw against write-bw";

/// The largest message of perftest's `--all`.
const PERFTEST_LARGEST: u64 = 8 << 20;

/// The part of an end that is only written to: it waits until its memory is, and that has an end, and takes what the
/// perftest reports.
fn take(channel: &mut PerftestChannel, local: &LocalEnd, plan: Plan, document: &mut Document) -> Result<()> {
    let session = Session::bring_up_with_perftest(channel, local, plan, Role::Server)?;
    note(document, &session);
    let mut pulse = Pulse { session: &session, mark: 0 };
    session.observer().begin_round();
    let mut has_written = false;
    let heard = channel.hear_key_while(PEER_SILENCE_LIMIT, || {
        let beats = pulse.beats();
        has_written |= beats;
        beats
    });
    heard.map_err(|error| with_repeats(error, &session.evidence()))?;
    session.observer().end_round();
    // An end that also waits to be written to begins only now. One that has written may still do so: with -D it leaves what
    // is outstanding behind when its time is over, and a slow path brings that later.
    has_written |= pulse.beats();
    channel.answer_meeting()?;
    let report = channel.swap_report(&Report::default()).map_err(|error| match error.kind {
        ErrorKind::PeerTimeout if !has_written => error.hint(WRITES_NOTHING),
        _ => error,
    })?;
    if pulse.beats() && !has_written {
        return Err(Error::new(
            ErrorKind::PerftestPeer,
            "the client measures in both directions, and this end does not know what to write",
        )
        .hint("leave -b out there, or start this server with --peer-protocol perftest, -b and the client's own -s, -n and -q"));
    }
    let round = round(&report, Role::Client.writes()).filter(|_| report.size <= session.plan().largest());
    let round = round.ok_or_else(|| no_report(&report))?;
    channel.meet()?;
    document.plan = Some(Plan {
        sizes_bytes: vec![report.size],
        round_length: RoundLength::Iterations((report.iterations / u64::from(session.plan().qps)).max(1)),
        rounds: 1,
        warmup_iterations: 0,
        ..session.plan().clone()
    });
    document.rounds = vec![round];
    document.conditions =
        vec![Conditions { contention: session.observer().total(), ..session.conditions().clone() }];
    document.evidence = session.evidence();
    Ok(())
}

fn no_report(report: &Report) -> Error {
    Error::new(ErrorKind::Protocol, "perftest reported a bandwidth that is no number, or nothing")
        .fact("reported", format!("{report:?}"))
}

/// Whether the peer writes: the only thing that a perftest does while it measures.
struct Pulse<'a> {
    session: &'a Session,
    mark: u8,
}

impl Pulse<'_> {
    /// Whether it has written since this was asked last. Its data is the same all the time, so that every other mark at
    /// least differs from it.
    fn beats(&mut self) -> bool {
        // With host memory nothing fails, and a GPU that does will say so to others.
        let written = self.session.was_written(self.mark, !self.mark).unwrap_or(false);
        self.mark = !self.mark;
        written
    }
}

/// What the document says of a connection that stands.
fn note(document: &mut Document, session: &Session) {
    document.link = Some(session.link().clone());
    document.memory = Some(session.memory().clone());
    document.conditions = vec![session.conditions().clone()];
}

/// perftest tells nobody why it does not go on, and writes beyond its memory, or waits for ever, look like a bad link.
fn with_options(error: Error, peer: &Peer) -> Error {
    match error.kind {
        ErrorKind::Completion
        | ErrorKind::Stalled
        | ErrorKind::PeerLost
        | ErrorKind::PeerTimeout
        | ErrorKind::Protocol => error.fact("must match on the other end", peer.must_match.join("; ")),
        _ => error,
    }
}

fn measure<T: Tool>(
    tool: &mut T,
    channel: &mut PerftestChannel,
    local: &LocalEnd,
    plan: Plan,
    role: Role,
    document: &mut Document,
    output: &Output,
) -> Result<Ending> {
    let session = Session::bring_up_with_perftest(channel, local, plan, role)?;
    note(document, &session);
    // In a stretch in which this end writes, its own completions are what shows that the other one lives.
    channel.limit_hold(None);
    if session.plan().traffic == Traffic::PingPong {
        let by_time = session.plan().round_duration().is_some();
        channel.let_leave(if by_time { Leave::AtItsTime } else { Leave::AfterLastMessage });
    }
    if session.plan().traffic == Traffic::Bidirectional {
        session.was_written(MARK, MARK)?;
    }
    let mut live = output.live(document);
    let mut run = Run { channel, session: &session, unit: output.unit() };
    let ending = run.all_points(tool, &mut live, &mut document.rounds)?;
    output.finish(live)?;
    document.conditions = vec![conditions(tool, &session)];
    document.evidence = session.evidence();
    run.part(&document.rounds)?;
    Ok(ending)
}

struct Run<'a> {
    channel: &'a mut PerftestChannel,
    session: &'a Session,
    unit: BandwidthUnit,
}

impl Run<'_> {
    fn all_points<T: Tool>(
        &mut self,
        tool: &mut T,
        live: &mut Option<Live>,
        rounds: &mut Vec<Round>,
    ) -> Result<Ending> {
        let plan = self.session.plan();
        for point in 0..plan.sizes_bytes.len() as u32 {
            let warm_up = (plan.warmup_iterations > 0).then_some(None);
            for round in warm_up.into_iter().chain((0..plan.rounds).map(Some)) {
                if let Ending::Interrupted = self.stretch(tool, Stretch { point, round }, live, rounds)? {
                    return Ok(Ending::Interrupted);
                }
            }
        }
        Ok(Ending::Complete)
    }

    fn stretch<T: Tool>(
        &mut self,
        tool: &mut T,
        stretch: Stretch,
        live: &mut Option<Live>,
        rounds: &mut Vec<Round>,
    ) -> Result<Ending> {
        let session = self.session;
        let both_write = session.plan().traffic == Traffic::Bidirectional;
        let mut stage = Stage::new(self.channel, session, stretch, None)?;
        stage.prepare()?;
        stage.observe();
        if both_write {
            self.begin_together()?;
        }
        let audience = live.as_mut().map(|live| live as &mut dyn Audience);
        let performed = tool.perform(&mut Stage::new(self.channel, session, stretch, audience)?)?;
        session.observer().end_round();
        let has_begun = performed.round.as_ref().is_some_and(|round| round.messages > 0);
        let is_regular_end = session.plan().is_until_stopped() && has_begun;
        if let Some(ours) = performed.round {
            if session.plan().traffic == Traffic::PingPong && !performed.interrupted {
                check_length(Duration::from_nanos(ours.elapsed_ns), session.plan())?;
            }
            let theirs = both_write.then(|| self.swap_rounds(&ours)).transpose()?;
            rounds.push(ours);
            rounds.extend(theirs);
        }
        Ok(if performed.interrupted && !is_regular_end { Ending::Interrupted } else { Ending::Complete })
    }

    /// The ends begin to write at the same time. A client that writes alone says the same only when it is through.
    fn begin_together(&mut self) -> Result<()> {
        if self.session.role() == Role::Client {
            return self.channel.meet();
        }
        self.channel.hear_key()?;
        if self.session.was_written(MARK, MARK)? {
            return Err(Error::new(
                ErrorKind::PerftestPeer,
                "the client has written before both ends were to begin: it measures in one direction",
            )
            .hint("give -b on both ends, or on neither"));
        }
        self.channel.answer_meeting()
    }

    /// Tells of this end's round and hears of the other's, where both write. With several sizes the ends meet before.
    fn swap_rounds(&mut self, ours: &Round) -> Result<Round> {
        let plan = self.session.plan();
        if plan.sizes_bytes.len() > 1 {
            self.channel.meet()?;
        }
        let ours = report(ours, self.unit);
        let theirs = self.channel.swap_report(&ours)?;
        check_report(&ours, &theirs, plan)?;
        round(&theirs, self.session.role().peer().writes()).ok_or_else(|| no_report(&theirs))
    }

    /// The end of the test: a perftest that has not written hears only now how it went, and shows it as its own.
    fn part(&mut self, rounds: &[Round]) -> Result<()> {
        match self.session.plan().traffic {
            Traffic::PingPong => {
                self.channel.wait_for_leave()?;
                return check_last_message(self.session);
            }
            Traffic::Bidirectional => {}
            Traffic::Unidirectional => {
                self.channel.meet()?;
                let report = self.last_line(rounds).unwrap_or_default();
                self.channel.swap_report(&report)?;
            }
        }
        self.channel.meet()
    }

    /// The last line of this end's table: what perftest has room for.
    fn last_line(&self, rounds: &[Round]) -> Option<Report> {
        let (results, _) = summarise(Some(self.session.plan()), Some(self.session.link()), rounds);
        let ResultRow::Bandwidth(row) = results.into_iter().next_back()? else { return None };
        let in_unit = |mib_per_sec, gbit_per_sec| match self.unit {
            BandwidthUnit::Mib => mib_per_sec,
            BandwidthUnit::Gbit => gbit_per_sec,
        };
        Some(Report {
            size: row.size_bytes,
            iterations: row.iterations,
            peak: in_unit(row.bw_peak_mib_per_sec, row.bw_peak_gbit_per_sec),
            average: in_unit(row.bw_average_mib_per_sec, row.bw_average_gbit_per_sec),
            message_rate: row.msg_rate_mpps,
        })
    }
}

/// A round as perftest tells of it.
fn report(round: &Round, unit: BandwidthUnit) -> Report {
    let in_unit = |bandwidth: Bandwidth| match unit {
        BandwidthUnit::Mib => bandwidth.mib_per_sec(),
        BandwidthUnit::Gbit => bandwidth.gbit_per_sec(),
    };
    let average = round.bandwidth();
    let size = round.size_bytes as f64;
    let peak = round.peak_messages_per_sec.map(|rate| in_unit(Bandwidth::from_bytes_per_sec(rate * size)));
    Report {
        size: round.size_bytes,
        iterations: round.messages,
        peak: peak.unwrap_or(0.0),
        average: in_unit(average),
        message_rate: average.bytes_per_sec() / size / 1e6,
    }
}

/// The round that a perftest tells of.
fn round(report: &Report, direction: Direction) -> Option<Round> {
    let (per_sec, peak) = report.rates()?;
    Some(Round {
        size_bytes: report.size,
        round: 0,
        direction,
        messages: report.iterations,
        elapsed_ns: (report.iterations as f64 / per_sec * 1e9) as u64,
        peak_messages_per_sec: peak,
        latency: None,
        intervals: None,
        partial: false,
        checked: None,
        answers_checked: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(size_bytes: u64, elapsed_ns: u64) -> Round {
        let report = Report { size: size_bytes, iterations: 100, peak: 0.0, average: 1.0, message_rate: 1.0 };
        Round { elapsed_ns, ..round(&report, Direction::ClientToServer).unwrap() }
    }

    #[test]
    fn a_round_survives_the_report() {
        let ours = Round { peak_messages_per_sec: Some(2e6), ..of(4096, 100_000) };
        for unit in [BandwidthUnit::Mib, BandwidthUnit::Gbit] {
            let report = report(&ours, unit);
            assert_eq!(report.is_in_gbits(), Some(unit == BandwidthUnit::Gbit));
            let theirs = round(&report, Direction::ClientToServer).unwrap();
            assert!(theirs.elapsed_ns.abs_diff(ours.elapsed_ns) <= 1);
            assert!((theirs.peak_messages_per_sec.unwrap() - 2e6).abs() < 1.0);
        }
    }
}
