//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use linkproof_common::args::help::{Example, long_help};

use crate::arm::Sequence;
use crate::baseline::parse_name;
use crate::import::Format;
use crate::judge::Primary;
use crate::steps::Kind;

/// Is B really faster than A, by how much, and how sure is that
///
/// Compares results of write-bw, write-lat and coll-perf. Each argument is an arm: a FILE of --json, or LABEL=FILE;
/// `*` and `?` in it name several runs of one arm (quote it: the arm needs the pattern, not the shell). The first arm
/// is what the others are compared with.
#[derive(Parser, Clone, Debug)]
#[command(name = "perf-compare", version, args_conflicts_with_subcommands = true, disable_help_subcommand = true, after_help = "--help shows examples, the method and the exit statuses", after_long_help = long_help(EXAMPLES, &[METHOD, EXIT_STATUSES]))]
pub struct Args {
    /// Something else than a comparison of results.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Arms: A.json B.json, or A='a-*.json' B='b-*.json' for several runs of each
    #[arg(value_name = "ARM")]
    pub arms: Vec<String>,
    /// How they are judged.
    #[command(flatten)]
    pub judgement: JudgementArgs,
    /// How the comparison is shown.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What else there is to do.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Read what another tool wrote and write it as JSON that can be compared, a line for each file
    Import(ImportArgs),
    /// Training steps: the time saved and the throughput gained, from logs of step times
    Steps(StepsArgs),
    /// Time against size: latency and bandwidth, where that model fails, and a gate against the line rate
    Fit(FitArgs),
    /// Estimate what a faster link is worth to a training step
    Value(ValueArgs),
    /// Keep an accepted result as the reference, and hold later runs against it
    #[command(subcommand)]
    Baseline(BaselineCommand),
    /// Which of many nodes, or pairs of them, that should be alike is odd
    Fleet(FleetArgs),
}

/// What to do with a reference.
#[derive(Subcommand, Clone, Debug)]
pub enum BaselineCommand {
    /// Keep these runs as the reference NAME
    Save(SaveArgs),
    /// Exit 1 where later runs are worse than the reference NAME by more than is tolerated
    Check(CheckArgs),
}

/// What is kept.
#[derive(clap::Args, Clone, Debug)]
pub struct SaveArgs {
    /// What it is called
    #[arg(value_name = "NAME", value_parser = parse_name)]
    pub name: String,
    /// The accepted runs, three or more: files or 'PATTERN'
    #[arg(value_name = "RESULTS", required = true)]
    pub results: Vec<String>,
    /// Folder of the references
    #[arg(long, value_name = "DIR", default_value = "baselines")]
    pub dir: PathBuf,
    /// Take the place of one of that name
    #[arg(long)]
    pub replace: bool,
}

/// What is held against the reference.
#[derive(clap::Args, Clone, Debug)]
pub struct CheckArgs {
    /// Which reference
    #[arg(value_name = "NAME", value_parser = parse_name)]
    pub name: String,
    /// Later runs: files or 'PATTERN'
    #[arg(value_name = "RESULTS", required = true)]
    pub results: Vec<String>,
    /// Change for the worse that is tolerated
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, default_value = "5%")]
    pub tolerance: f64,
    /// Folder of the references
    #[arg(long, value_name = "DIR", default_value = "baselines")]
    pub dir: PathBuf,
    /// Compare all the same where this differs: traffic, ranks, pacing, validity, a condition by its name, or all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub allow: Vec<String>,
    /// Exit 1 too where the runs differ too much, or are too few, to tell
    #[arg(long)]
    pub require_decision: bool,
    /// Write what came of it as one JSON document to stdout, or to FILE beside the text
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub json: Option<Option<PathBuf>>,
}

/// Whose results, and how they are told apart.
#[derive(clap::Args, Clone, Debug)]
pub struct FleetArgs {
    /// A file for each member, or LABEL='PATTERN' for several runs of one
    #[arg(value_name = "RESULTS", required = true)]
    pub results: Vec<String>,
    /// Tell runs apart by conditions instead, for instance hosts.client.name,hosts.server.name for each pair
    #[arg(long, value_name = "CONDITION", value_delimiter = ',')]
    pub by: Vec<String>,
    /// The smallest difference worth acting on, in per cent [default: 1 for bandwidth, 3 for latency]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub threshold: Option<f64>,
    /// Compare all the same where this differs: traffic, ranks, pacing, validity, a condition by its name, or all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub allow: Vec<String>,
    /// Show every member
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Write what came of it as one JSON document to stdout, or to FILE beside the text
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub json: Option<Option<PathBuf>>,
}

