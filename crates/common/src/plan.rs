//! The plan of a run: everything that both ends must agree on, with its limits checked in one place.
//!
//! The client makes it from its arguments, the server checks it again (a plan comes over the network) and holds
//! the same one. Nothing edits a plan: what can't be honoured is refused.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::memory::MemoryKind;
use crate::qp::{self, QpAttributes};
use crate::requirement::Requirements;
use crate::units::{ByteSize, show_duration};
use crate::validate::Direction;

/// The largest message of InfiniBand and RoCE: 2³¹ bytes (InfiniBand specification, volume 1, 9.7).
pub const MAX_MSG_SIZE: u64 = 1 << 31;
/// Queue pairs at most, as in perftest.
pub const MAX_QPS: u32 = 16384;
/// Outstanding writes of a queue pair at most; devices allow 16384 to 32768.
pub const MAX_TX_DEPTH: u32 = 16384;
/// Rounds at most: keeps the result document bounded.
pub const MAX_ROUNDS: u32 = 1000;
/// Sizes of one run at most: keeps the result document bounded.
pub const MAX_SIZES: usize = 64;
/// Seconds of `--duration` at most: a day.
pub const MAX_SECONDS: f64 = 86_400.0;
/// The path MTUs that exist, in bytes.
pub const PATH_MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// What carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// RDMA writes over a reliable-connected queue pair
    Rdma,
    /// The same message pattern over TCP sockets: the baseline of every RDMA comparison
    Tcp,
}

impl Transport {
    /// As options and messages spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rdma => "rdma",
            Self::Tcp => "tcp",
        }
    }
}

/// When a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoundLength {
    /// After this many writes on each queue pair.
    Iterations(u64),
    /// After this many seconds; what is outstanding then is completed and counted.
    Seconds(f64),
}

/// Whether the server writes as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// The client writes to the server.
    Unidirectional,
    /// Both write to each other at the same time.
    Bidirectional,
    /// The client writes, the server answers with a write, and so on in turn.
    PingPong,
}

/// Which end of the control channel this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Connects and decides.
    Client,
    /// Listens and agrees.
    Server,
}

impl Role {
    /// The other end.
    pub fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// The word in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }

    /// The direction in which this end writes.
    pub fn writes(self) -> Direction {
        match self {
            Self::Client => Direction::ClientToServer,
            Self::Server => Direction::ServerToClient,
        }
    }
}

/// Everything that both ends agree on before anything is allocated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The tool that measures, `write-bw` for instance.
    pub tool: String,
    /// What carries the bytes.
    pub transport: Transport,
    /// Message sizes, in the order in which they are measured.
    pub sizes_bytes: Vec<u64>,
    /// The length of a round.
    pub round_length: RoundLength,
    /// Rounds of each size.
    pub rounds: u32,
    /// Writes on each queue pair before the first round of each size, not counted.
    pub warmup_iterations: u64,
    /// Queue pairs (sockets, over TCP).
    pub qps: u32,
    /// Writes that may be outstanding on a queue pair.
    pub tx_depth: u32,
    /// Every how many writes a completion is asked for at most; see [`Plan::signal_every`].
    pub signal_every: u32,
    /// Whether that holds for all sizes; otherwise large messages are signalled more often.
    pub signal_fixed: bool,
    /// Writes handed to the adapter at once.
    pub post_list: u32,
    /// What the queue pairs are told; the default over TCP.
    pub queue_pair: QpAttributes,
    /// One direction or both.
    pub traffic: Traffic,
    /// The path MTU asked for; otherwise the smaller of the two ports' active MTUs is used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path_mtu_bytes: Option<u32>,
    /// Whether the target checks what arrived.
    pub validate: bool,
    /// What the bytes lie in, on both ends.
    pub memory: MemoryKind,
    /// What every size must reach.
    #[serde(skip_serializing_if = "Requirements::is_empty", default)]
    pub requirements: Requirements,
}

/// A quarter of the queue's depth between signals: the queue is refilled while three quarters are still
/// outstanding. (perftest signals every 100 writes, which drains a queue of 128 to 28 before it can be refilled.)
///
/// A signal is on the last write of a list of `post_list`: in between it would be known no sooner, since the list
/// is posted at once, and a list behind a signal in its midst could wait for room that only itself would make.
pub fn signal_every(tx_depth: u32, post_list: u32) -> u32 {
    whole_lists(tx_depth / 4, post_list)
}

