//! What NCCL's log proves of the paths, and whether that is what was asked for.

use std::collections::BTreeMap;
use std::path::PathBuf;

use linkproof_common::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::gpus::{HostPort, RankGpu, Told};
use super::log::{LogFacts, NVLS, Transport};

/// Has NCCL write its log to a file of this process, unless the user's own settings say otherwise. Before NCCL is loaded
/// and before there are threads. Gives the file, with the process's number in its name.
#[allow(unsafe_code, reason = "the environment of this process, before it has threads")]
pub(super) fn prepare_log() -> Option<LogFile> {
    let has = |name: &str| std::env::var_os(name).is_some();
    if has("NCCL_DEBUG_FILE") || has("NCCL_DEBUG_SUBSYS") {
        return None;
    }
    let file = std::env::temp_dir().join(format!("coll-perf-nccl-{}.log", std::process::id()));
    // SAFETY: called at the begin, while there is one thread.
    unsafe {
        std::env::set_var("NCCL_DEBUG", "INFO");
        std::env::set_var("NCCL_DEBUG_SUBSYS", "INIT,NET,P2P,SHM,GRAPH,ENV,BOOTSTRAP");
        std::env::set_var("NCCL_DEBUG_FILE", &file);
    }
    Some(LogFile(file))
}

/// NCCL's log of this process, which goes with it.
#[derive(Debug)]
pub struct LogFile(PathBuf);

impl LogFile {
    /// What it says of the paths; nothing where it can't be read.
    pub(crate) fn facts(&self) -> LogFacts {
        LogFacts::parse(&self.text())
    }

    /// The last of its warnings, in the order of their coming: what NCCL knew when something failed.
    pub(crate) fn last_warnings(&self) -> Vec<String> {
        last_warnings(&self.text())
    }

    fn text(&self) -> String {
        std::fs::read(&self.0)
            .map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn last_warnings(log: &str) -> Vec<String> {
    const MOST: usize = 3;
    let said = |line: &str| line.split_once("NCCL WARN ").map(|(_, words)| words.trim().to_owned());
    let mut warnings: Vec<String> = log.lines().filter_map(said).filter(|words| !words.is_empty()).collect();
    warnings.dedup();
    warnings.split_off(warnings.len().saturating_sub(MOST))
}

/// All connections from one rank to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// The rank that sends.
    pub from: u32,
    /// The rank that receives.
    pub to: u32,
    /// How many channels go that way.
    pub channels: u32,
    /// In words; several where channels differ.
    pub transports: Vec<String>,
    /// Whether adapters reach GPU memory directly on all of them; absent where no adapter is involved.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gdr: Option<bool>,
    /// What lies between the GPUs where one reaches the other directly; absent where the driver does not say.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub link: Option<GpuLink>,
}

/// What lies between two GPUs that reach each other directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GpuLink {
    /// NVLink, with switches or without.
    NVLink,
    /// PCI Express.
    PCIe,
}

impl GpuLink {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::NVLink => "NVLink",
            Self::PCIe => "PCIe",
        }
    }
}

impl Edge {
    /// What carries the bytes, in words: `P2P (CUMEM) over NVLink`.
    pub fn describe(&self) -> String {
        let over = self.link.map_or(String::new(), |link| format!(" over {}", link.name()));
        format!("{}{over}", self.transports.join(" and "))
    }
}

/// What all ranks' logs say together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Witness {
    /// From each rank to each that it sends to.
    pub edges: Vec<Edge>,
    /// NCCL's names of the networks that it chose.
    pub networks: Vec<String>,
    /// The InfiniBand and RoCE devices that it found.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ib_devices: Option<String>,
    /// The interfaces that it uses for sockets.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub socket_interfaces: Option<String>,
    /// What reduces on the way instead of a GPU, in NCCL's words: `NVLS` for NVLink's switches.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub reducers: Vec<String>,
    /// Each rank's GPU, by the driver's word.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub gpus: Vec<RankGpu>,
    /// What the ports of the machines have carried meanwhile, by their own counters.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub ports: Vec<HostPort>,
    #[serde(skip)]
    transports: BTreeMap<(u32, u32), Vec<Transport>>,
}

