//! The table, as people and perftest's scripts read it: perftest's columns in perftest's order, ours behind them.

use std::fmt::Write;

use super::{Document, Link, RdmaEnd, ResultRow, Round};
use crate::plan::{Plan, Traffic, Transport};
use crate::units::ByteSize;
use crate::validate::Direction;

/// The unit of the bandwidth columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandwidthUnit {
    /// 2²⁰ bytes a second, perftest's default (which older versions of it label MB).
    Mib,
    /// 10⁹ bits a second.
    Gbit,
}

/// How much to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Header and table.
    Table,
    /// Every round and the evidence as well.
    Rounds,
}

/// perftest rules its tables with this many dashes; scripts look for them.
const RULE: usize = 87;

impl BandwidthUnit {
    fn label(self) -> &'static str {
        match self {
            Self::Mib => "MiB/sec",
            Self::Gbit => "Gb/sec",
        }
    }
}

/// The whole report of a run as text.
pub fn render_table(document: &Document, unit: BandwidthUnit, detail: Detail) -> String {
    let mut out = String::new();
    let rule = "-".repeat(RULE);
    if let Some(plan) = &document.plan {
        let _ = writeln!(out, "{rule}\n{}", header(document, plan));
        if !document.results.is_empty() {
            let _ = writeln!(out, "{rule}\n{}\n{rule}", table(&document.results, unit));
        }
        let _ = writeln!(out, "{}", footer(document, plan));
    }
    if detail == Detail::Rounds {
        out.push_str(&rounds(document, unit));
    }
    out
}

fn header(document: &Document, plan: &Plan) -> String {
    let mut lines = vec![title(document, plan)];
    let mut add = |label: &str, value: String| lines.push(format!(" {label:<13}: {value}"));
    add("Hosts", hosts(document));
    match &document.link {
        Some(Link::Rdma { path_mtu_bytes, addressing, client, server }) => {
            for (role, end) in [("Client", client), ("Server", server)] {
                add(role, rdma_end(end));
            }
            add("GID choice", addressing.clone());
            add("Path MTU", format!("{path_mtu_bytes} B"));
        }
        Some(Link::Tcp { client, server }) => {
            for (role, end) in [("Client", client), ("Server", server)] {
                let netdev = end.netdev.as_ref().map_or(String::new(), |netdev| format!(" on {netdev}"));
                add(role, format!("{}{netdev}", end.address));
            }
        }
        None => {}
    }
    let (label, connections) = match plan.transport {
        Transport::Rdma => (
            "Queue pairs",
            format!(
                "{}, {} outstanding writes each{}, a signal every {}",
                plan.qps,
                plan.tx_depth,
                if plan.post_list > 1 {
                    format!(", {} posted at once", plan.post_list)
                } else {
                    String::new()
                },
                signals(plan)
            ),
        ),
        Transport::Tcp => ("Sockets", format!("{}, {} outstanding messages each", plan.qps, plan.tx_depth)),
    };
    add(label, connections);
    if let Some(attributes) = plan.queue_pair.describe() {
        add("QP options", attributes);
    }
    add(
        "Rounds",
        format!(
            "{} of {}, after {} writes of warm-up",
            plan.rounds,
            plan.describe_round(),
            plan.warmup_iterations
        ),
    );
    if let Some(memory) = &document.memory {
        let registration = memory.registration.as_ref().map_or(String::new(), |how| format!(", {how}"));
        add("Memory", format!("{}{registration}", memory.kind.name()));
    }
    lines.join("\n")
}

/// How often a write is signalled, which large messages are more often than small ones.
fn signals(plan: &Plan) -> String {
    let every = |size: Option<&u64>| plan.signal_every(size.copied().unwrap_or(0));
    let (small, large) = (every(plan.sizes_bytes.iter().min()), every(plan.sizes_bytes.iter().max()));
    if small == large { small.to_string() } else { format!("{small} (small messages) to {large} (large)") }
}

fn title(document: &Document, plan: &Plan) -> String {
    let directions = match plan.traffic {
        Traffic::Unidirectional => "client to server",
        Traffic::Bidirectional => "both directions at once",
    };
    let what = match plan.transport {
        Transport::Rdma => "RDMA write bandwidth over RC",
        Transport::Tcp => "bandwidth of the same message pattern over TCP",
    };
    format!(" {} {}: {what}, {directions}", document.tool, document.version)
}

fn hosts(document: &Document) -> String {
    let host = |host: &crate::environment::Host| format!("{} {}", host.role.name(), host.name);
    document.hosts.iter().map(host).collect::<Vec<_>>().join(", ")
}

