//! What write-lat does in a stretch: the client pings and takes the time, the server answers.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use linkproof_common::clock::{Clock, ClockUse, FineClock};
use linkproof_common::conduct::{Performed, Stage, Tool};
use linkproof_common::endpoint::PingPong;
use linkproof_common::error::{Error, ErrorKind, Result, show_io_error};
use linkproof_common::histogram::Reader;
use linkproof_common::host::HostFiles;
use linkproof_common::latency::{HdrSamples, RawSamples, Samples, half_usec};
use linkproof_common::memory::{EndBuffer, Inspector};
use linkproof_common::plan::Role;
use linkproof_common::report::Round;
use linkproof_common::session::MeasureInTurn;
use linkproof_common::watch::{Stop, Until, Watched};

use crate::pingpong::{NoLook, by_time, follow, lead, ping, pong};

/// Samples that a round keeps one by one: 128 MiB of them. Longer rounds go by time, and into a histogram.
pub(crate) const MAX_RAW_SAMPLES: u64 = 16 << 20;

/// How much longer than this end a perftest may take that was told the same time: it begins a second later, and works its figures
/// out before it leaves.
const COMPANY_LIMIT: Duration = Duration::from_secs(15);

/// The tool.
pub(crate) struct WriteLat {
    /// Chosen at the client's first stretch: the calibration takes a moment, and a server needs none.
    clock: Option<(FineClock, ClockUse)>,
    raw: Option<(PathBuf, BufWriter<File>)>,
}

impl WriteLat {
    pub(crate) fn new() -> Self {
        Self { clock: None, raw: None }
    }

    /// With every sample written to `path`, if there is one.
    ///
    /// # Errors
    /// [`ErrorKind::Output`] where the file can't be made.
    pub(crate) fn writing_samples_to(self, path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else { return Ok(self) };
        let file = File::create(path).map_err(|error| cannot_write(path, &error))?;
        Ok(Self { raw: Some((path.to_owned(), BufWriter::new(file))), ..self })
    }

