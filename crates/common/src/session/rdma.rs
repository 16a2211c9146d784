//! Bringing up queue pairs and registered memory.

mod gpu;
mod peer;
mod perftest;
mod registered;
mod staged;

pub(super) use perftest::{join_perftest, receive_perftest};

use std::ops::Range;
use std::sync::Arc;

use self::peer::{Peer, flag_paths, write_paths};
pub(super) use self::registered::Registered;
use super::fabric::check_fabric;
use super::negotiate::AgreedPlan;
use super::threads::{Crew, Share};
use super::{Measure, MeasureInTurn, swap_ends};
use crate::counters::Counters;
use crate::cq::CompletionQueue;
use crate::device::{ChosenPort, Context};
use crate::endpoint::verbs::{
    self, Classic, DeviceLabel, Extended, Fetched, Inline, VerbsEndpoint, VerbsPingPong, WritePath,
};
use crate::error::{Error, ErrorKind, Result};
use crate::exchange::message::{EndInfo, FlagsAt};
use crate::exchange::{Channel, while_working};
use crate::gid::{Addressing, GidEntry};
use crate::host::HostFiles;
use crate::memory::{Buffer, EndBuffer, EndMemory, GpuPath, LastByte};
use crate::mr::ProtectionDomain;
use crate::plan::{BufferLayout, Plan, Regions, Role, Slots, flags_of};
use crate::qp::{Calls, Depth, Path, QpAddress, QpAttributes, QueuePair, starting_psn};
use crate::report::{DeviceKind, Evidence, Link, LinkEnd, RdmaEnd};

/// Queue pairs in RTS and what they need. Fields are dropped in this order: queue pairs before the memory that
/// they read, and that the peer writes.
pub(super) struct RdmaSession {
    qps: Vec<QueuePair>,
    /// One for each thread that posts.
    cqs: Vec<Arc<CompletionQueue>>,
    memory: Registered,
    paths: Vec<WritePath>,
    /// The paths of flags, where any end has GPU memory; and where they are here.
    flag_paths: Vec<WritePath>,
    /// How the peer's GPU memory is reached, if it has any.
    peer_path: Option<GpuPath>,
    posting: Posting,
    inline_bytes: u64,
    post_list: u32,
    device: DeviceLabel,
    context: Arc<Context>,
    port_num: u8,
    counters: Counters,
    files: HostFiles,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Posting {
    Extended,
    Classic,
}

impl Posting {
    fn name(self) -> &'static str {
        match self {
            Self::Extended => "ibv_wr",
            Self::Classic => "ibv_post_send",
        }
    }
}

/// What this end makes by itself: the memory, registered, and queue pairs in INIT.
struct Made {
    memory: Registered,
    cqs: Vec<Arc<CompletionQueue>>,
    qps: Vec<QueuePair>,
    pd: Arc<ProtectionDomain>,
}

impl Made {
    fn new(ground: Ground, buffer: EndBuffer) -> Result<Self> {
        let Ground { chosen, plan, role, files, .. } = ground;
        let pd = Arc::new(ProtectionDomain::new(&chosen.context)?);
        let memory = Registered::new(&pd, plan, buffer, role, files)?;
        let cq = |_| CompletionQueue::new(&chosen.context, plan.completion_entries()).map(Arc::new);
        let cqs = (0..plan.threads).map(cq).collect::<Result<Vec<_>>>()?;
        let qps = queue_pairs(&pd, &cqs, plan, chosen.port.port_num)?;
        Ok(Self { memory, cqs, qps, pd })
    }
}

/// What every step of a bring-up needs to know of this end.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub(super) chosen: &'a ChosenPort,
    pub(super) plan: &'a Plan,
    pub(super) layout: BufferLayout,
    pub(super) role: Role,
    pub(super) files: &'a HostFiles,
}

/// This end's half of a connection: everything is made, nothing connected.
struct Half {
    made: Made,
    ours: RdmaEnd,
    posting: Posting,
}

