//! `nccl`: GPUs, and NCCL between them.
#![allow(unsafe_code, reason = "calls on device memory")]

mod comm;
mod library;
pub mod log;
mod witness;

pub use log::{Connection, LogFacts, Transport};
use witness::prepare_log;
pub(crate) use witness::read_log;
pub use witness::{Edge, Requirement, Witness};

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkproof_common::cuda::{DeviceBuffer, Driver, Event, Gpu, GpuContext, Stream};
use linkproof_common::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::{Backend, Carrier, Pacing, Placement, Side, Stretch};
use crate::collective::{Call, InPlace, Shape};
use crate::dtype::DataType;
use crate::group::{Alarm, Group};
use crate::measure::{IterationLog, dawdle, now_ns};
use crate::redop::RedOp;
use comm::{Buffers, Comm};
use library::Library;

/// What the options say of it.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// `--nccl-lib`.
    pub library: Option<PathBuf>,
    /// `--shared-gpu`.
    pub shared_gpu: bool,
}

/// Whether the library can be used here, as far as can be seen without a GPU.
pub fn is_there(asked_for: Option<&PathBuf>) -> bool {
    Library::load(asked_for).is_ok()
}

/// Gets this process ready, before it has threads: NCCL's log goes to a file of its own, and ranks that share a GPU look
/// like hosts of their own, since NCCL refuses them otherwise. Gives the log's name.
#[allow(unsafe_code, reason = "the environment of this process, before it has threads")]
pub fn prepare(rank: Option<u32>, shared_gpu: bool) -> Option<PathBuf> {
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
    shared_gpu: bool,
    library: &'static Library,
    gpu: Gpu,
    alarm: Alarm,
    limit: Duration,
    memory: Option<Memory>,
    ready: Option<Ready>,
    /// What could not be copied; found by the next stretch.
    broken: Option<Error>,
    comm: Comm,
    stream: Stream,
    context: Arc<GpuContext>,
}

/// The buffers of a rank: the input, and the result, which in place holds both.
struct Memory {
    send: DeviceBuffer,
    recv: DeviceBuffer,
    /// Where ranks that align meet.
    meeting: DeviceBuffer,
}

/// A call made ready.
struct Ready {
    call: Call,
    shape: Shape,
    shared: Option<InPlace>,
    meeting: Call,
}

/// Which GPU a rank has, on which machine.
#[derive(Serialize, Deserialize, PartialEq)]
struct Seat {
    host: String,
    gpu: String,
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
        check_seats(group, &gpu, library, choice.shared_gpu)?;
        let context = GpuContext::open(driver, gpu.clone())?;
        let comm = Comm::join(library, group, &context, &alarm, limit)
            .map_err(|error| error.fact("rank", group.rank()).fact("gpu", gpu.describe()))?;
        watch_over(alarm.clone());
        let stream = Stream::new(&context)?;
        Ok(Self {
            rank: group.rank(),
            n_ranks: group.n_ranks(),
            shared_gpu: choice.shared_gpu,
            library,
            gpu,
            alarm,
            limit,
            memory: None,
            ready: None,
            broken: None,
            comm,
            stream,
            context,
        })
    }
}

