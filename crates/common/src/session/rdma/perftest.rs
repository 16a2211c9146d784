//! The bring-up with a perftest at the other end, which sends a key for each queue pair and says nothing of itself.

use super::{Ground, Half, Peer, RdmaSession, link};
use crate::error::{Error, ErrorKind, Result};
use crate::exchange::Channel;
use crate::gid::{self, GidEntry, LinkOffer};
use crate::memory::HostBuffer;
use crate::perftest::{Key, PerftestChannel};
use crate::plan::Traffic;
use crate::qp::Path;
use crate::report::{Link, PerftestEnd};

/// Makes this end and connects it to the perftest's; `offer` is what this end's port offers, `mtu_bytes` the path MTU
/// that both have come to.
///
/// # Errors
/// As any bring-up, and the peer kinds of [`PerftestChannel`].
pub(in crate::session) fn bring_up_with_perftest(
    channel: &mut PerftestChannel,
    ground: Ground,
    offer: &LinkOffer,
    mtu_bytes: u32,
    buffer: HostBuffer,
) -> Result<(RdmaSession, Link)> {
    let (sgid, reason) = this_ends_address(offer)?;
    let half = Half::new(channel, ground, sgid.as_ref(), buffer)?;
    let ours = half.ours.clone();
    let keys = keys(&half, ground, sgid.as_ref());
    if ground.plan.traffic == Traffic::PingPong {
        // Its latency test has one more than its bandwidth test.
        keys.first().map(|key| channel.swap_key(key)).transpose()?;
    }
    let theirs = keys.iter().map(|key| channel.swap_key(key)).collect::<Result<Vec<_>>>()?;
    check_keys(&theirs, ground, sgid.as_ref(), &channel.peer())?;
    let end = PerftestEnd {
        perftest_version: channel.version().to_string(),
        lid: theirs[0].lid,
        gid: theirs[0].gid,
        mtu_bytes,
        qpns: theirs.iter().map(|key| key.qp.qpn).collect(),
    };
    let path = Path {
        port_num: ground.chosen.port.port_num,
        sgid,
        dgid: end.gid,
        dlid: end.lid,
        path_mtu: mtu_bytes,
    };
    let peer = Peer {
        qps: theirs.iter().map(|key| key.qp).collect(),
        sinks: theirs.iter().map(|key| key.address).collect(),
        rkeys: theirs.iter().map(|key| key.rkey).collect(),
    };
    let session = half.connect(channel, ground, &peer, &path)?;
    // Once more for each, when both ends are connected, and once for all.
    let again =
        keys.iter().chain(keys.first()).map(|key| channel.swap_key(key)).collect::<Result<Vec<_>>>()?;
    if again.iter().zip(theirs.iter().chain(theirs.first())).any(|(again, first)| again.qp != first.qp) {
        return Err(other_queue_pairs(ground));
    }
    Ok((session, link(mtu_bytes, &reason, ground.role, ours.into(), end.into())))
}

/// The address that this end goes by. perftest tells its own only when it has been told this one, so that the best entry
/// of this end's table has to do.
fn this_ends_address(offer: &LinkOffer) -> Result<(Option<GidEntry>, String)> {
    let addressing = gid::choose(offer, offer)?;
    let reason = match (&addressing.client, offer.gid_forced) {
        (None, _) => addressing.reason,
        (Some(_), true) => "--gid-index on this end, and perftest's own choice on the other".to_owned(),
        (Some(entry), false) => format!(
            "{}, {}: the best of this end's table, and perftest's own choice on the other",
            entry.gid_type.name(),
            entry.gid.family().name()
        ),
    };
    Ok((addressing.client, reason))
}

/// What this end tells of its queue pairs. An end that is not written to has nothing to open with a key.
fn keys(half: &Half, ground: Ground, sgid: Option<&GidEntry>) -> Vec<Key> {
    let sinks = half.sinks(ground);
    let rkeys = half.made.memory.rkeys();
    let key = |(index, qp)| Key {
        lid: half.ours.lid,
        qp,
        rkey: if sinks.is_empty() { 0 } else { rkeys.get(index).or(rkeys.first()).copied().unwrap_or(0) },
        address: sinks.get(index).copied().unwrap_or(0),
        gid: sgid.map(|entry| entry.gid),
    };
    half.addresses().into_iter().enumerate().map(key).collect()
}

/// What the keys reveal of the other end's options.
fn check_keys(theirs: &[Key], ground: Ground, sgid: Option<&GidEntry>, peer: &str) -> Result<()> {
    let [first, others @ ..] = theirs else { return Err(other_queue_pairs(ground)) };
    if let (Some(ours), Some(theirs)) = (sgid, first.gid)
        && (ours.gid.family() == gid::GidFamily::Ipv4) != (theirs.family() == gid::GidFamily::Ipv4)
    {
        return Err(Error::new(
            ErrorKind::GidFamily,
            format!(
                "this end's GID is {} and that of {peer} is {}: they cannot talk to each other",
                ours.gid.family().name(),
                theirs.family().name()
            ),
        )
        .fact(ground.role.name(), ours.describe())
        .fact(ground.role.peer().name(), theirs)
        .hint(
            "choose entries of one kind with -x on both ends; perftest takes no account of the other end's",
        ));
    }
    if others.iter().any(|key| key.qp == first.qp) {
        return Err(other_queue_pairs(ground));
    }
    match others.first() {
        // Each queue pair's memory begins where the last one's ends: so far apart, so long at most.
        Some(second) if second.address.abs_diff(first.address) < ground.plan.largest() => Err(Error::new(
            ErrorKind::PerftestPeer,
            format!(
                "{peer} has {} bytes for each queue pair and this end would write {}",
                second.address.abs_diff(first.address),
                ground.plan.largest()
            ),
        )
        .hint("give the same --size, or -a, on both ends")),
        _ => Ok(()),
    }
}

fn other_queue_pairs(ground: Ground) -> Error {
    Error::new(
        ErrorKind::PerftestPeer,
        format!("the other end does not have {} queue pairs, as this one has", ground.plan.qps),
    )
    .hint("give the same --qp (-q) on both ends")
}
