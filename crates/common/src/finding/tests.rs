use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::host::HostFiles;
use crate::node::fixture::{self, Tree};

fn found(tree: &Tree) -> Vec<Finding> {
    let folder = tempfile::tempdir_in(fixture::quick_folder()).unwrap();
    tree.write_to(folder.path()).unwrap();
    examine(&Node::read(&HostFiles::below(folder.path())))
}

/// Codes by severity: what is worse than a note.
fn troubles(tree: &Tree) -> Vec<(Severity, &'static str)> {
    let found = found(tree);
    let bad = found.iter().filter(|finding| finding.severity > Severity::Note);
    bad.map(|finding| (finding.severity, finding.code.name())).collect()
}

use Severity::{Unfit, Warning};

#[test]
fn healthy_nodes_have_no_trouble() {
    for tree in [
        fixture::eight_by_eight(),
        fixture::roce(),
        fixture::infiniband(),
        fixture::bond(),
        fixture::virtual_function(),
    ] {
        assert_eq!(troubles(&tree), []);
    }
}

#[test]
fn each_sick_node_has_its_cause_first() {
    let first = |tree: &Tree| troubles(tree)[0];
    assert_eq!(first(&fixture::bare()), (Unfit, "no-rdma-device"));
    assert_eq!(first(&fixture::pod_without_node()), (Unfit, "device-node-missing"));
    assert_eq!(first(&fixture::link_down()), (Unfit, "port-not-active"));
    assert_eq!(first(&fixture::degraded_link()), (Warning, "pcie-degraded"));
    assert_eq!(first(&fixture::slow_slot()), (Warning, "pcie-below-port-rate"));
    assert_eq!(
        troubles(&fixture::one_subnet()),
        [(Warning, "same-subnet"), (Warning, "reverse-path-filter")]
    );
}

const NIC: &str = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0";

#[test]
fn what_stops_a_node_with_one_port_is_found_by_its_code() {
    let port = format!("{NIC}/infiniband/mlx5_0/ports/1");
    let roce = fixture::roce;
    let cases = [
        (roce().without("/sys/class/infiniband_verbs"), "uverbs-missing"),
        (roce().without(&format!("{port}/gids")).with(&format!("{port}/gids/0"), "::"), "no-usable-gid"),
        (fixture::infiniband().with(&format!("{port}/state"), "2: INIT"), "subnet-manager-missing"),
        (fixture::infiniband().without(&format!("{port}/state")), "no-usable-port"),
        (
            roce().without("/sys/class/infiniband").without(&format!("{NIC}/infiniband")),
            "adapter-without-rdma",
        ),
        (
            fixture::virtual_function().with(
                "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.4/infiniband/mlx5_4/node_guid",
                "0000:0000:0000:0000",
            ),
            "vf-guid-zero",
        ),
    ];
    for (tree, code) in cases {
        assert_eq!(troubles(&tree).first(), Some(&(Unfit, code)), "{code}");
    }
}

#[test]
fn what_slows_a_node_is_found_by_its_code() {
    let rate = format!("{NIC}/infiniband/mlx5_0/ports/1/rate");
    let mut small_limit = fixture::infiniband();
    small_limit.memlock("8388608");
    let gpus = fixture::eight_by_eight;
    let cases = [
        (fixture::infiniband().with(&rate, "100 Gb/sec (1X NDR)"), "link-width-low"),
        (small_limit, "memlock-low"),
        (fixture::bond().with(&format!("{NIC}/net/eth2/operstate"), "down"), "bond-member-down"),
        (
            gpus().without("/sys/module/nvidia_peermem").with("/proc/sys/kernel/osrelease", "5.4.0-1"),
            "gpudirect-missing",
        ),
        (gpus().without("/proc/driver/nvidia"), "gpu-driver-missing"),
    ];
    for (tree, code) in cases {
        assert_eq!(troubles(&tree), [(Warning, code)]);
    }
}

