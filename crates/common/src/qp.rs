//! A reliable-connected queue pair, from RESET to RTS.
#![allow(unsafe_code, reason = "queue pairs are libibverbs' objects")]

mod attributes;
mod inline;
mod step;

pub use attributes::{
    DEFAULT_ACK_TIMEOUT, DEFAULT_RETRY_COUNT, MAX_ACK_TIMEOUT, MAX_INLINE_BYTES, MAX_RETRY_COUNT,
    MAX_SERVICE_LEVEL, QpAttributes,
};

use std::fmt;
use std::sync::Arc;

use rdma_sys as sys;
use serde::{Deserialize, Serialize};

use self::step::Step;
use crate::cq::CompletionQueue;
use crate::device::mtu_value;
use crate::error::Result;
use crate::gid::{Gid, GidEntry};
use crate::mr::ProtectionDomain;

/// A queue pair's number, 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Qpn(pub u32);

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

/// What one end tells the other about a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpAddress {
    /// The queue pair's number.
    pub qpn: Qpn,
    /// The first packet sequence number that it sends.
    pub sq_psn: u32,
}

/// The way to the peer, the same for all queue pairs of a run.
#[derive(Clone, Debug)]
pub struct Path {
    /// This end's port.
    pub port_num: u8,
    /// This end's GID entry; `None`: by LID.
    pub sgid: Option<GidEntry>,
    /// The peer's GID; `None`: by LID.
    pub dgid: Option<Gid>,
    /// The peer's local identifier.
    pub dlid: u16,
    /// Bytes of payload in a packet.
    pub path_mtu: u32,
}

impl Path {
    /// The path in words.
    pub fn describe(&self) -> String {
        match (&self.sgid, &self.dgid) {
            (Some(sgid), Some(dgid)) => {
                format!("sgid {} to dgid {dgid}, path MTU {}", sgid.describe(), self.path_mtu)
            }
            _ => format!("to LID {}, path MTU {}", self.dlid, self.path_mtu),
        }
    }
}

/// 7 means for ever; writes need no receive, and with immediate data the peer has posted one, so it never counts.
const RNR_RETRY: u8 = 7;
/// 0.64 ms between tries of a peer that has no receive posted.
const MIN_RNR_TIMER: u8 = 12;
/// As many hops as any fabric has.
const HOP_LIMIT: u8 = 64;

/// The calls that a queue pair is posted to with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// `ibv_wr_*`, or `ibv_post_send` where the provider does not have them.
    Extended,
    /// `ibv_post_send`.
    Classic,
}

/// How much a queue pair has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Requests outstanding.
    pub sends: u32,
    /// Receives posted; 0 where the peer's requests take none.
    pub receives: u32,
}

impl Depth {
    /// Of a queue pair that is written to without immediate data, if at all.
    pub fn of_writes(tx_depth: u32) -> Self {
        Self { sends: tx_depth, receives: 0 }
    }
}

/// A queue pair. Created in RESET and moved to INIT; [`QueuePair::connect`] takes it to RTS.
pub struct QueuePair {
    raw: *mut sys::ibv_qp,
    extended: *mut sys::ibv_qp_ex,
    sq_psn: u32,
    attributes: QpAttributes,
    inline_bytes: u32,
    pd: Arc<ProtectionDomain>,
    // Held so that the completion queue outlives the queue pair.
    _cq: Arc<CompletionQueue>,
}