fn whole_lists(writes: u32, post_list: u32) -> u32 {
    let list = post_list.max(1);
    (writes / list).max(1) * list
}

/// Data between two signals at most: with large messages a quarter of the queue would be gigabytes, and a slow
/// link would seem to stand still. 1 MiB takes 21 µs at 400 Gb/s, so that a signal costs nothing there either.
const BYTES_PER_SIGNAL: u64 = ByteSize::MIB;

impl Plan {
    /// Every how many writes of `size` bytes a completion is asked for.
    pub fn signal_every(&self, size: u64) -> u32 {
        if self.signal_fixed {
            return self.signal_every;
        }
        let by_bytes = u32::try_from(BYTES_PER_SIGNAL / size.max(1)).unwrap_or(u32::MAX);
        self.signal_every.min(whole_lists(by_bytes, self.post_list))
    }

    /// Completions that can be outstanding at once: one for each signal in every queue, and one for the last write.
    pub fn completion_entries(&self) -> u32 {
        let every = self.signal_every(self.largest());
        self.qps * (self.tx_depth / every + 1)
    }

    /// Checks every limit; both ends call it, each on the plan that it holds.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`], naming the option and its range.
    pub fn check(&self) -> Result<()> {
        self.check_sizes()?;
        within("--qp", self.qps, 1, MAX_QPS)?;
        within("--tx-depth", self.tx_depth, 1, MAX_TX_DEPTH)?;
        self.check_posting()?;
        self.check_queue_pair()?;
        self.requirements.check()?;
        within("--rounds", self.rounds, 1, MAX_ROUNDS)?;
        within("--warmup", self.warmup_iterations, 0, u64::from(u32::MAX))?;
        match self.round_length {
            RoundLength::Iterations(iters) => within("--iters", iters, 1, u64::from(u32::MAX))?,
            RoundLength::Seconds(seconds) if seconds > 0.0 && seconds <= MAX_SECONDS => {}
            RoundLength::Seconds(seconds) => {
                return Err(usage(format!(
                    "--duration is {seconds} s a round; more than 0 s and at most {MAX_SECONDS} s can be measured"
                )));
            }
        }
        match self.path_mtu_bytes {
            Some(mtu) if !PATH_MTUS.contains(&mtu) => Err(usage(format!(
                "--mtu is {mtu}; a path MTU is one of 256, 512, 1024, 2048 and 4096 bytes"
            ))),
            Some(_) if self.transport == Transport::Tcp => Err(usage(
                "--mtu sets the path MTU of a queue pair, which --transport tcp does not have".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    fn check_posting(&self) -> Result<()> {
        let (list, depth, every) = (self.post_list, self.tx_depth, self.signal_every);
        within("--post-list", list, 1, depth)?;
        within("--cq-mod", every, 1, depth)?;
        if depth % list != 0 {
            let error = usage(format!(
                "--post-list is {list}, and a queue of {depth} writes holds no whole number of such lists"
            ));
            return Err(error.hint(format!(
                "--tx-depth {}, or a --post-list that divides {depth}",
                depth - depth % list
            )));
        }
        if every % list != 0 {
            let error = usage(format!(
                "--cq-mod is {every} and --post-list {list}: a signal is on the last write of a list"
            ));
            return Err(
                error.hint(format!("--cq-mod {} is a whole number of lists", whole_lists(every, list)))
            );
        }
        Ok(())
    }

    fn check_queue_pair(&self) -> Result<()> {
        let attributes = &self.queue_pair;
        within("--inline-size", attributes.inline_bytes, 0, qp::MAX_INLINE_BYTES)?;
        within("--sl", attributes.service_level, 0, qp::MAX_SERVICE_LEVEL)?;
        within("--qp-timeout", attributes.ack_timeout, 1, qp::MAX_ACK_TIMEOUT)?;
        within("--retry-count", attributes.retry_count, 0, qp::MAX_RETRY_COUNT)
    }

    fn check_sizes(&self) -> Result<()> {
        if self.sizes_bytes.is_empty() || self.sizes_bytes.len() > MAX_SIZES {
            return Err(usage(format!(
                "{} message sizes; a run has 1 to {MAX_SIZES}",
                self.sizes_bytes.len()
            )));
        }
        if let Some(size) = repeated(&self.sizes_bytes) {
            return Err(usage(format!("--size has {} twice", ByteSize(size))));
        }
        self.sizes_bytes.iter().try_for_each(|&size| within("--size", size, 1, MAX_MSG_SIZE))
    }

    /// The largest message.
    pub fn largest(&self) -> u64 {
        self.sizes_bytes.iter().copied().max().unwrap_or(0)
    }

    /// Whether `role` writes.
    pub fn is_initiator(&self, role: Role) -> bool {
        role == Role::Client || self.traffic != Traffic::Unidirectional
    }

    /// Whether `role` is written to.
    pub fn is_target(&self, role: Role) -> bool {
        self.is_initiator(role.peer())
    }

    /// The directions in which data goes.
    pub fn directions(&self) -> &'static [Direction] {
        match self.traffic {
            Traffic::Unidirectional => &[Direction::ClientToServer],
            Traffic::Bidirectional | Traffic::PingPong => {
                &[Direction::ClientToServer, Direction::ServerToClient]
            }
        }
    }

    /// The directions of which a round tells: of a ping-pong only the end that takes the time does.
    pub fn reported_directions(&self) -> &'static [Direction] {
        match self.traffic {
            Traffic::PingPong => &[Direction::ClientToServer],
            Traffic::Unidirectional | Traffic::Bidirectional => self.directions(),
        }
    }

    /// The time after which a round ends, if it is time that ends it.
    pub fn round_duration(&self) -> Option<Duration> {
        match self.round_length {
            RoundLength::Iterations(_) => None,
            RoundLength::Seconds(seconds) => Some(Duration::from_secs_f64(seconds)),
        }
    }

    /// The writes of each queue pair after which a round ends, if it is their number that ends it.
    pub fn round_iterations(&self) -> Option<u64> {
        match self.round_length {
            RoundLength::Iterations(iters) => Some(iters),
            RoundLength::Seconds(_) => None,
        }
    }

    /// A round in words, for headers: `5000 iterations` or `2 s`.
    pub fn describe_round(&self) -> String {
        match self.round_length {
            RoundLength::Iterations(1) => "1 iteration".to_owned(),
            RoundLength::Iterations(iters) => format!("{iters} iterations"),
            RoundLength::Seconds(seconds) => show_duration(Duration::from_secs_f64(seconds)),
        }
    }
}

/// A size that is there twice: its lines and rounds could not be told apart.
fn repeated(sizes: &[u64]) -> Option<u64> {
    let before = |index: usize, size: &u64| sizes[..index].contains(size);
    sizes.iter().enumerate().find_map(|(index, size)| before(index, size).then_some(*size))
}

fn usage(what: String) -> Error {
    Error::new(ErrorKind::Usage, what).hint("--help lists every option with its range")
}

fn within<T: PartialOrd + std::fmt::Display>(name: &str, value: T, least: T, most: T) -> Result<()> {
    if value < least || value > most {
        return Err(usage(format!("{name} is {value}; it can be {least} to {most}")));
    }
    Ok(())
}

/// Where a message lies in the memory of its queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Bytes of one message.
    pub size: u64,
    /// Bytes from the start of one slot to the next: a whole number of cache lines.
    pub stride: u64,
    /// How many there are; message `i` uses slot `i % count`.
    pub count: u64,
}

/// The cache line of every machine that RDMA adapters are built into.
const CACHE_LINE: u64 = 64;
/// Small messages take turns in one page of this size, as in perftest: they then hit the cache as a real
/// producer's would, and not one line over and over.
const PAGE: u64 = 4096;

impl Slots {
    /// The slots of messages of `size` bytes in a queue pair's region.
    pub fn of(size: u64) -> Self {
        let stride = size.max(1).next_multiple_of(CACHE_LINE);
        Self { size, stride, count: (PAGE / stride).max(1) }
    }