#[test]
fn doubtful_settings_of_nccl_are_named() {
    let environment = "/proc/self/environ";
    let of = |tree: Tree, setting: &str| troubles(&tree.with(environment, &format!("{setting}\0")));
    let cases = [
        ("NCCL_IB_DISABLE=1", "nccl-ib-disabled"),
        ("NCCL_NET=Socket", "nccl-net-socket"),
        ("NCCL_P2P_DISABLE=1", "nccl-p2p-disabled"),
        ("NCCL_IB_HCA=mlx4", "nccl-ib-hca"),
        ("NCCL_IB_HCA=^mlx5", "nccl-ib-hca"),
        ("NCCL_IB_GID_INDEX=9", "nccl-gid-index"),
        ("NCCL_IB_GID_INDEX=2", "nccl-gid-index"),
        ("NCCL_IB_GID_INDEX=1", "nccl-gid-index"),
        ("NCCL_SOCKET_IFNAME=bond", "nccl-socket-ifname"),
        ("NCCL_SOCKET_IFNAME==eth", "nccl-socket-ifname"),
        ("NCCL_NET_GDR_LEVEL=LOC", "nccl-gdr-off"),
    ];
    for (setting, code) in cases {
        assert_eq!(of(fixture::roce(), setting), [(Warning, code)], "{setting}");
    }
    let fine = [
        "NCCL_IB_DISABLE=0",
        "NCCL_IB_HCA==mlx5_0:1",
        "NCCL_IB_GID_INDEX=3",
        "NCCL_IB_GID_INDEX=-1",
        "NCCL_SOCKET_IFNAME=^lo",
        "NCCL_DEBUG=INFO",
    ];
    for setting in fine {
        assert_eq!(of(fixture::roce(), setting), [], "{setting}");
    }
}

#[test]
fn one_sick_port_beside_sound_ones_is_a_warning() {
    let state = "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0/infiniband/mlx5_0/ports/1/state";
    assert_eq!(troubles(&fixture::eight_by_eight().with(state, "1: DOWN")), [(Warning, "port-not-active")]);
}

#[test]
fn what_is_the_same_of_several_is_said_once() {
    let found = found(&fixture::eight_by_eight());
    let usable: Vec<&Finding> = found.iter().filter(|finding| finding.code == Code::PortUsable).collect();
    assert_eq!(usable.len(), 1);
    assert_eq!(usable[0].on.len(), 8);
    assert_eq!(usable[0].seen, "ACTIVE, InfiniBand, 400 Gb/sec (4X NDR)");
}

#[test]
fn memory_below_a_default_message_is_no_run() {
    let mut tree = fixture::infiniband();
    tree.memlock("32768");
    let found = found(&tree);
    assert_eq!((found[0].code, found[0].severity), (Code::MemlockLow, Unfit));
    assert!(found[0].seen.contains("at most 32 KiB"), "{}", found[0].seen);
}

#[test]
fn what_is_counted_between_two_looks_is_a_warning() {
    let read = |count: &str| {
        let folder = tempfile::tempdir_in(fixture::quick_folder()).unwrap();
        let counter = format!("{NIC}/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence");
        fixture::infiniband().with(&counter, count).write_to(folder.path()).unwrap();
        Node::read(&HostFiles::below(folder.path()))
    };
    let second = std::time::Duration::from_secs(1);
    let grown = growth(&read("5"), &read("8"), second);
    assert_eq!((grown[0].code, grown[0].severity), (Code::CountersTrouble, Warning));
    assert!(grown[0].seen.contains("out_of_sequence 3"), "{}", grown[0].seen);
    assert!(growth(&read("8"), &read("8"), second).is_empty());
    assert!(
        growth(&read("8"), &read("1"), second).is_empty(),
        "a driver that was loaded again counts from 0"
    );
}

