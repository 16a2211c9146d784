//! A run's connection: everything allocated, registered and connected, ready for writes.
//!
//! One bring-up for all tools: [`propose`] and [`agree`] make both ends hold the same plan, [`Session::bring_up`] makes the
//! resources and connects them. A [`Session`] then runs stretches of writes ([`Session::measure`]) over whichever
//! endpoint it has, without a branch inside them, and hosts the target's part ([`Session::as_target`]).

mod fabric;
mod negotiate;
mod preflight;
mod rdma;
mod tcp;
mod threads;
mod trial;

pub use negotiate::{AgreedPlan, LocalEnd, agree, known_peer, propose};
pub use preflight::{check_device_limits, check_local, check_path_mtu};
pub use trial::try_gpu_memory;

use std::time::Duration;

use self::rdma::Ground;
use self::threads::Crew;
use crate::affinity::ThreadCores;
use crate::contention::Observer;
use crate::endpoint::{Endpoint, PingPong};
use crate::error::{Error, ErrorKind, Origin, Result};
use crate::exchange::message::EndInfo;
use crate::exchange::tcp::TcpChannel;
use crate::exchange::{Channel, Message, out_of_order, while_working};
use crate::memory::{
    Buffer, EndBuffer, EndMemory, Fill, GpuMemory, Inspector, LastByte, check_slots, fill_slots,
};
use crate::perftest::PerftestChannel;
use crate::plan::{BufferLayout, Plan, Role, Slots, Traffic};
use crate::report::{Conditions, Evidence, Link, MemoryUse};
use crate::validate::{Checked, Direction, Pattern};
use crate::watch::{Stop, Stops};

/// How long a step of the bring-up may take on the other end: thousands of queue pairs take seconds.
pub const STEP_LIMIT: Duration = Duration::from_secs(30);

/// The measured part of a tool, generic over the endpoint so that its loop is compiled for each.
pub trait Measure {
    /// Runs it.
    ///
    /// # Errors
    /// The endpoint's.
    fn run<E: Endpoint>(self, endpoint: &mut E) -> Result<()>;
}

/// The same for a tool in which the ends write in turn.
pub trait MeasureInTurn {
    /// Runs it.
    ///
    /// # Errors
    /// The connection's.
    fn run<P: PingPong>(self, path: &mut P) -> Result<()>;
}

/// How many bytes tell whether this end is being written to: a cache line, which the first message of each turn begins in.
const MARKED_BYTES: usize = 64;

/// The memory of `role` under `plan`.
fn allocate(plan: &Plan, role: Role, layout: BufferLayout) -> Result<EndBuffer> {
    match plan.gpu_of(role) {
        None => plan.memory.allocate(layout.total_len()).map(EndBuffer::Host),
        Some(gpu) => GpuMemory::new(gpu, layout.total_len()).map(EndBuffer::Gpu),
    }
}

enum Data {
    Rdma(Box<rdma::RdmaSession>),
    Tcp(tcp::TcpSession),
}

/// A connection that is ready for writes. Dropping it takes everything down, in order.
pub struct Session {
    role: Role,
    plan: Plan,
    layout: BufferLayout,
    data: Data,
    link: Link,
    memory: MemoryUse,
    conditions: Conditions,
    cores: ThreadCores,
    observer: Observer,
    with_perftest: bool,
}

/// What happens to be the same in both transports: this end's description goes out, the peer's comes in.
fn swap_ends(channel: &mut dyn Channel, ours: &EndInfo) -> Result<EndInfo> {
    channel.send(&Message::Connect { end: ours.clone() })?;
    match channel.expect_any(STEP_LIMIT)? {
        Message::Connect { end } => Ok(end),
        other => Err(out_of_order("connect", &other)),
    }
}

/// Waits until the other end is as far as this one.
fn meet(channel: &mut dyn Channel) -> Result<()> {
    channel.send(&Message::Ready)?;
    match channel.expect_any(STEP_LIMIT)? {
        Message::Ready => Ok(()),
        other => Err(out_of_order("ready", &other)),
    }
}