/// What is read.
#[derive(clap::Args, Clone, Debug)]
pub struct ImportArgs {
    /// Whose output it is
    #[arg(value_enum)]
    pub format: Format,
    /// Files, one run each
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// The collective, where the file does not name it: all_reduce, alltoall, …
    #[arg(long, value_name = "NAME")]
    pub op: Option<String>,
}

/// Which logs, and how they are read.
#[derive(clap::Args, Clone, Debug)]
pub struct StepsArgs {
    /// A's logs: FILE, or 'PATTERN' for several rounds; lines of step number and seconds
    #[arg(value_name = "A")]
    pub a: String,
    /// B's logs
    #[arg(value_name = "B")]
    pub b: String,
    /// Steps at the beginning that compile and warm up, and are left out
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub skip: u64,
    /// What the logs have
    #[arg(long, value_enum, default_value = "running")]
    pub means: Kind,
    /// How the runs were made; logs do not say, and without it there is no verdict
    #[arg(long, value_name = "ORDER", value_enum, default_value = "auto")]
    pub order: Sequence,
    /// Write what came of it as one JSON document to stdout, or to FILE beside the text
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub json: Option<Option<PathBuf>>,
}

/// What is fitted, and held to what.
#[derive(clap::Args, Clone, Debug)]
pub struct FitArgs {
    /// A result, or 'PATTERN' for several runs of the same, with two sizes or more
    #[arg(value_name = "RESULTS")]
    pub results: String,
    /// Rate of the link, in 10⁹ bits a second: 400G
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub line_rate: Option<f64>,
    /// Exit 1 where the fitted bandwidth is a smaller share of the line rate
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, requires = "line_rate")]
    pub require: Option<f64>,
    /// Write what came of it as one JSON document to stdout, or to FILE beside the text
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub json: Option<Option<PathBuf>>,
}

/// Shares of a step.
#[derive(clap::Args, Clone, Debug)]
pub struct ValueArgs {
    /// Share of a step that is communication
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub communication: f64,
    /// Part of that which the faster link takes away
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub removable: f64,
    /// Part of that which is hidden behind computation anyway [default: none]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub overlapped: Option<f64>,
    /// Write what came of it as one JSON document to stdout, or to FILE beside the text
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub json: Option<Option<PathBuf>>,
}

/// How arms are judged.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "The judgement")]
pub struct JudgementArgs {
    /// The smallest change worth acting on, in per cent [default: 1 for bandwidth, 3 for latency, 5 for a 99th percentile]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub threshold: Option<f64>,
    /// What the primary figure is of: the geometric mean over all sizes, or one size
    #[arg(long, value_name = "mean|SIZE", default_value = "mean")]
    pub primary: Primary,
    /// How the runs were made
    #[arg(long, value_name = "ORDER", value_enum, default_value = "auto")]
    pub order: Sequence,
    /// Compare all the same where this differs: traffic, ranks, pacing, validity, a condition by its name, or all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub allow: Vec<String>,
    /// Exit 1 where the primary figure gets no decision: too few rounds, or no measurable difference
    #[arg(long)]
    pub require_decision: bool,
}

/// How the comparison is shown.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Write the comparison as one JSON document to stdout, or to FILE beside the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub json: Option<Option<PathBuf>>,
    /// Show Markdown for a ticket instead of the table
    #[arg(long)]
    pub markdown: bool,
    /// Write the comparison as a page with curves and every round to FILE, which needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Show every round
    #[arg(short = 'v', long)]
    pub verbose: bool,
}

/// A percentage as a fraction: `5`, `5%`, `0.5 %`.
///
/// # Errors
/// What would have been understood.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let number: f64 = text
        .trim_end_matches('%')
        .trim()
        .parse()
        .map_err(|_| "a percentage is a number, for instance 2 or 2.5%".to_owned())?;
    if number > 0.0 && number <= 100.0 {
        Ok(number / 100.0)
    } else {
        Err("more than 0 and at most 100 %".to_owned())
    }
}

/// A rate in 10⁹ bits a second: `400G`, `400Gb/s`.
///
/// # Errors
/// What would have been understood.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("Gb/s").or_else(|| text.strip_suffix('G'));
    let rate = number.and_then(|number| number.parse::<f64>().ok());
    rate.filter(|rate| *rate > 0.0 && rate.is_finite())
        .ok_or_else(|| "a rate is a number of 10⁹ bits a second, for instance 400G or 100Gb/s".to_owned())
}

