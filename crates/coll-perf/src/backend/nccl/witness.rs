//! What NCCL's log proves of the paths, and whether that is what was asked for.

use std::collections::BTreeMap;
use std::path::PathBuf;

use linkproof_common::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::log::{LogFacts, Transport};

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
    #[serde(skip)]
    transports: BTreeMap<(u32, u32), Vec<Transport>>,
}

/// `--require-transport`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Requirement {
    /// Every edge between ranks goes over InfiniBand or RoCE
    Ib,
    /// The same, and adapters reach GPU memory directly
    #[value(name = "ib+gdr")]
    IbGdr,
    /// Every edge goes over TCP sockets
    Socket,
    /// Every edge goes from GPU to GPU
    P2p,
    /// Every edge goes through host memory that both map
    Shm,
}

impl Requirement {
    fn is_met_by(self, transport: &Transport) -> bool {
        match (self, transport) {
            (Self::Ib, Transport::Net { network, .. }) => network == "IB",
            (Self::IbGdr, Transport::Net { network, gdr, .. }) => network == "IB" && *gdr,
            (Self::Socket, Transport::Net { network, .. }) => network == "Socket",
            (Self::P2p, Transport::P2p { .. }) | (Self::Shm, Transport::Shm) => true,
            _ => false,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ib => "ib",
            Self::IbGdr => "ib+gdr",
            Self::Socket => "socket",
            Self::P2p => "p2p",
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
            });
            witness.transports.insert((from, to), transports);
        }
        witness
    }

    /// Whether every edge that was used is as `requirement` says. What is not proven is not met.
    ///
    /// # Errors
    /// [`ErrorKind::RequirementNotMet`], naming the edges that differ.
    pub fn meets(&self, requirement: Requirement, n_ranks: u32) -> Result<()> {
        let failed = |what: String| Error::new(ErrorKind::RequirementNotMet, what);
        let name = requirement.name();
        if self.transports.is_empty() && n_ranks > 1 {
            return Err(failed(format!(
                "the transport is not proven to be {name}: NCCL's log names no connection"
            ))
            .hint("unset NCCL_DEBUG_FILE and NCCL_DEBUG_SUBSYS, so that the log can be read"));
        }
        let differs = |transports: &&Vec<Transport>| !transports.iter().all(|it| requirement.is_met_by(it));
        let wrong: Vec<String> = self
            .transports
            .iter()
            .filter(|(_, transports)| differs(transports))
            .map(|((from, to), transports)| {
                let words: Vec<String> = transports.iter().map(Transport::describe).collect();
                format!("{from}->{to} {}", words.join(", "))
            })
            .collect();
        if wrong.is_empty() {
            return Ok(());
        }
        let of = self.transports.len();
        Err(failed(format!("{} of {of} edges are not {name}", wrong.len())).fact("edges", wrong.join("; ")))
    }
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
        let error = witness.meets(Requirement::Ib, 2).unwrap_err();
        assert_eq!(error.what, "1 of 2 edges are not ib");
        assert_eq!((error.facts[0].value.as_str(), error.exit_status() as i32), ("1->0 P2P (CUMEM)", 1));
        assert!(witness.meets(Requirement::IbGdr, 2).unwrap_err().what.starts_with("2 of 2"));
    }

    #[test]
    fn what_is_not_proven_is_not_met() {
        let silent = Witness::default();
        assert!(silent.meets(Requirement::P2p, 2).unwrap_err().what.contains("not proven"));
        assert!(silent.meets(Requirement::P2p, 1).is_ok());
        assert!(witness(&["0 : 0[0] -> 1[1] via SHM/direct"]).meets(Requirement::Shm, 2).is_ok());
        assert!(witness(&["0 : 0[0] -> 1[1] [send] via NET/Socket/0"]).meets(Requirement::Socket, 2).is_ok());
        assert!(witness(&["0 : 0[0] -> 1[1] via teleport"]).meets(Requirement::P2p, 2).is_err());
    }
}
