//! What would come of runs on recorded nodes.

use super::*;
use linkproof_common::finding::examine;
use linkproof_common::host::HostFiles;
use linkproof_common::node::fixture::{self, Tree};

fn run(tree: &Tree, command: &str) -> Run {
    let folder = tempfile::tempdir_in(fixture::quick_folder()).unwrap();
    tree.write_to(folder.path()).unwrap();
    let files = HostFiles::below(folder.path());
    Claim::of(command).unwrap().on(&Node::read(&files), &files)
}

fn stops(tree: &Tree, command: &str) -> Vec<ErrorKind> {
    run(tree, command).failures.iter().map(|error| error.kind).collect()
}

#[test]
fn a_run_that_would_work_says_what_it_would_use() {
    let run = run(&fixture::roce(), "write-bw -d mlx5_0 -s 1M -q 4 node-b");
    assert!(run.failures.is_empty());
    assert_eq!((run.gid_index, run.pins_bytes), (Some(3), Some(4 << 20)));
    assert_eq!(run.describe(), "it would use mlx5_0 port 1, GID 3, and pin 4 MiB");
}

#[test]
fn each_thing_that_stops_a_run_has_the_tools_own_code() {
    let roce = fixture::roce();
    let mut small = fixture::infiniband();
    small.memlock("65536");
    let cases = [
        (&roce, "write-bw -d mlx5_9", ErrorKind::DeviceNotFound),
        (&roce, "write-bw -i 2", ErrorKind::PortNotFound),
        (&roce, "write-lat -x 9 node-b", ErrorKind::GidIndex),
        (&small, "write-bw -s 1M", ErrorKind::Memlock),
        (&fixture::virtual_function(), "write-bw -m 4096", ErrorKind::DeviceLimit),
        (&fixture::pod_without_node(), "/usr/bin/write-bw", ErrorKind::DeviceUnusable),
        (&fixture::link_down(), "write-bw -d mlx5_0", ErrorKind::PortNotActive),
        (&fixture::bare(), "write-bw", ErrorKind::NoDevice),
    ];
    for (tree, command, kind) in cases {
        assert_eq!(stops(tree, command), [kind], "{command}");
    }
}

#[test]
fn smaller_messages_fit_where_larger_ones_do_not() {
    let mut small = fixture::infiniband();
    small.memlock("32768");
    assert_eq!(stops(&small, "write-bw -s 4K"), []);
    assert_eq!(stops(&small, "write-bw -s 64K"), [ErrorKind::Memlock]);
    assert_eq!(stops(&small, "write-bw -s 4K -q 9"), [ErrorKind::Memlock]);
}

#[test]
fn tcp_needs_nothing_of_the_node() {
    let claim = Claim::of("write-bw --transport tcp node-b").unwrap();
    let folder = tempfile::tempdir_in(fixture::quick_folder()).unwrap();
    fixture::bare().write_to(folder.path()).unwrap();
    let files = HostFiles::below(folder.path());
    let node = Node::read(&files);
    let findings = claim.findings(&claim.on(&node, &files), examine(&node));
    assert_eq!(findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), [Code::RunPossible]);
}

#[test]
fn what_other_devices_have_is_not_this_runs_concern() {
    let state = "/sys/devices/pci0000:26/0000:26:01.0/0000:27:00.0/0000:28:01.0/0000:2a:00.0/infiniband/mlx5_1/ports/1/state";
    let tree = fixture::pairs(2).with(state, "1: DOWN");
    let folder = tempfile::tempdir_in(fixture::quick_folder()).unwrap();
    tree.write_to(folder.path()).unwrap();
    let files = HostFiles::below(folder.path());
    let node = Node::read(&files);
    let warned = |command: &str| {
        let claim = Claim::of(command).unwrap();
        let findings = claim.findings(&claim.on(&node, &files), examine(&node));
        findings.iter().any(|finding| finding.code == Code::PortDown)
    };
    assert!(!warned("write-bw -d mlx5_0 node-b"));
    assert!(warned("write-bw -d mlx5_1 node-b"));
}

#[test]
fn words_are_parted_as_a_shell_does() {
    assert_eq!(words("  a 'b c'  d\"e f\" ''").unwrap(), ["a", "b c", "de f", ""]);
    assert_eq!(words(r"a\ b").unwrap(), ["a b"]);
}

