//! The table, as people and perftest's scripts read it: perftest's columns in perftest's order, ours behind them.

use std::fmt::Write;

use super::header::header;
use super::intervals::interval_lines;
use super::table::{histograms, show_bandwidth, table};
use super::{Document, ResultRow, Round, conditions};
use crate::error::ErrorKind;
use crate::plan::{Plan, Traffic};
use crate::units::ByteSize;

/// The unit of the bandwidth columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandwidthUnit {
    /// 2²⁰ bytes a second, perftest's default (which older versions of it label MB).
    Mib,
    /// 10⁹ bits a second.
    Gbit,
}

/// What to show besides header and table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Every round and the evidence.
    pub rounds: bool,
    /// A histogram of each size's latencies.
    pub histograms: bool,
}

/// perftest rules its tables with this many dashes; scripts look for them.
const RULE: usize = 87;

impl BandwidthUnit {
    pub(super) fn label(self) -> &'static str {
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
        out.push_str(&footer(document, plan, unit));
    }
    if detail.histograms {
        out.push_str(&histograms(document));
    }
    if detail.rounds {
        out.push_str(&rounds(document, unit));
    }
    out
}

/// What is known of a run before it begins, between perftest's rules.
pub(super) fn beginning(document: &Document, plan: &Plan) -> String {
    let rule = "-".repeat(RULE);
    format!("{rule}\n{}\n{rule}\n", header(document, plan))
}

/// What the limit made of it, over all sizes.
fn achieved(document: &Document) -> Option<String> {
    let shares = || document.results.iter().filter_map(ResultRow::rate_limit_percent);
    let (least, most) = (shares().reduce(f64::min)?, shares().reduce(f64::max)?);
    let (least, most) = (format!("{least:.1}"), format!("{most:.1}"));
    Some(if least == most {
        format!("{least} % of it achieved")
    } else {
        format!("{least} to {most} % of it achieved")
    })
}

fn footer(document: &Document, plan: &Plan, unit: BandwidthUnit) -> String {
    let mut lines = Vec::new();
    let mut add = |label: &str, value: &str| lines.push(format!(" {label:<13}: {value}\n"));
    add("Data", &data(document, plan));
    let of_a_line = plan.traffic != Traffic::PingPong;
    if of_a_line && document.link.as_ref().is_some_and(|link| link.line_rate().is_none()) {
        add("Line rate", "unknown, or an emulation's; no share of it is given");
    }
    if let Some(achieved) = achieved(document) {
        add("Rate limit", &achieved);
    }
    for line in interval_lines(document, plan, unit) {
        add("Intervals", &line);
    }
    if document.verdict.failures.iter().any(|failure| failure.kind == ErrorKind::Interrupted) {
        add("Result", "INTERRUPTED: what was measured until then");
    }
    lines.concat()
}

fn data(document: &Document, plan: &Plan) -> String {
    let checks = || document.results.iter().filter_map(ResultRow::checked);
    let (checked, wrong): (u64, u64) =
        (checks().map(|check| check.0).sum(), checks().map(|check| check.1).sum());
    let by = match plan.traffic {
        Traffic::PingPong => "both ends, message by message",
        Traffic::Unidirectional | Traffic::Bidirectional => "the target",
    };
    match (plan.validate, wrong) {
        (false, _) if document.peer.is_some() => {
            "not checked, which takes one of these tools on both ends".to_owned()
        }
        (false, _) => "not checked (--validate checks what arrives)".to_owned(),
        (true, 0) => format!("{checked} bytes checked by {by}, all as sent"),
        (true, wrong) => format!("{checked} bytes checked by {by}, {wrong} WRONG"),
    }
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
    out.push_str(&conditions::describe_contention(&document.conditions));
    out
}

