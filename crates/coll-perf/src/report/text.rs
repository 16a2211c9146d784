//! The table, as people and nccl-tests' scripts read it: nccl-tests' columns in its order, ours behind them.

use std::fmt::Write;

use super::stragglers::{Tally, iterations, tallies};
use super::{Document, RankPort, ResultRow};
use crate::backend::nccl::{HostPort, Witness};
use crate::backend::{Pacing, Placement};
use crate::collective::{AlgBytes, Collective, Kind, Sizing};
use crate::plan::{Plan, Transport};

/// What to show besides the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Nothing.
    Table,
    /// Every rank and every round.
    Rounds,
}

/// The whole report of a run as text. Lines that are no results begin with `#`, as in nccl-tests.
pub(super) fn render(document: &Document, detail: Detail) -> String {
    let mut out = String::new();
    if let Some(plan) = &document.plan {
        header(document, plan, &mut out);
    }
    let mut kinds: Vec<Kind> = Vec::new();
    for row in &document.results {
        if !kinds.contains(&row.collective) {
            kinds.push(row.collective);
        }
    }
    for kind in kinds {
        table(document, kind, &mut out);
    }
    footer(document, detail, &mut out);
    out
}

fn line(out: &mut String, label: &str, value: &str) {
    let _ = writeln!(out, "# {label:<9}: {value}");
}

fn header(document: &Document, plan: &Plan, out: &mut String) {
    let _ =
        writeln!(out, "# {} {}: collectives over {} ranks", document.tool, document.version, plan.n_ranks);
    for (name, ranks) in hosts(document) {
        line(out, "Host", &format!("{name}, {ranks}"));
    }
    if let Some(carrier) = &document.backend {
        line(out, "Backend", &format!("{}, {}: {}", carrier.backend, carrier.transport, carrier.note));
    }
    rdma_ports(document, out);
    let timing = match plan.pacing {
        Pacing::Pipelined => {
            "pipelined: the next iteration begins at once, and iterations overlap; the slowest rank counts (reductions \
             in place: aligned)"
        }
        Pacing::Aligned => {
            "aligned: all ranks meet before each iteration, outside the time; the slowest rank counts"
        }
    };
    line(out, "Timing", timing);
    if plan.pacing == Pacing::Pipelined && document.backend.as_ref().is_some_and(|it| it.backend == "nccl") {
        line(
            out,
            "Clock",
            "the GPU's: time is of all iterations at once, without an event between; percentiles and arrivals are of as \
             many more, each between two events",
        );
    }
    if plan.graph_launches > 0 {
        let words = format!(
            "each iteration is a CUDA graph; the time is of a graph of all {}, launched {} times",
            plan.iterations, plan.graph_launches
        );
        line(out, "Graphs", &words);
    }
    let calls = match plan.calls_per_iteration {
        1 => String::new(),
        count => format!(" of {count} calls"),
    };
    line(
        out,
        "Rounds",
        &format!(
            "{} of {} iterations{calls}, after {} of warm-up; the table has the median of the rounds",
            plan.rounds, plan.iterations, plan.warmup_iterations
        ),
    );
}

/// RDMA ports, and which ranks go through them.
fn rdma_ports(document: &Document, out: &mut String) {
    let mut ports: Vec<(&str, &RankPort, Vec<u32>)> = Vec::new();
    for (host, port) in document.hosts.iter().filter_map(|host| Some((host, host.port.as_ref()?))) {
        match ports.iter_mut().find(|(name, other, _)| *name == host.name && *other == port) {
            Some((_, _, ranks)) => ranks.push(host.rank),
            None => ports.push((&host.name, port, vec![host.rank])),
        }
    }
    for (name, port, ranks) in &ports {
        line(out, "RDMA", &format!("{name}, {}: {}", ranges(ranks), port.describe()));
    }
    if ports.iter().any(|(_, port, _)| port.software.is_some()) {
        line(out, "Device", "software: no speed below is a link's");
    }
}

/// Machines, and which ranks run there.
fn hosts(document: &Document) -> Vec<(String, String)> {
    let mut hosts: Vec<(String, Vec<u32>)> = Vec::new();
    for rank in &document.hosts {
        match hosts.iter_mut().find(|(name, _)| *name == rank.name) {
            Some((_, ranks)) => ranks.push(rank.rank),
            None => hosts.push((rank.name.clone(), vec![rank.rank])),
        }
    }
    hosts.into_iter().map(|(name, ranks)| (name, ranges(&ranks))).collect()
}

/// `ranks 0-3, 8`.
fn ranges(ranks: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *rank => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let show = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {}", runs.iter().map(show).collect::<Vec<_>>().join(", "))
}