    /// Where slot `index` begins, from the start of the region.
    pub fn offset(self, index: u64) -> u64 {
        index * self.stride
    }

    /// How many slots are written to by `messages` messages.
    pub fn used_by(self, messages: u64) -> u64 {
        self.count.min(messages)
    }
}

/// How one end's buffer is divided: a source region for each queue pair if it writes, a sink region for each if
/// it is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferLayout {
    qps: u64,
    region: u64,
    sources: u64,
    sinks: u64,
}

impl BufferLayout {
    /// The layout of `role`'s buffer under `plan`.
    pub fn new(plan: &Plan, role: Role) -> Self {
        Self {
            qps: u64::from(plan.qps),
            region: plan.largest().next_multiple_of(PAGE),
            sources: u64::from(plan.is_initiator(role)),
            sinks: u64::from(plan.is_target(role)),
        }
    }

    /// Bytes of one queue pair's region.
    pub fn region_len(self) -> u64 {
        self.region
    }

    /// Bytes of the whole buffer. At most 2 × 16384 × 2³¹, which 64 bits hold.
    pub fn total_len(self) -> u64 {
        (self.sources + self.sinks) * self.qps * self.region
    }

    /// Where the source region of `qp` begins.
    pub fn source(self, qp: u32) -> u64 {
        u64::from(qp) * self.region
    }