// SAFETY: a queue pair may be used from any thread; the pointers are set once, and `raw` is freed once, in Drop.
unsafe impl Send for QueuePair {}
// SAFETY: as above, and by several at a time: what takes `&self` reads those pointers or calls verbs, which lock where
// they have to. Posting goes through endpoints, and those of a queue pair are on one thread.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// A queue pair with room for `depth`, in state INIT on port `port_num`.
    ///
    /// Where the inline data is not
    /// [fixed](QpAttributes::inline_fixed) it is as much as the device takes.
    ///
    /// # Errors
    /// [`Resource`](crate::error::ErrorKind::Resource) or [`QpTransition`](crate::error::ErrorKind::QpTransition) with
    /// the errno; [`DeviceLimit`](crate::error::ErrorKind::DeviceLimit) where the device takes less inline data.
    pub fn new(
        pd: &Arc<ProtectionDomain>,
        cq: &Arc<CompletionQueue>,
        depth: Depth,
        attributes: QpAttributes,
        calls: Calls,
        port_num: u8,
        sq_psn: u32,
    ) -> Result<Self> {
        let (Created { raw, extended }, inline_bytes) =
            inline::create(pd, cq, capacity(depth, attributes.inline_bytes), attributes.inline_fixed, calls)?;
        let qp =
            Self { raw, extended, sq_psn, attributes, inline_bytes, pd: Arc::clone(pd), _cq: Arc::clone(cq) };
        qp.to_init(port_num)?;
        Ok(qp)
    }

    /// Writes of up to so many bytes can go inline.
    pub fn inline_bytes(&self) -> u32 {
        self.inline_bytes
    }

    /// What the peer needs to know.
    pub fn address(&self) -> QpAddress {
        QpAddress { qpn: self.qpn(), sq_psn: self.sq_psn }
    }

    /// Its number.
    pub fn qpn(&self) -> Qpn {
        // SAFETY: the queue pair lives as long as `self`.
        Qpn(unsafe { (*self.raw).qp_num })
    }

    /// The raw queue pair, for verbs.
    pub fn raw(&self) -> *mut sys::ibv_qp {
        self.raw
    }

    /// Its extended face; null where the provider has none, or it is not to be posted to with that.
    pub fn extended(&self) -> *mut sys::ibv_qp_ex {
        self.extended
    }

    /// Takes the queue pair through RTR to RTS, connected to `peer` along `path`.
    ///
    /// # Errors
    /// [`QpTransition`](crate::error::ErrorKind::QpTransition), naming both states and the path.
    pub fn connect(&self, path: &Path, peer: QpAddress) -> Result<()> {
        self.to_rtr(path, peer)?;
        self.to_rts(path)
    }

    fn to_init(&self, port_num: u8) -> Result<()> {
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_INIT,
            pkey_index: 0,
            port_num,
            qp_access_flags: sys::IBV_ACCESS_REMOTE_WRITE,
            ..Default::default()
        };
        let mask = sys::IBV_QP_STATE | sys::IBV_QP_PKEY_INDEX | sys::IBV_QP_PORT | sys::IBV_QP_ACCESS_FLAGS;
        self.modify(&mut attr, mask, Step::Init, None)
    }

    fn to_rtr(&self, path: &Path, peer: QpAddress) -> Result<()> {
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_RTR,
            path_mtu: mtu_value(path.path_mtu),
            dest_qp_num: peer.qpn.0,
            rq_psn: peer.sq_psn,
            max_dest_rd_atomic: 1,
            min_rnr_timer: MIN_RNR_TIMER,
            ah_attr: address_handle(path, &self.attributes),
            ..Default::default()
        };
        let mask = sys::IBV_QP_STATE
            | sys::IBV_QP_AV
            | sys::IBV_QP_PATH_MTU
            | sys::IBV_QP_DEST_QPN
            | sys::IBV_QP_RQ_PSN
            | sys::IBV_QP_MAX_DEST_RD_ATOMIC
            | sys::IBV_QP_MIN_RNR_TIMER;
        self.modify(&mut attr, mask, Step::Rtr, Some(path))
    }

    fn to_rts(&self, path: &Path) -> Result<()> {
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_RTS,
            sq_psn: self.sq_psn,
            timeout: self.attributes.ack_timeout,
            retry_cnt: self.attributes.retry_count,
            rnr_retry: RNR_RETRY,
            max_rd_atomic: 1,
            ..Default::default()
        };
        let mask = sys::IBV_QP_STATE
            | sys::IBV_QP_SQ_PSN
            | sys::IBV_QP_TIMEOUT
            | sys::IBV_QP_RETRY_CNT
            | sys::IBV_QP_RNR_RETRY
            | sys::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attr, mask, Step::Rts, Some(path))
    }

    fn modify(
        &self,
        attr: &mut sys::ibv_qp_attr,
        mask: sys::ibv_qp_attr_mask,
        step: Step,
        path: Option<&Path>,
    ) -> Result<()> {
        let context = self.pd.context();
        // SAFETY: the queue pair is alive and the attributes named by `mask` are set.
        match unsafe { (context.verbs().ibv_modify_qp)(self.raw, attr, mask as i32) } {
            0 => Ok(()),
            errno => Err(step.failed(self.qpn(), context.name(), errno, path)),
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: the queue pair is ours and freed once; its memory region, domain and completion queue outlive it.
        unsafe { (self.pd.context().verbs().ibv_destroy_qp)(self.raw) };
    }
}

fn capacity(depth: Depth, max_inline_data: u32) -> sys::ibv_qp_cap {
    sys::ibv_qp_cap {
        max_send_wr: depth.sends,
        max_recv_wr: depth.receives,
        max_send_sge: 1,
        max_recv_sge: depth.receives.min(1),
        max_inline_data,
    }
}

