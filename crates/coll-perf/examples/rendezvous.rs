//! Ranks that meet and do nothing else, for `benches/rendezvous`: what it costs to bring them together.
//!
//!     rendezvous first RANKS PORT     rank 0, in a process of its own, so that the memory is its own
//!     rendezvous others RANKS PORT    all others, a thread each; begins once rank 0 listens
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench's figures")]

use std::process::ExitCode;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use clap::Parser;
use coll_perf::args::Args;
use coll_perf::group::Group;
use coll_perf::group::tcp::TcpGroup;
use coll_perf::launch::Launch;
use coll_perf::plan::Plan;
use linkproof_common::error::Result;

/// Barriers and gatherings, of which the median counts.
const TURNS: usize = 11;
/// What a rank says of where it listens is about as long.
const ADDRESS: [u8; 40] = [b'x'; 40];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let number = |index: usize| words.get(index).and_then(|word| word.parse::<u32>().ok());
    let (Some(n_ranks), Some(port)) = (number(2), number(3).and_then(|port| u16::try_from(port).ok())) else {
        eprintln!("usage: rendezvous first|others RANKS PORT");
        return ExitCode::from(2);
    };
    let result = match words[1].as_str() {
        "first" => first(n_ranks, port),
        _ => others(n_ranks, port),
    };
    if let Err(error) = result {
        eprintln!("{}", error.render("rendezvous"));
        return ExitCode::from(error.exit_status() as u8);
    }
    ExitCode::SUCCESS
}

fn first(n_ranks: u32, port: u16) -> Result<()> {
    let plan = plan(n_ranks)?;
    let before = status("VmRSS:");
    let mut group = TcpGroup::meet(&launch(0, n_ranks, port), &plan)?;
    let met = status("VmHWM:");
    let turns = turns(&mut group)?;
    println!(
        "first {n_ranks} barrier_us {:.0} all_gather_us {:.0} before_kib {before} met_kib {met} end_kib {}",
        turns.0,
        turns.1,
        status("VmHWM:")
    );
    Ok(())
}

fn others(n_ranks: u32, port: u16) -> Result<()> {
    let plan = plan(n_ranks)?;
    let start = Barrier::new(n_ranks as usize - 1);
    let one = |rank| -> Result<(Instant, Instant)> {
        let launch = launch(rank, n_ranks, port);
        start.wait();
        let begin = Instant::now();
        let mut group = TcpGroup::meet(&launch, &plan)?;
        let met = Instant::now();
        turns(&mut group)?;
        Ok((begin, met))
    };
    let times = std::thread::scope(|scope| {
        let thread = |rank| {
            let one = &one;
            std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, move || one(rank))
        };
        let threads: Vec<_> = (1..n_ranks).map(|rank| thread(rank).expect("a thread")).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<Vec<_>>>()
    })?;
    let begin = times.iter().map(|(begin, _)| *begin).min();
    let end = times.iter().map(|(_, met)| *met).max();
    let took = begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end - begin);
    println!("others {n_ranks} meet_ms {:.1}", took.as_secs_f64() * 1e3);
    Ok(())
}

/// Microseconds of a barrier, and of everybody's address to everybody: the medians.
fn turns(group: &mut TcpGroup) -> Result<(f64, f64)> {
    let (mut barriers, mut gatherings) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let begin = Instant::now();
        group.barrier()?;
        barriers.push(begin.elapsed().as_secs_f64() * 1e6);
        let begin = Instant::now();
        group.all_gather(&ADDRESS)?;
        gatherings.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[TURNS / 2]
    };
    Ok((median(&mut barriers), median(&mut gatherings)))
}

/// The plan of a run without options: what ranks compare when they meet.
fn plan(n_ranks: u32) -> Result<Plan> {
    Args::parse_from(["coll-perf"]).plan(n_ranks)
}

fn launch(rank: u32, n_ranks: u32, port: u16) -> Launch {
    let host = "127.0.0.1".to_owned();
    Launch { rank, n_ranks, local_rank: None, by: "bench".to_owned(), host, port }
}

/// A line of this process's status, in KiB.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