/// What the sizes and bandwidths of a collective mean.
fn formula(collective: &Collective, n_ranks: u32) -> String {
    let size = match (collective.sizing, collective.rooted) {
        (Sizing::Whole, _) => "size = the buffer of each rank",
        (Sizing::Blocks, _) => "size = n blocks, each rank's own among them",
        (Sizing::Uneven, _) => "size = what the busiest rank sends or receives",
    };
    let alg = match collective.alg_bytes {
        AlgBytes::Size => "size / time",
        AlgBytes::OthersBlocks => "size x (n-1)/n / time",
    };
    let bus = match collective.bus_factor.of(n_ranks) {
        Some(factor) => {
            let factor = format!("{factor:.4}");
            let factor = factor.trim_end_matches('0').trim_end_matches('.');
            format!(
                "busbw = algbw x {} = algbw x {factor} for n = {n_ranks}",
                collective.bus_factor.formula()
            )
        }
        None => "no busbw: one rank has no bus".to_owned(),
    };
    format!("{size}; algbw = {alg}; {bus}; GB/s = 10^9 B/s")
}

/// Sizes that were asked for and are smaller than the first of `rows`.
fn left_out<'a>(document: &Document, rows: impl Iterator<Item = &'a ResultRow>) -> Option<String> {
    let asked = document.plan.as_ref()?.sizes_bytes.first()?;
    let first = rows.map(|row| row.size_bytes).min()?;
    // A size may have been rounded to what is shown.
    (first >= 2 * asked)
        .then(|| format!("sizes under {first} B round to nothing among {} ranks", document.hosts.len()))
}

fn table(document: &Document, kind: Kind, out: &mut String) {
    let collective = Collective::of(kind);
    let rows = || document.results.iter().filter(|row| row.collective == kind);
    let mut algorithms: Vec<&str> = Vec::new();
    for row in rows() {
        if !algorithms.contains(&row.algorithm.as_str()) {
            algorithms.push(&row.algorithm);
        }
    }
    let _ = writeln!(out, "#\n# {}, by {}", collective.name, algorithms.join(" and "));
    let n_ranks = document.hosts.len() as u32;
    let _ = writeln!(out, "# {}", formula(collective, n_ranks));
    if let Some(note) = left_out(document, rows()) {
        let _ = writeln!(out, "# {note}");
    }
    out.push_str(&columns());
    for line in lines(rows()) {
        let _ = writeln!(out, "{line}");
    }
}

/// A line has both placements, as in nccl-tests.
fn lines<'a>(rows: impl Iterator<Item = &'a ResultRow>) -> Vec<String> {
    let mut lines: Vec<(Option<&ResultRow>, Option<&ResultRow>)> = Vec::new();
    for row in rows {
        match (row.placement, lines.last_mut()) {
            (Placement::InPlace, Some((Some(out_of_place), in_place @ None)))
                if same_call(out_of_place, row) =>
            {
                *in_place = Some(row);
            }
            (Placement::InPlace, _) => lines.push((None, Some(row))),
            (Placement::OutOfPlace, _) => lines.push((Some(row), None)),
        }
    }
    let shown = |(out_of_place, in_place): &(Option<&ResultRow>, Option<&ResultRow>)| {
        Some(result_line(out_of_place.or(*in_place)?, *out_of_place, *in_place))
    };
    lines.iter().filter_map(shown).collect()
}

fn same_call(a: &ResultRow, b: &ResultRow) -> bool {
    (a.size_bytes, a.count, a.dtype, a.redop, a.root) == (b.size_bytes, b.count, b.dtype, b.redop, b.root)
}

fn columns() -> String {
    let half = |title: &str| format!("{title:^39}");
    format!(
        "# {:>12} {:>12} {:>8} {:>5} {:>4}  {} {} {:>12} {:>9} {:>9} {:>9} {:>9} {:>9}\n\
         # {:>12} {:>12} {:>8} {:>5} {:>4}  {} {} {:>12} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
        "size",
        "count",
        "type",
        "redop",
        "root",
        "     time    algbw    busbw     #wrong",
        "    time    algbw    busbw     #wrong",
        "per peer",
        "p95",
        "p99",
        "max",
        "skew",
        "spread",
        "(B)",
        "(elements)",
        "",
        "",
        "",
        half("out of place"),
        half("in place"),
        "(B)",
        "(us)",
        "(us)",
        "(us)",
        "(us)",
        "(%)",
    )
}

