//! The plan of a run: everything that both ends must agree on, with its limits checked in one place, `checks`
//! and `rounds`,
//! and what follows from it for memory, `layout`.
//!
//! The client makes it from its arguments, the server checks it again (a plan comes over the network) and holds
//! the same one. Nothing edits a plan: what can't be honoured is refused.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::memory::{GpuPath, MemoryRequest};
use crate::qp::QpAttributes;
use crate::rate::RateLimit;
use crate::requirement::Requirements;
use crate::units::{ByteSize, show_duration};
use crate::validate::Direction;

mod checks;
mod gpu;
mod layout;
mod perftest;
mod rounds;

pub use gpu::{GpuPathRequest, GpuPlan};
pub use layout::{BufferLayout, Regions, Slots, flags_len, flags_of};

/// The largest message of InfiniBand and RoCE: 2³¹ bytes (InfiniBand specification, volume 1, 9.7).
pub const MAX_MSG_SIZE: u64 = 1 << 31;
/// The largest memory of a queue pair in which messages take turns: more than any host has.
pub const MAX_WORKING_SET: u64 = 1 << 40;
/// Queue pairs at most, as in perftest.
pub const MAX_QPS: u32 = 16384;
/// Outstanding writes of a queue pair at most; devices allow 16384 to 32768.
pub const MAX_TX_DEPTH: u32 = 16384;
/// Posting threads of an end at most; as many processors as large hosts have, and 16 MiB of completion logs.
pub const MAX_THREADS: u32 = 256;
/// Rounds at most: keeps the result document bounded.
pub const MAX_ROUNDS: u32 = 1000;
/// Sizes of one run at most: keeps the result document bounded.
pub const MAX_SIZES: usize = 64;
/// Seconds of `--duration` at most: a day.
pub const MAX_SECONDS: f64 = 86_400.0;
/// The shortest interval of `--interval` in seconds: the watcher of a round looks around every 20 ms, and a delay of one
/// such look is then a fifth of an interval.
pub const MIN_INTERVAL_SECONDS: f64 = 0.1;
/// The longest: an hour. Taste.
pub const MAX_INTERVAL_SECONDS: f64 = 3600.0;
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
    /// When the user stops it; what is outstanding then is completed and counted.
    UntilStopped,
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
    /// Into intervals of how many seconds a round is cut, if it is; see [`crate::intervals`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interval_seconds: Option<f64>,
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
    /// Threads of each end that writes, among which the queue pairs are divided; see [`Plan::part`].
    pub threads: u32,
    /// What the queue pairs are told; the default over TCP.
    pub queue_pair: QpAttributes,
    /// One direction or both.
    pub traffic: Traffic,
    /// The path MTU asked for; otherwise the smaller of the two ports' active MTUs is used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path_mtu_bytes: Option<u32>,
    /// Whether the target checks what arrived.
    pub validate: bool,
    /// What the bytes lie in on an end that has host memory.
    pub memory: MemoryRequest,
    /// The ends' GPU memory; absent where both have host memory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gpu: Option<GpuPlan>,
    /// The memory of each queue pair in which its messages take turns; absent: a page, or one place for larger ones.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub working_set_bytes: Option<u64>,
    /// Whether each queue pair's memory is registered by itself, not all of it at once; false over TCP.
    pub mr_per_qp: bool,
    /// What every size must reach.
    #[serde(skip_serializing_if = "Requirements::is_empty", default)]
    pub requirements: Requirements,
    /// How fast an end may write; absent: as fast as it can.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate_limit: Option<RateLimit>,
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
/// Time between two signals of a queue pair at most, where the rate is limited: a slow one would seem to stand still
/// too, and its moments of completion, which the peak is made of, would be few.
const SECONDS_PER_SIGNAL: f64 = 0.1;

impl Plan {
    /// Every how many writes of `size` bytes a completion is asked for.
    pub fn signal_every(&self, size: u64) -> u32 {
        if self.signal_fixed {
            return self.signal_every;
        }
        let by_bytes = u32::try_from(BYTES_PER_SIGNAL / size.max(1)).unwrap_or(u32::MAX);
        let by_time = self.rate_limit.map_or(u32::MAX, |limit| {
            (limit.rate.messages_per_sec(size) / f64::from(self.qps) * SECONDS_PER_SIGNAL) as u32
        });
        self.signal_every.min(whole_lists(by_bytes.min(by_time), self.post_list))
    }

    /// Completions of one thread that can be outstanding at once: one for each signal in every of its queues, and one
    /// for the last write.
    pub fn completion_entries(&self) -> u32 {
        let every = self.signal_every(self.largest());
        self.qps.div_ceil(self.threads) * (self.queue_depth() / every + 1)
    }

    /// The queue pairs of the thread number `thread`: in order, and as many as another's or one more.
    pub fn part(&self, thread: usize) -> Range<usize> {
        let (qps, threads) = (self.qps as usize, self.threads as usize);
        thread * qps / threads..(thread + 1) * qps / threads
    }

    /// The queue pairs of all threads.
    pub fn parts(&self) -> impl Iterator<Item = Range<usize>> {
        (0..self.threads as usize).map(|thread| self.part(thread))
    }

    /// How many data connections there are over TCP, each with a socket on either end.
    pub fn sockets(&self) -> u32 {
        self.qps * self.directions().len() as u32
    }

