//! Which rank this process is, of how many, and where the ranks meet: from the options, or from whatever started it.
//!
//! Launchers say so in the environment, each in its own words (`sources`). The first that says all of it counts.
//! Without any, the ranks are threads of this process.

mod slurm;
mod sources;

use linkproof_common::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use sources::{Environment, Found};

/// The TCP port at which ranks meet unless something names another: next to the write tools' 18515.
pub const DEFAULT_PORT: u16 = 18516;

/// One process of many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// This process's rank, from 0.
    pub rank: u32,
    /// How many there are.
    pub n_ranks: u32,
    /// Its number among those on this machine, where that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub local_rank: Option<u32>,
    /// What said so: `options`, or the launcher's name.
    pub by: String,
    /// The host at which rank 0 listens.
    pub host: String,
    /// The TCP port there.
    pub port: u16,
}

/// What the options say of it.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// `--rank`.
    pub rank: Option<u32>,
    /// `--world-size`.
    pub world_size: Option<u32>,
    /// `--rendezvous`, as `HOST:PORT`.
    pub rendezvous: Option<String>,
    /// Whether `--ranks` asks for threads.
    pub threads: bool,
}

impl Launch {
    /// This process's place, or `None` where the ranks are threads of it.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] where the options or the launcher's words contradict each other, or where to meet is not
    /// known.
    pub fn of(asked: &Asked) -> Result<Option<Self>> {
        Self::within(asked, &|name| std::env::var(name).ok())
    }

    fn within(asked: &Asked, environment: Environment) -> Result<Option<Self>> {
        let found = match (asked.rank, asked.world_size) {
            (Some(rank), Some(n_ranks)) => Some(Found::by_options(rank, n_ranks)),
            (Some(_), None) => {
                return Err(usage("--rank says which, and --world-size of how many: give both"));
            }
            (None, world_size) => sources::find(environment, world_size)?,
        };
        match found {
            Some(found) if found.n_ranks > 1 => Self::complete(found, asked, environment).map(Some),
            // A launcher of one process is no launcher: torchrun with one, a Slurm step with one task.
            Some(found) => alone(&found, environment).map(|()| None),
            None if asked.world_size.is_some_and(|n| n > 1) => {
                Err(usage("--world-size says of how many, and --rank which: give both")
                    .hint("or leave both to a launcher: torchrun, mpirun, srun; or have threads: --ranks"))
            }
            None => Ok(None),
        }
    }

    fn complete(found: Found, asked: &Asked, environment: Environment) -> Result<Self> {
        let Found { rank, n_ranks, local_rank, by, .. } = found;
        if asked.threads {
            return Err(usage(format!(
                "{by} has started rank {rank} of {n_ranks}, and --ranks would have threads in each"
            ))
            .hint("leave --ranks out: the launcher decides how many there are"));
        }
        if rank >= n_ranks {
            return Err(usage(format!("rank {rank} of {n_ranks}, says {by}: ranks count from 0")));
        }
        let (host, port) = match &asked.rendezvous {
            Some(place) => parse_place(place)?,
            None => (found.host(environment)?, sources::port(environment)?.unwrap_or(DEFAULT_PORT)),
        };
        Ok(Self { rank, n_ranks, local_rank, by: by.to_owned(), host, port })
    }

    /// In words: `rank 1 of 4 (torchrun), meeting at node1:29500`.
    pub fn describe(&self) -> String {
        let Self { rank, n_ranks, by, host, port, .. } = self;
        format!("rank {rank} of {n_ranks} ({by}), meeting at {host}:{port}")
    }
}

/// Refuses to be the only rank where a launcher has started several: each would measure alone, and all at the same time.
fn alone(found: &Found, environment: Environment) -> Result<()> {
    let Some(several) = sources::of_several(environment)? else { return Ok(()) };
    Err(usage(format!(
        "{} says that this is the only rank, and {} has started it as rank {} of {}",
        found.by, several.by, several.rank, several.n_ranks
    ))
    .hint("each of them would measure alone: leave --rank and --world-size out, and the variables of one launcher"))
}

/// `HOST:PORT`, `HOST`, or an IPv6 address in brackets.
fn parse_place(text: &str) -> Result<(String, u16)> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(DEFAULT_PORT), str::parse).ok().filter(|port| *port > 0);
    match port {
        Some(port) if !host.is_empty() => Ok((host.to_owned(), port)),
        _ => Err(usage(format!("--rendezvous {text} is no HOST:PORT")).hint("for instance node1:18516")),
    }
}

