//! The command line: nccl-tests' letters, our long names.

mod lists;
mod nccl_tests;
mod port;

pub use nccl_tests::way_out;

use std::path::PathBuf;

use clap::Parser;
use linkproof_common::args::help::{AFTER_HELP, Example, long_help};
use linkproof_common::args::parse_seconds;
use linkproof_common::cuda::Driver;
use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::units::ByteSize;

use self::port::PortArgs;
use crate::backend::nccl::{self, Requirement};
use crate::backend::{Pacing, Placement};
use crate::collective::Kind;
use crate::cores::Bind;
use crate::data::Data;
use crate::fault::Fault;
use crate::launch::{Asked, Launch};
use crate::plan::{Plan, Transport};
use crate::sweep::{Advance, sizes};
use crate::traffic::Traffic;
use lists::{Collectives, DataTypes, RedOps, Roots};

/// Measure collectives: all_reduce, alltoall and nine others
///
/// `coll-perf --op alltoall -b 1M -e 256M` measures alltoall between the processors of this machine, one rank each, and
/// needs nothing else. Sizes, counts and bandwidths are nccl-tests'.
#[derive(Parser, Clone, Debug)]
#[command(name = "coll-perf", version, after_help = AFTER_HELP, after_long_help = long_help(EXAMPLES, MORE))]
pub struct Args {
    /// Collectives: one, a list, or all. Spellings like all-to-all and allreduce are taken
    #[arg(
        long,
        visible_alias = "collective",
        value_name = "NAMES",
        default_value = "all_reduce",
        help_heading = "The measurement"
    )]
    pub op: Collectives,
    /// Smallest size in bytes; K, M and G are powers of 1024 [default: 1M, or -e if that is less]
    #[arg(short = 'b', long, alias = "minbytes", value_name = "SIZE", help_heading = "The measurement")]
    pub min_bytes: Option<ByteSize>,
    /// Largest size in bytes [default: 32M, or -b if that is more]
    #[arg(short = 'e', long, alias = "maxbytes", value_name = "SIZE", help_heading = "The measurement")]
    pub max_bytes: Option<ByteSize>,
    /// From one size to the next: plus so many bytes
    #[arg(
        short = 'i',
        long,
        alias = "stepbytes",
        value_name = "SIZE",
        conflicts_with = "step_factor",
        help_heading = "The measurement"
    )]
    pub step_bytes: Option<ByteSize>,
    /// From one size to the next: times this [default: 2]
    #[arg(short = 'f', long, alias = "stepfactor", value_name = "N", value_parser = clap::value_parser!(u64).range(2..), help_heading = "The measurement")]
    pub step_factor: Option<u64>,
    /// Types: one, a list, or all of int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, f8e4m3, f8e5m2
    #[arg(
        short = 'd',
        long,
        value_name = "TYPES",
        default_value = "float",
        help_heading = "The measurement"
    )]
    pub datatype: DataTypes,
    /// Reductions: one, a list, or all of sum, prod, max, min, avg
    #[arg(short = 'o', long, value_name = "REDOPS", default_value = "sum", help_heading = "The measurement")]
    pub redop: RedOps,
    /// Roots: one, a list, or all
    #[arg(
        short = 'r',
        long,
        value_name = "RANKS",
        default_value = "0",
        allow_hyphen_values = true,
        help_heading = "The measurement"
    )]
    pub root: Roots,
    /// alltoallv: bytes from each rank (a line) to each (a number in it), instead of sizes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["min_bytes", "max_bytes", "step_bytes", "step_factor"], help_heading = "The measurement")]
    pub matrix: Option<PathBuf>,
    /// Where results go; in place is left out where it has no meaning
    #[arg(long, value_name = "WHERE", value_enum, default_value_t = Places::Both, help_heading = "The measurement")]
    pub placement: Places,

    /// Iterations of a round
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = "Timing")]
    pub iters: u32,
    /// Iterations before the first round of each size, not counted
    #[arg(
        short = 'w',
        long,
        alias = "warmup-iters",
        value_name = "N",
        default_value_t = 5,
        help_heading = "Timing"
    )]
    pub warmup: u32,
    /// Calls in an iteration, timed together
    #[arg(short = 'm', long, alias = "agg-iters", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = "Timing")]
    pub calls: u32,
    /// Rounds of each size; the table shows their median, JSON keeps them all. With --arm: runs of each arm [default: 3; with --arm 6]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Timing")]
    pub rounds: Option<u32>,
    /// 0: ranks don't wait for each other between iterations (pipelined). 3: all meet before each, outside the time (aligned)
    #[arg(short = 'z', long, value_name = "N", default_value_t = 0, help_heading = "Timing")]
    pub blocking: u8,
    /// All ranks meet before each iteration, outside the time: the same as -z 3
    #[arg(long, conflicts_with = "blocking", help_heading = "Timing")]
    pub aligned: bool,
    /// 1: check the results that each round leaves. 0: don't
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1, help_heading = "Timing")]
    pub check: u32,
    /// How long a rank waits for another before it gives up
    #[arg(short = 'T', long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds, help_heading = "Timing")]
    pub timeout: f64,

    /// Ranks on this machine, each a thread [default: one a GPU; without GPUs one a processor, at least 2]
    #[arg(short = 'g', long, alias = "ngpus", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Ranks")]
    pub ranks: Option<u32>,
    /// Cores for the ranks, one each, in this order (2-5,8); or any: nothing is bound [default: a core each, where there are enough]
    #[arg(long, value_name = "LIST", value_parser = Bind::parse, help_heading = "Ranks")]
    pub cores: Option<Bind>,
    /// What carries the bytes of the host backend [default: shm between threads, tcp between processes]
    #[arg(long, value_name = "NAME", value_enum, help_heading = "Ranks")]
    pub transport: Option<Transport>,
    /// What performs the collectives [default: nccl where there is a GPU and the library, else host]
    #[arg(long, value_name = "NAME", value_enum, help_heading = "Ranks")]
    pub backend: Option<BackendName>,
    /// The NCCL (or RCCL) library to use [default: the first found: libnccl.so.2, a Python wheel's]
    #[arg(long, value_name = "FILE", help_heading = "Ranks")]
    pub nccl_lib: Option<PathBuf>,
    /// Fail unless every edge between GPUs is proven to go over this
    #[arg(long, value_name = "NAME", value_enum, help_heading = "Ranks")]
    pub require_transport: Option<Requirement>,
    /// On GPUs: record the iterations of a round as a CUDA graph and launch that N times; the time is of one launch. 0: no graph
    #[arg(short = 'G', long, alias = "cuda-graph", value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000), help_heading = "Timing")]
    pub cudagraph: u32,
    /// On GPUs: 1: buffers that NCCL allocates and that are registered with it. 0: plain device memory, as most programs have
    #[arg(short = 'R', long, value_name = "N", default_value_t = 0, help_heading = "The measurement")]
    pub local_register: u8,
    /// For tests: let several ranks share a GPU. No figure of such a run means anything
    #[arg(long, help_heading = "Ranks")]
    pub shared_gpu: bool,
    /// This process's rank, from 0 [default: as torchrun, mpirun, srun say; without any, the ranks are threads]
    #[arg(long, value_name = "N", help_heading = "Ranks")]
    pub rank: Option<u32>,
    /// How many processes there are [default: as above]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536), help_heading = "Ranks")]
    pub world_size: Option<u32>,
    /// Where the ranks meet: the host of rank 0, and a TCP port there [default: MASTER_ADDR:MASTER_PORT, or what the launcher says, with port 18516]
    #[arg(long, value_name = "HOST:PORT", help_heading = "Ranks")]
    pub rendezvous: Option<String>,

    /// The RDMA port of --transport rdma.
    #[command(flatten)]
    pub port: PortArgs,

    /// One way of measuring, to be compared with others: give two or more. They run in turn (A B B A …), each is proven to be
    /// what it is called, and judged against the first. On GPUs: default, rdma, gdr, no-gdr, tcp, tcp-only, p2p, nvlink, p2p-off. On the
    /// host: default, shm, tcp, rdma. Your own: NAME:VARIABLE=VALUE,…
    #[arg(long, value_name = "ARM", conflicts_with = "raw_samples", help_heading = "Arms")]
    pub arm: Vec<String>,

    /// Write the result as one JSON document to stdout, or to FILE beside the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, help_heading = "Output")]
    pub json: Option<Option<PathBuf>>,
    /// Write when every rank began and ended every iteration to FILE, a line each
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub raw_samples: Option<PathBuf>,
    /// Show every round and every rank
    #[arg(short = 'v', long, help_heading = "Output")]
    pub verbose: bool,

    /// For tests: flip:RANK:OFFSET or delay:RANK:MICROSECONDS
    #[arg(long, value_name = "FAULT", hide = true)]
    pub inject_fault: Option<Fault>,
}

