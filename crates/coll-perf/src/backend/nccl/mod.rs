//! `nccl`: GPUs, and NCCL between them.
#![allow(unsafe_code, reason = "calls on device memory")]

mod comm;
mod data;
mod gpus;
mod library;
pub mod log;
mod memory;
mod ras;
mod timed;
mod witness;

pub use log::{Connection, LogFacts, Transport};
use witness::prepare_log;
pub use witness::{Edge, GpuLink, LogFile, Requirement, Witness};

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use linkproof_common::cuda::{Driver, Gpu, GpuContext, Stream};
use linkproof_common::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::{Backend, Carrier, Differences, Placement, Side, Stretch};
use crate::collective::{Call, Collective, InPlace, Kind, Shape};
use crate::data::Recipe;
use crate::dtype::DataType;
use crate::group::{Alarm, Group};
use crate::measure::IterationLog;
use crate::redop::RedOp;
use comm::{Buffers, Comm, Handle};
use data::DataKernels;
pub(crate) use gpus::Told;
use gpus::Watch;
pub use gpus::{HostPort, RankGpu};
use library::Library;
use memory::Memory;

/// What the options say of it.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// `--nccl-lib`.
    pub library: Option<PathBuf>,
    /// `--shared-gpu`.
    pub shared_gpu: bool,
    /// `-G`; 0: no graph.
    pub graph_launches: u32,
    /// `-R`.
    pub registered: bool,
}

/// Whether the library can be used here, as far as can be seen without a GPU.
pub fn is_there(asked_for: Option<&PathBuf>) -> bool {
    Library::load(asked_for).is_ok()
}

/// The library that would be used, in words: `NCCL 2.28.9 (/usr/lib/libnccl.so.2)`.
///
/// # Errors
/// [`ErrorKind::LibraryMissing`] with what was tried, or what is too old.
pub fn describe(asked_for: Option<&PathBuf>) -> Result<String> {
    Library::load(asked_for).map(Library::describe)
}

/// Gets this process ready, before it has threads: NCCL's log goes to a file of its own, and ranks that share a GPU look
/// like hosts of their own, since NCCL refuses them otherwise. Gives the log.
#[allow(unsafe_code, reason = "the environment of this process, before it has threads")]
pub fn prepare(rank: Option<u32>, shared_gpu: bool) -> Option<LogFile> {
    if let Some(rank) = rank.filter(|_| shared_gpu) {
        let set = |name: &str, value: &str| {
            if std::env::var_os(name).is_none() {
                // SAFETY: called at the begin, while there is one thread.
                unsafe { std::env::set_var(name, value) };
            }
        };
        set("NCCL_HOSTID", &format!("coll-perf-{rank}"));
        set("NCCL_SOCKET_IFNAME", "lo");
    }
    prepare_log()
}

/// One rank's part in it.
pub struct Nccl {
    rank: u32,
    n_ranks: u32,
    choice: Choice,
    library: &'static Library,
    gpu: Gpu,
    alarm: Alarm,
    limit: Duration,
    memory: Option<Memory>,
    ready: Option<Ready>,
    /// What could not be copied; found by the next stretch.
    broken: Option<Error>,
    watch: Watch,
    kernels: DataKernels,
    comm: Comm,
    stream: Stream,
    context: Arc<GpuContext>,
}

/// A call made ready.
struct Ready {
    call: Call,
    shape: Shape,
    shared: Option<InPlace>,
    meeting: Call,
}

/// A call made ready, in its memory.
struct Reserved<'a> {
    memory: &'a Memory,
    ready: &'a Ready,
    buffers: Buffers,
}

/// Ranks up to which an alltoall is met for by a small one: of more, one is over at times as different as the ranks are many.
const MOST_TO_MEET_BY_ALLTOALL: u32 = 8;

/// The call in which ranks meet before one of `kind`: no rank is through it before all have begun. An all_reduce; but an alltoall
/// has connections of its own, and those of an all_reduce would be made for its sake alone, which takes a rank on one core a second.
fn meeting(kind: Kind, n_ranks: u32) -> Result<Call> {
    let (kind, bytes) = match kind {
        Kind::Alltoall | Kind::Alltoallv if n_ranks <= MOST_TO_MEET_BY_ALLTOALL => {
            (Kind::Alltoall, memory::meeting_bytes(n_ranks))
        }
        _ => (Kind::AllReduce, DataType::Float.bytes()),
    };
    Call::new(Collective::of(kind), n_ranks, DataType::Float, RedOp::Sum, 0, bytes)
        .map_err(|_| Error::new(ErrorKind::Usage, "a meeting of the smallest blocks is a collective"))
}