/// Passes `result` on, and lets the peer know of a failure of this end's own; its failures it knows.
///
/// # Errors
/// `result`'s.
pub fn tell_peer<T>(channel: &mut dyn Channel, result: Result<T>) -> Result<T> {
    if let Err(error) = &result
        && error.origin == Origin::Local
    {
        // The peer may be what has failed.
        let _ = channel.send(&Message::Abort { error: error.clone() });
    }
    result
}

impl Session {
    /// Allocates, registers, and connects to the peer, which does the same.
    ///
    /// # Errors
    /// Any of the machine or peer kinds of [`ErrorKind`]; nothing is left behind.
    pub fn bring_up(
        channel: &mut TcpChannel,
        local: &LocalEnd,
        agreed: &AgreedPlan,
        role: Role,
    ) -> Result<Self> {
        let plan = agreed.plan().clone();
        let layout = BufferLayout::new(&plan, role);
        let buffer = while_working(channel, || allocate(&plan, role, layout))?;
        let conditions = Conditions::of(role, local.bound(), &buffer, local.files())?;
        let (data, link, theirs) = match (local.port(), agreed.addressing()) {
            (Some(chosen), Some(addressing)) => {
                let ground = Ground { chosen, plan: &plan, layout, role, files: local.files() };
                let (session, link, theirs) = rdma::bring_up(channel, ground, addressing, agreed, buffer)?;
                (Data::Rdma(Box::new(session)), link, theirs)
            }
            _ => {
                let (session, link, theirs) = tcp::bring_up(channel, &plan, buffer, role, local.files())?;
                (Data::Tcp(session), link, theirs)
            }
        };
        meet(channel)?;
        let (ours, registration) = (data.end_memory(), data.registration());
        let regions = registration.is_some().then(|| plan.memory_regions());
        let memory = MemoryUse::of(role, ours, Some(theirs), registration, regions);
        Ok(Self::new(local, role, plan, layout, data, link, memory, conditions))
    }

    /// The same with a perftest at the other end; `plan` is what is known of what it does.
    ///
    /// # Errors
    /// As [`Session::bring_up`], and [`ErrorKind::PerftestPeer`] where its options are seen not to match.
    pub fn bring_up_with_perftest(
        channel: &mut PerftestChannel,
        local: &LocalEnd,
        plan: Plan,
        role: Role,
    ) -> Result<Self> {
        let Some((chosen, offer)) = local.port_and_offer() else {
            return Err(Error::new(
                ErrorKind::PerftestPeer,
                "perftest measures over RDMA, and this end has no port",
            ));
        };
        let mtu = plan.path_mtu_bytes.unwrap_or(offer.active_mtu_bytes);
        let mtu = mtu.min(channel.swap_system(mtu)?);
        let layout = BufferLayout::new(&plan, role);
        let buffer = while_working(channel, || allocate(&plan, role, layout))?;
        let conditions = Conditions::of(role, local.bound(), &buffer, local.files())?;
        let ground = Ground { chosen, plan: &plan, layout, role, files: local.files() };
        let (session, link, qps) = match role {
            Role::Client => {
                let (session, link) = rdma::join_perftest(channel, ground, offer, mtu, buffer)?;
                (session, link, plan.qps)
            }
            Role::Server => rdma::receive_perftest(channel, ground, offer, mtu, buffer)?,
        };
        let plan = Plan { qps, ..plan };
        let data = Data::Rdma(Box::new(session));
        let (ours, regions) = (data.end_memory(), plan.memory_regions());
        let memory = MemoryUse::of(role, ours, None, data.registration(), Some(regions));
        let session = Self::new(local, role, plan, layout, data, link, memory, conditions);
        Ok(Self { with_perftest: true, ..session })
    }

    #[allow(clippy::too_many_arguments, reason = "every one is made by another step of the bring-up")]
    fn new(
        local: &LocalEnd,
        role: Role,
        plan: Plan,
        layout: BufferLayout,
        data: Data,
        link: Link,
        memory: MemoryUse,
        conditions: Conditions,
    ) -> Self {
        Self {
            role,
            plan,
            layout,
            data,
            link,
            memory,
            conditions,
            cores: local.bound().cores().clone(),
            observer: Observer::new(local.bound().cores().all().clone(), local.files().clone()),
            with_perftest: false,
        }
    }