/// What `--help` shows, the usual first.
const EXAMPLES: &[Example] = &[
    Example {
        what: "This machine's GPUs with NCCL, or its processors, a rank each",
        line: "coll-perf --op alltoall -b 1M -e 256M",
    },
    Example {
        what: "Every collective of eight ranks, small sizes as well",
        line: "coll-perf --op all -b 8 -e 256M -f 4 --ranks 8",
    },
    Example {
        what: "GPUs of several hosts, by a launcher: fails unless hosts reach each other's GPUs over RDMA",
        line: "mpirun -np 16 coll-perf --op all_reduce -b 8 -e 1G --require-transport ib+gdr --json=run.json",
    },
    Example {
        what: "The same without a launcher, on each host",
        line: "coll-perf --rank 0 --world-size 2 --rendezvous node1:18516 -b 1M -e 1G",
    },
    Example {
        what: "What RDMA, and GPUDirect besides, are worth against TCP: in turn, proven, judged",
        line: "coll-perf -b 1M -e 256M --arm tcp --arm no-gdr --arm gdr",
    },
    Example {
        what: "As a step of training launches them, in buffers that NCCL knows",
        line: "coll-perf -b 64K -e 64M -G 10 -R 1",
    },
    Example {
        what: "Processors of two hosts over RDMA: on each, with its own --rank",
        line: "coll-perf --transport rdma --ib-dev mlx5_0 --rank 0 --world-size 2 --rendezvous node1:18516 -b 8 -e 64M",
    },
    Example { what: "Who holds the others up", line: "coll-perf -b 1M -e 1M -n 1000 --aligned -v" },
];