    /// Work requests that a queue pair of this run may hold. Beside each write into staged memory goes a count of the
    /// writes, and a quarter of both may wait for their completion to be seen.
    pub fn queue_depth(&self) -> u32 {
        let may_stage =
            self.gpu.as_ref().is_some_and(|gpu| gpu.paths(self.transport).contains(&GpuPath::Staged));
        if may_stage { self.tx_depth.saturating_mul(3) } else { self.tx_depth }
    }

    /// How many memory regions each end registers.
    pub fn memory_regions(&self) -> u32 {
        if self.mr_per_qp { self.qps } else { 1 }
    }

    /// Where messages of `size` bytes lie in a queue pair's region.
    pub fn slots(&self, size: u64) -> Slots {
        self.working_set_bytes.map_or_else(|| Slots::of(size), |room| Slots::within(room, size))
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
            RoundLength::Iterations(_) | RoundLength::UntilStopped => None,
            RoundLength::Seconds(seconds) => Some(Duration::from_secs_f64(seconds)),
        }
    }

    /// Into intervals of which length a round is cut, if it is.
    pub fn interval(&self) -> Option<Duration> {
        self.interval_seconds.map(Duration::from_secs_f64)
    }

    /// The writes of each queue pair after which a round ends, if it is their number that ends it.
    pub fn round_iterations(&self) -> Option<u64> {
        match self.round_length {
            RoundLength::Iterations(iters) => Some(iters),
            RoundLength::Seconds(_) | RoundLength::UntilStopped => None,
        }
    }

    /// A round in words, for headers: `5000 iterations` or `2 s`.
    pub fn describe_round(&self) -> String {
        match self.round_length {
            RoundLength::Iterations(1) => "1 iteration".to_owned(),
            RoundLength::Iterations(iters) => format!("{iters} iterations"),
            RoundLength::Seconds(seconds) => show_duration(Duration::from_secs_f64(seconds)),
            RoundLength::UntilStopped => "until it is stopped".to_owned(),
        }
    }

    /// Whether the user's wish to stop is how the run ends, and not its interruption.
    pub fn is_until_stopped(&self) -> bool {
        self.round_length == RoundLength::UntilStopped
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::rate::Rate;

    /// A small plan that passes every check.
    pub(crate) fn plan() -> Plan {
        Plan {
            tool: "write-bw".into(),
            transport: Transport::Rdma,
            sizes_bytes: vec![65536],
            round_length: RoundLength::Iterations(100),
            rounds: 3,
            interval_seconds: None,
            warmup_iterations: 10,
            qps: 1,
            tx_depth: 128,
            signal_every: 32,
            signal_fixed: false,
            post_list: 1,
            threads: 1,
            queue_pair: QpAttributes::default(),
            traffic: Traffic::Unidirectional,
            path_mtu_bytes: None,
            validate: false,
            memory: MemoryRequest::Host,
            gpu: None,
            working_set_bytes: None,
            mr_per_qp: false,
            requirements: Requirements::default(),
            rate_limit: None,
        }
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
    fn a_limited_rate_is_signalled_ten_times_a_second_at_least() {
        let every = |rate, qps| {
            let rate_limit = Some(RateLimit { rate, burst_messages: 8 });
            Plan { rate_limit, qps, ..plan() }.signal_every(4096)
        };
        assert_eq!(every(Rate::Mpps(1.0), 1), 32);
        assert_eq!(every(Rate::Mpps(0.000_1), 1), 10);
        assert_eq!(every(Rate::Mpps(0.000_1), 4), 2);
        assert_eq!(every(Rate::Mpps(0.000_001), 1), 1);
    }

    #[test]
    fn signals_are_on_the_last_write_of_a_list() {
        assert_eq!([1, 8, 24, 64, 128].map(|list| signal_every(128, list)), [32, 32, 24, 64, 128]);
        let listed = Plan { post_list: 8, ..plan() };
        assert!(listed.check().is_ok());
        assert_eq!([1, 64 << 10, 8 << 20].map(|size| listed.signal_every(size)), [32, 16, 8]);
    }

    #[test]
    fn every_queue_pair_is_in_one_threads_part() {
        for (qps, threads) in [(1, 1), (8, 4), (7, 3), (3, 3), (16384, 256), (257, 256)] {
            let parts: Vec<_> = Plan { qps, threads, ..plan() }.parts().collect();
            assert_eq!(parts.len(), threads as usize);
            assert_eq!(
                parts.iter().cloned().flatten().collect::<Vec<_>>(),
                (0..qps as usize).collect::<Vec<_>>()
            );
            let (least, most) = (parts.iter().map(Range::len).min(), parts.iter().map(Range::len).max());
            assert!(least > Some(0) && most <= least.map(|least| least + 1), "{parts:?}");
        }
    }

    #[test]
    fn the_completion_queue_holds_every_signal() {
        let small = Plan { sizes_bytes: vec![64], ..plan() };
        assert_eq!(small.completion_entries(), 5);
        assert_eq!(Plan { sizes_bytes: vec![64, 8 << 20], ..plan() }.completion_entries(), 129);
        let many = Plan { qps: 4, tx_depth: 3, signal_every: 1, ..small };
        assert_eq!(many.completion_entries(), 16);
        // Two, one and one.
        assert_eq!(Plan { threads: 3, ..many }.completion_entries(), 8);
    }
}
