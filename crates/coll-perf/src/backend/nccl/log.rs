//! What NCCL's own log says of the paths: lines in, facts out.
//!
//! The log is the only place where NCCL names the transport of each connection. Its lines are meant for people and
//! change from release to release, so each is taken apart by what stays: `Channel … : from[gpu] -> to[gpu] … via …`.
//! A line that is not understood is no fact; a transport that is not known is kept by its own words.

use serde::{Deserialize, Serialize};

/// One connection of a channel between two ranks, as one end's log tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The rank that sends.
    pub from: u32,
    /// The rank that receives.
    pub to: u32,
    /// The channel's number.
    pub channel: u32,
    /// What carries the bytes.
    pub transport: Transport,
    /// NCCL's words for it, after `via`.
    pub words: String,
}

/// What carries the bytes of a connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Transport {
    /// One GPU reads or writes the other's memory, over NVLink or PCIe: the log does not say which.
    P2p {
        /// How the memory was made visible: `direct pointer`, `CUMEM`, `IPC`, `MNNVL`.
        mapping: String,
    },
    /// Host memory that both processes map.
    Shm,
    /// A network.
    Net {
        /// NCCL's name of it: `IB`, `Socket`, or a plugin's.
        network: String,
        /// The network's own number of the device, or its name.
        device: String,
        /// Whether the adapter reaches GPU memory directly. Only IB and plugins can.
        gdr: bool,
        /// Whether another rank of the host hands the bytes on, whose GPU is nearer to the adapter.
        by_proxy_rank: bool,
    },
    /// Anything else.
    Other {
        /// NCCL's words.
        words: String,
    },
}

impl Transport {
    /// From the words after `via`.
    pub fn parse(words: &str) -> Self {
        let words = words.trim();
        let mut parts = words.split('/');
        match parts.next() {
            Some("P2P") => Self::P2p { mapping: parts.next().unwrap_or_default().to_owned() },
            Some("SHM") => Self::Shm,
            Some("NET") => Self::net(parts).unwrap_or_else(|| Self::Other { words: words.to_owned() }),
            _ => Self::Other { words: words.to_owned() },
        }
    }

    fn net<'a>(mut parts: impl Iterator<Item = &'a str>) -> Option<Self> {
        let network = parts.next().filter(|name| !name.is_empty())?.to_owned();
        let device = parts.next().unwrap_or_default();
        // A device is followed by the rank that serves it, in brackets, where that is another one.
        let (device, by_proxy_rank) = match device.split_once('(') {
            Some((device, _)) => (device, true),
            None => (device, false),
        };
        let gdr = parts.any(|part| part.starts_with("GDRDMA"));
        Some(Self::Net { network, device: device.to_owned(), gdr, by_proxy_rank })
    }

    /// In a few words, for tables: `P2P (CUMEM)`, `NET/IB device 0, GDRDMA`.
    pub fn describe(&self) -> String {
        match self {
            Self::P2p { mapping } => format!("P2P ({mapping})"),
            Self::Shm => "SHM".to_owned(),
            Self::Net { network, device, gdr, by_proxy_rank } => {
                let gdr = if *gdr { ", GDRDMA" } else { "" };
                let proxy = if *by_proxy_rank { ", through another rank" } else { "" };
                format!("NET/{network} device {device}{gdr}{proxy}")
            }
            Self::Other { words } => words.clone(),
        }
    }
}

/// Which GPU a rank uses, as its own log tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankGpu {
    /// The rank.
    pub rank: u32,
    /// CUDA's ordinal in the rank's process.
    pub cuda_device: u32,
    /// The PCI address in NCCL's short form, hexadecimal.
    pub bus_id: String,
}

/// What a log says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFacts {
    /// Every connection named, without repetitions, in order.
    pub connections: Vec<Connection>,
    /// `IB`, `Socket` or a plugin's name: what `Using network` lines name.
    pub networks: Vec<String>,
    /// The InfiniBand and RoCE devices that NCCL found: what follows `NET/IB : Using`.
    pub ib_devices: Option<String>,
    /// The interfaces that NCCL uses for sockets: what follows `NET/Socket : Using`.
    pub socket_interfaces: Option<String>,
    /// The GPU of each rank that this log is of.
    pub gpus: Vec<RankGpu>,
    /// What reduces on the way instead of a GPU: [`NVLS`], or a network's switches in NCCL's words
    /// (`COLLNET/SHARP/0/GDRDMA`).
    #[serde(default)]
    pub reducers: Vec<String>,
    /// The text of warnings.
    pub warnings: Vec<String>,
}

/// NVLink's switches, where they reduce: a path of its own, which no `Channel` line tells of.
pub const NVLS: &str = "NVLS";

