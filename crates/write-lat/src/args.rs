//! The command line.

use std::path::PathBuf;

use clap::Parser;
use linkproof_arms::link::ArmArgs;
use linkproof_common::args::help::{AFTER_HELP, Example, after_long_help};
use linkproof_common::args::{
    self, DeviceArgs, LatencyGateArgs, LongRunArgs, MemoryArgs, OutputArgs, PeerArgs, QpArgs, Sizes,
};
use linkproof_common::conduct::{Ends, Tool};
use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::plan::{self, MAX_ROUNDS, Plan, Traffic, Transport};

use crate::latency::{MAX_RAW_SAMPLES, WriteLat};

/// Measure RDMA write latency between two hosts
///
/// Start `write-lat -d DEV` on one host: it is the server, takes no test options, and serves one client after
/// another. Then run `write-lat -d DEV HOST` on the other: it is the client and decides everything.
#[derive(Parser, Clone, Debug)]
#[command(name = "write-lat", version, after_help = AFTER_HELP, after_long_help = after_long_help(EXAMPLES))]
pub struct Args {
    /// Which device of this end.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// The other end.
    #[command(flatten)]
    pub peer: PeerArgs,
    /// What is measured.
    #[command(flatten)]
    pub latency: LatencyArgs,
    /// Several ways of measuring it, in turn.
    #[command(flatten)]
    pub arms: ArmArgs,
    /// How it is shown.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What is measured; only the client takes these, the server learns them from it.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "The measurement (client only)")]
pub struct LatencyArgs {
    /// Message sizes in bytes, K, M and G being powers of 1024: one, a list (8,4K,1M), or FROM:TO, doubling
    #[arg(short = 's', long, alias = "sizes", value_name = "SIZES", default_value = "2")]
    pub(crate) size: Sizes,
    /// Measure every power of two from 2 bytes to 8 MiB
    #[arg(short = 'a', long, conflicts_with = "size")]
    pub(crate) all: bool,
    /// Round trips in a round; every one is kept, and the percentiles are exact
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=MAX_RAW_SAMPLES))]
    pub(crate) iters: u64,
    /// Measure each size for this long instead of -n; the time is divided among the rounds
    #[arg(short = 'D', long, value_name = "SECONDS", value_parser = args::parse_seconds, conflicts_with = "iters")]
    pub(crate) duration: Option<f64>,
    /// Path MTU in bytes [default: the smaller of the two ports' active MTUs]
    #[arg(short = 'm', long, value_name = "BYTES", value_parser = args::parse_mtu)]
    pub(crate) mtu: Option<u32>,
    /// Rounds of each size; the table shows the median of each figure, JSON keeps them all
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ROUNDS)))]
    pub(crate) rounds: u32,
    /// Round trips before the first round of a size, not counted [default: 100, but at most -n]
    #[arg(long, value_name = "N")]
    pub(crate) warmup: Option<u32>,
    /// Draw a histogram of each size's latencies below the table
    #[arg(short = 'H', long)]
    pub(crate) histogram: bool,
    /// Write every sample to FILE, a line each: size, round, number, half round trip in microseconds
    #[arg(short = 'U', long, value_name = "FILE", conflicts_with_all = ["duration", "run_infinitely", "arm"])]
    pub(crate) raw_samples: Option<PathBuf>,
    /// Send a known pattern, and have both ends check each message, between the samples
    #[arg(long)]
    pub(crate) validate: bool,
    /// What the bytes lie in.
    #[command(flatten)]
    pub memory: MemoryArgs,
    /// How a long run is followed.
    #[command(flatten)]
    pub(crate) long: LongRunArgs,
    /// What the queue pairs are told.
    #[command(flatten)]
    pub(crate) qp: QpArgs,
    /// What the result is held to.
    #[command(flatten)]
    pub(crate) gates: LatencyGateArgs,
}

