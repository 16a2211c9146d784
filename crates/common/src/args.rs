//! The options that the binaries share, and how they become a [`Plan`].
//!
//! Letters and long names follow perftest; `-` and `_` are the same in long names. An option or value that is
//! not understood is an error with exit status 2, never a fallback.

mod command_line;
mod gates;
mod habits;
pub mod help;
mod long;
mod memory;
mod pace;
mod perftest;
mod place;
mod queue;
mod rates;
mod sizes;

pub use command_line::{Parse, Parsed, given_of, parse, parse_knowing};
pub use gates::{Ceiling, GateArgs, LatencyGateArgs};
pub use habits::HabitArgs;
pub use long::LongRunArgs;
pub use memory::{HugePages, MemoryArgs};
pub use pace::PaceArgs;
pub use perftest::way_out;
pub use place::PlaceArgs;
pub use queue::{QpArgs, QueueArgs};
pub use sizes::Sizes;

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use crate::device::{DeviceWish, Library};
use crate::error::Result;
use crate::exchange::PeerProtocol;
use crate::plan::{self, MAX_QPS, MAX_ROUNDS, MAX_THREADS, MAX_TX_DEPTH, Plan, Traffic, Transport};
use crate::units::ByteSize;

/// Which device, port and address this end uses.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "This end")]
pub struct DeviceArgs {
    /// RDMA device to use [default: the first with an ACTIVE port]
    #[arg(short = 'd', long = "ib-dev", value_name = "DEV")]
    pub ib_dev: Option<String>,
    /// Use a device in software, to try the tool without an adapter: both ends on one machine, and no speed is a link's
    #[arg(long)]
    pub soft_device: bool,
    /// Port of the device [default: its first ACTIVE port]
    #[arg(short = 'i', long = "ib-port", value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub ib_port: Option<u8>,
    /// Index into the GID table [default: chosen by property to match the other end, and explained]
    #[arg(short = 'x', long = "gid-index", value_name = "N")]
    pub gid_index: Option<u32>,
    /// Where this end runs.
    #[command(flatten)]
    pub place: PlaceArgs,
}

impl DeviceArgs {
    /// What is asked for.
    pub fn wish(&self) -> DeviceWish<'_> {
        DeviceWish {
            library: if self.soft_device { Library::Softnic } else { Library::Ibverbs },
            name: self.ib_dev.as_deref(),
            port_num: self.ib_port,
            gid_index: self.gid_index,
        }
    }
}

/// The other end and the control channel.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "The other end")]
pub struct PeerArgs {
    /// Server to measure against; without it this process is the server
    #[arg(value_name = "HOST")]
    pub host: Option<String>,
    /// TCP port of the control channel
    #[arg(short = 'p', long = "port", value_name = "PORT", default_value_t = 18515, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// What carries the bytes [default: rdma; it is never changed silently]
    #[arg(long, value_name = "NAME", value_enum)]
    pub transport: Option<Transport>,
    /// Protocol that the other end is spoken to in; perftest's ib_write_bw and ib_write_lat have their own
    #[arg(long, value_name = "NAME", value_enum, default_value_t)]
    pub peer_protocol: PeerProtocol,
    /// Server: serve one client and exit with its status
    #[arg(long)]
    pub once: bool,
    /// Local IP address for the control channel and for TCP's data connections [default: the route decides]
    #[arg(long, value_name = "IP")]
    pub bind_source_ip: Option<IpAddr>,
    /// What is taken though it is not needed.
    #[command(flatten)]
    pub habits: HabitArgs,
}