/// Which GPU a rank has, on which machine.
#[derive(Serialize, Deserialize, PartialEq)]
struct Seat {
    host: String,
    gpu: String,
    pci_address: String,
    described: String,
    library: String,
}

impl Nccl {
    /// Rank `group.rank()` on the GPU of number `local_rank`, or one that is shared.
    ///
    /// # Errors
    /// No driver, GPU or library; two ranks on one GPU; what the library says.
    pub fn join(
        group: &mut dyn Group,
        alarm: Alarm,
        local_rank: u32,
        choice: &Choice,
        limit: Duration,
    ) -> Result<Self> {
        let driver = Driver::load()?;
        let library = Library::load(choice.library.as_ref())?;
        let gpu = own_gpu(driver, local_rank, choice.shared_gpu)?;
        let seats = check_seats(group, &gpu, library, choice.shared_gpu)?;
        let watch = Watch::begin(group.rank(), &gpu, &seats);
        let context = GpuContext::open(driver, gpu.clone())?;
        let comm = Comm::join(library, group, &context, &alarm, limit)
            .map_err(|error| error.fact("rank", group.rank()).fact("gpu", gpu.describe()))?;
        watch_over(alarm.clone(), comm.handle());
        let stream = Stream::new(&context)?;
        let kernels = DataKernels::new(&context, group.n_ranks())?;
        Ok(Self {
            rank: group.rank(),
            n_ranks: group.n_ranks(),
            choice: choice.clone(),
            library,
            gpu,
            alarm,
            limit,
            memory: None,
            ready: None,
            broken: None,
            watch,
            kernels,
            comm,
            stream,
            context,
        })
    }

    /// What the driver says of this rank's GPU, when the run is over.
    pub(crate) fn told(&self) -> Told {
        self.watch.end()
    }
}