fn result_line(any: &ResultRow, out_of_place: Option<&ResultRow>, in_place: Option<&ResultRow>) -> String {
    let or_dash = |value: Option<String>| value.unwrap_or("-".to_owned());
    format!(
        "  {:>12} {:>12} {:>8} {:>5} {:>4}  {} {} {:>12} {:>9} {:>9} {:>9} {:>9} {:>9}",
        any.size_bytes,
        any.count,
        any.dtype.name(),
        or_dash(any.redop.map(|redop| redop.name().to_owned())),
        or_dash(any.root.map(|root| root.to_string())),
        half(out_of_place),
        half(in_place),
        or_dash(any.per_peer_bytes.map(|bytes| bytes.to_string())),
        figure(any.slowest.p95_usec),
        figure(any.slowest.p99_usec),
        figure(any.slowest.max_usec),
        figure(any.skew.median_usec),
        or_dash(any.spread_percent.map(|spread| format!("{spread:.1}"))),
    )
}

fn half(row: Option<&ResultRow>) -> String {
    let Some(row) = row else { return format!("{:>9} {:>8} {:>8} {:>10}", "-", "-", "-", "-") };
    let or_dash = |value: Option<String>| value.unwrap_or("-".to_owned());
    format!(
        "{:>9} {:>8} {:>8} {:>10}",
        figure(row.time_usec),
        bandwidth(row.alg_bw_gbyte_per_sec),
        or_dash(row.bus_bw_gbyte_per_sec.map(bandwidth)),
        or_dash(row.wrong_elements.map(|wrong| wrong.to_string())),
    )
}

/// Two decimals, and more of what is small, so that nothing is shown as nothing.
fn bandwidth(value: f64) -> String {
    if value < 0.1 { format!("{value:.5}") } else { format!("{value:.2}") }
}

