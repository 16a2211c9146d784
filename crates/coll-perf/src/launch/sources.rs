//! What the launchers put into the environment.

use linkproof_common::error::Result;

use super::{slurm, usage};

/// A variable of the environment by name.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What a launcher says.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) rank: u32,
    pub(super) n_ranks: u32,
    pub(super) local_rank: Option<u32>,
    /// The launcher's name.
    pub(super) by: &'static str,
    /// How many of them are on this machine.
    local_size: Option<u32>,
}

/// The names that a launcher uses.
struct Source {
    by: &'static str,
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
    local_size: &'static str,
}

/// The step's number of tasks, not the job's: a batch script without srun is one process, whatever the job has.
const SOURCES: [Source; 4] = [
    Source {
        by: "torchrun",
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_size: "LOCAL_WORLD_SIZE",
    },
    Source {
        by: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
    },
    Source {
        by: "PMI",
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        local_size: "MPI_LOCALNRANKS",
    },
    Source {
        by: "Slurm",
        rank: "SLURM_PROCID",
        size: "SLURM_STEP_NUM_TASKS",
        local_rank: "SLURM_LOCALID",
        local_size: "",
    },
];

/// The first source that says both which rank and of how many. `world_size` is what the options say, for launchers that
/// know only which; they must not say otherwise than one that knows.
pub(super) fn find(environment: Environment, world_size: Option<u32>) -> Result<Option<Found>> {
    for source in SOURCES {
        let Some(found) = source.look(environment)? else { continue };
        if let Some(asked) = world_size.filter(|asked| *asked != found.n_ranks) {
            return Err(usage(format!(
                "--world-size {asked}, and {} has started rank {} of {}",
                found.by, found.rank, found.n_ranks
            ))
            .hint("leave --world-size out: the launcher says how many there are"));
        }
        return Ok(Some(found));
    }
    let index = number(environment, "JOB_COMPLETION_INDEX")?;
    let job =
        |(rank, n_ranks)| Found { rank, n_ranks, local_rank: None, by: "an indexed job", local_size: None };
    Ok(index.zip(world_size).map(job))
}

/// A source that has started several, whatever others say.
pub(super) fn of_several(environment: Environment) -> Result<Option<Found>> {
    for source in SOURCES {
        if let Some(found) = source.look(environment)?.filter(|found| found.n_ranks > 1) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

impl Source {
    fn look(&self, environment: Environment) -> Result<Option<Found>> {
        let (rank, n_ranks) = (number(environment, self.rank)?, number(environment, self.size)?);
        let (Some(rank), Some(n_ranks)) = (rank, n_ranks) else { return Ok(None) };
        Ok(Some(Found {
            rank,
            n_ranks,
            local_rank: number(environment, self.local_rank)?,
            by: self.by,
            local_size: number(environment, self.local_size)?,
        }))
    }
}

fn number(environment: Environment, name: &str) -> Result<Option<u32>> {
    let Some(text) = environment(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    text.trim().parse().map(Some).map_err(|_| usage(format!("{name} is {text:?}, and should be a number")))
}

/// The port at which ranks meet, if something names one.
pub(super) fn port(environment: Environment) -> Result<Option<u16>> {
    let port = number(environment, "MASTER_PORT")?;
    let valid = |port: u32| u16::try_from(port).ok().filter(|port| *port > 0);
    port.map(|port| valid(port).ok_or_else(|| usage(format!("MASTER_PORT is {port}, which is no TCP port"))))
        .transpose()
}

impl Found {
    pub(super) fn by_options(rank: u32, n_ranks: u32) -> Self {
        Self { rank, n_ranks, local_rank: None, by: "options", local_size: None }
    }

    /// The host of rank 0.
    pub(super) fn host(&self, environment: Environment) -> Result<String> {
        if let Some(host) = environment("MASTER_ADDR").filter(|host| !host.is_empty()) {
            return Ok(host);
        }
        if self.local_size == Some(self.n_ranks) {
            return Ok("127.0.0.1".to_owned());
        }
        let nodes = || environment("SLURM_STEP_NODELIST").or_else(|| environment("SLURM_NODELIST"));
        let first = (self.by == "Slurm").then(nodes).flatten().and_then(|list| slurm::first_host(&list));
        first.ok_or_else(|| {
            usage(format!("{} does not say where rank 0 is", self.by)).hint(
                "name its host: MASTER_ADDR in the environment of every rank, or --rendezvous HOST:PORT",
            )
        })
    }
}