#[test]
fn a_command_line_is_refused_as_its_tool_would() {
    let refusal = |text: &str| Claim::of(text).unwrap_err();
    assert!(refusal("write-bw -s 2Q").what.contains("\"Q\" is no unit of size"));
    assert!(refusal("ib_write_bw -a").what.contains("is no tool whose runs are known here"));
    assert!(refusal("write-bw 'a").what.contains("quote"));
    assert!(Claim::of("/opt/bin/write-bw -d 'mlx5_0' \"node b\"").is_ok());
    assert_eq!(refusal("write-bw --help").kind, ErrorKind::Usage);
}

#[test]
fn a_collective_between_processors_needs_memory_alone() {
    let of = |command: &str| run(&fixture::bare(), command);
    let shm = of("coll-perf --backend host --ranks 3 -b 8 -e 1M");
    assert!(shm.failures.is_empty(), "{:?}", shm.failures);
    assert_eq!(shm.describe(), "it would use the host backend, over shared memory, 3 ranks here");
    let tcp = of("coll-perf --transport tcp --rank 1 --world-size 4 --rendezvous n1:7000 -b 8 -e 1M");
    assert_eq!(tcp.describe(), "it would use the host backend, over TCP, rank 1 of 4");
    let claim = Claim::of("coll-perf --backend host --ranks 2 -b 8 -e 1M").unwrap();
    assert!(!claim.uses_node());
}

#[test]
fn a_collective_over_rdma_is_stopped_by_what_stops_a_write() {
    const RDMA: &str = "coll-perf --transport rdma --rank 1 --world-size 2 --rendezvous n1 -b 8 -e 1M";
    let good = run(&fixture::roce(), &format!("{RDMA} --ib-dev mlx5_0"));
    assert!(good.failures.is_empty(), "{:?}", good.failures);
    assert_eq!(good.gid_index, Some(3));
    // Its buffers, and the slots of both ranks.
    assert!(good.pins_bytes.unwrap() > 2 << 20, "{:?}", good.pins_bytes);
    let mut small = fixture::infiniband();
    small.memlock("65536");
    assert_eq!(stops(&small, RDMA), [ErrorKind::Memlock]);
    assert_eq!(stops(&fixture::roce(), &format!("{RDMA} --ib-dev mlx5_9")), [ErrorKind::DeviceNotFound]);
    assert_eq!(stops(&fixture::roce(), &format!("{RDMA} --gid-index 9")), [ErrorKind::GidIndex]);
    assert_eq!(stops(&fixture::bare(), RDMA), [ErrorKind::NoDevice]);
    // All threads of one process are under its limit.
    let pins = |ranks: u32| {
        run(&fixture::roce(), &format!("coll-perf --transport rdma --ranks {ranks} -b 8 -e 1M"))
            .pins_bytes
            .unwrap()
    };
    assert!(pins(4) >= 2 * pins(2));
}

/// On a machine with a driver this would be a run; what it lacks is told as the tool would.
#[test]
fn a_collective_on_gpus_hears_of_nccls_settings_and_can_do_without_adapters() {
    let claim = Claim::of("coll-perf --backend nccl -b 8 -e 1M").unwrap();
    let folder = tempfile::tempdir_in(fixture::quick_folder()).unwrap();
    fixture::bare().with("/etc/nccl.conf", "NCCL_IB_DISABLE=1").write_to(folder.path()).unwrap();
    let files = HostFiles::below(folder.path());
    let node = Node::read(&files);
    let findings = claim.findings(&claim.on(&node, &files), examine(&node));
    let of = |code: Code| findings.iter().find(|finding| finding.code == code);
    assert_eq!(of(Code::NoDevice).map(|finding| finding.severity), Some(Severity::Warning));
    assert!(of(Code::NcclIbDisabled).is_some(), "{findings:?}");
}

#[test]
fn a_collective_that_contradicts_itself_is_refused_as_its_tool_would() {
    let refusal = |text: &str| Claim::of(text).unwrap_err();
    assert!(
        refusal("coll-perf --ib-dev mlx5_0 --backend host").what.contains("--ib-dev is about an RDMA port")
    );
    assert!(refusal("coll-perf --backend host -G 10").what.contains("-G and -R are for GPUs"));
    assert_eq!(refusal("coll-perf -b 1Q").kind, ErrorKind::Usage);
    assert!(refusal("coll-perf --arm tcp --arm shm").what.contains("--arm"));
}
