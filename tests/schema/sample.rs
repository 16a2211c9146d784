//! Documents in which nothing is absent.

use linkproof_common::affinity::{BoundBy, MemoryBinding, NodePages, ThreadBinding, Unbound};
use linkproof_common::clock::{ClockSource, ClockUse};
use linkproof_common::contention::{Contention, Load};
use linkproof_common::cuda::GpuName;
use linkproof_common::environment::Host;
use linkproof_common::error::{Error, ErrorKind};
use linkproof_common::gid::{Gid, GidEntry, GidType, LinkLayer};
use linkproof_common::intervals::{Interval, IntervalLatency, Intervals};
use linkproof_common::latency::{Bucket, Latency};
use linkproof_common::memlock::LockedMemory;
use linkproof_common::memory::{GpuPath, GpuUse, MemoryKind, MemoryRequest, Refusal};
use linkproof_common::node::Distance;
use linkproof_common::plan::{GpuPathRequest, GpuPlan, Plan, Role, RoundLength, Traffic, Transport};
use linkproof_common::qp::{QpAttributes, Qpn};
use linkproof_common::rate::{Rate, RateLimit};
use linkproof_common::report::{
    BandwidthIntervals, BandwidthRow, Conditions, DeviceKind, Document, Evidence, Guarantee,
    LatencyIntervals, LatencyRow, Link, MemoryUse, Peer, PerftestEnd, RdmaEnd, ResultRow, Round, TcpEnd,
};
use linkproof_common::requirement::{LatencyCeilings, Requirements};
use linkproof_common::validate::{Checked, Direction, WrongByte};
use linkproof_common::warning::Warning;

/// A run over RDMA by iterations.
pub(crate) fn full_rdma() -> Document {
    let link = Link::Rdma {
        path_mtu_bytes: 4096,
        addressing: "RoCE v2, IPv4-mapped: the ends share its subnet".into(),
        client: Box::new(rdma_end(1).into()),
        server: Box::new(rdma_end(2).into()),
    };
    document(Transport::Rdma, RoundLength::Iterations(5000), Rate::Gbit(90.5), link)
}

/// A run with a perftest at the other end.
pub(crate) fn full_perftest() -> Document {
    let end = PerftestEnd {
        perftest_version: "6.06".into(),
        lid: 2,
        gid: Some(Gid([0xfe80, 0, 0, 0, 0, 0, 0, 1].into())),
        mtu_bytes: 4096,
        qpns: vec![Qpn(7)],
    };
    let link = Link::Rdma {
        path_mtu_bytes: 4096,
        addressing: "InfiniBand in one subnet: addressed by LID".into(),
        client: Box::new(rdma_end(1).into()),
        server: Box::new(end.into()),
    };
    let mut document = document(Transport::Rdma, RoundLength::Iterations(5000), Rate::Gbit(90.5), link);
    document.peer = Some(Peer {
        program: "perftest".into(),
        version: "6.06".into(),
        without: vec![Guarantee::Validation, Guarantee::PeerDocument, Guarantee::PeerError],
        reports: vec![Direction::ServerToClient],
        must_match: vec!["-s 65536".into()],
    });
    document
}

/// A run over TCP by time.
pub(crate) fn full_tcp() -> Document {
    let link = Link::Tcp { client: tcp_end(1), server: tcp_end(2) };
    document(Transport::Tcp, RoundLength::Seconds(2.0), Rate::Mib(500.5), link)
}

/// A run of a latency tool.
pub(crate) fn full_latency() -> Document {
    let Some(link) = full_rdma().link else { unreachable!("it has one") };
    let mut document = document(Transport::Rdma, RoundLength::Iterations(5000), Rate::Mpps(1.5), link);
    let latency = Latency {
        t_min_usec: 1.5,
        t_max_usec: 9.5,
        t_typical_usec: 2.5,
        t_avg_usec: 2.5,
        t_stdev_usec: 0.5,
        p99_usec: 3.5,
        p99_9_usec: 4.5,
        p99_99_usec: 5.5,
        histogram: vec![Bucket { up_to_usec: 2.5, count: 600 }],
    };
    let of_interval = IntervalLatency { t_typical_usec: 2.5, p99_usec: 3.5, t_max_usec: 9.5 };
    document.rounds = vec![Round {
        peak_messages_per_sec: None,
        latency: Some(latency),
        intervals: Some(intervals(Some(of_interval))),
        ..round()
    }];
    document.results = vec![ResultRow::Latency(LatencyRow {
        size_bytes: 2,
        iterations: 1000,
        rounds: 3,
        t_min_usec: 1.5,
        t_max_usec: 9.5,
        t_typical_usec: 2.5,
        t_avg_usec: 2.5,
        t_stdev_usec: 0.5,
        p99_usec: 3.5,
        p99_9_usec: 4.5,
        p99_99_usec: 5.5,
        spread_percent: Some(1.5),
        intervals: Some(latency_intervals()),
        partial: false,
        checked_bytes: Some(8000),
        wrong_bytes: Some(3),
    })];
    document
}