fn round_line(round: &Round, unit: BandwidthUnit) -> String {
    let figure = match (&round.latency, unit) {
        (Some(latency), _) => format!("median {:.3} usec", latency.t_typical_usec),
        (None, BandwidthUnit::Mib) => format!("{} MiB/sec", show_bandwidth(round.bandwidth().mib_per_sec())),
        (None, BandwidthUnit::Gbit) => format!("{} Gb/sec", show_bandwidth(round.bandwidth().gbit_per_sec())),
    };
    let direction = round.direction.words();
    format!(
        "  {:<9} round {}: {} messages in {:.6} s, {figure}, {direction}{}",
        ByteSize(round.size_bytes).to_string(),
        round.round + 1,
        round.messages,
        round.elapsed().as_secs_f64(),
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
    use crate::perftest::Version;
    use crate::plan::Role;
    use crate::plan::tests::plan;
    use crate::qp::Qpn;
    use crate::rate::{Rate, RateLimit};
    use crate::report::conditions::tests::near_the_device;
    use crate::report::{DeviceKind, Evidence, Link, LinkEnd, MemoryUse, Peer, PerftestEnd, RdmaEnd};
    use crate::validate::Direction;

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
            device_kind: if software.is_some() { DeviceKind::Software } else { DeviceKind::Adapter },
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
            inline_bytes: 0,
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
                peak_messages_per_sec: Some(760_000.0),
                latency: None,
                intervals: None,
                partial: false,
                checked: Some(crate::validate::Checked { checked_bytes: 393_216, ..Default::default() }),
                answers_checked: None,
            })
            .collect();
        document.plan = Some(plan);
        document.link = Some(Link::Rdma {
            path_mtu_bytes: 4096,
            addressing: "RoCE v2, IPv4-mapped: the ends share its subnet".into(),
            client: Box::new(end(1, software).into()),
            server: Box::new(end(2, None).into()),
        });
        document.memory = Some(MemoryUse {
            regions: None,
            kind: MemoryKind::Host,
            client_kind: Some(MemoryKind::Host),
            server_kind: Some(MemoryKind::Host),
            client_gpu: None,
            server_gpu: None,
            client_bytes: Some(393_216),
            server_bytes: Some(393_216),
            registration: Some("ibv_reg_mr, relaxed ordering".into()),
        });
        document.conditions = [Role::Client, Role::Server].map(near_the_device).into();
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
        insta::assert_snapshot!(render_table(
            &document(None),
            BandwidthUnit::Gbit,
            Detail { rounds: true, ..Detail::default() }
        ));
    }

    #[test]
    fn an_emulated_device_has_no_share_of_a_line_rate() {
        let text = render_table(&document(Some("rxe")), BandwidthUnit::Mib, Detail::default());
        assert!(text.contains("no share of it is given"), "{text}");
        assert!(text.contains("mlx5_0 (software: rxe)"), "{text}");
    }

    #[test]
    fn each_end_tells_how_much_inline_data_its_device_takes() {
        let mut document = document(None);
        assert!(!render_table(&document, BandwidthUnit::Mib, Detail::default()).contains("inline"));
        document.plan.as_mut().unwrap().queue_pair.inline_bytes = 220;
        let Some(Link::Rdma { server, .. }) = &mut document.link else { panic!("over RDMA") };
        let LinkEnd::Linkproof(server) = server.as_mut() else { panic!("of ours") };
        server.inline_bytes = 96;
        let text = render_table(&document, BandwidthUnit::Mib, Detail::default());
        let line = |role: &str| text.lines().find(|line| line.starts_with(role)).unwrap();
        assert!(line(" Client").ends_with(" and 2 more, nothing inline"), "{text}");
        assert!(line(" Server").ends_with(" and 2 more, up to 96 B inline"), "{text}");
    }

    #[test]
    fn a_perftest_is_shown_with_what_is_missed_and_what_must_match() {
        let mut document = document(None);
        let plan = document.plan.as_mut().unwrap();
        plan.validate = false;
        let plan = plan.clone();
        let version = Version::decode(b"6.06\0\0\0\0\0\0\0\0\0\0\0\0").unwrap();
        document.peer = Some(Peer::perftest(version, &plan, Role::Client));
        let Some(Link::Rdma { server, .. }) = &mut document.link else { panic!("over RDMA") };
        let qpns = vec![Qpn(7)];
        let end = PerftestEnd { perftest_version: "6.06".into(), lid: 5, gid: None, mtu_bytes: 4096, qpns };
        **server = end.into();
        let text = render_table(&document, BandwidthUnit::Mib, Detail::default());
        for line in [
            " Peer         : perftest 6.06: no data is checked, ",
            " Must match   : on the other end, -s ",
            " Server       : perftest 6.06, LID 5, QP 0x000007\n",
            " Data         : not checked, which takes one of these tools on both ends\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn several_threads_are_told() {
        let mut document = document(None);
        document.plan.as_mut().unwrap().threads = 3;
        let text = render_table(&document, BandwidthUnit::Mib, Detail::default());
        assert!(text.contains(" Queue pairs  : 6 in 3 threads, 128 outstanding writes each"), "{text}");
    }

    #[test]
    fn a_rate_limit_is_shown_with_what_was_achieved_of_it() {
        let mut limited = document(None);
        limited.plan.as_mut().unwrap().rate_limit =
            Some(RateLimit { rate: Rate::Gbit(400.0), burst_messages: 128 });
        limited.conclude(None);
        let text = render_table(&limited, BandwidthUnit::Gbit, Detail::default());
        let line = " Rate limit   : 400Gb/s for each end that writes, at most 128 messages at once\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains(" Rate limit   : 97.3 % of it achieved\n"), "{text}");
    }

    #[test]
    fn perftests_columns_stand_first_and_in_its_order() {
        let text = render_table(&document(None), BandwidthUnit::Mib, Detail::default());
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
}