/// Has a call into NCCL return that waits for a rank that is gone; and ends this process where it does not even then.
fn watch_over(alarm: Alarm, comm: Arc<Handle>) {
    const PATIENCE: Duration = Duration::from_secs(1);
    const LAST_PATIENCE: Duration = Duration::from_secs(3);
    std::thread::spawn(move || {
        let story = loop {
            if let Some(story) = alarm.story() {
                break story.what;
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        std::thread::sleep(PATIENCE);
        std::thread::spawn(move || comm.abort());
        std::thread::sleep(LAST_PATIENCE);
        crate::report::say(&format!(
            "{story}; a call into NCCL does not return, and this process ends without its result"
        ));
        // Not `exit`: the libraries' own handlers wait for the same.
        // SAFETY: ends the process, and touches nothing of it.
        unsafe { nix::libc::_exit(linkproof_common::error::ExitStatus::Peer as i32) };
    });
}

fn own_gpu(driver: &Driver, local_rank: u32, shared: bool) -> Result<Gpu> {
    let gpus = driver.gpus()?;
    let index = if shared { local_rank as usize % gpus.len().max(1) } else { local_rank as usize };
    let count = gpus.len();
    gpus.into_iter().nth(index).ok_or_else(|| {
        Error::new(
            ErrorKind::GpuNotFound,
            format!("rank {local_rank} of this machine has no GPU of its own: this process sees {count}"),
        )
        .fact_if("CUDA_VISIBLE_DEVICES", std::env::var("CUDA_VISIBLE_DEVICES").ok())
        .hint("start as many ranks as there are GPUs; for tests several can share one: --shared-gpu")
    })
}

/// One GPU each, and one version of the library everywhere: NCCL would say it later, and in fewer words.
fn check_seats(group: &mut dyn Group, gpu: &Gpu, library: &Library, shared: bool) -> Result<Vec<Seat>> {
    let host = crate::report::RankHost::this_machine().name;
    let seat = Seat {
        host,
        gpu: gpu.uuid.clone(),
        pci_address: gpu.pci_address.clone(),
        described: gpu.describe(),
        library: library.describe(),
    };
    let blobs = group.all_gather(&serde_json::to_vec(&seat).unwrap_or_default())?;
    let seats: Vec<Seat> = blobs.iter().filter_map(|blob| serde_json::from_slice(blob).ok()).collect();
    check_all(&seats, shared)?;
    Ok(seats)
}

fn check_all(seats: &[Seat], shared: bool) -> Result<()> {
    let version = |seat: &Seat| seat.library.split(" (").next().unwrap_or_default().to_owned();
    for (rank, seat) in seats.iter().enumerate() {
        if let Some(first) =
            seats[..rank].iter().position(|other| other.gpu == seat.gpu && other.host == seat.host)
            && !shared
        {
            let what =
                format!("ranks {first} and {rank} are on one GPU: {} of {}", seat.described, seat.host);
            return Err(Error::new(ErrorKind::Usage, what)
                .hint("give each rank its own: as many a machine as it has GPUs; for tests: --shared-gpu"));
        }
        if version(seat) != version(&seats[0]) {
            let what = format!("rank {rank} has {}, and rank 0 {}", seat.library, seats[0].library);
            return Err(Error::new(ErrorKind::Usage, what).hint("have all ranks use one version: --nccl-lib"));
        }
    }
    Ok(())
}

impl Ready {
    fn buffers(&self, memory: &Memory) -> Buffers {
        match self.shared {
            Some(at) => {
                Buffers { send: memory.recv.address() + at.send_at, recv: memory.recv.address() + at.recv_at }
            }
            None => Buffers { send: memory.send.address(), recv: memory.recv.address() },
        }
    }

    fn recv_begin(&self) -> u64 {
        self.shared.map_or(0, |at| at.recv_at)
    }
}

impl Backend for Nccl {
    fn carrier(&self) -> Carrier {
        let words = |said: bool, words: &'static str| if said { words } else { "" };
        let shared =
            words(self.choice.shared_gpu, "; several ranks share a GPU: no figure of this means anything");
        let registered = words(self.choice.registered, "; buffers that NCCL allocated, registered with it");
        Carrier {
            backend: "nccl".to_owned(),
            transport: "gpu".to_owned(),
            note: format!(
                "{}, {}, CUDA {}{registered}{shared}",
                self.gpu.name,
                self.library.describe(),
                self.context.driver().cuda_version()
            ),
        }
    }

    fn reserve(&mut self, send_bytes: u64, recv_bytes: u64) -> Result<()> {
        self.context.bind()?;
        (self.ready, self.memory) = (None, None);
        let registrar = self.choice.registered.then_some(&self.comm);
        self.memory = Some(Memory::new(&self.context, registrar, send_bytes, recv_bytes, self.n_ranks)?);
        Ok(())
    }

    fn set_up(&mut self, _: &mut dyn Group, call: &Call, placement: Placement) -> Result<&'static str> {
        let shape = call.shape(self.rank);
        let shared = shape.in_place.filter(|_| placement == Placement::InPlace);
        let meeting = meeting(call.collective.kind, self.n_ranks)?;
        self.ready = Some(Ready { call: call.clone(), shape, shared, meeting });
        Ok("NCCL's choice")
    }

    fn write(&mut self, side: Side, offset: u64, bytes: &[u8]) {
        let (Some(memory), Some(ready)) = (&self.memory, &self.ready) else { return };
        let written = match side {
            Side::Send => memory.send.write_at(offset, bytes),
            Side::Recv => memory.recv.write_at(ready.recv_begin() + offset, bytes),
        };
        self.broken = self.broken.take().or(written.err());
    }

    fn read(&self, side: Side, offset: u64, bytes: &mut [u8]) {
        let (Some(memory), Some(ready)) = (&self.memory, &self.ready) else { return };
        let read = match side {
            Side::Send => memory.send.read_at(offset, bytes),
            Side::Recv => memory.recv.read_at(ready.recv_begin() + offset, bytes),
        };
        if read.is_err() {
            // What can't be read is not what was expected.
            bytes.iter_mut().for_each(|byte| *byte ^= 0xff);
        }
    }

    fn fill(&mut self, side: Side, offset: u64, bytes: u64, recipe: &Recipe<'_>) -> bool {
        let Some(address) = self.address(side, offset) else { return false };
        // SAFETY: the range lies in a buffer that was reserved for this rank's shape of the call, and no collective runs.
        let filled = unsafe { self.kernels.fill(&self.stream, address, bytes, recipe) };
        self.broken = self.broken.take().or(filled.err());
        true
    }

    fn compare(&mut self, offset: u64, bytes: u64, recipe: &Recipe<'_>) -> Option<Differences> {
        let address = self.address(Side::Recv, offset)?;
        // SAFETY: as above. What can't be compared so is read, and its failure is seen there.
        unsafe { self.kernels.check(&self.stream, address, bytes, recipe) }.ok()
    }

    fn perform(&mut self, stretch: &Stretch, log: &mut IterationLog) -> Result<()> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        let (Some(memory), Some(ready)) = (&self.memory, &self.ready) else { return Ok(()) };
        self.context.bind()?;
        let result = self.iterate(&Reserved { memory, ready, buffers: ready.buffers(memory) }, stretch, log);
        if result.is_err() {
            self.comm.handle().abort();
        }
        result
    }
}