fn usage(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Usage, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(asked: Asked, variables: &[(&str, &str)]) -> Result<Option<Launch>> {
        let variables: std::collections::HashMap<_, _> = variables.iter().copied().collect();
        Launch::within(&asked, &|name| variables.get(name).map(|value| (*value).to_owned()))
    }

    fn place(variables: &[(&str, &str)]) -> (u32, u32, String, String, u16) {
        let launch = of(Asked::default(), variables).unwrap().unwrap();
        (launch.rank, launch.n_ranks, launch.by, launch.host, launch.port)
    }

    #[test]
    fn launchers_are_understood_in_their_own_words() {
        let torchrun = [
            ("RANK", "1"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", "1"),
            ("MASTER_ADDR", "n1"),
            ("MASTER_PORT", "29500"),
        ];
        assert_eq!(place(&torchrun), (1, 4, "torchrun".into(), "n1".into(), 29500));
        let mpirun = [
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "3"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
        ];
        assert_eq!(place(&mpirun), (3, 4, "Open MPI".into(), "127.0.0.1".into(), DEFAULT_PORT));
        let hydra =
            [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "2"), ("MPI_LOCALRANKID", "0")];
        assert_eq!(place(&hydra), (0, 2, "PMI".into(), "127.0.0.1".into(), DEFAULT_PORT));
        let srun = [
            ("SLURM_PROCID", "5"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_STEP_NODELIST", "gpu[08-11],login1"),
        ];
        assert_eq!(place(&srun), (5, 8, "Slurm".into(), "gpu08".into(), DEFAULT_PORT));
    }

    #[test]
    fn a_batch_script_that_nobody_ran_with_srun_is_one_process() {
        let sbatch = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8"), ("SLURM_NODELIST", "gpu[08-11]")];
        assert_eq!(of(Asked::default(), &sbatch).unwrap(), None);
    }

    #[test]
    fn an_indexed_job_needs_to_be_told_how_many() {
        let job = [("JOB_COMPLETION_INDEX", "1"), ("MASTER_ADDR", "job-0.svc")];
        assert_eq!(of(Asked::default(), &job).unwrap(), None);
        let launch = of(Asked { world_size: Some(4), ..Asked::default() }, &job).unwrap().unwrap();
        assert_eq!((launch.rank, launch.n_ranks, launch.by.as_str()), (1, 4, "an indexed job"));
    }

    #[test]
    fn options_come_before_launchers() {
        let asked = Asked {
            rank: Some(0),
            world_size: Some(2),
            rendezvous: Some("[::1]:7000".into()),
            threads: false,
        };
        let launch = of(asked, &[("RANK", "5"), ("WORLD_SIZE", "9")]).unwrap().unwrap();
        assert_eq!((launch.rank, launch.n_ranks, launch.host.as_str(), launch.port), (0, 2, "::1", 7000));
    }

    #[test]
    fn one_process_is_no_launch_and_nothing_is_none() {
        assert_eq!(of(Asked::default(), &[]).unwrap(), None);
        assert_eq!(of(Asked::default(), &[("RANK", "0"), ("WORLD_SIZE", "1")]).unwrap(), None);
    }

    #[test]
    fn ranks_of_size_1_that_were_started_as_two_are_refused() {
        let mpirun = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")];
        let one = Asked { rank: Some(0), world_size: Some(1), ..Asked::default() };
        let error = of(one, &mpirun).unwrap_err();
        assert!(error.what.ends_with("Open MPI has started it as rank 1 of 2"), "{}", error.what);
        let both = [&mpirun[..], &[("RANK", "0"), ("WORLD_SIZE", "1")]].concat();
        assert!(
            of(Asked::default(), &both).unwrap_err().what.starts_with("torchrun says that this is the only")
        );
        let size = Asked { world_size: Some(1), ..Asked::default() };
        assert!(
            of(size, &mpirun)
                .unwrap_err()
                .what
                .contains("--world-size 1, and Open MPI has started rank 1 of 2")
        );
    }

    #[test]
    fn contradictions_are_refused_in_words() {
        let refusal = |asked: Asked, variables: &[(&str, &str)]| {
            let error = of(asked, variables).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Usage);
            error.what
        };
        let two = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "n1")];
        assert!(
            refusal(Asked { threads: true, ..Asked::default() }, &two)
                .contains("torchrun has started rank 0 of 2")
        );
        assert!(refusal(Asked { rank: Some(1), ..Asked::default() }, &[]).contains("give both"));
        assert!(refusal(Asked { world_size: Some(2), ..Asked::default() }, &[]).contains("give both"));
        let beyond = [("RANK", "2"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "n1")];
        assert!(refusal(Asked::default(), &beyond).contains("count from 0"));
        assert!(refusal(Asked::default(), &[("RANK", "x"), ("WORLD_SIZE", "2")]).contains("RANK is \"x\""));
        let far = [
            ("OMPI_COMM_WORLD_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ];
        assert!(refusal(Asked::default(), &far).contains("where rank 0 is"));
        for bad in ["", ":5", "host:", "host:0", "host:99999"] {
            assert!(parse_place(bad).is_err(), "{bad}");
        }
    }
}
