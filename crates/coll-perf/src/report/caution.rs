//! What may make the figures of a run mean less than they seem to.

use std::collections::{BTreeMap, BTreeSet};

use linkproof_common::affinity::Cores;
use linkproof_common::units::ByteSize;
use linkproof_common::warning::{SPREAD_WORTH_A_WORD_PERCENT, Warning};

use super::stragglers::tells;
use super::{Document, RankHost, ResultRow};
use crate::backend::nccl::RankGpu;

/// A rank that comes last to so many of the iterations is no accident: of two ranks each is last to half of them.
const MOSTLY_LAST: f64 = 0.75;
/// A rank that is so far behind, as a share of the time, costs what is worth a word. Taste.
const WORTH_WAITING_FOR: f64 = 0.1;
/// Less than this is the way of a cache line between two cores, which one of them always has to wait for.
const WORTH_A_WORD_USEC: f64 = 1.0;

/// Preemptions in a round, on all ranks. A quiet machine has one now and then, when the kernel has work of its own.
const PREEMPTED_TOO_OFTEN: f64 = 0.5;

/// A GPU that was so busy before the run takes time from it. Taste.
const BUSY_WORTH_A_WORD_PERCENT: u32 = 5;

pub(super) fn warnings(document: &Document) -> Vec<Warning> {
    // Ranks that share processors are preempted by each other.
    let crowded = crowded(document).or_else(|| contended(document));
    let busy = gpus_in_use(document);
    software_device(document)
        .into_iter()
        .chain(crowded)
        .chain(busy)
        .chain(rounds_differ(&document.results))
        .chain(straggler(document))
        .collect()
}

fn warning(code: &str, seen: String, effect: &str, hint: &str) -> Warning {
    Warning { code: code.to_owned(), seen, effect: effect.to_owned(), hint: hint.to_owned() }
}

/// A device that is none: the first that a rank has.
fn software_device(document: &Document) -> Option<Warning> {
    let ports = document.hosts.iter().filter_map(|host| host.port.as_ref());
    let mut software = ports.filter_map(|port| Some((port, port.software.as_ref()?)));
    software.next().map(|(port, software)| Warning::software_device(&port.device, software))
}

/// More ranks on a machine than processors for them.
fn crowded(document: &Document) -> Option<Warning> {
    let mut by_host: BTreeMap<&str, Vec<&RankHost>> = BTreeMap::new();
    for host in &document.hosts {
        by_host.entry(&host.name).or_default().push(host);
    }
    let counts = by_host.into_iter().map(|(name, hosts)| (name, hosts.len() as u32, processors(&hosts)));
    let (name, ranks, cpus) = counts.into_iter().find(|(_, ranks, cpus)| ranks > cpus)?;
    Some(warning(
        "oversubscribed",
        format!("{ranks} ranks share {cpus} processors on {name}"),
        "ranks wait for each other's time slices: times are the scheduler's, not the collective's",
        "quote right data and formulas from it, never its times; use at most as many --ranks as processors",
    ))
}

/// The processors that the ranks of one machine have together. A process knows what it may use itself, which a launcher
/// that binds each to a core of its own has made one.
fn processors(hosts: &[&RankHost]) -> u32 {
    let own = hosts.iter().map(|host| host.cpus).max().unwrap_or(0);
    if hosts.iter().all(|host| host.cores == hosts[0].cores) {
        return own;
    }
    let cores = hosts.iter().filter_map(|host| Cores::parse(&host.cores).ok());
    let together: BTreeSet<u32> = cores.flat_map(|cores| cores.numbers().to_vec()).collect();
    own.max(together.len() as u32)
}

/// Other programs on the ranks' processors.
fn contended(document: &Document) -> Option<Warning> {
    let preemptions = |row: &ResultRow| row.ranks.iter().map(|rank| rank.preemptions).sum::<u64>();
    let all: u64 = document.results.iter().map(preemptions).sum();
    let rounds = document.rounds.len() as u64;
    let seen = format!("other programs took the ranks' processors {all} times in {rounds} rounds");
    (all as f64 > PREEMPTED_TOO_OFTEN * rounds as f64).then(|| {
        warning(
            "contended",
            seen,
            "a time slice lost by one rank is lost by all: times are too long, and differ from run to run",
            "measure when nothing else runs, or on processors of your own (--cores)",
        )
    })
}

