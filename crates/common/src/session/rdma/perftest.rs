//! The bring-up with a perftest at the other end, which sends a key for each queue pair and says nothing of itself.

use super::{Ground, Half, Peer, RdmaSession, link};
use crate::error::{Error, ErrorKind, Result};
use crate::exchange::Channel;
use crate::gid::{self, GidEntry, GidType, LinkOffer};
use crate::memory::EndBuffer;
use crate::perftest::{Key, PerftestChannel};
use crate::plan::{MAX_QPS, Traffic};
use crate::qp::Path;
use crate::report::{Link, PerftestEnd};

/// Makes the client's end and connects it to the perftest's; `offer` is what this end's port offers, `mtu_bytes` the path MTU
/// that both have come to.
///
/// # Errors
/// As any bring-up, and the peer kinds of [`PerftestChannel`].
pub(in crate::session) fn join_perftest(
    channel: &mut PerftestChannel,
    ground: Ground,
    offer: &LinkOffer,
    mtu_bytes: u32,
    buffer: EndBuffer,
) -> Result<(RdmaSession, Link)> {
    let (sgid, reason) = this_ends_address(offer)?;
    let half = Half::new(channel, ground, sgid.as_ref(), buffer)?;
    let keys = keys(&half, ground, sgid.as_ref());
    if ground.plan.traffic == Traffic::PingPong {
        // Its latency test has one more than its bandwidth test.
        keys.first().map(|key| channel.swap_key(key)).transpose()?;
    }
    let theirs = keys.iter().map(|key| channel.swap_key(key)).collect::<Result<Vec<_>>>()?;
    check_keys(&theirs, ground, sgid.as_ref(), &channel.peer())?;
    let (session, link) = connect(channel, ground, half, sgid, &reason, &theirs, mtu_bytes)?;
    // Once more for each, when both ends are connected, and once for all.
    let again =
        keys.iter().chain(keys.first()).map(|key| channel.swap_key(key)).collect::<Result<Vec<_>>>()?;
    if again.iter().zip(theirs.iter().chain(theirs.first())).any(|(again, first)| again.qp != first.qp) {
        return Err(other_queue_pairs(ground));
    }
    Ok((session, link))
}

/// Makes the server's end for a perftest and connects it; gives the number of queue pairs as well. An end that is only
/// written to has as many as the perftest asks for: that its first key comes again is how it says that these were all.
///
/// # Errors
/// As [`join_perftest`].
pub(in crate::session) fn receive_perftest(
    channel: &mut PerftestChannel,
    ground: Ground,
    offer: &LinkOffer,
    mtu_bytes: u32,
    buffer: EndBuffer,
) -> Result<(RdmaSession, Link, u32)> {
    let first = channel.hear_key()?;
    let (sgid, reason) = address_for(offer, &first, ground, &channel.peer())?;
    let mut half = Half::new(channel, ground, sgid.as_ref(), buffer)?;
    if ground.plan.traffic == Traffic::PingPong {
        channel.say_key(&keys(&half, ground, sgid.as_ref())[0])?;
        if channel.hear_key()?.qp != first.qp {
            return Err(other_queue_pairs(ground));
        }
    }
    let learns = ground.plan.traffic == Traffic::Unidirectional;
    let mut theirs = vec![first];
    loop {
        if half.made.qps.len() < theirs.len() {
            if !learns || theirs.len() > MAX_QPS as usize {
                return Err(other_queue_pairs(ground));
            }
            half.add_queue_pair(ground)?;
        }
        channel.say_key(&keys(&half, ground, sgid.as_ref())[theirs.len() - 1])?;
        let next = channel.hear_key()?;
        if next.qp == first.qp {
            break;
        }
        theirs.push(next);
    }
    if theirs.len() != half.made.qps.len() {
        return Err(other_queue_pairs(ground));
    }
    let keys = keys(&half, ground, sgid.as_ref());
    let (session, link) = connect(channel, ground, half, sgid, &reason, &theirs, mtu_bytes)?;
    // The first key of the second turn has come already; behind the last is the first once more.
    for (key, next) in keys.iter().zip(theirs.iter().skip(1).chain([&first])) {
        channel.say_key(key)?;
        if channel.hear_key()?.qp != next.qp {
            return Err(other_queue_pairs(ground));
        }
    }
    channel.say_key(&keys[0])?;
    Ok((session, link, theirs.len() as u32))
}

fn connect(
    channel: &mut PerftestChannel,
    ground: Ground,
    half: Half,
    sgid: Option<GidEntry>,
    reason: &str,
    theirs: &[Key],
    mtu_bytes: u32,
) -> Result<(RdmaSession, Link)> {
    let ours = half.ours.clone();
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
        flags: None,
        path: None,
        qps: theirs.iter().map(|key| key.qp).collect(),
        sinks: theirs.iter().map(|key| key.address).collect(),
        rkeys: theirs.iter().map(|key| key.rkey).collect(),
    };
    let session = half.connect(channel, ground, &peer, &path)?;
    Ok((session, link(mtu_bytes, reason, ground.role, ours.into(), end.into())))
}

/// The address of this end that fits the one that the perftest has told.
fn address_for(
    offer: &LinkOffer,
    theirs: &Key,
    ground: Ground,
    peer: &str,
) -> Result<(Option<GidEntry>, String)> {
    let Some(gid) = theirs.gid else {
        return match gid::choose(offer, offer)?.client {
            None => Ok((None, "addressed by LID, as the client is".to_owned())),
            Some(ours) => Err(Error::new(
                ErrorKind::GidFamily,
                format!("{peer} addresses by LID and this end's port uses GIDs ({})", ours.describe()),
            )
            .hint("give -x (--gid-index) on both ends or on neither, and choose ports of one kind")),
        };
    };
    let as_type = |gid_type| LinkOffer {
        gids: vec![GidEntry { index: 0, gid, gid_type, netdev: None, prefix_len: None }],
        gid_forced: true,
        ..offer.clone()
    };
    // It does not tell the type; one of its family decides.
    let fitting = [GidType::RoceV2, GidType::RoceV1, GidType::Ib]
        .into_iter()
        .find_map(|gid_type| gid::choose(&as_type(gid_type), offer).ok()?.server);
    match fitting {
        Some(ours) => {
            let family = ours.gid.family().name();
            let reason = format!("{}, {family}: fits the client's own choice", ours.gid_type.name());
            Ok((Some(ours), reason))
        }
        None => Err(Error::new(
            ErrorKind::GidFamily,
            format!("the GID of {peer} is {} and no entry of this end's fits it", gid.family().name()),
        )
        .fact(ground.role.peer().name(), gid)
        .hint("choose an entry of another kind with -x on the client; perftest takes no account of the other end's")),
    }
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
    // Queue pairs that the plan does not know of share the first one's memory: nothing is checked there.
    let sinks = half.sinks(ground);
    let rkeys = half.made.memory.rkeys();
    let key = |(index, qp)| Key {
        lid: half.ours.lid,
        qp,
        rkey: if sinks.is_empty() { 0 } else { rkeys.get(index).or(rkeys.first()).copied().unwrap_or(0) },
        address: sinks.get(index).or(sinks.first()).copied().unwrap_or(0),
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