/// Queue pair numbers shown in the header at most; JSON has them all.
const QPNS_SHOWN: usize = 4;

fn rdma_end(end: &RdmaEnd) -> String {
    let emulated = end.software.as_ref().map_or(String::new(), |name| format!(" (software: {name})"));
    let rate = end.rate_gbit_per_sec.map_or(String::new(), |rate| format!(", {rate} Gb/s"));
    let mut qpns: Vec<String> = end.qpns.iter().take(QPNS_SHOWN).map(ToString::to_string).collect();
    if end.qpns.len() > QPNS_SHOWN {
        qpns.push(format!("and {} more", end.qpns.len() - QPNS_SHOWN));
    }
    let address = match &end.gid {
        Some(gid) => format!("GID {}", gid.describe()),
        None => format!("LID {}", end.lid),
    };
    format!(
        "{}{emulated} port {}, {}{rate}, MTU {}, {address}, QP {}",
        end.device,
        end.port_num,
        end.link_layer.name(),
        end.active_mtu_bytes,
        qpns.join(" ")
    )
}

fn table(rows: &[ResultRow], unit: BandwidthUnit) -> String {
    let label = unit.label();
    let mut lines = vec![format!(
        " {:<10} {:<12} {:<18} {:<21} {:<13} {:<9} {}",
        "#bytes",
        "#iterations",
        format!("BW peak[{label}]"),
        format!("BW average[{label}]"),
        "MsgRate[Mpps]",
        "spread[%]",
        "line rate[%]"
    )];
    lines.extend(rows.iter().map(|row| table_row(row, unit)));
    lines.join("\n")
}

fn table_row(row: &ResultRow, unit: BandwidthUnit) -> String {
    let (peak, average) = match unit {
        BandwidthUnit::Mib => (row.bw_peak_mib_per_sec, row.bw_average_mib_per_sec),
        BandwidthUnit::Gbit => (row.bw_peak_gbit_per_sec, row.bw_average_gbit_per_sec),
    };
    let percent = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    format!(
        " {:<10} {:<12} {:<18} {:<21} {:<13} {:<9} {}{}",
        row.size_bytes,
        row.iterations,
        show_bandwidth(peak),
        show_bandwidth(average),
        format!("{:.6}", row.msg_rate_mpps),
        percent(row.spread_percent),
        percent(row.line_rate_percent),
        if row.partial { "  (partial)" } else { "" }
    )
}

/// Two decimals, and six below 0.1, as perftest has it, so that a slow point is not shown as nothing.
fn show_bandwidth(value: f64) -> String {
    if value < 0.1 { format!("{value:.6}") } else { format!("{value:.2}") }
}

fn footer(document: &Document, plan: &Plan) -> String {
    let checked: u64 = document.results.iter().filter_map(|row| row.checked_bytes).sum();
    let wrong: u64 = document.results.iter().filter_map(|row| row.wrong_bytes).sum();
    let data = match (plan.validate, wrong) {
        (false, _) => "not checked (--validate checks what arrives)".to_owned(),
        (true, 0) => format!("{checked} bytes checked by the target, all as sent"),
        (true, wrong) => format!("{checked} bytes checked by the target, {wrong} WRONG"),
    };
    let mut lines = vec![format!(" {:<13}: {data}", "Data")];
    if matches!(&document.link, Some(link) if link.line_rate().is_none()) {
        lines.push(format!(" {:<13}: unknown, or an emulation's; no share of it is given", "Line rate"));
    }
    if document.verdict.failures.iter().any(|failure| failure.kind == crate::error::ErrorKind::Interrupted) {
        lines.push(format!(" {:<13}: INTERRUPTED: what was measured until then", "Result"));
    }
    lines.join("\n")
}

fn rounds(document: &Document, unit: BandwidthUnit) -> String {
    let mut out = String::from(" Rounds\n");
    for round in &document.rounds {
        let _ = writeln!(out, "{}", round_line(round, unit));
    }
    for evidence in &document.evidence {
        let moved = crate::counters::describe(&evidence.moved);
        let _ = writeln!(out, " Counters of the {} ({}): {moved}", evidence.role.name(), evidence.source);
    }
    out
}