/// Other programs on the ranks' GPUs, before the ranks were.
fn gpus_in_use(document: &Document) -> Option<Warning> {
    if document.plan.as_ref().is_some_and(|plan| plan.shared_gpu) {
        return None;
    }
    let gpus = document.evidence.iter().flat_map(|witness| &witness.gpus);
    // A process that has a context and does nothing takes no time from anybody.
    let others = |gpu: &&RankGpu| {
        let busy = gpu.busy_before_percent.unwrap_or(0);
        busy >= BUSY_WORTH_A_WORD_PERCENT && gpu.processes_before.unwrap_or(0) > 0
    };
    let used: Vec<&RankGpu> = gpus.filter(others).collect();
    let worst = used.iter().max_by_key(|gpu| gpu.busy_before_percent)?;
    let host = document.hosts.iter().find(|host| host.rank == worst.rank).map_or("", |host| &host.name);
    let more: Vec<String> =
        used.iter().filter(|gpu| gpu.rank != worst.rank).map(|gpu| format!("rank {}'s", gpu.rank)).collect();
    let more = if more.is_empty() { String::new() } else { format!("; so was {}", more.join(", ")) };
    Some(warning(
        "gpu-in-use",
        format!(
            "rank {}'s GPU ({}, {}, on {host}) was {} % busy before the run began, with other processes on it \
             ({}){more}",
            worst.rank,
            worst.name,
            worst.pci_address,
            worst.busy_before_percent.unwrap_or(0),
            worst.processes_before.unwrap_or(0),
        ),
        "the GPU's time is shared out: this rank is late, and all others wait for it",
        "end what runs there (nvidia-smi names it), or leave that GPU out (CUDA_VISIBLE_DEVICES)",
    ))
}

fn rounds_differ(rows: &[ResultRow]) -> Option<Warning> {
    let differ = |row: &&ResultRow| row.spread_percent.is_some_and(|s| s > SPREAD_WORTH_A_WORD_PERCENT);
    let differing: Vec<&ResultRow> = rows.iter().filter(differ).collect();
    let spread = |row: &&&ResultRow| row.spread_percent.unwrap_or(0.0);
    let worst = differing.iter().max_by(|a, b| spread(a).total_cmp(&spread(b)))?;
    let others = match differing.len() {
        1 => String::new(),
        count => format!(", and less at {} other of {} points", count - 1, rows.len()),
    };
    Some(warning(
        "rounds-differ",
        format!(
            "the rounds differ by {:.0} % of their median at {}{others}",
            spread(&worst),
            worst.describe()
        ),
        "the medians there may not repeat",
        "raise --rounds or -n, and look for other users of the processors and the network",
    ))
}

/// A rank that the others mostly wait for.
fn straggler(document: &Document) -> Option<Warning> {
    let mut found: BTreeMap<u32, Vec<(&ResultRow, f64, u32)>> = BTreeMap::new();
    for row in document.results.iter().filter(|row| tells(row)) {
        let iterations = f64::from(row.rounds * row.iterations);
        for rank in &row.ranks {
            let behind = rank.behind_usec.unwrap_or(0.0);
            if f64::from(rank.last_to_arrive) >= MOSTLY_LAST * iterations
                && behind >= (WORTH_WAITING_FOR * row.time_usec).max(WORTH_A_WORD_USEC)
            {
                found.entry(rank.rank).or_default().push((row, behind, rank.last_to_arrive));
            }
        }
    }
    let (rank, points) = found.into_iter().max_by_key(|(_, points)| points.len())?;
    let (row, behind, last) = points.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let host = document.hosts.iter().find(|host| host.rank == rank).map_or("", |host| &host.name);
    let more = match points.len() {
        1 => String::new(),
        count => format!(", and much the same at {} other points", count - 1),
    };
    Some(warning(
        "straggler",
        format!(
            "rank {rank} ({host}) came last to {last} of {} iterations of {}, {behind:.1} us behind the rank \
             before it{more}",
            row.rounds * row.iterations,
            ByteSize(row.size_bytes),
        ),
        "the others' times are mostly waiting for it",
        "look at what else that rank's processor, memory or adapter does; -v has every rank",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::nccl::Witness;
    use crate::plan::tests::plan;

    fn seen(gpus: &[(u32, Option<u32>, u32)], shared_gpu: bool) -> Option<String> {
        let gpu = |(rank, busy_before_percent, others): &(u32, Option<u32>, u32)| RankGpu {
            rank: *rank,
            name: "NVIDIA H200".to_owned(),
            pci_address: format!("0000:0{rank}:00.0"),
            busy_before_percent: *busy_before_percent,
            processes_before: Some(*others),
            nvlinks: None,
            nvlink_sent_bytes: None,
        };
        let mut document = Document::begin();
        document.plan = Some(crate::plan::Plan { shared_gpu, ..plan(&["all_reduce"]) });
        let mut witness = Witness::default();
        witness.gpus = gpus.iter().map(gpu).collect();
        document.evidence = vec![witness];
        gpus_in_use(&document).map(|warning| warning.seen)
    }

    #[test]
    fn the_rank_whose_gpu_others_use_is_named() {
        let seen_of_one = seen(&[(0, Some(0), 0), (1, Some(98), 2)], false);
        assert_eq!(
            seen_of_one.as_deref(),
            Some(
                "rank 1's GPU (NVIDIA H200, 0000:01:00.0, on ) was 98 % busy before the run began, with other processes on it (2)"
            )
        );
        assert!(seen(&[(0, Some(50), 1), (1, Some(98), 2)], false).unwrap().ends_with("; so was rank 0's"));
        for quiet in [(0, Some(0), 3), (0, Some(90), 0), (0, None, 1)] {
            assert_eq!(seen(&[quiet], false), None, "{quiet:?}");
        }
        assert_eq!(seen(&[(0, Some(90), 1)], true), None, "ranks that share a GPU keep it busy themselves");
    }
}