#[test]
fn every_code_is_kebab_case_and_has_its_section() {
    let documentation = include_str!("../../../../docs/troubleshooting.md");
    let mut seen = std::collections::HashSet::new();
    for code in Code::ALL {
        assert!(seen.insert(code.name()), "{} appears twice", code.name());
        assert!(
            code.name()
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'-' || byte.is_ascii_digit())
        );
        assert_eq!(serde_json::to_value(code).unwrap(), code.name());
        let heading = format!("\n## {}\n", code.section());
        assert!(documentation.contains(&heading), "{}: no section {}", code.name(), code.section());
        assert!(
            documentation.contains(&format!("`{}`", code.name())),
            "{} is not in the documentation",
            code.name()
        );
    }
}

/// What can happen to a file of a tree.
#[derive(Clone, Debug)]
enum Damage {
    Missing,
    Empty,
    Garbage(Vec<u8>),
    Huge,
    Folder,
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        Just(Damage::Missing),
        Just(Damage::Empty),
        proptest::collection::vec(any::<u8>(), 0..64).prop_map(Damage::Garbage),
        // Digits and separators get further into the parsers than random bytes do.
        "[0-9a-fx:. \t\n-]{0,40}".prop_map(|text| Damage::Garbage(text.into_bytes())),
        Just(Damage::Huge),
        Just(Damage::Folder),
    ]
}

fn apply(damage: &Damage, path: &Path) {
    // The same file may be hit twice.
    if fs::remove_file(path).is_err() {
        return;
    }
    match damage {
        Damage::Missing => {}
        Damage::Empty => fs::write(path, "").unwrap(),
        Damage::Garbage(bytes) => fs::write(path, bytes).unwrap(),
        Damage::Huge => fs::File::create(path).and_then(|file| file.set_len(1 << 40)).unwrap(),
        Damage::Folder => fs::create_dir(path).unwrap(),
    }
}

/// What is said to be good, of what.
fn oks(findings: &[Finding]) -> Vec<(Code, String)> {
    let good = findings.iter().filter(|finding| finding.severity == Severity::Ok);
    good.flat_map(|finding| finding.on.iter().map(|on| (finding.code, on.clone()))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_damage_makes_a_panic_or_an_ok_that_was_not_there(
        fixture in 0..fixture::all().len(),
        damages in proptest::collection::vec((any::<prop::sample::Index>(), damage()), 1..40),
    ) {
        let (name, tree) = fixture::all().swap_remove(fixture);
        let folder = tempfile::tempdir_in(fixture::quick_folder()).unwrap();
        tree.write_to(folder.path()).unwrap();
        let files = HostFiles::below(folder.path());
        let whole = examine(&Node::read(&files));
        let paths = tree.paths();
        for (index, damage) in &damages {
            apply(damage, &folder.path().join(index.get(&paths).trim_start_matches('/')));
        }
        let damaged = examine(&Node::read(&files));
        let before = oks(&whole);
        for (code, on) in oks(&damaged) {
            prop_assert!(before.contains(&(code, on.clone())), "{name}: {} of {on} is new", code.name());
        }
        if worst(&whole) == Unfit {
            prop_assert_eq!(worst(&damaged), Unfit, "{}: damage made it fit", name);
        }
    }

    #[test]
    fn a_tree_that_says_nothing_is_never_fit(fixture in 0..fixture::all().len(), damage in damage()) {
        // A terabyte in each of a thousand files would be read for a second or two, to be refused.
        prop_assume!(!matches!(damage, Damage::Huge));
        let (name, tree) = fixture::all().swap_remove(fixture);
        let folder = tempfile::tempdir_in(fixture::quick_folder()).unwrap();
        tree.write_to(folder.path()).unwrap();
        for path in tree.paths() {
            apply(&damage, &folder.path().join(path.trim_start_matches('/')));
        }
        let found = examine(&Node::read(&HostFiles::below(folder.path())));
        prop_assert_eq!(worst(&found), Unfit, "{}", name);
        prop_assert!(found.iter().all(|finding| finding.severity != Severity::Ok), "{}: {:?}", name, found);
    }
}