    /// Where the sink region of `qp` begins.
    pub fn sink(self, qp: u32) -> u64 {
        (self.sources * self.qps + u64::from(qp)) * self.region
    }

    /// The layout in words: `4 regions of 1 MiB`.
    pub fn describe(self) -> String {
        format!("{} of {}", (self.sources + self.sinks) * self.qps, ByteSize(self.region))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A small plan that passes every check.
    pub(crate) fn plan() -> Plan {
        Plan {
            tool: "write-bw".into(),
            transport: Transport::Rdma,
            sizes_bytes: vec![65536],
            round_length: RoundLength::Iterations(100),
            rounds: 3,
            warmup_iterations: 10,
            qps: 1,
            tx_depth: 128,
            signal_every: 32,
            signal_fixed: false,
            post_list: 1,
            queue_pair: QpAttributes::default(),
            traffic: Traffic::Unidirectional,
            path_mtu_bytes: None,
            validate: false,
            memory: MemoryKind::Host,
            requirements: Requirements::default(),
        }
    }

    fn refused(change: impl FnOnce(&mut Plan)) -> String {
        let mut plan = plan();
        change(&mut plan);
        let error = plan.check().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Usage);
        error.what
    }

    #[test]
    fn every_limit_is_named_with_its_range() {
        assert!(plan().check().is_ok());
        assert_eq!(refused(|p| p.sizes_bytes = vec![0]), "--size is 0; it can be 1 to 2147483648");
        assert_eq!(
            refused(|p| p.sizes_bytes = vec![1 << 32]),
            "--size is 4294967296; it can be 1 to 2147483648"
        );
        assert_eq!(refused(|p| p.qps = 100_000), "--qp is 100000; it can be 1 to 16384");
        assert_eq!(refused(|p| p.tx_depth = 0), "--tx-depth is 0; it can be 1 to 16384");
        assert_eq!(refused(|p| p.rounds = 0), "--rounds is 0; it can be 1 to 1000");
        assert!(refused(|p| p.round_length = RoundLength::Iterations(0)).starts_with("--iters is 0;"));
        assert!(refused(|p| p.round_length = RoundLength::Seconds(0.0)).starts_with("--duration is 0 s"));
        assert!(
            refused(|p| p.round_length = RoundLength::Seconds(f64::NAN)).starts_with("--duration is NaN")
        );
        assert!(refused(|p| p.path_mtu_bytes = Some(1500)).starts_with("--mtu is 1500"));
        assert!(refused(|p| p.sizes_bytes.clear()).starts_with("0 message sizes"));
        assert_eq!(refused(|p| p.sizes_bytes = vec![8, 64, 8]), "--size has 8 B twice");
        assert!(refused(|p| p.signal_every = 129).starts_with("--cq-mod is 129;"));
    }

    #[test]
    fn tcp_has_no_path_mtu() {
        let what = refused(|p| {
            p.transport = Transport::Tcp;
            p.path_mtu_bytes = Some(1024);
        });
        assert!(what.contains("--transport tcp"), "{what}");
    }