/// What is transferred; only the client takes these, the server learns them from it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "The measurement (client only)")]
pub struct TransferArgs {
    /// Message sizes in bytes, K, M and G being powers of 1024: one, a list (64,4K,1M), or FROM:TO, doubling
    #[arg(short = 's', long, alias = "sizes", value_name = "SIZES", default_value = "64K")]
    pub size: Sizes,
    /// Measure every power of two from 2 bytes to 8 MiB
    #[arg(short = 'a', long, conflicts_with = "size")]
    pub all: bool,
    /// Writes on each queue pair in a round
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)))]
    pub iters: u64,
    /// Measure each size for this long instead of -n; the time is divided among the rounds
    #[arg(short = 'D', long, value_name = "SECONDS", value_parser = parse_seconds, conflicts_with = "iters")]
    pub duration: Option<f64>,
    /// Queue pairs to spread the writes over
    #[arg(short = 'q', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_QPS)))]
    pub qp: u32,
    /// Threads of each end that writes; the queue pairs are divided among them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_THREADS)))]
    pub threads: u32,
    /// Writes that may be outstanding on a queue pair
    #[arg(short = 't', long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_TX_DEPTH)))]
    pub tx_depth: u32,
    /// Both ends write at the same time; the result is the sum of both directions
    #[arg(short = 'b', long)]
    pub bidirectional: bool,
    /// Path MTU in bytes [default: the smaller of the two ports' active MTUs]
    #[arg(short = 'm', long, value_name = "BYTES", value_parser = parse_mtu)]
    pub mtu: Option<u32>,
    /// Rounds of each size; the table shows their median, JSON keeps them all
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ROUNDS)))]
    pub rounds: u32,
    /// Writes on each queue pair before the first round of a size, not counted [default: the queue's depth, but at most -n; 1 with --rate-limit]
    #[arg(long, value_name = "N")]
    pub warmup: Option<u32>,
    /// Send a known pattern, and have the target check what arrived
    #[arg(long)]
    pub validate: bool,
    /// Let each queue pair's messages take turns in this much memory, more than the caches hold, instead of in a page or one place
    #[arg(long, value_name = "SIZE", value_parser = ByteSize::from_str, help_heading = "Memory (client only)")]
    pub working_set: Option<ByteSize>,
    /// What the bytes lie in.
    #[command(flatten)]
    pub memory: MemoryArgs,
    /// How fast an end writes.
    #[command(flatten)]
    pub pace: PaceArgs,
    /// How a long run is followed.
    #[command(flatten)]
    pub long: LongRunArgs,
    /// How writes are posted, and what the queue pairs are told.
    #[command(flatten)]
    pub queue: QueueArgs,
    /// What the result is held to.
    #[command(flatten)]
    pub gates: GateArgs,
}

/// How results are shown.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Show bandwidth in Gb/s (10⁹ bits a second) instead of MiB/s
    #[arg(long)]
    pub report_gbits: bool,
    /// Write the result as one JSON document to stdout, or to FILE beside the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub json: Option<Option<PathBuf>>,
    /// Show every round and the evidence, not only the medians
    #[arg(short = 'v', long)]
    pub verbose: bool,
}

/// A number of seconds.
///
/// # Errors
/// What would have been understood.
pub fn parse_seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds, for instance 10 or 0.5".to_owned())?;
    if seconds > 0.0 && seconds <= plan::MAX_SECONDS {
        Ok(seconds)
    } else {
        Err(format!("more than 0 and at most {} seconds", plan::MAX_SECONDS))
    }
}

/// A path MTU.
///
/// # Errors
/// What would have been understood.
pub fn parse_mtu(text: &str) -> std::result::Result<u32, String> {
    text.parse()
        .ok()
        .filter(|mtu| plan::PATH_MTUS.contains(mtu))
        .ok_or_else(|| "a path MTU is one of 256, 512, 1024, 2048 and 4096 bytes".to_owned())
}

/// The sizes of `--all`: 2¹ to 2²³ bytes, as in perftest.
pub fn all_sizes() -> Vec<u64> {
    (1..=23).map(|power| 1 << power).collect()
}

impl TransferArgs {
    /// Enough to fill the queue once; a run shorter than that is warm after as much as it will measure, and one that
    /// is held back, in which the queue never fills, after one write.
    fn default_warmup(&self) -> u64 {
        let depth = if self.pace.rate_limit.is_some() { 1 } else { u64::from(self.tx_depth) };
        if self.duration.is_some() || self.long.run_infinitely { depth } else { depth.min(self.iters) }
    }