/// What `--help` shows, the usual first.
const EXAMPLES: &[Example] = &[
    Example {
        what: "Six runs of each, made in turn: the verdict",
        line: "perf-compare tcp=tcp-*.json rdma=rdma-*.json",
    },
    Example {
        what: "Two files: medians, noise and the change, without a verdict",
        line: "perf-compare tcp.json rdma.json",
    },
    Example {
        what: "Only changes of 5 % and more matter, and the largest size decides",
        line: "perf-compare --threshold 5% --primary 64M a=a-*.json b=b-*.json",
    },
    Example {
        what: "For a ticket, and as a page: the transport is what was changed, so don't warn of it",
        line: "perf-compare --allow plan.transport --markdown --html=report.html tcp=tcp-*.json rdma=rdma-*.json",
    },
    Example {
        what: "For a script: exit status 1 where B is worse or nothing was decided",
        line: "perf-compare --require-decision --json=comparison.json old=old-*.json new=new-*.json",
    },
    Example {
        what: "perftest's table, made comparable",
        line: "perf-compare import perftest ib_write_bw.txt > ib_write_bw.json",
    },
    Example {
        what: "Keep accepted runs; exit status 1 where later ones are 5 % worse, and more than runs differ anyway",
        line: "perf-compare baseline save rack7 accepted-*.json",
    },
    Example { what: "The same, later", line: "perf-compare baseline check rack7 today.json --tolerance 5%" },
    Example {
        what: "Many nodes that should be alike: which one is odd",
        line: "perf-compare fleet node-*.json",
    },
    Example {
        what: "Accept a link: exit status 1 where the fitted bandwidth is below 90 % of 400 Gb/s",
        line: "perf-compare fit --line-rate 400G --require 90% all-sizes.json",
    },
    Example {
        what: "Training steps, from logs of running means",
        line: "perf-compare steps --skip 5 tcp-*.csv rdma-*.csv",
    },
];

const METHOD: &str = "Method (docs/measuring.md, \"Comparing two arms\"):
  Rounds are compared, not the samples within them. A run is a round; of a single run its own rounds are taken.
  Change: the Hodges-Lehmann estimate of ln(B/A), as a percentage of A, with its exact 95 % interval.
  From 6 rounds made in turn: in pairs (signed ranks). 4 or 5: all with all (rank sums). 3 or fewer, or all runs of
  one arm before those of the other: no verdict, since any drift would look like a difference.
  better, worse             the interval excludes no change; the change reaches the threshold
                            and, from 6 rounds, 3 times the worse noise / the root of rounds, or
                            5 times that of the pairs' differences
  changed, below threshold  it excludes no change, and the change is smaller
  equal within threshold    the whole interval is within the threshold: evidence of no change
  no measurable difference  otherwise: the measurement can't tell
  One primary figure has the verdict that counts. Odd rounds are shown and never dropped.
  baseline check: a point regressed where it is worse by more than --tolerance and by more than runs differ anyway, as
  1 of 100 checks of runs that are alike has it. A baseline of fewer than three runs decides nothing.
  fleet: a member is odd where it is further from the median than the threshold, and than the farthest in 99 of 100
  fleets of as many alike members. In fewer than five nobody is.";

const EXIT_STATUSES: &str = "Exit status:
  0  compared
  1  the primary figure is worse; undecided, with --require-decision; less than fit's --require;
     worse than a baseline, or a member of a fleet worse than the rest
  2  the command line, a file that can't be read, or results that are not comparable
  3  this machine: the output could not be written";

#[cfg(test)]
mod tests {
    use super::*;
    use linkproof_common::args::{Parse, Parsed, parse};

    #[test]
    fn each_example_of_the_help_is_understood() {
        for Example { line, .. } in EXAMPLES {
            let parsed = parse::<Args>(line.split(" > ").next().unwrap().split_whitespace().map(Into::into));
            let Ok(Parse::Run(Parsed { args, .. })) = parsed else { panic!("{line}: {:?}", parsed.err()) };
            assert!(args.arms.len() == 2 || args.command.is_some(), "{line}");
        }
    }

    #[test]
    fn a_percentage_is_a_number_above_nothing() {
        assert_eq!(["5", "5%", "0.5 %"].map(parse_percent), [Ok(0.05), Ok(0.05), Ok(0.005)]);
        assert_eq!(["400G", "100Gb/s"].map(parse_rate), [Ok(400.0), Ok(100.0)]);
        assert!(["400", "G", "-1G", "infG", "400GB"].iter().all(|text| parse_rate(text).is_err()));
        assert!(["0", "-1", "x", "101", "nan", ""].iter().all(|text| parse_percent(text).is_err()));
    }
}