impl Half {
    /// Makes it, with `sgid` as this end's address.
    fn new(
        channel: &mut (dyn Channel + Send),
        ground: Ground,
        sgid: Option<&GidEntry>,
        buffer: EndBuffer,
    ) -> Result<Self> {
        let Ground { chosen, plan, files, .. } = ground;
        check_traffic_class(plan, sgid)?;
        let made = while_working(channel, || Made::new(ground, buffer))?;
        let posting = if made.qps.iter().all(|qp| !qp.extended().is_null()) {
            Posting::Extended
        } else {
            Posting::Classic
        };
        let ours = this_end(chosen, sgid, posting, &made.qps, files);
        Ok(Self { made, ours, posting })
    }

    /// Where the peer may write, for each queue pair; empty on an end that is not written to.
    fn sinks(&self, ground: Ground) -> Vec<u64> {
        let base = self.made.memory.address();
        let sinks = if ground.plan.is_target(ground.role) { ground.plan.qps } else { 0 };
        (0..sinks).map(|qp| base + ground.layout.sink(qp)).collect()
    }

    /// One more, on an end that only learns from its peer how many there are, and posts nothing.
    fn add_queue_pair(&mut self, ground: Ground) -> Result<()> {
        let Ground { chosen, plan, .. } = ground;
        let made = &mut self.made;
        let psn = starting_psn(made.qps.len() as u32);
        let (depth, port_num) = (Depth::of_writes(plan.tx_depth), chosen.port.port_num);
        let cq = &made.cqs[0];
        let qp = QueuePair::new(&made.pd, cq, depth, plan.queue_pair, Calls::Classic, port_num, psn)?;
        self.ours.qpns.push(qp.qpn());
        made.qps.push(qp);
        Ok(())
    }

    fn addresses(&self) -> Vec<QpAddress> {
        self.made.qps.iter().map(QueuePair::address).collect()
    }

    /// Connects it to `peer` along `path`.
    fn connect(
        self,
        channel: &mut (dyn Channel + Send),
        ground: Ground,
        peer: &Peer,
        path: &Path,
    ) -> Result<RdmaSession> {
        let Ground { chosen, plan, layout, role, files } = ground;
        let Self { made: Made { memory, cqs, qps, .. }, ours, posting } = self;
        let counters = while_working(channel, || {
            connect(&qps, &peer.qps, path)?;
            Ok(Counters::read(chosen.context.name(), chosen.port.port_num, files))
        })?;
        Ok(RdmaSession {
            paths: write_paths(plan, layout, &memory, peer, role),
            flag_paths: flag_paths(&memory, peer),
            peer_path: peer.path,
            inline_bytes: inline_bytes(&qps).into(),
            qps,
            cqs,
            memory,
            posting,
            post_list: plan.post_list,
            device: DeviceLabel { name: ours.device, software: ours.software, other: None },
            context: Arc::clone(&chosen.context),
            port_num: chosen.port.port_num,
            counters,
            files: files.clone(),
        })
    }
}

/// Makes the queue pairs, registers the memory, and connects everything to the peer.
pub(super) fn bring_up(
    channel: &mut (dyn Channel + Send),
    ground: Ground,
    addressing: &Addressing,
    agreed: &AgreedPlan,
    buffer: EndBuffer,
) -> Result<(RdmaSession, Link, EndMemory)> {
    let Ground { chosen, plan, role, .. } = ground;
    let half = Half::new(channel, ground, addressing.of(role), buffer)?;
    let ours = half.ours.clone();
    let sinks = half.sinks(ground);
    let info = EndInfo::Rdma {
        end: ours.clone(),
        qps: half.addresses(),
        rkeys: if sinks.is_empty() { Vec::new() } else { half.made.memory.rkeys() },
        sinks,
        memory: half.made.memory.end_memory(),
        flags: half
            .made
            .memory
            .flags()
            .map(|flags| FlagsAt { address: flags.buffer().address(), rkey: flags.rkey() }),
    };
    let (peer, end, memory) = Peer::of(swap_ends(channel, &info)?, plan, role)?;
    check_fabric(&ours, &end, role)?;
    let path = Path {
        port_num: chosen.port.port_num,
        sgid: addressing.of(role).cloned(),
        dgid: addressing.of(role.peer()).map(|entry| entry.gid),
        dlid: agreed.peer_lid(),
        path_mtu: agreed.path_mtu(),
    };
    let mut session = half.connect(channel, ground, &peer, &path)?;
    session.device.other = addressing.other.clone();
    let link = link(agreed.path_mtu(), &addressing.reason, role, ours.into(), end.into());
    Ok((session, link, memory))
}