    /// The plan of a run of `tool` over `transport`.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Usage`] where options contradict each other.
    pub fn plan(&self, tool: &str, transport: Transport) -> Result<Plan> {
        self.queue.check(transport)?;
        let post_list = self.queue.post_list.unwrap_or(1);
        let (round_length, rounds) = self.long.rounds(self.iters, self.duration, self.rounds)?;
        let plan = Plan {
            tool: tool.to_owned(),
            transport,
            sizes_bytes: if self.all { all_sizes() } else { self.size.bytes().to_vec() },
            round_length,
            rounds,
            interval_seconds: self.long.interval_seconds(),
            warmup_iterations: self.warmup.map_or_else(|| self.default_warmup(), u64::from),
            qps: self.qp,
            tx_depth: self.tx_depth,
            signal_every: self.queue.cq_mod.unwrap_or_else(|| plan::signal_every(self.tx_depth, post_list)),
            signal_fixed: self.queue.cq_mod.is_some(),
            post_list,
            threads: self.threads,
            queue_pair: self.queue.qp.attributes(0),
            traffic: if self.bidirectional { Traffic::Bidirectional } else { Traffic::Unidirectional },
            path_mtu_bytes: self.mtu,
            validate: self.validate,
            memory: self.memory.request(),
            gpu: self.memory.gpu(),
            working_set_bytes: self.working_set.map(ByteSize::bytes),
            mr_per_qp: self.queue.mr_per_qp,
            requirements: self.gates.requirements(),
            rate_limit: self.pace.limit(self.tx_depth)?,
        };
        plan.check()?;
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::Parser;

    use super::*;
    use crate::error::ErrorKind;
    use crate::plan::RoundLength;
    use crate::rate::Rate;

    #[derive(Parser)]
    #[command(name = "tool")]
    struct Tool {
        #[command(flatten)]
        peer: PeerArgs,
        #[command(flatten)]
        transfer: TransferArgs,
    }

    fn parsed(line: &str) -> Result<Parsed<Tool>> {
        match parse::<Tool>(line.split_whitespace().map(OsString::from))? {
            Parse::Run(parsed) => Ok(parsed),
            Parse::Text(text) => panic!("no run but a text: {text}"),
        }
    }

    fn plan_of(line: &str) -> Plan {
        parsed(line).unwrap().args.transfer.plan("write-bw", Transport::Rdma).unwrap()
    }

    fn refusal(line: &str) -> String {
        let error = parsed(line).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Usage);
        error.what
    }

    #[test]
    fn defaults_are_perftests() {
        let plan = plan_of("tool host");
        assert_eq!(plan.sizes_bytes, [65536]);
        assert_eq!(plan.round_length, RoundLength::Iterations(5000));
        assert_eq!((plan.qps, plan.tx_depth, plan.rounds), (1, 128, 3));
        assert_eq!(parsed("tool host").unwrap().args.peer.port, 18515);
    }

    #[test]
    fn underscores_and_dashes_are_the_same_in_long_names_only() {
        assert_eq!(plan_of("tool host --tx_depth 7").tx_depth, 7);
        assert_eq!(plan_of("tool host --tx-depth=7").tx_depth, 7);
        assert_eq!(parsed("tool my_host").unwrap().args.peer.host.as_deref(), Some("my_host"));
    }

    #[test]
    fn duration_is_divided_among_the_rounds() {
        assert_eq!(plan_of("tool host -D 6").round_length, RoundLength::Seconds(2.0));
        assert_eq!(plan_of("tool host -D 6 --rounds 1").round_length, RoundLength::Seconds(6.0));
    }

    #[test]
    fn the_order_of_options_means_nothing() {
        let line = ["host", "-s 4K", "-n 7", "-q 2", "-t 16", "-b"];
        let mut reversed = line;
        reversed.reverse();
        assert_eq!(
            plan_of(&format!("tool {}", line.join(" "))),
            plan_of(&format!("tool {}", reversed.join(" ")))
        );
        for contradiction in ["-a -s 4K", "-s 4K -a", "-D 2 -n 5", "-n 5 -D 2"] {
            let refused = refusal(&format!("tool host {contradiction}"));
            assert!(refused.contains("cannot be used with"), "{contradiction}: {refused}");
        }
    }

    #[test]
    fn all_is_2_bytes_to_8_mib() {
        let sizes = plan_of("tool host -a").sizes_bytes;
        assert_eq!((sizes.len(), sizes[0], sizes[22]), (23, 2, 8 << 20));
    }

    #[test]
    fn sizes_are_a_list_or_a_range() {
        assert_eq!(plan_of("tool host -s 64,4K,1M").sizes_bytes, [64, 4096, 1 << 20]);
        assert_eq!(plan_of("tool host --size 64:256").sizes_bytes, [64, 128, 256]);
        assert_eq!(plan_of("tool host --sizes=8").sizes_bytes, [8]);
    }

