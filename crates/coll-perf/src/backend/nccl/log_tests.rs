use super::*;
use proptest::prelude::*;

/// One line of a log: the prefix is that of releases before 2.26, which newer ones put a time before.
fn info(words: &str) -> String {
    format!("node1:91:117 [0] NCCL INFO {words}\n")
}

fn net(network: &str, device: &str, gdr: bool, by_proxy_rank: bool) -> Transport {
    Transport::Net { network: network.to_owned(), device: device.to_owned(), gdr, by_proxy_rank }
}

fn p2p(mapping: &str) -> Transport {
    Transport::P2p { mapping: mapping.to_owned() }
}

/// How releases write each transport, 2.18 to 2.30.
#[test]
fn the_shapes_of_several_releases() {
    for (words, transport) in [
        ("P2P/direct pointer", p2p("direct pointer")),
        ("P2P/direct pointer/read", p2p("direct pointer")),
        ("P2P/CUMEM/read", p2p("CUMEM")),
        ("P2P/CUMEM", p2p("CUMEM")),
        ("P2P/MNNVL", p2p("MNNVL")),
        ("P2P/IPC", p2p("IPC")),
        ("P2P/IPC/read", p2p("IPC")),
        ("P2P/indirect/3[3]", p2p("indirect")),
        ("SHM/direct/direct", Transport::Shm),
        ("SHM/CE/direct", Transport::Shm),
        ("SHM/direct", Transport::Shm),
        ("NET/Socket/0", net("Socket", "0", false, false)),
        ("NET/Socket/0/Shared", net("Socket", "0", false, false)),
        ("NET/IB/3", net("IB", "3", false, false)),
        ("NET/IB/3/GDRDMA", net("IB", "3", true, false)),
        ("NET/IB/3/GDRDMA(PCI)", net("IB", "3", true, false)),
        ("NET/IB/0(4)/GDRDMA/Shared", net("IB", "0", true, true)),
        ("NET/AWS Libfabric/1/GDRDMA(PCI)", net("AWS Libfabric", "1", true, false)),
        ("teleport/0", Transport::Other { words: "teleport/0".to_owned() }),
        ("NET/", Transport::Other { words: "NET/".to_owned() }),
    ] {
        assert_eq!(Transport::parse(words), transport, "{words}");
    }
}

/// The line that tells that a rank is ready, release by release.
#[test]
fn a_rank_and_its_gpu_of_several_releases() {
    for words in [
        "comm 0x55d0 rank 3 nranks 8 cudaDev 1 nvmlDev 5 busId 9b000 commId 0xab - Init COMPLETE",
        "ncclCommInitRank comm 0x55d0 rank 3 nranks 8 cudaDev 1 nvmlDev 5 busId 9b000 commId 0xab - Init COMPLETE",
        "ncclCommInitRankConfig comm 0x55d0 rank 3 nranks 8 cudaDev 1 nvmlDev 5 busId 9b000 commId 0xab - Init COMPLETE",
    ] {
        let facts = LogFacts::parse(&info(words));
        assert_eq!(facts.gpus, [RankGpu { rank: 3, cuda_device: 1, bus_id: "9b000".to_owned() }], "{words}");
    }
    let begun = "ncclCommInitRankConfig comm 0x55d0 rank 3 nranks 8 cudaDev 1 nvmlDev 5 busId 9b000 commId 0xab - Init START";
    assert!(LogFacts::parse(&info(begun)).gpus.is_empty());
}

#[test]
fn a_log_becomes_facts() {
    let facts = LogFacts::parse(
        "node1:91:117 [0] NCCL INFO NET/IB : No device found.\n\
         node1:91:117 [0] NCCL INFO NET/Socket : Using [0]lo:127.0.0.1<0>\n\
         node1:91:117 [0] NCCL INFO Using network Socket\n\
         node1:91:130 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0\n\
         node1:91:130 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0\n\
         node1:91:130 [0] NCCL INFO Channel 01 : 0[3c0] -> 1[3d0] via SHM/direct\n\
         \n\
         [2026-11-29 10:00:00] node1:91:117 [0] init.cc:977 NCCL WARN Duplicate GPU detected\n\
         node1:91:117 [0] NCCL INFO ncclCommInitRankConfig comm 0x5 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 3c0 \
         commId 0xab - Init COMPLETE\n\
         Channel without a prefix : 1[0] -> 0[0] via SHM\n",
    );
    assert_eq!(facts.networks, ["Socket"]);
    assert_eq!(facts.socket_interfaces.as_deref(), Some("[0]lo:127.0.0.1<0>"));
    assert_eq!(facts.ib_devices, None);
    assert_eq!(facts.warnings, ["Duplicate GPU detected"]);
    assert_eq!(facts.gpus, [RankGpu { rank: 0, cuda_device: 0, bus_id: "3c0".to_owned() }]);
    let ends: Vec<_> = facts.connections.iter().map(|it| (it.from, it.to, it.channel)).collect();
    assert_eq!(ends, [(1, 0, 0), (0, 1, 1)]);
}