/// What follows the examples.
const MORE: &[&str] = &[
    "Environment:
  LINKPROOF_IBVERBS  library to load in place of libibverbs.so.1
  LINKPROOF_NCCL     library to load in place of libnccl.so.2, as --nccl-lib
  LINKPROOF_CUDA     library to load in place of libcuda.so.1
  LINKPROOF_NVML     library to load in place of libnvidia-ml.so.1
  NCCL_*             NCCL's own; NCCL_DEBUG_FILE and NCCL_DEBUG_SUBSYS keep its log from being read
  MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, LOCAL_RANK, and Open MPI's, PMI's and Slurm's: who is which rank",
    "Exit status:
  0  measured, and good
  1  measured, but a result was wrong, or an edge was not over what was required
  2  the command line
  3  this machine: memory, limit, library, GPU, RDMA device
  4  another rank, or the path to it
  130  interrupted; what was measured until then is printed and marked",
    "More:
  docs/collectives.md      sizes, formulas, algorithms, clocks, NCCL's evidence, arms
  docs/compatibility.md    nccl-tests' options, one by one
  docs/troubleshooting.md  each message: cause, and what to do",
];

/// What performs the collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum BackendName {
    /// GPUs, by NCCL or RCCL
    Nccl,
    /// The processors
    Host,
}

/// Where results go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Places {
    /// To a buffer of their own
    Out,
    /// Where the input was
    In,
    /// One after the other
    Both,
}