/// What `--help` shows, the usual first.
const EXAMPLES: &[Example] = &[
    Example { what: "The server, on one host", line: "write-lat -d mlx5_0" },
    Example { what: "2-byte messages from the other host", line: "write-lat -d mlx5_0 node-a" },
    Example { what: "Three sizes, each for 10 s", line: "write-lat -d mlx5_0 -s 8,4K,1M -D 10 node-a" },
    Example { what: "The shape of the tail", line: "write-lat -d mlx5_0 -s 8 -n 100000 --histogram node-a" },
    Example {
        what: "Every sample, for your own statistics",
        line: "write-lat -d mlx5_0 -s 8 -n 100000 --raw-samples samples.txt node-a",
    },
    Example {
        what: "Accept a link: exit status 1 where the tail is longer than it may be",
        line: "write-lat -d mlx5_0 -s 8 -D 10 --max-latency p99=5us --json=result.json node-a",
    },
    Example { what: "The same pattern over TCP, for comparison", line: "write-lat --transport tcp node-a" },
    Example { what: "No adapter at hand: a device in software", line: "write-lat --soft-device 127.0.0.1" },
];

/// Round trips that are not counted, unless told otherwise: caches, branch predictors and the peer's first page
/// touches settle within tens of them.
const WARMUP: u64 = 100;
/// Room for writes whose completion is not reaped yet: one is in flight, and a quarter of the queue may be unsignalled.
const TX_DEPTH: u32 = 64;

/// Small messages go inline: the adapter then has them with the request, and need not fetch them over PCIe first. 220
/// bytes are perftest's choice for most adapters: what fits into a work request of four 64-byte blocks.
const INLINE_BYTES: u32 = 220;

fn inline_bytes(transport: Transport) -> u32 {
    match transport {
        Transport::Rdma => INLINE_BYTES,
        Transport::Tcp => 0,
    }
}

impl Args {
    /// What the options say of the two ends.
    pub fn ends(&self) -> Ends<'_> {
        Ends { device: &self.device, peer: &self.peer }
    }
}

impl LatencyArgs {
    /// The plan of a run over `transport`.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] where options contradict each other.
    pub fn plan(&self, transport: Transport) -> Result<Plan> {
        self.qp.check(transport)?;
        let (round_length, rounds) = self.long.rounds(self.iters, self.duration, self.rounds)?;
        let plan = Plan {
            tool: WriteLat::NAME.to_owned(),
            transport,
            sizes_bytes: if self.all { args::all_sizes() } else { self.size.bytes().to_vec() },
            round_length,
            rounds,
            interval_seconds: self.long.interval_seconds(),
            warmup_iterations: self.warmup.map_or(WARMUP.min(self.iters), u64::from),
            qps: 1,
            tx_depth: TX_DEPTH,
            signal_every: plan::signal_every(TX_DEPTH, 1),
            signal_fixed: true,
            post_list: 1,
            threads: 1,
            queue_pair: self.qp.attributes(inline_bytes(transport)),
            traffic: Traffic::PingPong,
            path_mtu_bytes: self.mtu,
            validate: self.validate,
            memory: self.memory.request(),
            gpu: self.memory.gpu(),
            working_set_bytes: None,
            mr_per_qp: false,
            requirements: self.gates.requirements()?,
            rate_limit: None,
        };
        plan.check()?;
        if self.raw_samples.as_deref().is_some_and(|path| path.as_os_str().is_empty()) {
            return Err(Error::new(ErrorKind::Usage, "--raw-samples needs the name of a file"));
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkproof_common::args::{Parse, Parsed, parse};

    #[test]
    fn each_example_of_the_help_is_understood() {
        for Example { line, .. } in EXAMPLES {
            let parsed = parse::<Args>(line.split_whitespace().map(Into::into));
            let Ok(Parse::Run(Parsed { args, .. })) = parsed else { panic!("{line}: {:?}", parsed.err()) };
            let measures = args.peer.host.is_none() || args.latency.plan(args.ends().transport()).is_ok();
            assert!(line.starts_with("write-lat ") && measures, "{line}");
        }
    }
}