/// The traffic class lies in the global route header, which goes with a GID.
fn check_traffic_class(plan: &Plan, sgid: Option<&GidEntry>) -> Result<()> {
    if plan.queue_pair.traffic_class == 0 || sgid.is_some() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::DeviceLimit,
        "--tclass is part of the global route header, which queue pairs that are addressed by LID don't have",
    )
    .hint("give --gid-index on both ends to use GIDs, or use --sl"))
}

fn queue_pairs(
    pd: &Arc<ProtectionDomain>,
    cqs: &[Arc<CompletionQueue>],
    plan: &Plan,
    port_num: u8,
) -> Result<Vec<QueuePair>> {
    let cqs = plan.parts().zip(cqs).flat_map(|(part, cq)| part.map(move |_| cq));
    // A list is one call of ibv_post_send; by ibv_wr_* each of its writes would be two.
    let calls = if plan.post_list > 1 { Calls::Classic } else { Calls::Extended };
    let (depth, attributes) = (Depth::of_writes(plan.queue_depth()), attributes(plan));
    let qp = |(qp, cq)| QueuePair::new(pd, cq, depth, attributes, calls, port_num, starting_psn(qp));
    (0..).zip(cqs).map(qp).collect()
}

/// What the queue pairs are told. Flags beside GPU memory go inline: the processor has them at hand, and a count is then
/// what it was when it was posted.
fn attributes(plan: &Plan) -> QpAttributes {
    let mut attributes = plan.queue_pair;
    if plan.gpu.is_some() {
        attributes.inline_bytes = attributes.inline_bytes.max(staged::COUNT as u32);
    }
    attributes
}

/// What all of them take.
fn inline_bytes(qps: &[QueuePair]) -> u32 {
    qps.iter().map(QueuePair::inline_bytes).min().unwrap_or(0)
}

fn this_end(
    chosen: &ChosenPort,
    sgid: Option<&GidEntry>,
    posting: Posting,
    qps: &[QueuePair],
    files: &HostFiles,
) -> RdmaEnd {
    let software = chosen.context.software(files);
    RdmaEnd {
        device: chosen.context.name().to_owned(),
        device_kind: if software.is_some() { DeviceKind::Software } else { DeviceKind::Adapter },
        software,
        port_num: chosen.port.port_num,
        link_layer: chosen.port.link_layer,
        lid: chosen.port.lid,
        gid: sgid.cloned(),
        active_mtu_bytes: chosen.port.active_mtu,
        rate_gbit_per_sec: chosen.port.rate.map(crate::units::Bandwidth::gbit_per_sec),
        qpns: qps.iter().map(QueuePair::qpn).collect(),
        posting: posting.name().to_owned(),
        inline_bytes: inline_bytes(qps),
    }
}

fn connect(qps: &[QueuePair], peers: &[QpAddress], path: &Path) -> Result<()> {
    qps.iter().zip(peers).try_for_each(|(qp, &peer)| qp.connect(path, peer))
}

fn link(path_mtu_bytes: u32, reason: &str, role: Role, ours: LinkEnd, theirs: LinkEnd) -> Link {
    let (client, server) = match role {
        Role::Client => (ours, theirs),
        Role::Server => (theirs, ours),
    };
    Link::Rdma {
        path_mtu_bytes,
        addressing: reason.to_owned(),
        client: Box::new(client),
        server: Box::new(server),
    }
}

/// Those of releases, which have a line of their own behind the messages.
fn releases(paths: &[WritePath], regions: Regions) -> Vec<WritePath> {
    paths.iter().map(|path| path.behind(regions.release)).collect()
}

/// What writing in turn needs besides the queue pair.
struct Turn {
    regions: Regions,
    signal_every: u32,
    slots: Slots,
}

impl RdmaSession {
    pub(super) fn buffer(&self) -> &EndBuffer {
        self.memory.buffer()
    }

    pub(super) fn registration(&self) -> String {
        self.memory.describe()
    }

    pub(super) fn end_memory(&self) -> EndMemory {
        self.memory.end_memory()
    }

    /// Flags tell of messages where there are any.
    pub(super) fn last_byte(&self) -> LastByte {
        if self.memory.flags().is_some() { LastByte::Pattern } else { LastByte::Number }
    }