fn document(transport: Transport, round_length: RoundLength, rate: Rate, link: Link) -> Document {
    let mut document = Document::begin("write-bw", "0.1.0");
    document.hosts = [Role::Client, Role::Server].map(host).into();
    document.plan = Some(plan(transport, round_length, rate));
    document.link = Some(link);
    document.memory = Some(MemoryUse {
        kind: MemoryKind::Host,
        client_kind: Some(MemoryKind::Host),
        server_kind: Some(MemoryKind::HostHuge),
        client_gpu: Some(gpu()),
        server_gpu: Some(gpu()),
        client_bytes: Some(65536),
        server_bytes: Some(65536),
        registration: Some("ibv_reg_mr".into()),
        regions: Some(1),
    });
    let moved = [("port_xmit_data".to_owned(), u64::MAX)].into();
    document.conditions = vec![conditions(Role::Client), conditions(Role::Server)];
    document.evidence = vec![Evidence { role: Role::Client, source: "mlx5_0 port 1".into(), moved }];
    document.rounds = vec![round()];
    document.results = vec![row()];
    document.warnings = vec![Warning::software_device("rxe0", "rxe")];
    let mut failure =
        Error::new(ErrorKind::WrongData, "3 bytes arrived wrong").fact("direction", "x").hint("y");
    failure.findings.push("memlock-low".to_owned());
    document.verdict.failures = vec![failure];
    document
}

fn conditions(role: Role) -> Conditions {
    let refusal = Some("set_mempolicy: EPERM (1), Operation not permitted".to_owned());
    Conditions {
        role,
        device_numa_node: Some(1),
        threads: ThreadBinding {
            cores: "4-7,12".into(),
            numa_nodes: vec![1],
            bound_by: BoundBy::None,
            why_not: Some(Unbound::Refused),
            refusal: refusal.clone(),
        },
        memory: MemoryBinding {
            numa_node: Some(1),
            bound_by: BoundBy::Device,
            why_not: Some(Unbound::Refused),
            refusal,
            pages: vec![NodePages { numa_node: 1, pages: 512 }],
        },
        clock: Some(ClockUse { source: ClockSource::Tsc, tick_hz: Some(2.1e9), why: "trusted".into() }),
        load: Some(Load { average: 1.5, cores: 16 }),
        contention: Some(Contention {
            thread_time_ns: 3_000_000_000,
            waited_ns: Some(5_000),
            involuntary_switches: 12,
            voluntary_switches: 3,
            cores_wanted_ns: Some(3_010_000_000),
            cores_steal_ns: Some(10_000_000),
        }),
    }
}

fn host(role: Role) -> Host {
    Host {
        role,
        name: "gpu-a".into(),
        version: "0.1.0".into(),
        kernel: Some("6.1.0".into()),
        cpu: Some("Some CPU".into()),
        cpus: 64,
        numa_nodes: Some(2),
        memlock: LockedMemory { soft_bytes: Some(65536), hard_bytes: Some(65536), cap_ipc_lock: false },
        container: Some("docker".into()),
    }
}

fn plan(transport: Transport, round_length: RoundLength, rate: Rate) -> Plan {
    Plan {
        tool: "write-bw".into(),
        transport,
        sizes_bytes: vec![65536],
        round_length,
        rounds: 3,
        interval_seconds: Some(0.5),
        warmup_iterations: 128,
        qps: 2,
        tx_depth: 128,
        signal_every: 32,
        signal_fixed: false,
        post_list: 1,
        threads: 2,
        queue_pair: QpAttributes { inline_bytes: 220, traffic_class: 106, ..QpAttributes::default() },
        traffic: Traffic::Unidirectional,
        path_mtu_bytes: Some(4096),
        validate: true,
        memory: MemoryRequest::HostHugeIfAny,
        gpu: Some(GpuPlan {
            client: Some(GpuName::Ordinal(0)),
            server: None,
            path: GpuPathRequest::Auto,
            allow_staged: true,
        }),
        working_set_bytes: Some(64 << 20),
        mr_per_qp: false,
        requirements: Requirements {
            min_bw_gbit_per_sec: Some(90.0),
            min_bw_mib_per_sec: Some(0.5),
            min_msg_rate_mpps: Some(1.5),
            max_latency: LatencyCeilings {
                t_avg_usec: Some(4.0),
                t_typical_usec: Some(3.5),
                p99_usec: Some(5.0),
                p99_9_usec: Some(7.5),
                p99_99_usec: Some(9.5),
                t_max_usec: Some(50.0),
            },
        },
        rate_limit: Some(RateLimit { rate, burst_messages: 16 }),
    }
}