    #[test]
    fn warmup_fills_the_queue_once_unless_told_otherwise() {
        assert_eq!(plan_of("tool host -t 16").warmup_iterations, 16);
        assert_eq!(plan_of("tool host -n 5").warmup_iterations, 5);
        assert_eq!(plan_of("tool host -D 1").warmup_iterations, 128);
        assert_eq!(plan_of("tool host --warmup 0").warmup_iterations, 0);
        assert_eq!(plan_of("tool host --rate-limit 1Gb/s").warmup_iterations, 1);
    }

    #[test]
    fn bad_values_are_refused_with_their_range() {
        assert!(refusal("tool host -s 0").contains("a message has 1 byte to 2 GiB"));
        assert!(refusal("tool host -s 2Q").contains("\"Q\" is no unit of size"));
        assert!(refusal("tool host -n 0").contains("0 is not in 1..="));
        assert!(refusal("tool host -q 100000").contains("100000 is not in 1..=16384"));
        assert!(refusal("tool host -m 1500").contains("256, 512, 1024, 2048 and 4096"));
        assert!(refusal("tool host -D 0").contains("more than 0"));
        assert!(refusal("tool host -p 0").contains("0 is not in 1..=65535"));
        assert!(refusal("tool host -D 2 -n 5").contains("cannot be used with"));
        assert!(refusal("tool host -a -s 4K").contains("cannot be used with"));
        assert!(refusal("tool host --frobnicate").contains("unexpected argument"));
        assert!(
            parsed("tool host --frobnicate").err().unwrap().hint.unwrap().contains("docs/compatibility.md")
        );
    }

    #[test]
    fn the_queues_options_are_in_the_plan() {
        let plan = plan_of("tool host -Q 64 -l 8 -I 100 -S 3 --tclass 106 -u 14 --retry_count 2");
        assert_eq!((plan.signal_every, plan.signal_fixed, plan.post_list), (64, true, 8));
        assert_eq!(plan.queue_pair.describe().unwrap().split(", ").count(), 4);
        assert_eq!((plan.queue_pair.inline_bytes, plan.queue_pair.inline_fixed), (100, true));
        assert_eq!(plan_of("tool host -l 64").signal_every, 64);
        assert!(refusal("tool host -u 32").contains("32 is not in 1..=31"));
        assert!(refusal("tool host --retry-count 8").contains("8 is not in 0..=7"));
    }

    #[test]
    fn a_rate_limit_is_in_the_plan_with_its_unit() {
        assert_eq!(plan_of("tool host").rate_limit, None);
        let limit = plan_of("tool host --rate_limit=500MiB/s --burst_size=4").rate_limit.unwrap();
        assert_eq!((limit.rate, limit.burst_messages), (Rate::Mib(500.0), 4));
        let limit = plan_of("tool host -t 16 --rate-limit 1.5Mpps").rate_limit.unwrap();
        assert_eq!((limit.rate, limit.burst_messages), (Rate::Mpps(1.5), 16));
        assert!(refusal("tool host --rate-limit 10").contains("Gb/s, MiB/s or Mpps"));
        let burst_alone = parsed("tool host --burst-size 4").unwrap().args.transfer;
        let what = burst_alone.plan("write-bw", Transport::Rdma).unwrap_err().what;
        assert!(what.ends_with("no limit is given"), "{what}");
    }

    #[test]
    fn perftests_other_options_are_refused_with_the_way_out() {
        for (line, way_out) in [
            ("-R", "rdma_cm is not supported"),
            ("-c UD", "always reliable-connected"),
            ("-w 90", "--min-bw"),
            ("-w90", "--min-bw"),
            ("--limit_bw=90", "--min-bw"),
            ("--out_json_file=x", "--json=FILE"),
            ("--output=bandwidth", "jq"),
            ("--use_cuda_bus_id=17:00.0", "--use-cuda takes a PCI address"),
            ("--noPeak", "leave it out"),
        ] {
            let error = parsed(&format!("tool host {line}")).err().unwrap();
            assert!(error.what.starts_with("unexpected argument '-"), "{}", error.what);
            assert!(error.hint.clone().unwrap().contains(way_out), "{line}: {:?}", error.hint);
        }
    }

    #[test]
    fn a_server_can_tell_which_test_options_were_given() {
        let given = parsed("tool -s 4K --tx-depth 8 -p 1 --sl 1").unwrap().given;
        let mut options = given_of::<TransferArgs>(&given);
        options.sort();
        assert_eq!(options, ["--size", "--sl", "--tx-depth"]);
    }
}
