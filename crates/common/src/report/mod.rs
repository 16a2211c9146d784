//! The result of a run: one [`Document`], the same on both ends, from which the table and the JSON are made.
//!
//! Its shape is `schema/result.v1.json`; every document that the tools write validates against it.

mod conditions;
mod header;
mod intervals;
mod json;
mod lines;
mod live;
mod output;
mod peer;
mod row;
mod slow;
mod stream;
mod summary;
mod table;
mod text;

pub use conditions::Conditions;
pub use intervals::{BandwidthIntervals, LatencyIntervals};
pub use json::{JsonTarget, Layout, write_document};
pub use lines::INTERVAL_SCHEMA;
pub use live::Live;
pub use output::Output;
pub use peer::{Guarantee, Peer};
pub use row::{BandwidthRow, LatencyRow, ResultRow};
pub use summary::summarise;
pub use text::{BandwidthUnit, Detail, render_table};

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::environment::Host;
use crate::error::Error;
use crate::gid::{Gid, GidEntry, LinkLayer};
use crate::intervals::Intervals;
use crate::latency::Latency;
use crate::memory::{EndMemory, GpuUse, MemoryKind, MemoryRequest};
use crate::plan::{Plan, Role};
use crate::qp::Qpn;
use crate::units::Bandwidth;
use crate::validate::{Checked, Direction};
use crate::warning::Warning;

/// The version of the document's shape.
pub const SCHEMA: &str = "linkproof/result.v1";

/// Everything about one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// The tool, `write-bw` for instance.
    pub tool: String,
    /// The tool's version on the end that made the document.
    pub version: String,
    /// The command line of the end that made the document.
    pub command: Vec<String>,
    /// When it began, in UTC.
    pub started: String,
    /// When it ended, in UTC.
    pub finished: String,
    /// The machines that took part, as far as they are known.
    pub hosts: Vec<Host>,
    /// The other end, where it is none of these tools.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<Peer>,
    /// What was agreed on; absent where it did not come to that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub plan: Option<Plan>,
    /// How the ends were connected; absent where it did not come to that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub link: Option<Link>,
    /// The memory that the bytes lay in.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory: Option<MemoryUse>,
    /// Under which conditions each end measured, as far as they are known.
    pub conditions: Vec<Conditions>,
    /// What proves the path.
    pub evidence: Vec<Evidence>,
    /// Every round, raw.
    pub rounds: Vec<Round>,
    /// What the table shows, one entry a size.
    pub results: Vec<ResultRow>,
    /// What may make a number mean less than it seems to.
    pub warnings: Vec<Warning>,
    /// Whether all is well.
    pub verdict: Verdict,
}

/// How the two ends were connected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "transport", rename_all = "snake_case")]
pub enum Link {
    /// Reliable-connected queue pairs.
    Rdma {
        /// Bytes of payload in a packet.
        path_mtu_bytes: u32,
        /// Why these GIDs, or none.
        addressing: String,
        /// The client's end.
        client: Box<LinkEnd>,
        /// The server's end.
        server: Box<LinkEnd>,
    },
    /// Sockets.
    Tcp {
        /// The client's end.
        client: TcpEnd,
        /// The server's end.
        server: TcpEnd,
    },
}

/// One end of an RDMA connection, as far as it is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LinkEnd {
    /// A tool of ours, which tells everything.
    Linkproof(RdmaEnd),
    /// A perftest.
    Perftest(PerftestEnd),
}

impl LinkEnd {
    /// What a tool of ours tells.
    pub fn known(&self) -> Option<&RdmaEnd> {
        match self {
            Self::Linkproof(end) => Some(end),
            Self::Perftest(_) => None,
        }
    }
}

impl From<RdmaEnd> for LinkEnd {
    fn from(end: RdmaEnd) -> Self {
        Self::Linkproof(end)
    }
}

impl From<PerftestEnd> for LinkEnd {
    fn from(end: PerftestEnd) -> Self {
        Self::Perftest(end)
    }
}

/// What a perftest tells of its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerftestEnd {
    /// The version that it announces.
    pub perftest_version: String,
    /// Its port's local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Its GID; absent where the ends are addressed by LID.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gid: Option<Gid>,
    /// The smaller of its port's MTU and this end's.
    pub mtu_bytes: u32,
    /// The queue pairs' numbers.
    pub qpns: Vec<Qpn>,
}

/// What an RDMA device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// An adapter on a bus.
    Adapter,
    /// An emulation: its speed is a processor's, not a link's.
    Software,
}