/// A time with some four digits.
fn figure(value: f64) -> String {
    match value {
        v if v < 100.0 => format!("{v:.2}"),
        v if v < 10_000.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

fn footer(document: &Document, detail: Detail, out: &mut String) {
    out.push_str("#\n");
    let checked: u64 = document.results.iter().filter_map(|row| row.checked_elements).sum();
    let wrong: u64 = document.results.iter().filter_map(|row| row.wrong_elements).sum();
    let data = match (document.plan.as_ref().is_some_and(|plan| plan.check), wrong) {
        (false, _) => "not checked (-c 0)".to_owned(),
        (true, 0) => format!("{checked} elements checked, as each round left them: all as they should be"),
        (true, wrong) => format!("{checked} elements checked, as each round left them: {wrong} WRONG"),
    };
    line(out, "Data", &data);
    edges(document, out);
    ranks(document, detail, out);
    if detail == Detail::Rounds {
        rounds(document, out);
    }
    if document.verdict.failures.iter().any(|f| f.kind == linkproof_common::error::ErrorKind::Interrupted) {
        line(out, "Result", "INTERRUPTED: what was measured until then");
    }
}

/// Edges shown; the rest is in JSON.
const EDGES_SHOWN: usize = 16;

/// What NCCL's log says of the paths.
fn edges(document: &Document, out: &mut String) {
    let gpu = document.plan.as_ref().is_some_and(|plan| plan.transport == Transport::Gpu);
    for witness in &document.evidence {
        for edge in witness.edges.iter().take(EDGES_SHOWN) {
            let channels = if edge.channels == 1 { "channel" } else { "channels" };
            let words =
                format!("{}->{}  {}, {} {channels}", edge.from, edge.to, edge.describe(), edge.channels);
            line(out, "Edge", &words);
        }
        if let Some(more) = witness.edges.len().checked_sub(EDGES_SHOWN).filter(|more| *more > 0) {
            line(out, "Edge", &format!("{more} more in --json"));
        }
        if witness.edges.is_empty() && gpu {
            let none = if document.hosts.len() == 1 {
                "none: there is one rank"
            } else {
                "unknown: NCCL's log names no connection"
            };
            line(out, "Edge", none);
        }
        for words in &witness.reducers {
            let meaning = "busbw counts as without it, and may be above the links' rate";
            line(out, "Switch", &format!("reduces on the way: {words}; {meaning}"));
        }
        nvlink(witness, out);
        ports(witness, out);
    }
}

/// Ports shown: a node with eight adapters has as many again for its other networks.
const PORTS_SHOWN: usize = 10;

/// What the adapters' and the kernel's counters say, the busiest port first.
fn ports(witness: &Witness, out: &mut String) {
    let mut ports: Vec<&HostPort> = witness.ports.iter().collect();
    ports.sort_by_key(|port| std::cmp::Reverse(port.traffic.sent_bytes.max(port.traffic.received_bytes)));
    let gigabytes = |bytes: u64| format!("{:.3} GB", bytes as f64 / 1e9);
    for HostPort { host, traffic } in ports.iter().take(PORTS_SHOWN) {
        let (sent, received) = (gigabytes(traffic.sent_bytes), gigabytes(traffic.received_bytes));
        let words = format!("{host} {}: sent {sent}, received {received}, by its own counters", traffic.port);
        line(out, "Port", &words);
    }
}

/// What the GPUs' own counters say of NVLink, where there is one.
fn nvlink(witness: &Witness, out: &mut String) {
    let sent = witness.gpus.iter().filter(|gpu| gpu.nvlinks.unwrap_or(0) > 0);
    let sent: Vec<String> = sent
        .filter_map(|gpu| Some(format!("{:.2} GB by rank {}", gpu.nvlink_sent_bytes? as f64 / 1e9, gpu.rank)))
        .collect();
    let Some(shown) = sent.get(..sent.len().min(RANKS_SHOWN)).filter(|shown| !shown.is_empty()) else {
        return;
    };
    let more = sent.len() - shown.len();
    let more = if more > 0 { format!(", {more} more in --json") } else { String::new() };
    line(out, "NVLink", &format!("sent {}{more}, by the GPUs' own counters", shown.join(", ")));
}

/// Ranks shown unless all are asked for: those that came last most often.
const RANKS_SHOWN: usize = 4;

fn ranks(document: &Document, detail: Detail, out: &mut String) {
    let mut tallies = tallies(document);
    if tallies.len() < 2 {
        return;
    }
    if detail == Detail::Table {
        tallies.sort_by_key(|tally| std::cmp::Reverse(tally.last_to_arrive));
        tallies.truncate(RANKS_SHOWN);
    }
    let all = iterations(document);
    line(
        out,
        "Last",
        &format!("who was last in {all} iterations, and how far behind the rank before it (median)"),
    );
    for tally in tallies {
        let _ = writeln!(out, "#   {}", tally_line(document, &tally));
    }
}

fn tally_line(document: &Document, tally: &Tally) -> String {
    let host = document.hosts.iter().find(|host| host.rank == tally.rank).map_or("", |host| &host.name);
    format!(
        "rank {:>4} ({host}): last to arrive {:>7}, {:>9} us behind; last to finish {:>7}",
        tally.rank,
        tally.last_to_arrive,
        figure(tally.behind_usec),
        tally.last_to_finish
    )
}

fn rounds(document: &Document, out: &mut String) {
    line(out, "Rounds", "time of each, and of each rank");
    for round in &document.rounds {
        let row = &document.results[round.result as usize];
        let ranks: Vec<String> = round.rank_time_usec.iter().map(|time| figure(*time)).collect();
        let _ = writeln!(
            out,
            "#   {}, round {}: {} us; by rank {} us",
            row.describe(),
            round.round + 1,
            figure(round.time_usec),
            ranks.join(" ")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkproof_common::traffic::{PortKind, PortTraffic};

    #[test]
    fn above_each_table_stands_what_size_and_bandwidths_mean() {
        let of = |kind, n_ranks| formula(Collective::of(kind), n_ranks);
        assert_eq!(
            of(Kind::AllReduce, 4),
            "size = the buffer of each rank; algbw = size / time; busbw = algbw x 2(n-1)/n = algbw x 1.5 for n = 4; \
             GB/s = 10^9 B/s"
        );
        assert!(of(Kind::Alltoall, 8).contains("busbw = algbw x (n-1)/n = algbw x 0.875 for n = 8"));
        assert!(of(Kind::AllReduce, 1).contains("; no busbw: one rank has no bus;"));
    }

    #[test]
    #[allow(clippy::field_reassign_with_default, reason = "a part of it is private")]
    fn a_switch_that_reduces_is_told_with_what_it_does_to_busbw() {
        let mut witness = Witness::default();
        witness.reducers = vec!["NVLS".to_owned()];
        let mut document = Document::begin();
        document.evidence = vec![witness];
        let mut out = String::new();
        edges(&document, &mut out);
        assert_eq!(
            out,
            "# Switch   : reduces on the way: NVLS; busbw counts as without it, and may be above the links' rate\n"
        );
    }

    #[test]
    #[allow(clippy::field_reassign_with_default, reason = "a part of it is private")]
    fn the_busiest_ports_are_shown_first_and_no_more_than_fit() {
        let port = |number: u64| HostPort {
            host: "gpu-a".to_owned(),
            traffic: PortTraffic {
                port: format!("mlx5_{number} port 1"),
                kind: PortKind::Rdma,
                sent_bytes: number * 1_000_000_000,
                received_bytes: 0,
            },
        };
        let mut witness = Witness::default();
        witness.ports = (0..20).map(port).collect();
        let mut out = String::new();
        ports(&witness, &mut out);
        assert_eq!(out.lines().count(), PORTS_SHOWN);
        let first =
            "# Port     : gpu-a mlx5_19 port 1: sent 19.000 GB, received 0.000 GB, by its own counters";
        assert_eq!(out.lines().next(), Some(first));
    }
}