    /// No flag may hold the number of an earlier message, or count.
    pub(super) fn clear_flags(&self) {
        if let Some(flags) = self.memory.flags() {
            let buffer = flags.buffer();
            buffer.write_at(0, &vec![0; buffer.len() as usize]);
        }
    }

    /// The endpoint's type is chosen here, once for a stretch.
    pub(super) fn measure<M: Measure + Send>(
        &self,
        slots: Slots,
        crew: Crew,
        layout: BufferLayout,
        measures: Vec<M>,
    ) -> Result<()> {
        if self.is_staged() {
            return self.measure_staged(slots, crew, layout, measures);
        }
        match (self.posting, self.goes_inline(slots)) {
            (Posting::Extended, false) => self.measure_by::<Extended<Fetched>, M>(slots, crew, measures),
            (Posting::Extended, true) => self.measure_by::<Extended<Inline>, M>(slots, crew, measures),
            (Posting::Classic, false) => self.measure_by::<Classic<Fetched>, M>(slots, crew, measures),
            (Posting::Classic, true) => self.measure_by::<Classic<Inline>, M>(slots, crew, measures),
        }
    }

    fn is_extended(&self) -> bool {
        self.posting == Posting::Extended
    }

    /// The processor can copy small messages, of host memory, into the request.
    fn goes_inline(&self, slots: Slots) -> bool {
        slots.size <= self.inline_bytes && self.memory.buffer().gpu().is_none()
    }

    fn measure_by<P: verbs::Posting, M: Measure + Send>(
        &self,
        slots: Slots,
        crew: Crew,
        measures: Vec<M>,
    ) -> Result<()> {
        crew.run(measures, |Share { thread, part, .. }| {
            Ok(self.endpoint_of::<P>(&self.paths, slots, self.post_list, thread, part))
        })
    }

    /// The same for writes in turn.
    pub(super) fn measure_in_turn<M: MeasureInTurn>(
        &self,
        slots: Slots,
        layout: BufferLayout,
        signal_every: u32,
        measure: M,
    ) -> Result<()> {
        if let Some(flags) = self.memory.flags() {
            let regions = flags_of(flags.buffer().address(), 0);
            return self.measure_flagged(Turn { regions, signal_every, slots }, layout, measure);
        }
        let turn = Turn { regions: layout.regions(self.memory.address()), signal_every, slots };
        match (self.posting, self.goes_inline(slots)) {
            (Posting::Extended, false) => measure.run(&mut self.in_turn::<Extended<Fetched>>(turn)),
            (Posting::Extended, true) => measure.run(&mut self.in_turn::<Extended<Inline>>(turn)),
            (Posting::Classic, false) => measure.run(&mut self.in_turn::<Classic<Fetched>>(turn)),
            (Posting::Classic, true) => measure.run(&mut self.in_turn::<Classic<Inline>>(turn)),
        }
    }

    fn in_turn<P: verbs::Posting>(&self, turn: Turn) -> VerbsPingPong<P> {
        let Turn { regions, signal_every, slots } = turn;
        let releases = releases(&self.paths, regions);
        let releases = self.endpoint(Slots::of(1), &releases);
        VerbsPingPong::new(self.endpoint(slots, &self.paths), releases, regions, slots.size, signal_every)
    }

    fn endpoint<P: verbs::Posting>(&self, slots: Slots, paths: &[WritePath]) -> VerbsEndpoint<P> {
        VerbsEndpoint::new(&self.device, &self.cqs[0], &self.qps, paths, slots, self.post_list)
    }

    /// Of the queue pairs of one thread, which are `part`.
    fn endpoint_of<P: verbs::Posting>(
        &self,
        paths: &[WritePath],
        slots: Slots,
        post_list: u32,
        thread: usize,
        part: Range<usize>,
    ) -> VerbsEndpoint<P> {
        let (qps, paths) = (&self.qps[part.clone()], &paths[part]);
        VerbsEndpoint::new(&self.device, &self.cqs[thread], qps, paths, slots, post_list)
    }

    pub(super) fn evidence(&self, role: Role) -> Evidence {
        let now = Counters::read(self.context.name(), self.port_num, &self.files);
        Evidence {
            role,
            source: format!("{} port {}", self.context.name(), self.port_num),
            moved: now.grown_since(&self.counters),
        }
    }
}
