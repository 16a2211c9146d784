//! A connection between every two ranks: each makes its queue pairs, tells the others where they are, and connects them.

use std::sync::Arc;
use std::time::Duration;

use linkproof_common::cq::CompletionQueue;
use linkproof_common::device::{self, ChosenPort, DeviceLimits, SOFTNIC};
use linkproof_common::endpoint::verbs::DeviceLabel;
use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::gid::{self, GidEntry, LinkOffer};
use linkproof_common::host::HostFiles;
use linkproof_common::memlock::LockedMemory;
use linkproof_common::mr::ProtectionDomain;
use linkproof_common::qp::{Calls, Path, QpAddress, QpAttributes, Qpn, QueuePair, starting_psn};
use linkproof_common::report::DeviceKind;
use linkproof_common::units::Bandwidth;
use serde::{Deserialize, Serialize};

use super::control::Control;
use super::limits::{check_device, check_pinned, pinned_bytes};
use super::peer::{Peer, Remote};
use super::queue::{COMPLETIONS, DEPTH, Queue};
use super::regions::Regions;
use super::{Here, POLL_BATCH, PortWish, Rdma, SPIN};
use crate::group::{Alarm, Group};
use crate::plan::Plan;
use crate::report::RankPort;

/// Pieces of up to so many bytes are copied into the request: what perftest has for latencies, or what the device takes.
const INLINE_BYTES: u32 = 220;
/// The length of a request has 32 bits.
const LARGEST_WRITE: u64 = 1 << 30;

/// What a rank tells the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Offer {
    device: String,
    software: Option<String>,
    link: LinkOffer,
    /// The queue pair for each rank.
    qpns: Vec<Qpn>,
    sq_psn: u32,
    /// Its control memory.
    address: u64,
    rkey: u32,
}

/// This rank's end, and how the others are reached.
struct End {
    rank: u32,
    chosen: ChosenPort,
    offer: Offer,
    port: RankPort,
}

/// What this rank makes by itself. Fields are dropped in this order.
struct Made {
    /// By rank; none to itself. Queue pairs in INIT, with all receives posted.
    peers: Vec<Option<Peer>>,
    cq: Arc<CompletionQueue>,
    control: Control,
    pd: Arc<ProtectionDomain>,
}

/// Connects this rank to all others.
///
/// # Errors
/// The device, port and GID kinds of [`ErrorKind`]; `memlock`; ranks that can't reach each other; those of the group.
pub(super) fn connect(
    group: &mut dyn Group,
    alarm: Alarm,
    wish: &PortWish,
    here: Here,
    plan: &Plan,
) -> Result<Rdma> {
    let files = HostFiles::this_machine();
    let (rank, n_ranks) = (group.rank(), group.n_ranks());
    let chosen = device::choose(&wish.wish(), &files)?;
    let link = chosen.context.link_offer(&chosen.port, wish.gid_index, &files)?;
    let name = chosen.context.name().to_owned();
    check_device(n_ranks, &name, &DeviceLimits::from(&chosen.context.limits()?))?;
    let limit = LockedMemory::of_this_process(&files);
    check_pinned(&limit, pinned_bytes(plan, rank)?, here.ranks, &name)?;
    let sq_psn = starting_psn(rank);
    let made = Made::new(&chosen, rank, n_ranks, sq_psn)?;
    let software = chosen.context.software(&files);
    let offer = made.offer(name.clone(), software.clone(), link, sq_psn);
    let mut end = End { rank, port: describe(&chosen, software.clone()), chosen, offer };
    let Made { mut peers, cq, control, pd } = made;
    end.join_all(group, &mut peers)?;
    Ok(Rdma {
        rank,
        peers,
        cq,
        regions: Regions::new(&pd),
        control,
        port: end.port,
        device: DeviceLabel { name, software, other: None },
        alarm,
        spin: if here.ranks <= here.processors { SPIN } else { Duration::ZERO },
        limit: Duration::from_secs_f64(plan.timeout_seconds),
        flows: Vec::new(),
        completions: Box::new([Default::default(); POLL_BATCH]),
    })
}

impl Made {
    fn new(chosen: &ChosenPort, rank: u32, n_ranks: u32, sq_psn: u32) -> Result<Self> {
        let pd = Arc::new(ProtectionDomain::new(&chosen.context)?);
        let cq = Arc::new(CompletionQueue::new(&chosen.context, COMPLETIONS * (n_ranks - 1).max(1))?);
        let control = Control::new(&pd, n_ranks)?;
        let largest = chosen.port.max_msg_size.clamp(1, LARGEST_WRITE);
        let peer = |other| -> Result<Peer> {
            let queue = Queue::new(rank, other, queue_pair(&pd, &cq, chosen, sq_psn)?);
            queue.post_receives()?;
            Ok(Peer::new(queue, largest))
        };
        let peers = (0..n_ranks).map(|other| (other != rank).then(|| peer(other)).transpose());
        let peers = peers.collect::<Result<_>>()?;
        Ok(Self { peers, cq, control, pd })
    }