/// Rounds of each size unless something else is asked for.
const ROUNDS: u32 = 3;

/// The sizes of a run without -b and -e.
const MIN_BYTES: u64 = ByteSize::MIB;
const MAX_BYTES: u64 = 32 * ByteSize::MIB;

fn usage(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Usage, what)
}

impl Args {
    /// Which process of how many this is, if the ranks are processes.
    ///
    /// # Errors
    /// As [`Launch::of`].
    pub fn launch(&self) -> Result<Option<Launch>> {
        Launch::of(&Asked {
            rank: self.rank,
            world_size: self.world_size,
            rendezvous: self.rendezvous.clone(),
            threads: self.ranks.is_some_and(|ranks| ranks > 1),
        })
    }

    /// The number of ranks, where they are threads.
    pub fn n_ranks(&self) -> u32 {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        self.ranks.unwrap_or(processors.max(2))
    }

    /// Whether NCCL performs the collectives, and why that was chosen.
    ///
    /// # Errors
    /// With `--backend nccl` on a machine without a driver or GPU.
    pub fn wants_nccl(&self) -> Result<bool> {
        match self.backend {
            Some(BackendName::Host) => Ok(false),
            Some(BackendName::Nccl) => Driver::load().map(|_| true),
            None if self.transport.is_some() => Ok(false),
            None => Ok(Driver::load().is_ok() && nccl::is_there(self.nccl_lib.as_ref())),
        }
    }

    /// The plan of a run of the processes of `launch`, or of threads without one.
    ///
    /// # Errors
    /// As [`Args::plan`].
    pub fn plan_for(&self, launch: Option<&Launch>) -> Result<Plan> {
        let gpu = self.wants_nccl()?;
        if gpu && self.transport.is_some() {
            return Err(usage("--transport is for the host backend: NCCL chooses for itself")
                .hint("NCCL_P2P_DISABLE, NCCL_SHM_DISABLE, NCCL_NET and others tell it what to leave out"));
        }
        if !gpu && (self.require_transport.is_some() || self.shared_gpu) {
            return Err(usage(
                "--require-transport and --shared-gpu are for GPUs, and the host backend is used",
            )
            .hint("--backend nccl"));
        }
        let registered = self.registered()?;
        if !gpu && (self.cudagraph > 0 || registered) {
            return Err(usage("-G and -R are for GPUs, and the host backend is used").hint("--backend nccl"));
        }
        // Of arms each has its own transport.
        if self.arm.is_empty() {
            self.port.check(self.transport)?;
        }
        let with_gpu = |plan: Plan| Plan {
            transport: if gpu { Transport::Gpu } else { plan.transport },
            require_transport: self.require_transport,
            shared_gpu: self.shared_gpu,
            graph_launches: self.cudagraph,
            registered,
            ..plan
        };
        let Some(launch) = launch else {
            let n_ranks = if gpu { self.n_gpus()? } else { self.n_ranks() };
            return self.plan(n_ranks).map(with_gpu);
        };
        if self.transport == Some(Transport::Shm) {
            return Err(usage(
                "--transport shm is for threads of one process, and there are several processes",
            )
            .hint("--transport tcp or rdma; or no launcher, and --ranks"));
        }
        Ok(with_gpu(Plan {
            transport: self.transport.unwrap_or(Transport::Tcp),
            ..self.plan(launch.n_ranks)?
        }))
    }

    /// The number of ranks, where each has a GPU of this process.
    fn n_gpus(&self) -> Result<u32> {
        let here = Driver::load()?.gpus()?.len() as u32;
        let asked = self.ranks.unwrap_or(here);
        if asked > here {
            return Err(usage(format!("--ranks {asked} on {here} GPU(s): each rank has one of its own"))
                .hint("ranks that share a GPU are processes: start them with --rank or a launcher, and --shared-gpu"));
        }
        Ok(asked)
    }