    fn write_samples(&mut self, size: u64, round: u32, rtts_ns: &[u64]) -> Result<()> {
        let Some((path, file)) = &mut self.raw else { return Ok(()) };
        let mut lines = (0..).zip(rtts_ns);
        lines
            .try_for_each(|(number, &rtt)| {
                writeln!(file, "{size} {round} {number} {}", half_usec(rtt as f64))
            })
            .and_then(|()| file.flush())
            .map_err(|error| cannot_write(path, &error))
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Error {
    Error::new(
        ErrorKind::Output,
        format!("cannot write the samples to {}: {}", path.display(), show_io_error(error)),
    )
}

impl Tool for WriteLat {
    const NAME: &'static str = "write-lat";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn perform(&mut self, stage: &mut Stage) -> Result<Performed> {
        match stage.session.role() {
            // A perftest takes the time on both ends.
            Role::Server if !stage.session.with_perftest() => answer(stage),
            _ => match (stage.stretch.round, stage.plan().round_iterations()) {
                (None, _) => {
                    self.ask(stage, stage.plan().warmup_iterations, HdrSamples::new(), None, |_| &[])
                }
                (Some(_), None) => {
                    let samples = HdrSamples::new();
                    let latencies = stage.plan().interval().map(|_| Reader::new(samples.histogram()));
                    self.ask(stage, u64::MAX, samples, latencies, |_| &[])
                }
                (Some(_), Some(iters)) => {
                    let samples = RawSamples::with_capacity(iters as usize);
                    self.ask(stage, iters, samples, None, RawSamples::rtts_ns)
                }
            },
        }
    }

    fn clock(&self) -> Option<ClockUse> {
        self.clock.as_ref().map(|(_, chosen)| chosen.clone())
    }
}

/// What looks at each message, where the data is checked.
type AnyLook<'a> = Option<Inspector<'a, EndBuffer>>;

/// The client's loop; the clock's kind, and whether it looks, are chosen before it, so that it has no branch on them.
struct Ping<'a, 'b, S> {
    clock: FineClock,
    look: &'a mut AnyLook<'b>,
    limit: u64,
    /// Which end this is, where the other one is a perftest: its server begins, and both take the time.
    perftest: Option<Role>,
    /// How long the round takes, where it goes by time.
    time_ns: Option<u64>,
    stop: &'a Stop,
    samples: &'a mut S,
    answered: &'a mut u64,
    elapsed_ns: &'a mut u64,
}

impl<S: Samples> MeasureInTurn for Ping<'_, '_, S> {
    fn run<P: PingPong>(self, path: &mut P) -> Result<()> {
        match self.clock {
            #[cfg(target_arch = "x86_64")]
            FineClock::Tsc(clock) => self.with_clock(path, &clock),
            FineClock::Monotonic(clock) => self.with_clock(path, &clock),
        }
    }
}

impl<S: Samples> Ping<'_, '_, S> {
    fn with_clock<P: PingPong, C: Clock>(self, path: &mut P, clock: &C) -> Result<()> {
        let Self { limit, stop, samples, look, .. } = self;
        if let (Some(role), Some(time_ns)) = (self.perftest, self.time_ns) {
            (*self.answered, *self.elapsed_ns) = by_time((role, time_ns), path, clock, stop, samples)?;
            return Ok(());
        }
        let begin = clock.now_ns();
        *self.answered = match look {
            _ if self.perftest == Some(Role::Client) => follow(path, limit, clock, stop, samples),
            _ if self.perftest == Some(Role::Server) => lead(path, limit, clock, stop, samples),
            Some(look) => ping(path, limit, clock, stop, samples, look),
            None => ping(path, limit, clock, stop, samples, &mut NoLook),
        }?;
        *self.elapsed_ns = clock.now_ns() - begin;
        Ok(())
    }
}

/// The server's loop.
struct Pong<'a, 'b> {
    look: &'a mut AnyLook<'b>,
    stop: &'a Stop,
    answered: &'a mut u64,
}

impl MeasureInTurn for Pong<'_, '_> {
    fn run<P: PingPong>(self, path: &mut P) -> Result<()> {
        *self.answered = match self.look {
            Some(look) => pong(path, self.stop, look),
            None => pong(path, self.stop, &mut NoLook),
        }?;
        Ok(())
    }
}

impl WriteLat {
    fn ask<S: Samples>(
        &mut self,
        stage: &mut Stage,
        limit: u64,
        mut samples: S,
        latencies: Option<Reader>,
        raw: fn(&S) -> &[u64],
    ) -> Result<Performed> {
        let duration = stage.plan().round_duration().filter(|_| stage.stretch.round.is_some());
        let until = match duration {
            Some(duration) if stage.session.with_perftest() => Until::PeersLeave(duration + COMPANY_LIMIT),
            Some(duration) => Until::Time(duration),
            _ => Until::Done,
        };
        let stop = Stop::new();
        let (mut answered, mut elapsed_ns, mut look) = (0, 0, stage.inspector());
        let ping = Ping {
            look: &mut look,
            clock: self.clock.get_or_insert_with(|| FineClock::best(&HostFiles::this_machine())).0,
            limit,
            perftest: stage.session.with_perftest().then(|| stage.session.role()),
            time_ns: duration.map(|duration| duration.as_nanos() as u64),
            stop: &stop,
            samples: &mut samples,
            answered: &mut answered,
            elapsed_ns: &mut elapsed_ns,
        };
        let watched = watch(stage, until, &stop, latencies, ping)?;
        let partial = watched.interrupted && answered < limit && !stage.plan().is_until_stopped();
        let (stretch, size_bytes) = (stage.stretch, stage.slots.size);
        // Both write; a round is told of as the client's, whoever takes the time.
        let direction = Role::Client.writes();
        let round = |number| Round {
            size_bytes,
            round: number,
            direction,
            messages: answered,
            elapsed_ns,
            peak_messages_per_sec: None,
            latency: samples.latency(),
            intervals: watched.intervals,
            partial,
            checked: None,
            answers_checked: None,
        };
        let round = stage.working(|| match stretch.round {
            Some(number) => {
                self.write_samples(size_bytes, number, raw(&samples)).map(|()| Some(round(number)))
            }
            None => Ok(None),
        })?;
        let inspected = look.map(|look| look.checked());
        Ok(Performed { per_qp: vec![answered], round, inspected, interrupted: watched.interrupted })
    }
}

fn answer(stage: &mut Stage) -> Result<Performed> {
    let stop = Stop::new();
    let (mut answered, mut look) = (0, stage.inspector());
    let pong = Pong { look: &mut look, stop: &stop, answered: &mut answered };
    let watched = watch(stage, Until::PeersEnd, &stop, None, pong)?;
    let inspected = look.map(|look| look.checked());
    Ok(Performed { per_qp: vec![answered], round: None, inspected, interrupted: watched.interrupted })
}

/// Watches a loop, and adds to its failure how far it got.
fn watch<M: MeasureInTurn>(
    stage: &mut Stage,
    until: Until,
    stop: &Stop,
    latencies: Option<Reader>,
    measure: M,
) -> Result<Watched> {
    stage.watch_in_turn(until, stop, latencies, measure).map_err(|failure| {
        let got = format!("{}: {} round trips", stage.describe(), stop.completed());
        failure.fact("got so far", got)
    })
}