impl Nccl {
    /// Where `offset` of a buffer is, on the device.
    fn address(&self, side: Side, offset: u64) -> Option<u64> {
        let (memory, ready) = (self.memory.as_ref()?, self.ready.as_ref()?);
        Some(match side {
            Side::Send => memory.send.address() + offset,
            Side::Recv => memory.recv.address() + ready.recv_begin() + offset,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(host: &str, gpu: &str, library: &str) -> Seat {
        Seat {
            host: host.to_owned(),
            gpu: format!("GPU-{gpu}"),
            pci_address: "0000:17:00.0".to_owned(),
            described: format!("GPU {gpu}"),
            library: library.to_owned(),
        }
    }

    #[test]
    fn ranks_meet_over_the_connections_of_the_call_where_these_are_to_all() {
        let kind_and_size = |kind, n_ranks| {
            let meeting = meeting(kind, n_ranks).unwrap();
            assert!((0..n_ranks).all(|rank| {
                let shape = meeting.shape(rank);
                shape.send_bytes.max(shape.recv_bytes) <= memory::meeting_bytes(n_ranks)
            }));
            (meeting.collective.kind, meeting.count_bytes())
        };
        for (kind, n_ranks) in [(Kind::Alltoall, 1), (Kind::Alltoall, 2), (Kind::Alltoallv, 8)] {
            assert_eq!(kind_and_size(kind, n_ranks), (Kind::Alltoall, 16));
        }
        for (kind, n_ranks) in [(Kind::Alltoall, 9), (Kind::Sendrecv, 2), (Kind::AllReduce, 1000)] {
            assert_eq!(kind_and_size(kind, n_ranks), (Kind::AllReduce, 4));
        }
    }

    #[test]
    fn a_gpu_that_two_ranks_have_and_libraries_that_differ_are_named_with_their_ranks() {
        const LIBRARY: &str = "NCCL 2.28.9 (/usr/lib/libnccl.so.2)";
        let refusal = |seats: &[Seat]| check_all(seats, false).unwrap_err();
        let good = [seat("a", "0", LIBRARY), seat("a", "1", LIBRARY), seat("b", "0", LIBRARY)];
        assert_eq!(check_all(&good, false), Ok(()), "two machines may call their GPUs the same");
        let twice = [seat("a", "0", LIBRARY), seat("b", "0", LIBRARY), seat("a", "0", LIBRARY)];
        assert_eq!(refusal(&twice).what, "ranks 0 and 2 are on one GPU: GPU 0 of a");
        assert_eq!((refusal(&twice).kind, check_all(&twice, true)), (ErrorKind::Usage, Ok(())));
        let other = seat("b", "0", "NCCL 2.27.3 (/opt/sdk/lib/libnccl.so.2)");
        let differs = refusal(&[seat("a", "0", LIBRARY), other]);
        assert_eq!(
            differs.what,
            "rank 1 has NCCL 2.27.3 (/opt/sdk/lib/libnccl.so.2), and rank 0 NCCL 2.28.9 (/usr/lib/libnccl.so.2)"
        );
        let elsewhere = seat("b", "0", "NCCL 2.28.9 (/opt/sdk/lib/libnccl.so.2)");
        assert_eq!(check_all(&[seat("a", "0", LIBRARY), elsewhere], false), Ok(()), "one version will do");
    }
}