    /// The plan of a run with `n_ranks` ranks.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] where options contradict each other, or a size rounds to nothing.
    pub fn plan(&self, n_ranks: u32) -> Result<Plan> {
        let collectives = self.op.kinds(n_ranks);
        if self.matrix.is_some() && collectives != [Kind::Alltoallv] {
            return Err(usage("--matrix is for alltoallv alone").hint("--op alltoallv --matrix FILE"));
        }
        let matrix = self.matrix.as_ref().map(|path| Traffic::read(path, n_ranks)).transpose()?;
        let plan = Plan {
            collectives,
            sizes_bytes: if matrix.is_some() { Vec::new() } else { self.sizes()? },
            dtypes: self.datatype.0.clone(),
            redops: self.redop.0.clone(),
            roots: self.root.ranks(n_ranks)?,
            placements: match self.placement {
                Places::Out => vec![Placement::OutOfPlace],
                Places::In => vec![Placement::InPlace],
                Places::Both => vec![Placement::OutOfPlace, Placement::InPlace],
            },
            n_ranks,
            transport: self.transport.unwrap_or(Transport::Shm),
            rounds: self.rounds.unwrap_or(ROUNDS),
            iterations: self.iters,
            calls_per_iteration: self.calls,
            warmup_iterations: self.warmup,
            pacing: self.pacing()?,
            check: self.check()?,
            timeout_seconds: self.timeout,
            require_transport: None,
            shared_gpu: false,
            graph_launches: 0,
            registered: false,
            matrix_bytes: matrix.map(|traffic| traffic.rows()),
        };
        let points = plan.points()?;
        if plan.check {
            points.iter().try_for_each(|point| Data::of(&point.call).map(drop))?;
        }
        if points.is_empty() {
            return Err(usage("in place has no meaning for any of these collectives, or not with -m")
                .hint("--placement out"));
        }
        Ok(plan)
    }

    fn sizes(&self) -> Result<Vec<u64>> {
        let given = |size: Option<ByteSize>| size.map(ByteSize::bytes);
        let (min, max) = (given(self.min_bytes), given(self.max_bytes));
        let first = min.unwrap_or(MIN_BYTES.min(max.unwrap_or(MIN_BYTES)));
        let last = max.unwrap_or(MAX_BYTES.max(first));
        let advance = match (self.step_bytes, self.step_factor) {
            (Some(ByteSize(0)), _) => return Err(usage("-i is 0 bytes: the sizes would never end")),
            (Some(bytes), _) => Advance::Bytes(bytes.bytes()),
            (None, factor) => Advance::Factor(factor.unwrap_or(2)),
        };
        sizes(first, last, advance).map_err(|why| usage(why).hint("-b is the smallest size, -e the largest"))
    }

    fn pacing(&self) -> Result<Pacing> {
        match self.blocking {
            3 => Ok(Pacing::Aligned),
            0 if self.aligned => Ok(Pacing::Aligned),
            0 => Ok(Pacing::Pipelined),
            1 => Err(usage("-z 1 would time the barrier between iterations together with them")
                .hint("-z 3 has the same barrier, and leaves it out of the time")),
            2 => Err(usage("-z 2 makes calls wait for their end, which those of the host backend do anyway")
                .hint("-z 0")),
            other => Err(usage(format!("-z {other} means nothing")).hint("-z 0 is pipelined, -z 3 aligned")),
        }
    }

    fn registered(&self) -> Result<bool> {
        match self.local_register {
            0 => Ok(false),
            1 => Ok(true),
            2 => Err(usage("-R 2 asks for symmetric windows, which coll-perf does not register yet")
                .hint("-R 1 registers the buffers with NCCL's other call, ncclCommRegister")),
            other => {
                Err(usage(format!("-R {other} means nothing"))
                    .hint("-R 1 registers the buffers, -R 0 does not"))
            }
        }
    }

    fn check(&self) -> Result<bool> {
        match self.check {
            0 => Ok(false),
            1 => Ok(true),
            more => Err(usage(format!("-c {more} asks for {more} more runs to be checked"))
                .hint("the timed rounds themselves are checked: -c 1, and as many --rounds as you like")),
        }
    }
}

#[cfg(test)]
mod tests;