/// Ends this process where the run is over and a call into NCCL does not return: it may wait for a rank that is gone.
fn watch_over(alarm: Alarm) {
    const PATIENCE: Duration = Duration::from_secs(4);
    std::thread::spawn(move || {
        while !alarm.is_raised() {
            std::thread::sleep(Duration::from_millis(100));
        }
        std::thread::sleep(PATIENCE);
        crate::report::say(
            "a call into NCCL does not return, though another rank has ended the run: giving up",
        );
        std::process::exit(linkproof_common::error::ExitStatus::Peer as i32);
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
fn check_seats(group: &mut dyn Group, gpu: &Gpu, library: &Library, shared: bool) -> Result<()> {
    let host = crate::report::RankHost::this_machine().name;
    let seat = Seat { host, gpu: gpu.uuid.clone(), described: gpu.describe(), library: library.describe() };
    let blobs = group.all_gather(&serde_json::to_vec(&seat).unwrap_or_default())?;
    let seats: Vec<Seat> = blobs.iter().filter_map(|blob| serde_json::from_slice(blob).ok()).collect();
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

impl Memory {
    fn new(context: &Arc<GpuContext>, send_bytes: u64, recv_bytes: u64) -> Result<Self> {
        Ok(Self {
            send: DeviceBuffer::new(context, send_bytes)?,
            recv: DeviceBuffer::new(context, recv_bytes.max(send_bytes))?,
            meeting: DeviceBuffer::new(context, 4)?,
        })
    }
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
        let shared = if self.shared_gpu {
            "; several ranks share a GPU: no figure of this means anything"
        } else {
            ""
        };
        Carrier {
            backend: "nccl".to_owned(),
            transport: "gpu".to_owned(),
            note: format!(
                "{}, {}, CUDA {}{shared}",
                self.gpu.name,
                self.library.describe(),
                self.context.driver().cuda_version()
            ),
        }
    }

    fn reserve(&mut self, send_bytes: u64, recv_bytes: u64) -> Result<()> {
        self.context.bind()?;
        (self.ready, self.memory) = (None, None);
        self.memory = Some(Memory::new(&self.context, send_bytes, recv_bytes)?);
        Ok(())
    }

    fn set_up(&mut self, _: &mut dyn Group, call: &Call, placement: Placement) -> Result<&'static str> {
        let shape = call.shape(self.rank);
        let shared = shape.in_place.filter(|_| placement == Placement::InPlace);
        let all_reduce = crate::collective::Collective::of(crate::collective::Kind::AllReduce);
        let meeting = Call::new(all_reduce, self.n_ranks, DataType::Float, RedOp::Sum, 0, 4)
            .map_err(|_| Error::new(ErrorKind::Usage, "an all_reduce of 4 bytes is one"))?;
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

    fn perform(&mut self, stretch: &Stretch, log: &mut IterationLog) -> Result<()> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        let (Some(memory), Some(ready)) = (&self.memory, &self.ready) else { return Ok(()) };
        self.context.bind()?;
        let result = self.iterate(memory, ready, stretch, log);
        if result.is_err() {
            self.comm.give_up();
        }
        result
    }
}

impl Nccl {
    fn iterate(
        &self,
        memory: &Memory,
        ready: &Ready,
        stretch: &Stretch,
        log: &mut IterationLog,
    ) -> Result<()> {
        let n = stretch.iterations as usize;
        let events = |_| Ok((Event::new(&self.context)?, Event::new(&self.context)?));
        let marks: Vec<(Event, Event)> = (0..n).map(events).collect::<Result<_>>()?;
        let zero = Event::new(&self.context)?;
        self.copy_input(memory, ready)?;
        self.meet(memory, ready)?;
        zero.record(&self.stream)?;
        self.wait()?;
        let zero_ns = now_ns();
        let buffers = ready.buffers(memory);
        for (start, stop) in &marks {
            if stretch.pacing == Pacing::Aligned {
                self.copy_input(memory, ready)?;
                self.meet(memory, ready)?;
            }
            if let Some(delay) = stretch.delay {
                self.wait()?;
                dawdle(delay);
            }
            start.record(&self.stream)?;
            for _ in 0..stretch.calls {
                // SAFETY: the buffers were reserved for this rank's shape of the call, and only this stream uses them.
                unsafe { self.comm.enqueue(&ready.call, self.rank, buffers, &self.stream) }?;
            }
            stop.record(&self.stream)?;
        }
        self.wait()?;
        for (index, (start, stop)) in marks.iter().enumerate() {
            log.note(index, zero_ns + start.ns_since(&zero)?, zero_ns + stop.ns_since(&zero)?);
        }
        Ok(())
    }

    /// In place: the input that was kept aside goes to where the call sends from.
    fn copy_input(&self, memory: &Memory, ready: &Ready) -> Result<()> {
        let Some(at) = ready.shared else { return Ok(()) };
        if ready.shape.send_bytes == 0 {
            return Ok(());
        }
        let driver = self.context.driver();
        // SAFETY: both ranges lie in buffers of this rank, and the copy takes its turn in the stream.
        let result = unsafe {
            (driver.table().cuMemcpyDtoDAsync_v2)(
                memory.recv.address() + at.send_at,
                memory.send.address(),
                ready.shape.send_bytes as usize,
                self.stream.raw(),
            )
        };
        driver.check(result, "cuMemcpyDtoDAsync")
    }

    /// All ranks' streams meet, in the stream's turn.
    fn meet(&self, memory: &Memory, ready: &Ready) -> Result<()> {
        let at = Buffers { send: memory.meeting.address(), recv: memory.meeting.address() };
        // SAFETY: four bytes that only this stream uses.
        unsafe { self.comm.enqueue(&ready.meeting, self.rank, at, &self.stream) }
    }

    fn wait(&self) -> Result<()> {
        let mut looked = Instant::now();
        self.stream
            .wait(self.limit, || {
                // The library is asked now and then: the question takes a lock.
                if looked.elapsed() > Duration::from_millis(50) {
                    looked = Instant::now();
                    self.comm.ensure_well()?;
                    if self.alarm.is_raised() {
                        return Err(Error::new(ErrorKind::PeerLost, "another rank has ended the run"));
                    }
                }
                Ok(())
            })
            .map_err(|error| error.fact("rank", self.rank).fact("gpu", self.gpu.describe()))
    }
}