    #[test]
    fn small_messages_take_turns_in_a_page_and_large_ones_stay() {
        assert_eq!(Slots::of(2), Slots { size: 2, stride: 64, count: 64 });
        assert_eq!(Slots::of(65), Slots { size: 65, stride: 128, count: 32 });
        assert_eq!(Slots::of(4096).count, 1);
        assert_eq!(Slots::of(1 << 20).count, 1);
        assert_eq!(Slots::of(2).used_by(3), 3);
    }

    #[test]
    fn slots_stay_in_their_region() {
        for size in (1..5000).chain([65536, 1 << 20, MAX_MSG_SIZE]) {
            let slots = Slots::of(size);
            let region = size.next_multiple_of(PAGE);
            assert!(slots.offset(slots.count - 1) + size <= region, "{size}");
        }
    }

    #[test]
    fn an_end_holds_only_the_regions_that_it_uses() {
        let mut plan = plan();
        plan.qps = 4;
        assert_eq!(BufferLayout::new(&plan, Role::Client).total_len(), 4 * 65536);
        assert_eq!(BufferLayout::new(&plan, Role::Server).sink(1), 65536);
        plan.traffic = Traffic::Bidirectional;
        let both = BufferLayout::new(&plan, Role::Server);
        assert_eq!(both.total_len(), 8 * 65536);
        assert_eq!((both.source(3), both.sink(0)), (3 * 65536, 4 * 65536));
    }

    #[test]
    fn a_signal_every_quarter_of_the_depth() {
        assert_eq!([1, 3, 4, 128].map(|depth| signal_every(depth, 1)), [1, 1, 1, 32]);
        let every = |size| plan().signal_every(size);
        assert_eq!([1, 32 << 10, 64 << 10, 1 << 20, 8 << 20].map(every), [32, 32, 16, 1, 1]);
    }

    #[test]
    fn a_signal_interval_that_was_asked_for_holds_for_all_sizes() {
        let asked = Plan { signal_every: 128, signal_fixed: true, ..plan() };
        assert!(asked.check().is_ok());
        assert_eq!([1, 8 << 20].map(|size| asked.signal_every(size)), [128, 128]);
    }

    #[test]
    fn signals_are_on_the_last_write_of_a_list() {
        assert_eq!([1, 8, 24, 64, 128].map(|list| signal_every(128, list)), [32, 32, 24, 64, 128]);
        let listed = Plan { post_list: 8, ..plan() };
        assert!(listed.check().is_ok());
        assert_eq!([1, 64 << 10, 8 << 20].map(|size| listed.signal_every(size)), [32, 16, 8]);
        assert!(refused(|p| p.post_list = 129).starts_with("--post-list is 129;"));
        assert!(refused(|p| p.post_list = 3).contains("no whole number of such lists"));
        let what = refused(|p| (p.post_list, p.signal_every) = (4, 6));
        assert_eq!(what, "--cq-mod is 6 and --post-list 4: a signal is on the last write of a list");
    }

    #[test]
    fn the_fields_of_a_queue_pair_have_their_ranges() {
        assert!(refused(|p| p.queue_pair.inline_bytes = 4097).starts_with("--inline-size is 4097;"));
        assert!(refused(|p| p.queue_pair.service_level = 16).starts_with("--sl is 16;"));
        assert!(refused(|p| p.queue_pair.ack_timeout = 0).starts_with("--qp-timeout is 0;"));
        assert!(refused(|p| p.queue_pair.ack_timeout = 32).starts_with("--qp-timeout is 32;"));
        assert!(refused(|p| p.queue_pair.retry_count = 8).starts_with("--retry-count is 8;"));
    }

    #[test]
    fn the_completion_queue_holds_every_signal() {
        let small = Plan { sizes_bytes: vec![64], ..plan() };
        assert_eq!(small.completion_entries(), 5);
        assert_eq!(Plan { sizes_bytes: vec![64, 8 << 20], ..plan() }.completion_entries(), 129);
        assert_eq!(Plan { qps: 4, tx_depth: 3, signal_every: 1, ..small }.completion_entries(), 16);
    }
}
