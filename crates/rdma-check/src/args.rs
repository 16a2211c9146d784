//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use linkproof_common::args::help::{Example, long_help};
use linkproof_common::args::parse_seconds;

use crate::View;

/// Is this node fit to measure over RDMA, and if not, why not
///
/// Looks at devices, ports, addresses, limits, the PCI bus, GPUs and counters, and says what stands in a run's way, what
/// slows it, and what is good: worst first, each with what was seen, what it does, and what to do. Reads only, and needs
/// no privilege; what it can't see it says.
#[derive(Parser, Clone, Debug)]
#[command(name = "rdma-check", version, disable_help_subcommand = true, after_help = "--help shows examples and the exit statuses", after_long_help = long_help(EXAMPLES, MORE))]
pub struct Args {
    /// A part of the picture; without it, all.
    #[command(subcommand)]
    pub part: Option<Part>,
    /// How it is judged.
    #[command(flatten)]
    pub judgement: JudgementArgs,
    /// How it is shown.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// A part of the picture.
#[derive(Subcommand, Clone, Copy, Debug)]
pub enum Part {
    /// The GID table of each port, and which entry would be chosen
    Gids,
    /// The PCI bus: each adapter's link, and the distances of GPUs and adapters
    Topo,
    /// Locked memory, files, huge pages, and what the devices allow
    Limits,
    /// What the adapters have counted that means trouble
    Counters,
}

/// How it is judged.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "The judgement")]
pub struct JudgementArgs {
    /// Exit 1 where there are warnings
    #[arg(long, global = true)]
    pub strict: bool,
    /// Look twice, this many seconds apart, and warn of trouble that was counted between
    #[arg(long, value_name = "SECONDS", global = true, value_parser = parse_seconds)]
    pub watch: Option<f64>,
    /// Say whether this run would work here: a command line of write-bw, write-lat or coll-perf, read as the tool would read it
    #[arg(long = "for", value_name = "COMMAND", global = true)]
    pub run: Option<String>,
    /// Set both ends side by side: the server of write-bw or write-lat on HOST is asked what it sees of its machine. Others don't answer
    #[arg(long, value_name = "HOST", global = true)]
    pub peer: Option<String>,
    /// TCP port of that server
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = 18515, global = true, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Look at a recorded tree with /sys and /proc in it instead of this machine; libraries are not asked then
    #[arg(long, value_name = "DIR", global = true)]
    pub root: Option<PathBuf>,
}

/// How it is shown.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Write everything as one JSON document to stdout, or to FILE beside the text
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, global = true)]
    pub json: Option<Option<PathBuf>>,
    /// Write what a monitoring system wants to FILE, in Prometheus' text format, whole or not at all
    #[arg(long, value_name = "FILE", global = true)]
    pub metrics: Option<PathBuf>,
}

impl Args {
    /// What is to be shown.
    pub fn view(&self) -> View {
        match self.part {
            None => View::All,
            Some(Part::Gids) => View::Gids,
            Some(Part::Topo) => View::Topo,
            Some(Part::Limits) => View::Limits,
            Some(Part::Counters) => View::Counters,
        }
    }

    /// How long lies between the two looks.
    pub fn watch(&self) -> Option<Duration> {
        self.judgement.watch.map(Duration::from_secs_f64)
    }
}

/// What `--help` shows, the usual first.
const EXAMPLES: &[Example] = &[
    Example { what: "Everything", line: "rdma-check" },
    Example { what: "Which GID, and why", line: "rdma-check gids" },
    Example { what: "Which adapter is near which GPU", line: "rdma-check topo" },
    Example { what: "Would this run work", line: "rdma-check --for 'write-bw -d mlx5_0 -s 1M -q 8'" },
    Example { what: "Do the two ends fit together", line: "rdma-check --peer node-b" },
    Example { what: "Do errors grow", line: "rdma-check counters --watch 10" },
    Example {
        what: "In a job's prologue: no warnings accepted",
        line: "rdma-check --strict --json=check.json",
    },
    Example {
        what: "For node exporter's text collector",
        line: "rdma-check --metrics /var/lib/node_exporter/rdma.prom",
    },
    Example { what: "A node that somebody has recorded", line: "rdma-check --root ./node-a" },
];

/// What follows the examples.
const MORE: &[&str] = &[
    "Exit status:
  0  fit, perhaps with warnings
  1  warnings, with --strict
  2  the command line was not understood
  3  not fit: something stops every run",
    "Codes and what to do about them: docs/troubleshooting.md",
];

#[cfg(test)]
mod tests {
    use super::*;
    use linkproof_common::args::{Parse, parse_knowing};

    #[test]
    fn each_example_of_the_help_is_understood() {
        for Example { line, .. } in EXAMPLES {
            let words = crate::run::words(line).unwrap();
            let parsed = parse_knowing::<Args>(words.iter().map(Into::into), |_| None);
            assert!(matches!(parsed, Ok(Parse::Run(_))), "{line}");
        }
    }
}