fn round_line(round: &Round, unit: BandwidthUnit) -> String {
    let bandwidth = match unit {
        BandwidthUnit::Mib => round.bandwidth().mib_per_sec(),
        BandwidthUnit::Gbit => round.bandwidth().gbit_per_sec(),
    };
    let direction = match round.direction {
        Direction::ClientToServer => "client to server",
        Direction::ServerToClient => "server to client",
    };
    format!(
        "  {:<9} round {}: {} messages in {:.6} s, {} {}, {direction}{}",
        ByteSize(round.size_bytes).to_string(),
        round.round + 1,
        round.messages,
        round.elapsed().as_secs_f64(),
        show_bandwidth(bandwidth),
        unit.label(),
        if round.partial { " (partial)" } else { "" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Host;
    use crate::gid::{Gid, GidEntry, GidType, LinkLayer};
    use crate::memlock::LockedMemory;
    use crate::memory::MemoryKind;
    use crate::plan::Role;
    use crate::plan::tests::plan;
    use crate::qp::Qpn;
    use crate::report::{Evidence, MemoryUse};

    fn host(role: Role, name: &str) -> Host {
        Host {
            role,
            name: name.into(),
            version: "0.1.0".into(),
            kernel: Some("6.1.0".into()),
            cpu: None,
            cpus: 2,
            numa_nodes: Some(1),
            memlock: LockedMemory { soft_bytes: None, hard_bytes: None, cap_ipc_lock: true },
            container: None,
        }
    }

    fn end(host: u16, software: Option<&str>) -> RdmaEnd {
        RdmaEnd {
            device: "mlx5_0".into(),
            software: software.map(Into::into),
            port_num: 1,
            link_layer: LinkLayer::Ethernet,
            lid: 0,
            gid: Some(GidEntry {
                index: 3,
                gid: Gid(format!("::ffff:10.0.0.{host}").parse().unwrap()),
                gid_type: GidType::RoceV2,
                netdev: Some("eth2".into()),
                prefix_len: Some(24),
            }),
            active_mtu_bytes: 4096,
            rate_gbit_per_sec: Some(400.0),
            qpns: (0..6).map(|number| Qpn(0x1a0 + number)).collect(),
            posting: "ibv_wr".into(),
        }
    }

    /// A document of a measured run on good hardware.
    fn document(software: Option<&str>) -> Document {
        let mut document = Document::begin("write-bw", "0.1.0");
        let mut plan = plan();
        plan.validate = true;
        plan.qps = 6;
        document.hosts = vec![host(Role::Client, "gpu-a"), host(Role::Server, "gpu-b")];
        document.rounds = (0..3)
            .map(|number| Round {
                size_bytes: 65536,
                round: number,
                direction: Direction::ClientToServer,
                messages: 600,
                elapsed_ns: 800_000 + u64::from(number) * 8_000,
                peak_messages_per_sec: 760_000.0,
                partial: false,
                checked: Some(crate::validate::Checked { checked_bytes: 393_216, ..Default::default() }),
            })
            .collect();
        document.plan = Some(plan);
        document.link = Some(Link::Rdma {
            path_mtu_bytes: 4096,
            addressing: "RoCE v2, IPv4-mapped: the ends share its subnet".into(),
            client: Box::new(end(1, software)),
            server: Box::new(end(2, None)),
        });
        document.memory = Some(MemoryUse {
            kind: MemoryKind::Host,
            client_bytes: 393_216,
            server_bytes: 393_216,
            registration: Some("ibv_reg_mr, relaxed ordering".into()),
        });
        document.evidence = vec![Evidence {
            role: Role::Client,
            source: "mlx5_0 port 1".into(),
            moved: [("port_xmit_packets".to_owned(), 30_000)].into(),
        }];
        document.conclude(None);
        document
    }

    #[test]
    fn the_table_of_a_good_run() {
        insta::assert_snapshot!(render_table(&document(None), BandwidthUnit::Gbit, Detail::Rounds));
    }

    #[test]
    fn an_emulated_device_has_no_share_of_a_line_rate() {
        let text = render_table(&document(Some("rxe")), BandwidthUnit::Mib, Detail::Table);
        assert!(text.contains("no share of it is given"), "{text}");
        assert!(text.contains("mlx5_0 (software: rxe)"), "{text}");
    }

    #[test]
    fn perftests_columns_stand_first_and_in_its_order() {
        let text = render_table(&document(None), BandwidthUnit::Mib, Detail::Table);
        let line = text.lines().find(|line| line.contains("#bytes")).unwrap();
        assert!(
            line.split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .starts_with("#bytes #iterations BW peak[MiB/sec] BW average[MiB/sec] MsgRate[Mpps]")
        );
        let row = text.lines().find(|line| line.trim_start().starts_with("65536")).unwrap();
        let fields: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(fields[..2], ["65536", "600"]);
        assert_eq!(fields.len(), 7);
    }

    #[test]
    fn a_slow_point_is_not_shown_as_nothing() {
        assert_eq!(show_bandwidth(0.000_123_4), "0.000123");
        assert_eq!(show_bandwidth(12.345), "12.35");
    }
}