/// One end of an RDMA connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RdmaEnd {
    /// The device.
    pub device: String,
    /// What the device is.
    pub device_kind: DeviceKind,
    /// Present where the device is an emulation: which.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub software: Option<String>,
    /// Its port.
    pub port_num: u8,
    /// The port's link layer.
    pub link_layer: LinkLayer,
    /// The port's local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The GID entry used; absent where the ends are addressed by LID.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gid: Option<GidEntry>,
    /// The port's active MTU.
    pub active_mtu_bytes: u32,
    /// The port's signalling rate.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate_gbit_per_sec: Option<f64>,
    /// The queue pairs' numbers.
    pub qpns: Vec<Qpn>,
    /// `ibv_wr` or `ibv_post_send`.
    pub posting: String,
    /// Writes of up to so many bytes go inline: what the plan has, or as much of it as the device takes.
    pub inline_bytes: u32,
}

/// One end of a TCP connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpEnd {
    /// Its address on the control channel; the data goes between the same two hosts' addresses.
    pub address: String,
    /// The network interface with that address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub netdev: Option<String>,
    /// The interface's speed, where it states one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate_gbit_per_sec: Option<f64>,
}

/// The memory of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// What kind it is on both ends; where they differ, host memory.
    pub kind: MemoryKind,
    /// What kind the client got; absent where it does not tell.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub client_kind: Option<MemoryKind>,
    /// What kind the server got; absent where it does not tell.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_kind: Option<MemoryKind>,
    /// Bytes at the client; absent where it does not tell.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub client_bytes: Option<u64>,
    /// Bytes at the server; absent where it does not tell.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_bytes: Option<u64>,
    /// Whose the client's is and how it is reached; absent where it is host memory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub client_gpu: Option<GpuUse>,
    /// Whose the server's is and how it is reached; absent where it is host memory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_gpu: Option<GpuUse>,
    /// How it was registered; absent over TCP.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub registration: Option<String>,
    /// In how many regions, on each end; absent over TCP.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub regions: Option<u32>,
}

impl MemoryUse {
    /// The memory of both ends, registered so: this end's, which is `role`, and what the other one tells of its own.
    pub fn of(
        role: Role,
        ours: EndMemory,
        theirs: Option<EndMemory>,
        registration: Option<String>,
        regions: Option<u32>,
    ) -> Self {
        let (client, server) = match role {
            Role::Client => (Some(ours), theirs),
            Role::Server => (theirs, Some(ours)),
        };
        let kinds = [&client, &server].map(|end| end.as_ref().map(|end| end.kind));
        let bytes = [&client, &server].map(|end| end.as_ref().map(|end| end.bytes));
        let known = kinds[0].or(kinds[1]).unwrap_or(MemoryKind::Host);
        let same = kinds.into_iter().flatten().all(|kind| kind == known);
        Self {
            kind: if same { known } else { MemoryKind::Host },
            client_kind: kinds[0],
            server_kind: kinds[1],
            client_bytes: bytes[0],
            server_bytes: bytes[1],
            client_gpu: client.and_then(|end| end.gpu),
            server_gpu: server.and_then(|end| end.gpu),
            registration,
            regions,
        }
    }

    /// The ends that got pages of the base size.
    pub fn ends_with_base_pages(&self) -> Vec<Role> {
        let kinds = [(Role::Client, self.client_kind), (Role::Server, self.server_kind)];
        kinds.into_iter().filter(|(_, kind)| *kind == Some(MemoryKind::Host)).map(|(role, _)| role).collect()
    }
}

/// Something that an adapter or the kernel says about the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Whose it is.
    pub role: Role,
    /// Where it was read.
    pub source: String,
    /// The counters that moved during the run, and by how much.
    pub moved: BTreeMap<String, u64>,
}

/// One direction of one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The message size.
    pub size_bytes: u64,
    /// Counts from 0 for each size.
    pub round: u32,
    /// Who wrote.
    pub direction: Direction,
    /// Messages completed.
    pub messages: u64,
    /// From the first post to the last completion.
    pub elapsed_ns: u64,
    /// The highest message rate over a stretch of the round (see `docs/measuring.md`); absent for latency.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peak_messages_per_sec: Option<f64>,
    /// The half round trips of the round; absent for bandwidth.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency: Option<Latency>,
    /// What came in each interval; absent where the plan has none, or none was whole.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub intervals: Option<Intervals>,
    /// Whether it was cut short.
    pub partial: bool,
    /// What the target found; absent where nothing was checked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub checked: Option<Checked>,
    /// What the client found in the answers, where the ends wrote in turn and the data was checked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answers_checked: Option<Checked>,
}