/// `--require-transport`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Requirement {
    /// Hosts reach each other over InfiniBand or RoCE
    Ib,
    /// The same, and adapters reach GPU memory directly
    #[value(name = "ib+gdr")]
    IbGdr,
    /// The same, and every byte goes through host memory
    #[value(name = "ib+host")]
    IbHost,
    /// Hosts reach each other over TCP sockets
    Socket,
    /// Every rank reaches every other over TCP sockets, on its own host too
    SocketOnly,
    /// GPUs of a host reach each other directly
    P2p,
    /// The same, over NVLink
    Nvlink,
    /// GPUs of a host do not reach each other directly
    NoP2p,
    /// GPUs of a host reach each other through host memory that both map
    Shm,
}

/// Which edges a [`Requirement`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    All,
    BetweenHosts,
    WithinHosts,
}

impl Reach {
    /// Where all ranks are on one host there is no between and within: every edge is meant.
    fn among(self, hosts: &[String]) -> Self {
        if hosts.iter().all(|host| *host == hosts[0]) { Self::All } else { self }
    }

    fn includes(self, (from, to): (u32, u32), hosts: &[String]) -> bool {
        let host = |rank: u32| hosts.get(rank as usize);
        match self {
            Self::All => true,
            Self::BetweenHosts => host(from) != host(to),
            Self::WithinHosts => host(from) == host(to),
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::All => "edges",
            Self::BetweenHosts => "edges between hosts",
            Self::WithinHosts => "edges within a host",
        }
    }
}

impl Requirement {
    fn is_met_by(self, transport: &Transport) -> bool {
        match (self, transport) {
            (Self::Ib, Transport::Net { network, .. }) => network == "IB",
            (Self::IbGdr, Transport::Net { network, gdr, .. }) => network == "IB" && *gdr,
            (Self::IbHost, Transport::Net { network, gdr, .. }) => network == "IB" && !*gdr,
            (Self::Socket | Self::SocketOnly, Transport::Net { network, .. }) => network == "Socket",
            (Self::P2p | Self::Nvlink, Transport::P2p { .. }) | (Self::Shm, Transport::Shm) => true,
            (Self::NoP2p, transport) => !matches!(transport, Transport::P2p { .. } | Transport::Other { .. }),
            _ => false,
        }
    }

    /// Whether bytes that go through NVLink's switches would break the promise.
    fn excludes_nvls(self) -> bool {
        matches!(self, Self::NoP2p | Self::Shm | Self::SocketOnly)
    }

    fn reach(self) -> Reach {
        match self {
            Self::Ib | Self::IbGdr | Self::IbHost | Self::Socket => Reach::BetweenHosts,
            Self::SocketOnly => Reach::All,
            Self::P2p | Self::Nvlink | Self::NoP2p | Self::Shm => Reach::WithinHosts,
        }
    }

    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ib => "ib",
            Self::IbGdr => "ib+gdr",
            Self::IbHost => "ib+host",
            Self::Socket => "socket",
            Self::SocketOnly => "socket-only",
            Self::P2p => "p2p",
            Self::Nvlink => "nvlink",
            Self::NoP2p => "no-p2p",
            Self::Shm => "shm",
        }
    }
}

impl Witness {
    /// From the facts of all ranks' logs. Both ends of a connection tell of it; a channel counts once.
    pub fn of(logs: impl IntoIterator<Item = LogFacts>) -> Self {
        let mut all = LogFacts::default();
        logs.into_iter().for_each(|log| all.add(log));
        let mut channels: BTreeMap<(u32, u32), BTreeMap<u32, Vec<Transport>>> = BTreeMap::new();
        for it in all.connections.into_iter().filter(|it| it.from != it.to) {
            let seen = channels.entry((it.from, it.to)).or_default().entry(it.channel).or_default();
            if !seen.contains(&it.transport) {
                seen.push(it.transport);
            }
        }
        let mut witness = Self {
            networks: all.networks,
            ib_devices: all.ib_devices,
            socket_interfaces: all.socket_interfaces,
            reducers: all.reducers,
            ..Self::default()
        };
        for ((from, to), channels) in channels {
            let count = channels.len() as u32;
            let mut transports: Vec<Transport> = channels.into_values().flatten().collect();
            transports.sort();
            transports.dedup();
            witness.edges.push(Edge {
                from,
                to,
                channels: count,
                transports: transports.iter().map(Transport::describe).collect(),
                gdr: gdr(&transports),
                link: None,
            });
            witness.transports.insert((from, to), transports);
        }
        witness
    }

