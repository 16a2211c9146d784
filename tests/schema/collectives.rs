//! Documents of `coll-perf`: one in which nothing is absent, and the spelling of its words.

use coll_perf::backend::nccl::{GpuLink, HostPort, LogFacts, RankGpu, Requirement, Witness};
use coll_perf::backend::{Carrier, Pacing, Placement};
use coll_perf::collective::{self, Kind};
use coll_perf::data::{Checked, WrongElement};
use coll_perf::dtype::DataType;
use coll_perf::plan::{Plan, Transport};
use coll_perf::redop::RedOp;
use coll_perf::report::{Document, RankHost, RankPort, RankRow, ResultRow, Round};
use coll_perf::summary::Spread;
use linkproof_common::error::{Error, ErrorKind};
use linkproof_common::gid::{Gid, GidEntry, GidType, LinkLayer};
use linkproof_common::memlock::LockedMemory;
use linkproof_common::report::DeviceKind;
use linkproof_common::traffic::{PortKind, PortTraffic};
use linkproof_common::warning::Warning;
use linkproof_tests::schema;
use serde_json::{Value, json};

use crate::{values_at, written_as};

/// A run with everything in it, which could not be in one run.
pub(crate) fn full() -> Document {
    let mut document = Document::begin();
    document.hosts = vec![host()];
    document.plan = Some(plan());
    let [backend, transport, note] = ["host", "shm", "no network"].map(String::from);
    document.backend = Some(Carrier { backend, transport, note });
    document.evidence = vec![witness()];
    document.rounds = vec![round()];
    document.results = vec![row()];
    document.warnings = vec![Warning::software_device("rxe0", "rxe")];
    document.verdict.failures =
        vec![Error::new(ErrorKind::WrongData, "3 elements were wrong").fact("rank", "x").hint("y")];
    document
}

fn host() -> RankHost {
    RankHost {
        rank: 0,
        pid: 4711,
        name: "gpu-a".into(),
        version: "0.1.0".into(),
        kernel: Some("6.1.0".into()),
        cpu: Some("Some CPU".into()),
        cpus: 64,
        cores: "2-5,8".into(),
        numa_nodes: Some(2),
        memlock: LockedMemory { soft_bytes: Some(65536), hard_bytes: Some(65536), cap_ipc_lock: false },
        container: Some("docker".into()),
        port: Some(port()),
    }
}

fn port() -> RankPort {
    RankPort {
        device: "rxe0".into(),
        device_kind: DeviceKind::Software,
        software: Some("rxe".into()),
        port_num: 1,
        link_layer: LinkLayer::Ethernet,
        lid: 0,
        gids: vec![GidEntry {
            index: 1,
            gid: Gid("::ffff:10.0.0.1".parse().expect("an address")),
            gid_type: GidType::RoceV2,
            netdev: Some("eth1".into()),
            prefix_len: Some(24),
        }],
        active_mtu_bytes: 1024,
        path_mtu_bytes: Some(1024),
        rate_gbit_per_sec: Some(2.5),
    }
}

fn plan() -> Plan {
    Plan {
        collectives: vec![Kind::AllReduce, Kind::Alltoallv],
        sizes_bytes: vec![1 << 20],
        dtypes: DataType::ALL.to_vec(),
        redops: RedOp::ALL.to_vec(),
        roots: vec![0, 1],
        placements: vec![Placement::OutOfPlace, Placement::InPlace],
        n_ranks: 2,
        transport: Transport::Shm,
        rounds: 3,
        iterations: 20,
        calls_per_iteration: 1,
        warmup_iterations: 5,
        pacing: Pacing::Pipelined,
        check: true,
        timeout_seconds: 60.0,
        require_transport: Some(Requirement::IbGdr),
        shared_gpu: true,
        graph_launches: 3,
        registered: true,
        matrix_bytes: Some(vec![vec![0, 16], vec![16, 0]]),
    }
}

/// What a log with everything in it says.
fn witness() -> Witness {
    let line = |words: &str| format!("node1:91:130 [0] NCCL INFO {words}\n");
    let log = [
        "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
        "NET/Socket : Using [0]eth0:10.0.0.1<0>",
        "Using network IB",
        "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA",
        "NVLS comm 0x7f2e headRank 0 nHeads 2 nvlsRanks 2 buffSize 4194304",
    ];
    let mut witness = Witness::of([LogFacts::parse(&log.map(line).concat())]);
    witness.edges[0].link = Some(GpuLink::NVLink);
    witness.gpus = vec![RankGpu {
        rank: 1,
        name: "NVIDIA H200".into(),
        pci_address: "0000:17:00.0".into(),
        busy_before_percent: Some(100),
        processes_before: Some(1),
        nvlinks: Some(18),
        nvlink_sent_bytes: Some(1 << 30),
    }];
    let [rdma, net] =
        [("mlx5_0 port 1", PortKind::Rdma), ("eth0", PortKind::Net)].map(|(port, kind)| HostPort {
            host: "gpu-a".into(),
            traffic: PortTraffic { port: port.into(), kind, sent_bytes: 1 << 30, received_bytes: 0 },
        });
    witness.ports = vec![rdma, net];
    witness
}