fn rdma_end(host: u16) -> RdmaEnd {
    RdmaEnd {
        device: "mlx5_0".into(),
        device_kind: DeviceKind::Software,
        software: Some("rxe".into()),
        port_num: 1,
        link_layer: LinkLayer::Ethernet,
        lid: 0,
        gid: Some(GidEntry {
            index: 3,
            gid: Gid(format!("::ffff:10.0.0.{host}").parse().expect("an address")),
            gid_type: GidType::RoceV2,
            netdev: Some("eth2".into()),
            prefix_len: Some(24),
        }),
        active_mtu_bytes: 4096,
        rate_gbit_per_sec: Some(400.0),
        qpns: vec![Qpn(0x1a0), Qpn(0xff_ffff)],
        posting: "ibv_wr".into(),
        inline_bytes: 96,
    }
}

fn tcp_end(host: u8) -> TcpEnd {
    TcpEnd {
        address: format!("10.0.0.{host}:18515"),
        netdev: Some("eth2".into()),
        rate_gbit_per_sec: Some(25.0),
    }
}

fn round() -> Round {
    let first_wrong = Some(WrongByte { qp: 1, message: Some(7), offset: 5, expected: 0, found: 255 });
    let checked = Checked { checked_bytes: 131_072, wrong_bytes: 3, first_wrong };
    Round {
        size_bytes: 65536,
        round: 0,
        direction: Direction::ClientToServer,
        messages: 10_000,
        elapsed_ns: 800_000,
        peak_messages_per_sec: Some(760_000.5),
        latency: None,
        intervals: Some(intervals(None)),
        partial: false,
        checked: Some(checked),
        answers_checked: Some(checked),
    }
}

fn row() -> ResultRow {
    ResultRow::Bandwidth(BandwidthRow {
        size_bytes: 65536,
        iterations: 10_000,
        rounds: 3,
        bw_peak_mib_per_sec: 1.5,
        bw_peak_gbit_per_sec: 1.5,
        bw_average_mib_per_sec: 1.5,
        bw_average_gbit_per_sec: 1.5,
        msg_rate_mpps: 0.5,
        spread_percent: Some(1.5),
        line_rate_percent: Some(98.5),
        rate_limit_percent: Some(99.5),
        intervals: vec![bandwidth_intervals()],
        partial: false,
        checked_bytes: Some(393_216),
        wrong_bytes: Some(3),
    })
}

fn intervals(latency: Option<IntervalLatency>) -> Intervals {
    let interval = Interval { begin_ns: 0, elapsed_ns: 500_000_000, messages: 5000, latency };
    Intervals { count: 2, slowest: interval, fastest: interval, merged: 2, list: vec![interval] }
}

fn bandwidth_intervals() -> BandwidthIntervals {
    BandwidthIntervals {
        direction: Direction::ClientToServer,
        count: 60,
        bw_min_mib_per_sec: 0.5,
        bw_min_gbit_per_sec: 0.5,
        bw_median_mib_per_sec: 1.5,
        bw_median_gbit_per_sec: 1.5,
        bw_max_mib_per_sec: 1.75,
        bw_max_gbit_per_sec: 1.75,
        slowest_round: 0,
        slowest_at_seconds: 17.5,
    }
}

fn latency_intervals() -> LatencyIntervals {
    LatencyIntervals {
        count: 60,
        t_typical_min_usec: 1.5,
        t_typical_median_usec: 2.5,
        t_typical_max_usec: 3.5,
        p99_max_usec: 4.5,
        slowest_round: 0,
        slowest_at_seconds: 17.5,
    }
}

/// GPU memory that was reached by the second way, over a device that is not the nearest.
pub(crate) fn gpu() -> GpuUse {
    GpuUse {
        ordinal: 0,
        name: "NVIDIA H200".into(),
        uuid: "GPU-8a5c01d2-0000-0000-0000-000000000000".into(),
        pci_address: "0000:3c:00.0".into(),
        path: GpuPath::Peermem,
        refused: vec![Refusal { path: GpuPath::Dmabuf, why: "ibv_reg_dmabuf_mr: EOPNOTSUPP (95)".into() }],
        distance: Some(Distance::Sys),
        nearer: vec!["mlx5_3".into()],
    }
}