    /// Which end this is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Whether the other end is a perftest. Of two that write in turn its server begins, and both take the time.
    pub fn with_perftest(&self) -> bool {
        self.with_perftest
    }

    /// Whether the first bytes that this end may be written to are not `mark` any more; they are `next` from now on, until
    /// the peer writes there again.
    ///
    /// # Errors
    /// Those of the memory.
    pub fn was_written(&self, mark: u8, next: u8) -> Result<bool> {
        let (buffer, at) = (self.data.buffer(), self.layout.sink(0));
        let mut bytes = [0; MARKED_BYTES];
        buffer.read_at(at, &mut bytes)?;
        buffer.write_at(at, &[next; MARKED_BYTES])?;
        Ok(bytes.iter().any(|&byte| byte != mark))
    }

    /// The plan that both ends hold.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How the ends are connected, for the report.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// The memory in use, for the report.
    pub fn memory(&self) -> &MemoryUse {
        &self.memory
    }

    /// Where this end measures, for the report.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Who else wants the cores of the threads that measure: those that this session measures in are looked at.
    pub fn observer(&self) -> &Observer {
        &self.observer
    }

    /// Which cores each of several measuring threads gets.
    pub fn cores(&self) -> &ThreadCores {
        &self.cores
    }

    /// Fills this end's sources with what it will write in a round.
    ///
    /// # Errors
    /// Those of the memory.
    pub fn fill_sources(&self, slots: Slots, point: u32, round: u32) -> Result<()> {
        (0..self.plan.qps).try_for_each(|qp| {
            let pattern = Pattern::new(self.role.writes(), qp, point, round);
            fill_slots(self.data.buffer(), self.layout.source(qp), slots, pattern, Fill::Right)
        })
    }

    /// Fills this end's sinks with what can't be mistaken for what the peer will write in a round.
    ///
    /// # Errors
    /// Those of the memory.
    pub fn poison_sinks(&self, slots: Slots, point: u32, round: u32) -> Result<()> {
        (0..self.plan.qps).try_for_each(|qp| {
            let pattern = Pattern::new(self.arriving(), qp, point, round);
            fill_slots(self.data.buffer(), self.layout.sink(qp), slots, pattern, Fill::Poison)
        })
    }

    /// Clears the bytes of this end's sink that are polled: none may hold the number of an earlier message.
    ///
    /// # Errors
    /// Those of the memory.
    pub fn clear_marks(&self, slots: Slots) -> Result<()> {
        if self.data.last_byte() == LastByte::Pattern {
            return Ok(());
        }
        let marks = [slots.size - 1, self.layout.release()];
        let clear = |mark| self.data.buffer().write_at(self.layout.sink(0) + mark, &[0]);
        marks.into_iter().try_for_each(clear)
    }

    /// The byte that tells the messages of the peer apart, where they come in turn: the number of its last one, modulo 256.
    ///
    /// # Errors
    /// Those of the memory.
    pub fn last_mark(&self, slots: Slots) -> Result<u8> {
        let mut mark = [0];
        self.data.buffer().read_at(self.layout.sink(0) + slots.size - 1, &mut mark)?;
        Ok(mark[0])
    }

    /// Clears the flags that tell of messages, where there are any.
    pub fn clear_flags(&self) {
        if let Data::Rdma(session) = &self.data {
            session.clear_flags();
        }
    }