fn round() -> Round {
    let wrong = WrongElement {
        rank: 1,
        offset_bytes: 4096,
        from_rank: Some(0),
        expected: "1 (0x3f800000)".into(),
        found: "2 (0x40000000)".into(),
    };
    let checked = Checked { checked_elements: 262_144, wrong_elements: 3, first_wrong: Some(wrong) };
    Round { result: 0, round: 2, time_usec: 1.5, rank_time_usec: vec![1.5, 1.25], checked: Some(checked) }
}

fn row() -> ResultRow {
    let spread = Spread { median_usec: 1.5, p95_usec: 2.5, p99_usec: 3.5, max_usec: 4.5 };
    let rank = RankRow {
        rank: 1,
        time_usec: 1.5,
        last_to_arrive: 58,
        behind_usec: Some(0.5),
        last_to_finish: 2,
        preemptions: 1,
    };
    ResultRow {
        collective: Kind::AllReduce,
        size_bytes: 1 << 20,
        count: 262_144,
        per_peer_bytes: Some(524_288),
        dtype: DataType::Float,
        redop: Some(RedOp::Sum),
        root: Some(0),
        placement: Placement::InPlace,
        algorithm: "slices".into(),
        pacing: Pacing::Aligned,
        rounds: 3,
        iterations: 20,
        time_usec: 1.5,
        alg_bw_gbyte_per_sec: 10.5,
        bus_bw_gbyte_per_sec: Some(5.25),
        slowest: spread,
        skew: spread,
        transfer: spread,
        spread_percent: Some(1.5),
        checked_elements: Some(786_432),
        wrong_elements: Some(3),
        ranks: vec![rank],
    }
}

#[test]
fn a_document_of_collectives_with_nothing_in_it_is_valid() {
    let mut document = Document::begin();
    document.conclude(Some(Error::new(ErrorKind::Usage, "x")));
    schema::validate(&serde_json::to_value(document).expect("JSON"));
}

#[test]
fn words_of_collectives_are_spelled_as_the_tool_writes_them() {
    let of = |name: &str| values_at(&format!("/$defs/{name}/enum"));
    let kinds: Vec<Kind> = collective::ALL.iter().map(|collective| collective.kind).collect();
    assert_eq!(of("coll_kind"), written_as(&kinds));
    assert_eq!(of("coll_dtype"), written_as(DataType::ALL));
    assert_eq!(of("coll_redop"), written_as(RedOp::ALL));
    assert_eq!(of("coll_placement"), written_as(&[Placement::OutOfPlace, Placement::InPlace]));
    assert_eq!(of("coll_pacing"), written_as(&[Pacing::Pipelined, Pacing::Aligned]));
    assert_eq!(
        of("coll_plan/properties/transport"),
        written_as(&[Transport::Shm, Transport::Tcp, Transport::Rdma, Transport::Gpu])
    );
    let required = [
        Requirement::Ib,
        Requirement::IbGdr,
        Requirement::IbHost,
        Requirement::Socket,
        Requirement::SocketOnly,
        Requirement::P2p,
        Requirement::Nvlink,
        Requirement::NoP2p,
        Requirement::Shm,
    ];
    assert_eq!(of("coll_plan/properties/require_transport"), written_as(&required));
    assert_eq!(
        of("coll_witness/properties/edges/items/properties/link"),
        written_as(&[GpuLink::NVLink, GpuLink::PCIe])
    );
    for collective in collective::ALL {
        assert_eq!(written_as(&[collective.kind]), [collective.name.to_owned()].into());
    }
}

/// A document is of one kind of tool: what belongs to the other is refused.
#[test]
fn what_belongs_to_a_link_is_not_taken_from_collectives_and_the_other_way_round() {
    let ours = serde_json::to_value(full()).expect("JSON");
    let theirs = serde_json::to_value(crate::sample::full_tcp()).expect("JSON");
    let mixed = |into: &Value, from: &Value, name: &str| {
        let mut mixed = into.clone();
        mixed[name] = from[name].clone();
        schema::errors(&mixed)
    };
    for name in ["hosts", "plan", "rounds", "results"] {
        assert!(!mixed(&ours, &theirs, name).is_empty(), "{name} of a link");
        assert!(!mixed(&theirs, &ours, name).is_empty(), "{name} of collectives");
    }
    assert!(!mixed(&ours, &theirs, "link").is_empty() && !mixed(&theirs, &ours, "backend").is_empty());
}

#[test]
fn one_rank_has_no_bus_bandwidth_and_it_is_not_zero() {
    let mut document = full();
    document.results[0].bus_bw_gbyte_per_sec = None;
    let value = serde_json::to_value(document).expect("JSON");
    assert_eq!(value["results"][0].get("bus_bw_gbyte_per_sec"), None);
    schema::validate(&value);
    assert_ne!(value["results"][0]["alg_bw_gbyte_per_sec"], json!(0));
}
