//! The other end of a bring-up: what it offers, checked against the plan, and the paths of writes to it.

use super::registered::Registered;
use crate::endpoint::verbs::WritePath;
use crate::error::{Error, ErrorKind, Result};
use crate::exchange::message::{EndInfo, FlagsAt};
use crate::memory::{Buffer, EndMemory, GpuPath};
use crate::plan::{BufferLayout, Plan, Role, flags_of};
use crate::qp::QpAddress;
use crate::report::RdmaEnd;

/// The queue pairs of the peer and where they may be written to, checked against the plan.
pub(super) struct Peer {
    pub(super) qps: Vec<QpAddress>,
    pub(super) sinks: Vec<u64>,
    pub(super) rkeys: Vec<u32>,
    pub(super) flags: Option<FlagsAt>,
    pub(super) path: Option<GpuPath>,
}

impl Peer {
    /// What `info` says of it, where that is what `plan` has.
    pub(super) fn of(info: EndInfo, plan: &Plan, role: Role) -> Result<(Self, RdmaEnd, EndMemory)> {
        let EndInfo::Rdma { end, qps, sinks, rkeys, memory, flags } = info else {
            return Err(Error::new(ErrorKind::Protocol, "the peer brought up TCP where RDMA was agreed on"));
        };
        let (sinks_wanted, keys_wanted) =
            if plan.is_target(role.peer()) { (plan.qps, plan.memory_regions()) } else { (0, 0) };
        let offered = [qps.len(), sinks.len(), rkeys.len()];
        let wanted = [plan.qps, sinks_wanted, keys_wanted].map(|count| count as usize);
        if offered != wanted {
            let show =
                |[qps, sinks, keys]: [usize; 3]| format!("{qps} queue pairs, {sinks} sinks and {keys} keys");
            return Err(Error::new(
                ErrorKind::Protocol,
                format!("the peer offered {} where the plan has {}", show(offered), show(wanted)),
            ));
        }
        if flags.is_some() != plan.gpu.is_some() {
            return Err(Error::new(ErrorKind::Protocol, "the peer's flags are not what the plan has"));
        }
        let path = memory.gpu.as_ref().map(|gpu| gpu.path);
        Ok((Self { qps, sinks, rkeys, flags, path }, end, memory))
    }

    /// The key to the sink of `qp`.
    fn rkey(&self, qp: u32) -> u32 {
        // One key opens them all.
        self.rkeys.get(qp as usize).or(self.rkeys.first()).copied().unwrap_or(0)
    }
}

/// Between the sources here and the sinks there; none on an end that does not write.
pub(super) fn write_paths(
    plan: &Plan,
    layout: BufferLayout,
    memory: &Registered,
    peer: &Peer,
    role: Role,
) -> Vec<WritePath> {
    if !plan.is_initiator(role) {
        return Vec::new();
    }
    let base = memory.address();
    let path = |(qp, (&remote_addr, address)): (u32, (&u64, &QpAddress))| WritePath {
        local_addr: base + layout.source(qp),
        remote_addr,
        lkey: memory.lkey(qp),
        rkey: peer.rkey(qp),
        peer_qpn: address.qpn,
    };
    (0..).zip(peer.sinks.iter().zip(&peer.qps)).map(path).collect()
}

/// Between the flags of both ends; none where there are none.
pub(super) fn flag_paths(memory: &Registered, peer: &Peer) -> Vec<WritePath> {
    let Some((ours, theirs)) = memory.flags().zip(peer.flags) else { return Vec::new() };
    let path = |(qp, address): (usize, &QpAddress)| WritePath {
        local_addr: flags_of(ours.buffer().address(), qp).source,
        remote_addr: flags_of(theirs.address, qp).sink,
        lkey: ours.lkey(),
        rkey: theirs.rkey,
        peer_qpn: address.qpn,
    };
    peer.qps.iter().enumerate().map(path).collect()
}
