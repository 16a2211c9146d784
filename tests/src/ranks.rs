//! Ranks of `coll-perf` as processes: started by hand, or as a launcher would.

use nix::unistd::gethostname;

use crate::{Finished, Running, Tool, free_port};

/// What tells a process which rank it is.
#[derive(Clone, Copy, Debug)]
pub enum Launcher {
    /// Options.
    Hand,
    /// The variables of torchrun.
    Torchrun,
    /// The variables of Slurm's srun.
    Slurm,
}

/// The ranks of one run, which meet at a port of their own.
#[derive(Clone, Copy, Debug)]
pub struct Ranks {
    count: u32,
    port: u16,
    launcher: Launcher,
    backend: &'static str,
}

impl Ranks {
    /// So many, started by hand.
    pub fn of(count: u32) -> Self {
        Self::by(Launcher::Hand, count)
    }

    /// So many, started as `launcher` does.
    pub fn by(launcher: Launcher, count: u32) -> Self {
        Self { count, port: free_port(), launcher, backend: "host" }
    }

    /// The same over another backend than the host's.
    pub fn over(self, backend: &'static str) -> Self {
        Self { backend, ..self }
    }

    /// The same place to meet, for ranks that were told of `count`.
    pub fn told(self, count: u32) -> Self {
        Self { count, ..self }
    }

    /// Where they meet.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Rank `rank` with the options in `line`.
    pub fn rank(&self, rank: u32, line: &str) -> Tool {
        let Self { count, port, backend, .. } = self;
        let tool = Tool::new("coll-perf").args(&format!("--backend {backend}")).args(line);
        let number = |value: u32| value.to_string();
        match self.launcher {
            Launcher::Hand => {
                tool.args(&format!("--rank {rank} --world-size {count} --rendezvous 127.0.0.1:{port}"))
            }
            Launcher::Torchrun => tool
                .env("RANK", number(rank))
                .env("WORLD_SIZE", number(*count))
                .env("LOCAL_RANK", number(rank))
                .env("LOCAL_WORLD_SIZE", number(*count))
                .env("MASTER_ADDR", "localhost")
                .env("MASTER_PORT", port.to_string()),
            // The list of hosts is what says where rank 0 is.
            Launcher::Slurm => tool
                .env("SLURM_PROCID", number(rank))
                .env("SLURM_STEP_NUM_TASKS", number(*count))
                .env("SLURM_NTASKS", number(*count))
                .env("SLURM_LOCALID", number(rank))
                .env("SLURM_STEP_NODELIST", "localhost,node[02-05]")
                .env("MASTER_PORT", port.to_string()),
        }
    }

    /// Starts all with the same options.
    pub fn start(&self, line: &str) -> Vec<Running> {
        self.start_with(line, |tool, _| tool)
    }

    /// Starts all; `change` has each before that.
    pub fn start_with(&self, line: &str, change: impl Fn(Tool, u32) -> Tool) -> Vec<Running> {
        // Rank 0 last: the others have to wait until it listens.
        let mut ranks: Vec<Running> =
            (0..self.count).rev().map(|rank| change(self.rank(rank, line), rank).start()).collect();
        ranks.reverse();
        ranks
    }

    /// Runs all with the same options, and waits for their ends.
    pub fn run(&self, line: &str) -> Vec<Finished> {
        self.start(line).into_iter().map(Running::finish).collect()
    }
}

/// A rank of this machine as messages name it.
pub fn rank_name(rank: u32, pid: u32) -> String {
    let host = gethostname().map_or_else(|_| "?".into(), |name| name.to_string_lossy().into_owned());
    format!("rank {rank} (host {host}, pid {pid})")
}