    /// The same with what the driver says of each rank's GPU: an edge that is only P2P in the log goes over something.
    #[must_use]
    pub(crate) fn with_gpus(mut self, told: Vec<Told>) -> Self {
        for edge in &mut self.edges {
            let of_p2p = |transports: &Vec<Transport>| {
                transports.iter().all(|transport| matches!(transport, Transport::P2p { .. }))
            };
            if !self.transports.get(&(edge.from, edge.to)).is_some_and(of_p2p) {
                continue;
            }
            let sender = told.iter().find(|told| told.gpu.rank == edge.from);
            let reach = sender.and_then(|told| told.reaches.iter().find(|(peer, _)| *peer == edge.to));
            edge.link = reach.map(|(_, nvlink)| if *nvlink { GpuLink::NVLink } else { GpuLink::PCIe });
        }
        for Told { gpu, ports, .. } in told {
            self.gpus.push(gpu);
            self.ports.extend(ports);
        }
        self
    }

    fn link(&self, (from, to): (u32, u32)) -> Option<GpuLink> {
        self.edges.iter().find(|edge| (edge.from, edge.to) == (from, to))?.link
    }

    /// Whether the edges that `requirement` is about are as it says; `hosts` has the host of each rank. What is not proven
    /// is not met.
    ///
    /// # Errors
    /// [`ErrorKind::RequirementNotMet`], naming the edges that differ.
    pub fn meets(&self, requirement: Requirement, hosts: &[String]) -> Result<()> {
        if hosts.len() < 2 {
            return Ok(());
        }
        let name = requirement.name();
        if self.transports.is_empty() {
            return Err(failed(format!(
                "the transport is not proven to be {name}: NCCL's log names no connection"
            ))
            .hint("unset NCCL_DEBUG_FILE and NCCL_DEBUG_SUBSYS, so that the log can be read"));
        }
        if self.reducers.iter().any(|it| it == NVLS) && requirement.excludes_nvls() {
            let what = format!("NVLink's switches reduce on the way (NVLS), which is not {name}");
            return Err(failed(what).hint("set NCCL_NVLS_ENABLE=0, and only the edges are left"));
        }
        let reach = requirement.reach().among(hosts);
        let edges: Vec<_> =
            self.transports.iter().filter(|(ends, _)| reach.includes(**ends, hosts)).collect();
        if edges.is_empty() {
            let what = format!("nothing is proven to be {name}: there are no {}", reach.describe());
            return Err(failed(what).fact("edges", self.describe(self.transports.keys().copied())));
        }
        let over_it =
            |ends: (u32, u32)| requirement != Requirement::Nvlink || self.link(ends) == Some(GpuLink::NVLink);
        let is = |(ends, transports): &(&(u32, u32), &Vec<Transport>)| {
            transports.iter().all(|it| requirement.is_met_by(it)) && over_it(**ends)
        };
        let wrong: Vec<_> = edges.iter().copied().filter(|edge| !is(edge)).collect();
        if wrong.is_empty() {
            return Ok(());
        }
        let what = format!("{} of {} {} are not {name}", wrong.len(), edges.len(), reach.describe());
        let wrong = self.describe(wrong.iter().map(|(ends, _)| **ends));
        Err(self.with_networks(failed(what).fact("edges", wrong)))
    }

    /// The edges with these ends, in words.
    fn describe(&self, ends: impl Iterator<Item = (u32, u32)>) -> String {
        let edge = |(from, to)| {
            let edge = self.edges.iter().find(|edge| (edge.from, edge.to) == (from, to));
            format!("{from}->{to} {}", edge.map_or_else(String::new, Edge::describe))
        };
        ends.map(edge).collect::<Vec<_>>().join("; ")
    }

    /// What NCCL found to choose from.
    fn with_networks(&self, error: Error) -> Error {
        let networks =
            if self.networks.is_empty() { "not told".to_owned() } else { self.networks.join(", ") };
        error
            .fact("networks chosen", networks)
            .fact("InfiniBand and RoCE devices", self.ib_devices.as_deref().unwrap_or("none that NCCL found"))
    }
}

fn failed(what: String) -> Error {
    Error::new(ErrorKind::RequirementNotMet, what)
}