/// A log may be of thousands of ranks and channels; what is beyond these is no longer evidence but noise.
const MOST_CONNECTIONS: usize = 1 << 16;
const MOST_WARNINGS: usize = 64;

impl LogFacts {
    /// Reads a log.
    pub fn parse(log: &str) -> Self {
        let mut facts = Self::default();
        log.lines().for_each(|line| facts.take(line));
        facts
    }

    fn take(&mut self, line: &str) {
        if let Some(message) = after(line, " NCCL WARN ") {
            return push_new(&mut self.warnings, message.trim().to_owned(), MOST_WARNINGS);
        }
        let Some(message) = after(line, " NCCL INFO ").map(str::trim) else { return };
        if let Some(connection) = connection(message) {
            push_new(&mut self.connections, connection, MOST_CONNECTIONS);
        } else if let Some(name) = message.strip_prefix("Using network ") {
            push_new(&mut self.networks, name.trim().to_owned(), MOST_WARNINGS);
        } else if let Some(devices) = message.strip_prefix("NET/IB : Using ") {
            // Without any it says the same, and what follows is of the interface that would have set connections up.
            self.ib_devices = devices.contains("[0]").then(|| devices.trim().to_owned());
        } else if let Some(interfaces) = message.strip_prefix("NET/Socket : Using ") {
            self.socket_interfaces = Some(interfaces.trim().to_owned());
        } else if message.starts_with("NVLS comm ") {
            push_new(&mut self.reducers, NVLS.to_owned(), MOST_WARNINGS);
        } else if let Some(words) = collnet(message) {
            push_new(&mut self.reducers, words.to_owned(), MOST_WARNINGS);
        } else if let Some(gpu) = rank_gpu(message) {
            push_new(&mut self.gpus, gpu, MOST_CONNECTIONS);
        }
    }

    /// Adds what the log of another process says.
    pub fn add(&mut self, other: Self) {
        other.connections.into_iter().for_each(|it| push_new(&mut self.connections, it, MOST_CONNECTIONS));
        other.networks.into_iter().for_each(|it| push_new(&mut self.networks, it, MOST_WARNINGS));
        other.gpus.into_iter().for_each(|it| push_new(&mut self.gpus, it, MOST_CONNECTIONS));
        other.reducers.into_iter().for_each(|it| push_new(&mut self.reducers, it, MOST_WARNINGS));
        other.warnings.into_iter().for_each(|it| push_new(&mut self.warnings, it, MOST_WARNINGS));
        self.ib_devices = self.ib_devices.take().or(other.ib_devices);
        self.socket_interfaces = self.socket_interfaces.take().or(other.socket_interfaces);
    }
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T, most: usize) {
    if list.len() < most && !list.contains(&item) {
        list.push(item);
    }
}

fn after<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    text.split_once(mark).map(|(_, after)| after)
}

/// `Channel 01/0 : 0[0] -> 1[0] [send] via NET/Socket/0`; the connection index, the direction and the GPU's form differ
/// between releases and transports. The receiving end tells the same connection again, from sender to receiver.
fn connection(message: &str) -> Option<Connection> {
    let rest = message.strip_prefix("Channel ")?;
    let (channel, rest) = rest.split_once(" : ")?;
    let (ends, words) = rest.split_once(" via ")?;
    let (from, to) = ends.split_once(" -> ")?;
    Some(Connection {
        from: rank(from)?,
        to: rank(to)?,
        channel: channel.split('/').next()?.trim().parse().ok()?,
        transport: Transport::parse(words),
        words: words.trim().to_owned(),
    })
}

/// `CollNet 00/0 : 3 [send] via COLLNET/SHARP/0/GDRDMA`: a rank to a switch, not to another.
fn collnet(message: &str) -> Option<&str> {
    let (_, words) = message.strip_prefix("CollNet ")?.split_once(" via ")?;
    Some(words.trim())
}

/// `12[3]` or `12[3] [send]`.
fn rank(end: &str) -> Option<u32> {
    end.trim().split_once('[')?.0.trim().parse().ok()
}

/// `ncclCommInitRankConfig comm 0x… rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 3c0 commId 0x… - Init COMPLETE`
fn rank_gpu(message: &str) -> Option<RankGpu> {
    if !message.ends_with("Init COMPLETE") {
        return None;
    }
    let words: Vec<&str> = message.split_whitespace().collect();
    let value = |name: &str| words.windows(2).find(|pair| pair[0] == name).map(|pair| pair[1]);
    Some(RankGpu {
        rank: value("rank")?.parse().ok()?,
        cuda_device: value("cudaDev")?.parse().ok()?,
        bus_id: value("busId")?.to_owned(),
    })
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