/// A queue pair just made, which nobody else has yet.
struct Created {
    raw: *mut sys::ibv_qp,
    /// Null where it has no extended calls.
    extended: *mut sys::ibv_qp_ex,
}

impl Created {
    /// `None` where the device refuses; errno tells why.
    fn new(pd: &ProtectionDomain, cq: &CompletionQueue, cap: sys::ibv_qp_cap, calls: Calls) -> Option<Self> {
        let extended_qp = match calls {
            Calls::Extended => create_extended(pd, cq, cap),
            Calls::Classic => std::ptr::null_mut(),
        };
        let raw = if extended_qp.is_null() { create_basic(pd, cq, cap) } else { extended_qp };
        let to_extended = pd.context().verbs().ibv_qp_to_qp_ex.filter(|_| !extended_qp.is_null());
        // SAFETY: the queue pair was made with send_ops_flags, as this call demands.
        let extended = to_extended.map_or(std::ptr::null_mut(), |to_extended| unsafe { to_extended(raw) });
        (!raw.is_null()).then_some(Self { raw, extended })
    }

    fn destroy(self, pd: &ProtectionDomain) {
        // SAFETY: the queue pair is nobody else's, and freed once.
        unsafe { (pd.context().verbs().ibv_destroy_qp)(self.raw) };
    }
}

fn create_extended(pd: &ProtectionDomain, cq: &CompletionQueue, cap: sys::ibv_qp_cap) -> *mut sys::ibv_qp {
    let verbs = pd.context().verbs();
    if verbs.ibv_qp_to_qp_ex.is_none() {
        return std::ptr::null_mut();
    }
    let mut attr = sys::ibv_qp_init_attr_ex {
        send_cq: cq.raw(),
        recv_cq: cq.raw(),
        cap,
        qp_type: sys::IBV_QPT_RC,
        comp_mask: sys::IBV_QP_INIT_ATTR_PD | sys::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        pd: pd.raw(),
        send_ops_flags: sys::IBV_QP_EX_WITH_RDMA_WRITE.into(),
        ..Default::default()
    };
    // SAFETY: domain and completion queue are alive and outlive the queue pair, which holds them.
    unsafe { sys::ibv_create_qp_ex(verbs, pd.context().raw(), &mut attr) }
}

fn create_basic(pd: &ProtectionDomain, cq: &CompletionQueue, cap: sys::ibv_qp_cap) -> *mut sys::ibv_qp {
    let mut attr = sys::ibv_qp_init_attr {
        send_cq: cq.raw(),
        recv_cq: cq.raw(),
        cap,
        qp_type: sys::IBV_QPT_RC,
        ..Default::default()
    };
    // SAFETY: as above.
    unsafe { (pd.context().verbs().ibv_create_qp)(pd.raw(), &mut attr) }
}

fn address_handle(path: &Path, attributes: &QpAttributes) -> sys::ibv_ah_attr {
    let mut handle = sys::ibv_ah_attr {
        dlid: path.dlid,
        port_num: path.port_num,
        sl: attributes.service_level,
        ..Default::default()
    };
    if let (Some(sgid), Some(dgid)) = (&path.sgid, &path.dgid) {
        handle.is_global = 1;
        handle.grh.dgid = sys::ibv_gid { raw: dgid.0.octets() };
        handle.grh.sgid_index = sgid.index as u8;
        handle.grh.hop_limit = HOP_LIMIT;
        handle.grh.traffic_class = attributes.traffic_class;
    }
    handle
}

/// A first packet sequence number, 24 bits, that differs from run to run: a late packet of an earlier connection
/// with the same queue pair number is then out of sequence and dropped.
pub fn starting_psn(qp: u32) -> u32 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |now| now.subsec_nanos());
    (now ^ std::process::id() ^ qp.wrapping_mul(0x9e37_79b9)) & 0xff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_pair_numbers_are_shown_in_hex() {
        assert_eq!(Qpn(0x1a2b).to_string(), "0x001a2b");
    }

    #[test]
    fn service_level_and_traffic_class_reach_the_address_handle() {
        let entry = GidEntry {
            index: 1,
            gid: crate::gid::Gid("::ffff:10.0.0.1".parse().unwrap()),
            gid_type: crate::gid::GidType::RoceV2,
            netdev: None,
            prefix_len: None,
        };
        let attributes = QpAttributes { service_level: 5, traffic_class: 104, ..QpAttributes::default() };
        let path =
            Path { port_num: 1, sgid: Some(entry.clone()), dgid: Some(entry.gid), dlid: 0, path_mtu: 1024 };
        let handle = address_handle(&path, &attributes);
        assert_eq!((handle.sl, handle.grh.traffic_class, handle.is_global), (5, 104, 1));
    }
}
