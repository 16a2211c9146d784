//! Changes of a queue pair: attributes and the mask that says which of them count.

use std::net::Ipv6Addr;

use rdma_sys as sys;

use super::Address;
use super::memory::ALL_ACCESS;
use crate::shown::State;

/// Where a queue pair is connected to, and how patient it is.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) port_num: u8,
    pub(crate) local: Address,
    pub(crate) peer: Address,
    pub(crate) dest_qpn: u32,
    /// One of `IBV_MTU_*`.
    pub(crate) path_mtu: u32,
    pub(crate) sq_psn: u32,
    pub(crate) rq_psn: u32,
    pub(crate) terms: Terms,
}

/// What the peer may do, and how long it is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) access: u32,
    /// 4.096 µs × 2ⁿ without an acknowledgement, and a packet is sent again.
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: u8,
}

impl Default for Terms {
    /// Everything, and 1 s six times over: a slow machine must not lose a packet that only waits.
    fn default() -> Self {
        Self { access: ALL_ACCESS, timeout: 18, retry_cnt: 6, rnr_retry: 7, min_rnr_timer: 12 }
    }
}

impl Terms {
    /// Gives up within milliseconds on a peer that doesn't answer: 4.096 µs × 2¹², twice.
    pub(crate) fn impatient() -> Self {
        Self { timeout: 12, retry_cnt: 1, ..Self::default() }
    }
}

/// Reads and atomics in flight each way.
pub(crate) const RD_ATOMIC: u8 = 4;
/// More hops than any fabric has, and a number that reads back.
pub(crate) const HOP_LIMIT: u8 = 61;
/// DSCP 26, and a number that reads back.
pub(crate) const TRAFFIC_CLASS: u8 = 104;

/// What `ibv_modify_qp` is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Change {
    pub(crate) attr: sys::ibv_qp_attr,
    pub(crate) mask: u32,
}

impl Change {
    /// To `state`, and nothing else.
    pub(crate) fn to(state: State) -> Self {
        let attr = sys::ibv_qp_attr { qp_state: state.0, ..Default::default() };
        Self { attr, mask: sys::IBV_QP_STATE }
    }

    /// Nothing.
    pub(crate) fn nothing() -> Self {
        Self { attr: sys::ibv_qp_attr::default(), mask: 0 }
    }

    /// To `state`, with all that RC requires on the usual way there.
    pub(crate) fn toward(state: State, to: &Connection) -> Self {
        match state {
            State::INIT => Self::to_init(to),
            State::RTR => Self::to_rtr(to),
            State::RTS => Self::to_rts(to),
            other => Self::to(other),
        }
    }

    /// RESET to INIT, with all that RC requires.
    pub(crate) fn to_init(to: &Connection) -> Self {
        let mask = sys::IBV_QP_PKEY_INDEX | sys::IBV_QP_PORT | sys::IBV_QP_ACCESS_FLAGS;
        Self::to(State::INIT).also(mask, |attr| {
            attr.port_num = to.port_num;
            attr.qp_access_flags = to.terms.access;
        })
    }

    /// INIT to RTR, with all that RC requires.
    pub(crate) fn to_rtr(to: &Connection) -> Self {
        let mask = sys::IBV_QP_AV
            | sys::IBV_QP_PATH_MTU
            | sys::IBV_QP_DEST_QPN
            | sys::IBV_QP_RQ_PSN
            | sys::IBV_QP_MAX_DEST_RD_ATOMIC
            | sys::IBV_QP_MIN_RNR_TIMER;
        Self::to(State::RTR).also(mask, |attr| {
            attr.ah_attr = to.address_handle();
            attr.path_mtu = to.path_mtu;
            attr.dest_qp_num = to.dest_qpn;
            attr.rq_psn = to.rq_psn;
            attr.max_dest_rd_atomic = RD_ATOMIC;
            attr.min_rnr_timer = to.terms.min_rnr_timer;
        })
    }

    /// RTR to RTS, with all that RC requires.
    pub(crate) fn to_rts(to: &Connection) -> Self {
        let mask = sys::IBV_QP_SQ_PSN
            | sys::IBV_QP_TIMEOUT
            | sys::IBV_QP_RETRY_CNT
            | sys::IBV_QP_RNR_RETRY
            | sys::IBV_QP_MAX_QP_RD_ATOMIC;
        Self::to(State::RTS).also(mask, |attr| {
            attr.sq_psn = to.sq_psn;
            attr.timeout = to.terms.timeout;
            attr.retry_cnt = to.terms.retry_cnt;
            attr.rnr_retry = to.terms.rnr_retry;
            attr.max_rd_atomic = RD_ATOMIC;
        })
    }

    /// With the attributes of `mask` besides, which `set` sets.
    pub(crate) fn also(mut self, mask: u32, set: impl FnOnce(&mut sys::ibv_qp_attr)) -> Self {
        set(&mut self.attr);
        self.mask |= mask;
        self
    }

    /// Without the attributes of `mask`.
    pub(crate) fn without(mut self, mask: u32) -> Self {
        self.mask &= !mask;
        self
    }
}

impl Connection {
    /// The way to the peer, by GID or by LID.
    pub(crate) fn address_handle(&self) -> sys::ibv_ah_attr {
        let mut handle =
            sys::ibv_ah_attr { dlid: self.peer.lid, port_num: self.port_num, ..Default::default() };
        if let (Some(local), Some(peer)) = (self.local.gid, self.peer.gid) {
            handle.is_global = 1;
            handle.grh.dgid = sys::ibv_gid { raw: peer.1.octets() };
            handle.grh.sgid_index = local.0;
            handle.grh.hop_limit = HOP_LIMIT;
            handle.grh.traffic_class = TRAFFIC_CLASS;
        }
        handle
    }

    /// The peer's GID in an address handle.
    pub(crate) fn gid_of(handle: &sys::ibv_ah_attr) -> Ipv6Addr {
        // SAFETY: both members of the union are sixteen plain bytes.
        unsafe { handle.grh.dgid.raw }.into()
    }
}