/// Recorded: two ranks that share a GPU, over sockets, rank 0's; lines about the machine's topology files and threads are
/// left out.
#[test]
fn a_recorded_log_of_2_28_3() {
    let facts = LogFacts::parse(include_str!("logs/2.28.3-socket-rank-0.log"));
    let told: Vec<_> =
        facts.connections.iter().map(|it| (it.from, it.to, it.channel, it.words.as_str())).collect();
    let (ring, group) = ("NET/Socket/0", "NET/Socket/0/Shared");
    assert_eq!(
        told,
        [(1, 0, 0, ring), (1, 0, 1, ring), (0, 1, 0, ring), (0, 1, 1, ring)]
            .into_iter()
            .chain([(1, 0, 0, group), (1, 0, 1, group), (0, 1, 0, group), (0, 1, 1, group)])
            .collect::<Vec<_>>()
    );
    assert_eq!((facts.networks.as_slice(), facts.ib_devices), (&["Socket".to_owned()][..], None));
    assert_eq!(facts.socket_interfaces.as_deref(), Some("[0]lo:127.0.0.1<0>"));
    assert_eq!(facts.gpus, [RankGpu { rank: 0, cuda_device: 0, bus_id: "60".to_owned() }]);
    assert!(facts.warnings.is_empty() && facts.reducers.is_empty());
}

/// Recorded on two GPUs: what ranks of two processes, the same without peer access, and two threads of one process write.
/// Lines without a path, a network or a rank are left out.
#[test]
fn recorded_logs_of_one_host_name_both_transports() {
    let edges = |log: &str| {
        let facts = LogFacts::parse(log);
        assert!(facts.reducers.is_empty() && facts.ib_devices.is_none());
        let mut edges: Vec<_> =
            facts.connections.into_iter().map(|it| (it.from, it.to, it.transport)).collect();
        edges.sort();
        edges.dedup();
        edges
    };
    let cumem = edges(include_str!("logs/2.28.3-p2p-rank-0.log"));
    assert_eq!(cumem, [(0, 1, p2p("CUMEM"))]);
    assert_eq!(edges(include_str!("logs/2.28.3-shm-rank-0.log")), [(0, 1, Transport::Shm)]);
    let direct = p2p("direct pointer");
    assert_eq!(edges(include_str!("logs/2.28.3-threads.log")), [(0, 1, direct.clone()), (1, 0, direct)]);
}

#[test]
fn adapters_are_named_where_there_are_any() {
    let of = |words: &str| LogFacts::parse(&info(words)).ib_devices;
    assert_eq!(of("NET/IB : Using [RO]; OOB eth0:192.0.2.2<0>"), None);
    let two = "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:192.0.2.2<0>";
    assert_eq!(of(two).as_deref(), two.strip_prefix("NET/IB : Using "));
}

#[test]
fn two_ranks_that_write_at_once_lose_their_lines_and_nothing_else() {
    let whole = info("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM");
    let torn = "node1:91:117 [0] NCCL INFO Channel 00/0 : 1[1] -> node1:92:118 [1] NCCL INFO Channel 01/0 : 1[1] -> 0[0] via P2P/CUMEM\n";
    let facts = LogFacts::parse(&format!("{torn}{whole}"));
    assert_eq!(facts.connections.len(), 1);
    assert_eq!((facts.connections[0].from, facts.connections[0].to), (0, 1));
}

/// A line that means something, and its transport.
fn connection_line() -> impl Strategy<Value = (u32, u32, u32, &'static str)> {
    let transport =
        prop_oneof![Just("P2P/CUMEM"), Just("SHM/direct"), Just("NET/IB/0/GDRDMA"), Just("NET/Socket/1")];
    (0..64_u32, 0..64_u32, 0..32_u32, transport)
}

proptest! {
    #[test]
    fn any_text_is_read_without_harm(text in "(?s).{0,400}") {
        let facts = LogFacts::parse(&text);
        prop_assert!(facts.connections.len() <= MOST_CONNECTIONS);
    }

    #[test]
    fn nothing_after_the_marks_does_harm(words in "[ -~\\[\\]:/>-]{0,80}", mark in prop_oneof![
        Just("Channel "), Just("CollNet "), Just("NET/IB : Using "), Just("Using network "), Just("NVLS comm "), Just("ncclCommInitRank ")
    ]) {
        let line = info(&format!("{mark}{words}"));
        let facts = LogFacts::parse(&line);
        prop_assert!(facts.connections.len() + facts.gpus.len() + facts.networks.len() + facts.reducers.len() <= 1);
    }

    /// What is told is what was there: in any order, among any noise, cut anywhere.
    #[test]
    fn connections_are_those_of_the_whole_lines(
        lines in prop::collection::vec(connection_line(), 0..20),
        noise in "[ -~]{0,60}",
        cut in 0.0..1.0_f64,
    ) {
        let line = |(from, to, channel, via): &(u32, u32, u32, &str)| {
            info(&format!("Channel {channel:02}/0 : {from}[{from}] -> {to}[{to}] [send] via {via}"))
        };
        let log: String = lines.iter().map(|it| format!("{noise}\n{}", line(it))).collect();
        prop_assume!(!noise.contains("NCCL"));
        let log = &log[..(log.len() as f64 * cut) as usize];
        let whole = log.matches(" via ").count();
        let facts = LogFacts::parse(log);
        prop_assert!(facts.connections.len() <= whole);
        for (it, found) in lines.iter().zip(&facts.connections).take(whole.saturating_sub(1)) {
            // Repetitions are told once: from then on the positions differ.
            if facts.connections.len() < whole { break; }
            prop_assert_eq!((found.from, found.to, found.channel), (it.0, it.1, it.2));
        }
    }
}