    /// Looks at each message that the peer writes in its turn in a round.
    pub fn inspector(&self, slots: Slots, point: u32, round: u32) -> Inspector<'_, EndBuffer> {
        let pattern = Pattern::new(self.arriving(), 0, point, round);
        Inspector::new(self.data.buffer(), self.layout.sink(0), slots.size, pattern, self.data.last_byte())
    }

    /// Checks what the peer has written in a round, of which it says how many messages went over each queue pair.
    ///
    /// # Errors
    /// Those of the memory.
    pub fn check_sinks(&self, slots: Slots, point: u32, round: u32, per_qp: &[u64]) -> Result<Checked> {
        let mut checked = Checked::default();
        for (qp, &messages) in (0..self.plan.qps).zip(per_qp) {
            let pattern = Pattern::new(self.arriving(), qp, point, round);
            let used = slots.used_by(messages);
            checked.merge(check_slots(self.data.buffer(), self.layout.sink(qp), slots, used, pattern, qp)?);
        }
        Ok(checked)
    }

    fn arriving(&self) -> Direction {
        self.role.peer().writes()
    }

    /// Runs each of `measures`, one for each of the plan's threads, over its part of this session's connections.
    ///
    /// # Errors
    /// The first of an endpoint or of a measure; a failed write carries the adapter's counters.
    pub fn measure<M: Measure + Send>(&self, slots: Slots, stops: Stops, measures: Vec<M>) -> Result<()> {
        let crew = Crew { plan: &self.plan, stops, cores: &self.cores, observer: &self.observer };
        match &self.data {
            Data::Rdma(session) => {
                session.measure(slots, crew, self.layout, measures).map_err(|error| self.with_counters(error))
            }
            Data::Tcp(session) => session.measure(slots, crew, self.layout, measures),
        }
    }

    /// Runs `measure` over this session's first queue pair, written over in turn.
    ///
    /// # Errors
    /// As [`Session::measure`].
    pub fn measure_in_turn<M: MeasureInTurn>(&self, slots: Slots, stop: &Stop, measure: M) -> Result<()> {
        self.observer.around(|| match &self.data {
            Data::Rdma(session) => {
                let every = self.plan.signal_every(slots.size);
                session
                    .measure_in_turn(slots, self.layout, every, measure)
                    .map_err(|error| self.with_counters(error))
            }
            Data::Tcp(session) => session.measure_in_turn(slots, stop, self.layout, measure),
        })
    }

    /// Runs `body` while this end can be written to: over RDMA the adapter does that alone, over TCP threads receive, and
    /// where host memory stands for a GPU's, threads copy.
    ///
    /// # Errors
    /// Those of `body`; [`ErrorKind::OpenFiles`] where there is no descriptor to receive with.
    pub fn as_target<R>(&self, slots: Slots, body: impl FnOnce() -> Result<R>) -> Result<R> {
        match &self.data {
            Data::Tcp(session)
                if self.plan.is_target(self.role) && self.plan.traffic != Traffic::PingPong =>
            {
                session.as_target(slots, self.layout, &self.observer, body)
            }
            Data::Rdma(session)
                if self.plan.is_target(self.role) && self.plan.traffic != Traffic::PingPong =>
            {
                session.as_target(slots, &self.plan, self.layout, &self.observer, body)
            }
            _ => body(),
        }
    }

    /// What this end's adapter has counted since the bring-up.
    pub fn evidence(&self) -> Vec<Evidence> {
        match &self.data {
            Data::Rdma(session) => vec![session.evidence(self.role)],
            Data::Tcp(_) => Vec::new(),
        }
    }

    /// This end's failure of a write with what its adapter has counted, and what that says.
    pub(crate) fn with_counters(&self, error: Error) -> Error {
        match &self.data {
            Data::Rdma(session) => crate::counters::tell(error, &session.evidence(self.role).moved),
            Data::Tcp(_) => error,
        }
    }
}

impl Data {
    fn buffer(&self) -> &EndBuffer {
        match self {
            Self::Rdma(session) => session.buffer(),
            Self::Tcp(session) => session.buffer(),
        }
    }

    fn end_memory(&self) -> EndMemory {
        match self {
            Self::Rdma(session) => session.end_memory(),
            Self::Tcp(session) => EndMemory::of(session.buffer(), tcp::staged(session.buffer())),
        }
    }

    /// By what the arrival of a message in turn is seen.
    fn last_byte(&self) -> LastByte {
        match self {
            Self::Rdma(session) => session.last_byte(),
            Self::Tcp(_) => LastByte::Number,
        }
    }

    fn registration(&self) -> Option<String> {
        match self {
            Self::Rdma(session) => Some(session.registration()),
            Self::Tcp(_) => None,
        }
    }
}
