//! `verbs-facts`: what a verbs device does, fact by fact, against what the specification and the manual pages have.
//!
//! Facts are functions in `facts/`, grouped by topic. Each runs in a process of its own with a deadline, makes its own
//! objects on the device named, and compares; where a device legitimately differs stands in `differences.rs`, and
//! nowhere else. The library comes from `rdma-sys`, so `LINKPROOF_IBVERBS` chooses it.
#![deny(unsafe_code)]

mod differences;
mod fact;
mod facts;
mod left_out;
mod objects;
mod peer;
mod run;
mod shown;
mod verdict;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::fact::{Fact, Obstacle};
use crate::objects::{Bench, MemoryKind, choose_memory};

/// Everything is as expected, or differs as listed.
const GOOD: u8 = 0;
/// A fact failed.
const FAILED: u8 = 1;
/// The command line names no fact.
const USAGE: u8 = 2;
/// The device can't be used.
const MACHINE: u8 = 3;

/// Says, fact by fact, whether a verbs device does what the specification and the manual pages have it do.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// The device.
    #[arg(short = 'd', long = "ib-dev", value_name = "DEVICE", required_unless_present = "list")]
    device: Option<String>,
    /// Where the memory of the facts is: host, gpu (registered by its address) or dma-buf; of several, each in turn.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KIND,...", default_value = "host")]
    memory: Vec<MemoryKind>,
    /// Only facts whose name, topic::sentence, contains one of these.
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
    /// Print the names of the facts and do nothing.
    #[arg(long)]
    list: bool,
    /// In the process of one fact: establish it.
    #[arg(long, value_name = "NAME", hide = true)]
    establish: Option<String>,
    /// In a process of its own: be the other end of a connection.
    #[arg(long, hide = true)]
    peer: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let status = run(&args).unwrap_or_else(|error| {
        // Nobody reads stdout any more, or no process can be started.
        let _ = writeln!(io::stderr(), "verbs-facts: cannot go on: {error}");
        MACHINE
    });
    ExitCode::from(status)
}

fn run(args: &Args) -> io::Result<u8> {
    let device = args.device.as_deref().unwrap_or_default();
    choose_memory(args.memory.clone());
    if args.peer {
        return peer::serve(device).map(|()| GOOD);
    }
    if let Some(name) = &args.establish {
        return match facts::all().find(|fact| fact.full_name() == *name) {
            Some(fact) => run::establish(device, fact),
            None => Ok(USAGE),
        };
    }
    let (left_out, chosen): (Vec<&Fact>, Vec<&Fact>) = facts::all()
        .filter(|fact| wanted(fact, &args.filters))
        .partition(|fact| left_out::of(&fact.full_name(), &args.memory).is_some());
    if chosen.is_empty() {
        writeln!(io::stderr(), "verbs-facts: no fact has {} in its name", args.filters.join(" or "))?;
        return Ok(USAGE);
    }
    if args.list {
        return chosen
            .iter()
            .try_for_each(|fact| writeln!(io::stdout(), "{}", fact.full_name()))
            .map(|()| GOOD);
    }
    for fact in left_out {
        let why = left_out::of(&fact.full_name(), &args.memory).map_or("", |left_out| left_out.why);
        writeln!(io::stdout(), "left out {}: {why}", fact.full_name())?;
    }
    if let Err(Obstacle(what)) = Bench::open(device) {
        writeln!(io::stderr(), "verbs-facts: {what}")?;
        return Ok(MACHINE);
    }
    Ok(if run::all(device, &chosen)? { GOOD } else { FAILED })
}

fn wanted(fact: &Fact, filters: &[String]) -> bool {
    let name = fact.full_name();
    filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
}
