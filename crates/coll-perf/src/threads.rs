//! Ranks that are threads of this process.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkproof_common::affinity::{self, Cores};
use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::host::HostFiles;
use linkproof_common::open_files;
use serde::{Deserialize, Serialize};

use crate::backend::host::rdma::{self, PortWish};
use crate::backend::host::shm::{Shm, World};
use crate::backend::host::tcp::{self, Addresses};
use crate::backend::nccl::{self, LogFacts, LogFile, Nccl};
use crate::fault::Fault;
use crate::group::in_process::{InProcess, group};
use crate::group::{Alarm, Group};
use crate::plan::{Plan, Transport};
use crate::preflight::check_memory;
use crate::report::RankHost;
use crate::run::{Observer, Rank, Silent};

/// What is not in the plan: how this process goes about it.
#[derive(Debug)]
pub struct Hands {
    /// This machine.
    pub machine: RankHost,
    /// The core of each rank; empty where they are not bound.
    pub cores: Vec<Cores>,
    /// The RDMA port that is asked for.
    pub port: PortWish,
    /// For tests.
    pub fault: Option<Fault>,
    /// What the options say of NCCL.
    pub nccl: nccl::Choice,
    /// Where NCCL writes its log, if it is ours to read.
    pub nccl_log: Option<LogFile>,
}

/// What a rank tells of a run on GPUs when it is over.
#[derive(Default, Serialize, Deserialize)]
struct Account {
    host: String,
    log: LogFacts,
    gpu: Option<nccl::Told>,
}

/// A rank on a GPU; afterwards what the log says goes to rank 0, which holds it against what was asked for.
///
/// # Errors
/// As [`Nccl::join`] and [`Rank::run`]; [`ErrorKind::RequirementNotMet`] at rank 0.
pub(crate) fn run_on_gpu(
    group: &mut dyn Group,
    alarm: Alarm,
    local_rank: u32,
    plan: &Plan,
    hands: &Hands,
    observer: &mut dyn Observer,
) -> Result<()> {
    let limit = Duration::from_secs_f64(plan.timeout_seconds);
    let log = hands.nccl_log.as_ref();
    let mut perform = || {
        let mut backend = Nccl::join(group, alarm.clone(), local_rank, &hands.nccl, limit)?;
        Rank::new(group, &mut backend, plan, &hands.machine, hands.fault).run(observer)?;
        Ok(backend.told())
    };
    let told = perform().map_err(|error| with_what_nccl_said(with_the_rank(error, &alarm), log))?;
    let own = Account {
        host: hands.machine.name.clone(),
        log: log.map(LogFile::facts).unwrap_or_default(),
        gpu: Some(told),
    };
    let blob = serde_json::to_vec(&own).unwrap_or_default();
    let Some(blobs) = group.gather(&blob)? else { return Ok(()) };
    let accounts = blobs.iter().map(|blob| serde_json::from_slice::<Account>(blob).unwrap_or_default());
    let (mut hosts, mut logs, mut gpus) = (Vec::new(), Vec::new(), Vec::new());
    for account in accounts {
        hosts.push(account.host);
        logs.push(account.log);
        gpus.extend(account.gpu);
    }
    let witness = nccl::Witness::of(logs).with_gpus(gpus);
    let met = plan.require_transport.map_or(Ok(()), |it| witness.meets(it, &hosts));
    observer.witnessed(witness);
    met
}

/// The library fails where another rank is gone, and does not say which; that rank's connection does, a moment later.
fn with_the_rank(error: Error, alarm: &Alarm) -> Error {
    const A_MOMENT: Duration = Duration::from_secs(1);
    if error.kind != ErrorKind::Collective {
        return error;
    }
    let deadline = Instant::now() + A_MOMENT;
    while !alarm.is_raised() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    match alarm.story() {
        Some(story) => story.fact("NCCL", error.what),
        None => error,
    }
}

/// A failure of the library's with the warnings of its log, which tell more than the call's result.
fn with_what_nccl_said(error: Error, log: Option<&LogFile>) -> Error {
    if !matches!(error.kind, ErrorKind::Collective | ErrorKind::Stalled | ErrorKind::PeerTimeout) {
        return error;
    }
    let warnings = log.map(LogFile::last_warnings).unwrap_or_default();
    warnings.into_iter().fold(error, |error, words| error.fact("NCCL's log", words))
}

/// Runs `plan` with every rank a thread of this process; `observer` is told by rank 0.
///
/// # Errors
/// The failure of the rank that failed first.
pub fn run(plan: &Plan, hands: &Hands, observer: &mut (dyn Observer + Send)) -> Result<()> {
    check_memory(plan, None, &HostFiles::this_machine())?;
    if plan.transport == Transport::Tcp {
        // Both ends of each socket are in this process.
        open_files::make_room(plan.n_ranks * plan.n_ranks)
            .map_err(|error| error.hint("raise the hard limit of open files, or use fewer --ranks"))?;
    }
    let limit = Duration::from_secs_f64(plan.timeout_seconds);
    let mut ends = group(plan.n_ranks, limit);
    let first = ends.remove(0);
    let world = World::new(plan.n_ranks, limit, first.alarm());
    let world = &world;
    std::thread::scope(|scope| {
        let others: Vec<_> = ends
            .into_iter()
            .map(|end| scope.spawn(move || rank(world, end, plan, hands, &mut Silent)))
            .collect();
        let first = rank(world, first, plan, hands, observer);
        let others = others.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(defect())));
        std::iter::once(first).chain(others).fold(Ok(()), first_failure)
    })
}

/// All ranks get the story of the one that failed; a rank that only found the alarm raised has a poorer one.
fn first_failure(so_far: Result<()>, next: Result<()>) -> Result<()> {
    match (&so_far, &next) {
        (Ok(()), _) => next,
        (Err(story), Err(_)) if story.kind == ErrorKind::PeerLost => next,
        _ => so_far,
    }
}

fn defect() -> Error {
    Error::new(ErrorKind::PeerLost, "a rank ended in a defect of this program")
}

fn rank(
    world: &Arc<World>,
    mut end: InProcess,
    plan: &Plan,
    hands: &Hands,
    observer: &mut dyn Observer,
) -> Result<()> {
    let rank = end.rank();
    let mut measure = |end: &mut InProcess| {
        if let Some(cores) = hands.cores.get(rank as usize) {
            affinity::run_on(cores)?;
        }
        let (machine, fault) = (&hands.machine, hands.fault);
        match plan.transport {
            Transport::Shm => {
                Rank::new(end, &mut Shm::join(world, rank)?, plan, machine, fault).run(observer)
            }
            Transport::Gpu => {
                let alarm = end.alarm();
                run_on_gpu(end, alarm, rank, plan, hands, observer)
            }
            Transport::Tcp => {
                let here = Addresses { own: Some(Ipv4Addr::LOCALHOST.into()), root: None };
                let alarm = end.alarm();
                let mut backend = tcp::backend(end, alarm, here, plan)?;
                Rank::new(end, &mut backend, plan, machine, fault).run(observer)
            }
            Transport::Rdma => {
                let alarm = end.alarm();
                let here = rdma::Here { ranks: plan.n_ranks, processors: machine.cpus };
                let mut backend = rdma::backend(end, alarm, &hands.port, here, plan)?;
                Rank::new(end, &mut backend, plan, machine, fault).run(observer)
            }
        }
    };
    let result = measure(&mut end);
    if let Err(error) = &result {
        end.abort(error);
    }
    result
}