impl Round {
    /// Its length.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.elapsed_ns)
    }

    /// What was found in what arrived, with the direction that it came in.
    pub fn findings(&self) -> impl Iterator<Item = (Direction, Checked)> {
        let answers = self.answers_checked.map(|checked| (Role::Server.writes(), checked));
        self.checked.map(|checked| (self.direction, checked)).into_iter().chain(answers)
    }

    /// Its bandwidth.
    pub fn bandwidth(&self) -> Bandwidth {
        Bandwidth::of(self.messages.saturating_mul(self.size_bytes), self.elapsed())
    }
}

/// Whether all is well, and what is not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Measured, nothing wrong, not interrupted.
    pub ok: bool,
    /// Everything that is not.
    pub failures: Vec<Error>,
}

impl Document {
    /// A document of a run of `tool` that has just begun.
    pub fn begin(tool: &str, version: &str) -> Self {
        let now = timestamp();
        Self {
            schema: SCHEMA.to_owned(),
            tool: tool.to_owned(),
            version: version.to_owned(),
            command: std::env::args().collect(),
            started: now.clone(),
            finished: now,
            hosts: Vec::new(),
            peer: None,
            plan: None,
            link: None,
            memory: None,
            conditions: Vec::new(),
            evidence: Vec::new(),
            rounds: Vec::new(),
            results: Vec::new(),
            warnings: Vec::new(),
            verdict: Verdict::default(),
        }
    }

    /// Ends the run: works out the table, the warnings and the verdict from what was measured.
    pub fn conclude(&mut self, failure: Option<Error>) {
        self.finished = timestamp();
        let (results, warnings) = summarise(self.plan.as_ref(), self.link.as_ref(), &self.rounds);
        self.results = results;
        self.warnings.extend(warnings);
        let device = |role| self.link.as_ref().and_then(|link| link.device_kind(role));
        let of_end = |end: &Conditions| end.warnings(device(end.role));
        let of_conditions: Vec<Warning> = self.conditions.iter().flat_map(of_end).collect();
        self.warnings.extend(of_conditions);
        if let Some(plan) = &self.plan {
            self.warnings.extend(self.conditions.iter().filter_map(|end| end.crowded(plan)));
        }
        let tried = self.plan.as_ref().is_some_and(|plan| plan.memory == MemoryRequest::HostHugeIfAny);
        if let Some(memory) = self.memory.as_ref().filter(|_| tried) {
            self.warnings.extend(Warning::base_pages(&memory.ends_with_base_pages()));
        }
        if let Some(memory) = &self.memory {
            let gpus = [(Role::Client, &memory.client_gpu), (Role::Server, &memory.server_gpu)];
            let far =
                |(role, gpu): (Role, &Option<GpuUse>)| Warning::gpu_far_from_device(role, gpu.as_ref()?);
            self.warnings.extend(gpus.into_iter().filter_map(far));
        }
        let counted = |evidence: &Evidence| {
            let trouble = crate::counters::trouble(&evidence.moved)?;
            Some(Warning::counters_moved(evidence.role, &evidence.source, &trouble))
        };
        self.warnings.extend(self.evidence.iter().filter_map(counted));
        let wrong = summary::wrong_data(&self.rounds);
        let unmet = self.plan.as_ref().and_then(|plan| plan.requirements.unmet(&self.results));
        self.verdict.failures.extend(failure.into_iter().chain(wrong).chain(unmet));
        self.verdict.ok = self.verdict.failures.is_empty();
    }
}

impl Link {
    /// What kind of device the end `role` has; `None` over TCP.
    fn device_kind(&self, role: Role) -> Option<DeviceKind> {
        match (self, role) {
            (Self::Rdma { client, .. }, Role::Client) => client.known().map(|end| end.device_kind),
            (Self::Rdma { server, .. }, Role::Server) => server.known().map(|end| end.device_kind),
            (Self::Tcp { .. }, _) => None,
        }
    }

    /// The slower port's rate, where both ports state one and neither is an emulation.
    pub fn line_rate(&self) -> Option<Bandwidth> {
        let (client, server) = match self {
            Self::Rdma { client, server, .. } => (client.known()?.line_rate()?, server.known()?.line_rate()?),
            Self::Tcp { client, server } => (client.rate_gbit_per_sec?, server.rate_gbit_per_sec?),
        };
        Some(Bandwidth::from_gbit_per_sec(client.min(server)))
    }
}

impl RdmaEnd {
    fn line_rate(&self) -> Option<f64> {
        self.rate_gbit_per_sec.filter(|_| self.software.is_none())
    }
}

/// Now, in UTC, to the millisecond, as RFC 3339 writes it.
pub fn timestamp() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}