fn gdr(transports: &[Transport]) -> Option<bool> {
    let of_nets = transports.iter().filter_map(|transport| match transport {
        Transport::Net { network, gdr, .. } if network != "Socket" => Some(*gdr),
        _ => None,
    });
    of_nets.reduce(|all, one| all && one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn witness(lines: &[&str]) -> Witness {
        let log: String = lines.iter().map(|line| format!("h:1:2 [0] NCCL INFO Channel {line}\n")).collect();
        Witness::of([LogFacts::parse(&log)])
    }

    #[test]
    fn the_last_warnings_are_told_once_each_in_order() {
        let warn =
            |words: &str| format!("h:1:2 [0] socket.cc:80 NCCL WARN {words}\nh:1:2 [0] NCCL INFO -> 3\n");
        let log: String = ["first", "second", "second", "third", "fourth"].map(warn).concat();
        assert_eq!(last_warnings(&log), ["second", "third", "fourth"]);
        assert!(last_warnings("h:1:2 [0] NCCL INFO all is well\n").is_empty());
    }

    #[test]
    fn both_ends_tell_of_one_channel() {
        let witness = witness(&[
            "00/0 : 0[0] -> 1[1] [send] via NET/IB/0/GDRDMA",
            "00/0 : 0[0] -> 1[1] [receive] via NET/IB/0/GDRDMA",
            "01/0 : 0[0] -> 1[1] [send] via NET/IB/1",
            "00/0 : 1[1] -> 0[0] via P2P/CUMEM",
        ]);
        let edges: Vec<_> =
            witness.edges.iter().map(|edge| (edge.from, edge.to, edge.channels, edge.gdr)).collect();
        assert_eq!(edges, [(0, 1, 2, Some(false)), (1, 0, 1, None)]);
        assert_eq!(witness.edges[0].transports, ["NET/IB device 0, GDRDMA", "NET/IB device 1"]);
        let error = witness.meets(Requirement::Ib, &one_host(2)).unwrap_err();
        assert_eq!(error.what, "1 of 2 edges are not ib");
        assert_eq!((error.facts[0].value.as_str(), error.exit_status() as i32), ("1->0 P2P (CUMEM)", 1));
        assert!(witness.meets(Requirement::IbGdr, &one_host(2)).unwrap_err().what.starts_with("2 of 2"));
    }

    fn one_host(n_ranks: usize) -> Vec<String> {
        vec!["a".to_owned(); n_ranks]
    }

    fn meets(line: &str, requirement: Requirement) -> bool {
        witness(&[line]).meets(requirement, &one_host(2)).is_ok()
    }

    #[test]
    fn what_is_not_proven_is_not_met() {
        let silent = Witness::default();
        let refusal = silent.meets(Requirement::P2p, &one_host(2)).unwrap_err();
        assert!(refusal.what.contains("not proven"));
        assert!(silent.meets(Requirement::P2p, &one_host(1)).is_ok());
        assert!(!meets("0 : 0[0] -> 1[1] via teleport", Requirement::P2p));
        assert!(!meets("0 : 0[0] -> 1[1] via teleport", Requirement::NoP2p));
    }

    #[test]
    fn each_requirement_on_one_host() {
        let (shm, p2p) = ("0 : 0[0] -> 1[1] via SHM/direct", "0 : 0[0] -> 1[1] via P2P/CUMEM");
        let socket = "0 : 0[0] -> 1[1] [send] via NET/Socket/0";
        let (ib, gdr) =
            ("0 : 0[0] -> 1[1] [send] via NET/IB/0", "0 : 0[0] -> 1[1] [send] via NET/IB/0/GDRDMA");
        let met_by = |requirement: Requirement| {
            [shm, p2p, socket, ib, gdr].map(|line| u8::from(meets(line, requirement)))
        };
        assert_eq!(met_by(Requirement::Shm), [1, 0, 0, 0, 0]);
        assert_eq!(met_by(Requirement::P2p), [0, 1, 0, 0, 0]);
        assert_eq!(met_by(Requirement::NoP2p), [1, 0, 1, 1, 1]);
        assert_eq!(met_by(Requirement::Socket), [0, 0, 1, 0, 0]);
        assert_eq!(met_by(Requirement::SocketOnly), [0, 0, 1, 0, 0]);
        assert_eq!(met_by(Requirement::Ib), [0, 0, 0, 1, 1]);
        assert_eq!(met_by(Requirement::IbGdr), [0, 0, 0, 0, 1]);
        assert_eq!(met_by(Requirement::IbHost), [0, 0, 0, 1, 0]);
    }

    #[test]
    fn a_plugins_network_is_neither_ib_nor_socket_and_is_named() {
        let witness = witness(&["0 : 0[0] -> 1[1] [send] via NET/AWS Libfabric/1/GDRDMA(PCI)"]);
        for requirement in [Requirement::Socket, Requirement::Ib] {
            let refusal = witness.meets(requirement, &one_host(2)).unwrap_err();
            assert_eq!(refusal.facts[0].value, "0->1 NET/AWS Libfabric device 1, GDRDMA");
        }
    }

    #[test]
    fn switches_that_reduce_are_no_edge_and_break_what_is_promised_of_all_bytes() {
        let log = "h:1:2 [0] NCCL INFO Channel 0 : 0[0] -> 1[1] via SHM/direct\n\
                   h:1:2 [0] NCCL INFO NVLS comm 0x7f headRank 0 nHeads 2 nvlsRanks 2 buffSize 1 nvlsPerRankSize 1\n\
                   h:1:2 [0] NCCL INFO CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA\n\
                   h:1:2 [0] NCCL INFO CollNet 01/0 : 0 [receive] via COLLNET/SHARP/0/GDRDMA\n";
        let witness = Witness::of([LogFacts::parse(log)]);
        assert_eq!(witness.reducers, [NVLS, "COLLNET/SHARP/0/GDRDMA"]);
        assert_eq!(witness.edges.len(), 1);
        let refusal = witness.meets(Requirement::Shm, &one_host(2)).unwrap_err();
        assert_eq!(refusal.what, "NVLink's switches reduce on the way (NVLS), which is not shm");
        let without = log.lines().filter(|line| !line.contains("NVLS")).collect::<Vec<_>>().join("\n");
        assert!(Witness::of([LogFacts::parse(&without)]).meets(Requirement::Shm, &one_host(2)).is_ok());
    }

    fn told(rank: u32, reaches: &[(u32, bool)]) -> Told {
        let gpu = RankGpu {
            rank,
            name: "NVIDIA H200".to_owned(),
            pci_address: format!("0000:0{rank}:00.0"),
            busy_before_percent: Some(0),
            processes_before: Some(0),
            nvlinks: Some(18),
            nvlink_sent_bytes: Some(1024),
        };
        Told { gpu, reaches: reaches.to_vec(), ports: Vec::new() }
    }

    #[test]
    fn the_driver_tells_nvlink_from_pcie() {
        let lines = [
            "0 : 0[0] -> 1[1] via P2P/CUMEM",
            "0 : 1[1] -> 0[0] via P2P/CUMEM",
            "0 : 1[1] -> 2[2] via P2P/IPC",
            "0 : 2[2] -> 0[0] via SHM/direct",
        ];
        let told = vec![told(0, &[(1, true), (2, false)]), told(1, &[(0, true), (2, false)])];
        let witness = witness(&lines).with_gpus(told);
        let shown: Vec<String> = witness.edges.iter().map(Edge::describe).collect();
        assert_eq!(
            shown,
            ["P2P (CUMEM) over NVLink", "P2P (CUMEM) over NVLink", "P2P (IPC) over PCIe", "SHM"]
        );
        let refusal = witness.meets(Requirement::Nvlink, &one_host(3)).unwrap_err();
        assert_eq!(refusal.what, "2 of 4 edges are not nvlink");
        assert_eq!(refusal.facts[0].value, "1->2 P2P (IPC) over PCIe; 2->0 SHM");
        assert!(!meets("0 : 0[0] -> 1[1] via P2P/CUMEM", Requirement::Nvlink), "the driver has not said so");
    }

    #[test]
    fn networks_are_between_hosts_and_p2p_is_within_them() {
        let hosts = ["a", "a", "b", "b"].map(String::from);
        let witness = witness(&[
            "0 : 0[0] -> 1[1] via P2P/CUMEM",
            "0 : 1[1] -> 2[0] [send] via NET/IB/1/GDRDMA",
            "0 : 2[0] -> 3[1] via P2P/CUMEM",
            "0 : 3[1] -> 0[0] [send] via NET/IB/0/GDRDMA",
        ]);
        for requirement in [Requirement::IbGdr, Requirement::Ib, Requirement::P2p] {
            assert!(witness.meets(requirement, &hosts).is_ok(), "{requirement:?}");
        }
        let refusal = |requirement| witness.meets(requirement, &hosts).unwrap_err().what;
        assert_eq!(refusal(Requirement::IbHost), "2 of 2 edges between hosts are not ib+host");
        assert_eq!(refusal(Requirement::SocketOnly), "4 of 4 edges are not socket-only");
        assert_eq!(refusal(Requirement::NoP2p), "2 of 2 edges within a host are not no-p2p");
        let apart = ["a", "b", "c", "d"].map(String::from);
        let nothing = witness.meets(Requirement::P2p, &apart).unwrap_err();
        assert_eq!(nothing.what, "nothing is proven to be p2p: there are no edges within a host");
    }
}