    fn offer(&self, device: String, software: Option<String>, link: LinkOffer, sq_psn: u32) -> Offer {
        let qpn = |peer: &Option<Peer>| peer.as_ref().map_or(Qpn(0), |peer| peer.queue.qp.qpn());
        Offer {
            device,
            software,
            link,
            qpns: self.peers.iter().map(qpn).collect(),
            sq_psn,
            address: self.control.address(),
            rkey: self.control.rkey(),
        }
    }
}

fn queue_pair(
    pd: &Arc<ProtectionDomain>,
    cq: &Arc<CompletionQueue>,
    chosen: &ChosenPort,
    sq_psn: u32,
) -> Result<QueuePair> {
    let attributes = QpAttributes { inline_bytes: INLINE_BYTES, ..QpAttributes::default() };
    QueuePair::new(pd, cq, DEPTH, attributes, Calls::Classic, chosen.port.port_num, sq_psn)
}

fn describe(chosen: &ChosenPort, software: Option<String>) -> RankPort {
    let port = &chosen.port;
    RankPort {
        device: chosen.context.name().to_owned(),
        device_kind: if software.is_some() { DeviceKind::Software } else { DeviceKind::Adapter },
        software,
        port_num: port.port_num,
        link_layer: port.link_layer,
        lid: port.lid,
        gids: Vec::new(),
        active_mtu_bytes: port.active_mtu,
        path_mtu_bytes: None,
        rate_gbit_per_sec: port.rate.map(Bandwidth::gbit_per_sec),
    }
}

impl End {
    /// Tells all where this rank is, and connects to each.
    fn join_all(&mut self, group: &mut dyn Group, peers: &mut [Option<Peer>]) -> Result<()> {
        let blob = serde_json::to_vec(&self.offer).unwrap_or_default();
        let offers = group.all_gather(&blob)?;
        for (other, (blob, peer)) in offers.iter().zip(peers).enumerate() {
            let Some(peer) = peer else { continue };
            let theirs = serde_json::from_slice(blob).map_err(|_| {
                Error::new(ErrorKind::Protocol, format!("rank {other} said nothing of its RDMA port"))
            })?;
            self.join(peer, &theirs)?;
        }
        // Nobody writes to a rank that is not ready.
        group.barrier()
    }

    /// Connects to `peer`, which is where `theirs` says.
    fn join(&mut self, peer: &mut Peer, theirs: &Offer) -> Result<()> {
        let (own, other) = (self.rank, peer.queue.rank);
        check_fabric((own, &self.offer), (other, theirs))?;
        let (sgid, dgid) = gids((own, &self.offer.link), (other, &theirs.link))?;
        let path = Path {
            port_num: self.chosen.port.port_num,
            dgid: dgid.map(|entry| entry.gid),
            sgid: sgid.clone(),
            dlid: theirs.link.lid,
            path_mtu: self.offer.link.active_mtu_bytes.min(theirs.link.active_mtu_bytes),
        };
        let Some(&qpn) = theirs.qpns.get(own as usize) else {
            let what = format!("rank {other} has no queue pair for rank {own}");
            return Err(Error::new(ErrorKind::Protocol, what));
        };
        peer.remote = Remote { address: theirs.address, rkey: theirs.rkey, qpn };
        peer.queue
            .qp
            .connect(&path, QpAddress { qpn, sq_psn: theirs.sq_psn })
            .map_err(|error| error.fact("ranks", format!("{own} to {other}")))?;
        self.port.gids.extend(sgid.filter(|entry| !self.port.gids.contains(entry)));
        self.port.path_mtu_bytes = self.port.path_mtu_bytes.into_iter().chain([path.path_mtu]).min();
        Ok(())
    }
}

/// softnic has no network: no packet of it reaches any other device.
fn check_fabric((own, ours): (u32, &Offer), (other, theirs): (u32, &Offer)) -> Result<()> {
    let is_softnic = |offer: &Offer| offer.software.as_deref() == Some(SOFTNIC);
    if is_softnic(ours) == is_softnic(theirs) {
        return Ok(());
    }
    let described = |offer: &Offer| match &offer.software {
        Some(software) => format!("{} ({software})", offer.device),
        None => offer.device.clone(),
    };
    let what = format!(
        "one of ranks {own} and {other} uses the software device and the other does not: no bytes can pass"
    );
    Err(Error::new(ErrorKind::Transport, what)
        .fact(&format!("rank {own}"), described(ours))
        .fact(&format!("rank {other}"), described(theirs))
        .hint("give --soft-device to all ranks or to none"))
}

/// The GID of this rank and that of the other, chosen alike on both: the lower rank is the client of that rule.
fn gids(
    (own, ours): (u32, &LinkOffer),
    (other, theirs): (u32, &LinkOffer),
) -> Result<(Option<GidEntry>, Option<GidEntry>)> {
    let (client, server) = if own < other { (ours, theirs) } else { (theirs, ours) };
    let chosen = gid::choose(client, server).map_err(|error| {
        let (low, high) = (own.min(other), own.max(other));
        error.fact("ranks", format!("the client is rank {low}, the server rank {high}"))
    })?;
    let (client, server) = (chosen.client, chosen.server);
    Ok(if own < other { (client, server) } else { (server, client) })
}
