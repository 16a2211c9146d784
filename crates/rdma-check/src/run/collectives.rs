//! A run of coll-perf, judged as one of its processes would judge it before it meets the other ranks.

use coll_perf::args::Args;
use coll_perf::backend::host::rdma::{check_device, check_pinned, pinned_bytes};
use coll_perf::backend::nccl;
use coll_perf::launch::Launch;
use coll_perf::plan::{Plan, Transport};
use coll_perf::preflight::check_memory;
use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::host::HostFiles;
use linkproof_common::node::Node;

use super::{Run, port};

/// Its options and plan.
#[derive(Clone, Debug)]
pub(super) struct Collectives {
    args: Args,
    launch: Option<Launch>,
    /// Not there where this machine lacks what the plan depends on: a driver, a GPU.
    plan: Result<Plan>,
}

impl Collectives {
    /// Of `args`, in this process's environment, from which the tool would learn which rank it is.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`]: the tool's own.
    pub(super) fn of(args: Args) -> Result<Self> {
        if !args.arm.is_empty() {
            let what = "--for asks about one run, and --arm makes several";
            return Err(Error::new(ErrorKind::Usage, what)
                .hint("ask about each arm by itself: its options, or --transport"));
        }
        let launch = args.launch()?;
        let plan = args.plan_for(launch.as_ref());
        match plan {
            Err(error) if error.kind == ErrorKind::Usage => Err(error),
            plan => Ok(Self { args, launch, plan }),
        }
    }

    fn transport(&self) -> Transport {
        // Only GPUs can be lacking.
        self.plan.as_ref().map_or(Transport::Gpu, |plan| plan.transport)
    }

    /// Whether what the node has of adapters and GPUs matters to it.
    pub(super) fn uses_node(&self) -> bool {
        self.transport() == Transport::Gpu || self.needs_port()
    }

    /// Whether it can't do without an RDMA device of this node.
    pub(super) fn needs_port(&self) -> bool {
        self.transport() == Transport::Rdma && port::is_of_node(&self.args.port.wish().wish())
    }

    /// Ranks that are threads of one process.
    fn ranks_here(&self, plan: &Plan) -> u32 {
        if self.launch.is_some() { 1 } else { plan.n_ranks }
    }

    /// What would come of it on `node`.
    pub(super) fn look(&self, node: &Node, files: &HostFiles, run: &mut Run) {
        let plan = match &self.plan {
            Ok(plan) => plan,
            Err(error) => return run.failures.push(error.clone()),
        };
        run.ranks = Some(self.describe(plan));
        run.failures.extend(check_memory(plan, self.launch.as_ref(), files).err());
        let stopped = match plan.transport {
            Transport::Rdma if self.needs_port() => self.look_at_port(plan, node, run),
            Transport::Gpu => self.look_at_nccl(run),
            Transport::Shm | Transport::Tcp | Transport::Rdma => Ok(()),
        };
        run.failures.extend(stopped.err());
    }

    fn describe(&self, plan: &Plan) -> String {
        let carrier = match plan.transport {
            Transport::Shm => "the host backend, over shared memory",
            Transport::Tcp => "the host backend, over TCP",
            Transport::Rdma => "the host backend, over RDMA",
            Transport::Gpu => "GPUs with NCCL",
        };
        match &self.launch {
            Some(launch) => format!("{carrier}, rank {} of {}", launch.rank, plan.n_ranks),
            None => format!("{carrier}, {} ranks here", plan.n_ranks),
        }
    }

    fn look_at_port(&self, plan: &Plan, node: &Node, run: &mut Run) -> Result<()> {
        let rank = self.launch.as_ref().map_or(0, |launch| launch.rank);
        let (bytes, ranks) = (pinned_bytes(plan, rank)?, self.ranks_here(plan));
        run.pins_bytes = Some(bytes * u64::from(ranks));
        let wish = self.args.port.wish();
        let chosen = port::look(wish.wish(), node, run);
        let name = chosen.map_or("any device", |(device, _)| &device.name);
        if let Some(limits) = chosen.and_then(|(device, _)| device.limits.as_ref()) {
            check_device(plan.n_ranks, name, limits)?;
        }
        node.limits.memlock.as_ref().map_or(Ok(()), |limit| check_pinned(limit, bytes, ranks, name))
    }

    /// The plan has seen the driver and the GPUs; the library is left.
    fn look_at_nccl(&self, run: &mut Run) -> Result<()> {
        let library = nccl::describe(self.args.nccl_lib.as_ref())?;
        run.ranks = run.ranks.take().map(|ranks| format!("{ranks}; {library}"));
        Ok(())
    }
}
