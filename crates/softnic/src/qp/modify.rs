//! Changing a queue pair's state and attributes, and telling them.

use std::sync::atomic::{AtomicU64, Ordering};

use rdma_sys as sys;

use super::send::SendQueue;
use super::{QueuePair, state};
use crate::config::{Call, Link};
use crate::device::Device;
use crate::errno::{Errno, Result};
use crate::shared::{QpEntry, accepts};

/// The largest values of their fields (InfiniBand specification, volume 1, 9.7.5 and 11.2.4.2).
const MAX_TIMEOUT: u8 = 31;
const MAX_RETRIES: u8 = 7;
const MAX_RNR_TIMER: u8 = 31;
const MAX_RD_ATOMIC: u8 = 16;

/// What a queue pair was told.
#[derive(Default)]
pub(super) struct Attributes {
    pub(super) verbs: sys::ibv_qp_attr,
    /// Its own address on the path; all zeros where it has none.
    sgid: [u8; 16],
    lid: u16,
    link: u32,
    /// How often it was connected.
    connection: u16,
    /// How often the entry was changed.
    revision: u16,
}

impl Attributes {
    /// Whether packets of this queue pair are for the one of `entry`, and its are for this one.
    pub(super) fn is_addressed_to(&self, entry: &QpEntry) -> bool {
        let ah = &self.verbs.ah_attr;
        let load = |pair: &[AtomicU64; 2]| pair.each_ref().map(|half| half.load(Ordering::Relaxed));
        let same_link = entry.link.load(Ordering::Relaxed) == self.link;
        let by_gid = ah.is_global != 0;
        let both = by_gid == (entry.is_global.load(Ordering::Relaxed) != 0);
        let gids = || load(&entry.sgid) == halves(dgid(ah)) && load(&entry.dgid) == halves(self.sgid);
        let lids = || {
            entry.lid.load(Ordering::Relaxed) == u32::from(ah.dlid)
                && entry.dlid.load(Ordering::Relaxed) == u32::from(self.lid)
        };
        let infiniband = self.link == sys::IBV_LINK_LAYER_INFINIBAND;
        // The first packet decides; later ones follow from it on both ends.
        let in_sequence = entry.rq_psn.load(Ordering::Relaxed) == self.verbs.sq_psn;
        same_link && both && (!by_gid || gids()) && (!infiniband || lids()) && in_sequence
    }

    /// Shows it to peers, and lets the one that it names in, unless the port is down.
    fn publish(&mut self, entry: &QpEntry, is_active: bool) {
        let attr = &self.verbs;
        let store = |pair: &[AtomicU64; 2], gid: [u8; 16]| {
            pair.iter().zip(halves(gid)).for_each(|(half, value)| half.store(value, Ordering::Relaxed));
        };
        entry.accepts.store(0, Ordering::Release);
        entry.access.store(attr.qp_access_flags, Ordering::Relaxed);
        entry.path_mtu.store(attr.path_mtu, Ordering::Relaxed);
        entry.rq_psn.store(attr.rq_psn, Ordering::Relaxed);
        entry.receives.min_rnr_timer.store(attr.min_rnr_timer.into(), Ordering::Relaxed);
        entry.link.store(self.link, Ordering::Relaxed);
        entry.lid.store(self.lid.into(), Ordering::Relaxed);
        entry.dlid.store(attr.ah_attr.dlid.into(), Ordering::Relaxed);
        entry.is_global.store(attr.ah_attr.is_global.into(), Ordering::Relaxed);
        entry.peer.store(attr.dest_qp_num, Ordering::Relaxed);
        store(&entry.sgid, self.sgid);
        store(&entry.dgid, dgid(&attr.ah_attr));
        self.revision = self.revision.wrapping_add(1);
        let word = accepts::word(attr.dest_qp_num, self.connection, self.revision);
        if is_active {
            entry.accepts.store(word, Ordering::Release);
        }
    }

    /// Takes what `mask` names of `attr`.
    fn take(&mut self, attr: &sys::ibv_qp_attr, mask: u32, device: &Device) -> Result<()> {
        let own = &mut self.verbs;
        macro_rules! take {
            ($($bit:ident => $($field:ident),+;)*) => {
                $(if mask & sys::$bit != 0 { $(own.$field = attr.$field;)+ })*
            };
        }
        take! {
            IBV_QP_ACCESS_FLAGS => qp_access_flags;
            IBV_QP_PKEY_INDEX => pkey_index;
            IBV_QP_PORT => port_num;
            IBV_QP_PATH_MTU => path_mtu;
            IBV_QP_TIMEOUT => timeout;
            IBV_QP_RETRY_CNT => retry_cnt;
            IBV_QP_RNR_RETRY => rnr_retry;
            IBV_QP_RQ_PSN => rq_psn;
            IBV_QP_SQ_PSN => sq_psn;
            IBV_QP_MAX_QP_RD_ATOMIC => max_rd_atomic;
            IBV_QP_MAX_DEST_RD_ATOMIC => max_dest_rd_atomic;
            IBV_QP_MIN_RNR_TIMER => min_rnr_timer;
            IBV_QP_DEST_QPN => dest_qp_num;
            IBV_QP_EN_SQD_ASYNC_NOTIFY => en_sqd_async_notify;
            IBV_QP_AV => ah_attr;
        }
        own.rq_psn &= 0xff_ffff;
        own.sq_psn &= 0xff_ffff;
        if mask & sys::IBV_QP_AV != 0 {
            self.take_address(device)?;
        }
        Ok(())
    }

    /// Notes this end's own address on the path that was just given.
    fn take_address(&mut self, device: &Device) -> Result<()> {
        let ah = &self.verbs.ah_attr;
        let port = device.port();
        self.lid = port.lid;
        self.link = match port.link {
            Link::InfiniBand => sys::IBV_LINK_LAYER_INFINIBAND,
            Link::Ethernet => sys::IBV_LINK_LAYER_ETHERNET,
        };
        self.sgid = [0; 16];
        if ah.is_global != 0 {
            let entry = device.gid(ah.port_num.into(), ah.grh.sgid_index.into());
            self.sgid = entry.map_err(|_| Errno::INVALID)?.gid.octets();
        }
        Ok(())
    }
}

fn dgid(ah: &sys::ibv_ah_attr) -> [u8; 16] {
    // SAFETY: both members of the union are sixteen plain bytes.
    unsafe { ah.grh.dgid.raw }
}

fn halves(gid: [u8; 16]) -> [u64; 2] {
    let value = u128::from_ne_bytes(gid);
    [value as u64, (value >> 64) as u64]
}

/// Whether the values that `mask` names can be.
fn check_values(attr: &sys::ibv_qp_attr, mask: u32, device: &Device) -> Result<()> {
    let given = |bit| mask & bit != 0;
    let port = device.port();
    let bad = given(sys::IBV_QP_PORT) && device.check_port(attr.port_num.into()).is_err()
        || given(sys::IBV_QP_PKEY_INDEX) && attr.pkey_index != 0
        || given(sys::IBV_QP_PATH_MTU) && !(sys::IBV_MTU_256..=port.mtu).contains(&attr.path_mtu)
        || given(sys::IBV_QP_TIMEOUT) && attr.timeout > MAX_TIMEOUT
        || given(sys::IBV_QP_RETRY_CNT) && attr.retry_cnt > MAX_RETRIES
        || given(sys::IBV_QP_RNR_RETRY) && attr.rnr_retry > MAX_RETRIES
        || given(sys::IBV_QP_MIN_RNR_TIMER) && attr.min_rnr_timer > MAX_RNR_TIMER
        || given(sys::IBV_QP_MAX_QP_RD_ATOMIC) && attr.max_rd_atomic > MAX_RD_ATOMIC
        || given(sys::IBV_QP_MAX_DEST_RD_ATOMIC) && attr.max_dest_rd_atomic > MAX_RD_ATOMIC
        || given(sys::IBV_QP_DEST_QPN) && attr.dest_qp_num > 0xff_ffff
        || given(sys::IBV_QP_AV) && !is_address(&attr.ah_attr, device)
        || given(sys::IBV_QP_ALT_PATH | sys::IBV_QP_PATH_MIG_STATE);
    if bad { Err(Errno::INVALID) } else { Ok(()) }
}

/// On Ethernet an address has a GID.
fn is_address(ah: &sys::ibv_ah_attr, device: &Device) -> bool {
    let has_gid = ah.is_global != 0;
    let by_gid = has_gid && device.gid(ah.port_num.into(), ah.grh.sgid_index.into()).is_ok();
    let by_lid = !has_gid && device.port().link == Link::InfiniBand;
    device.check_port(ah.port_num.into()).is_ok() && (by_gid || by_lid)
}

/// Requests are done when they are posted: a queue that is to be drained is.
fn attr_asks_for_notice(attr: &sys::ibv_qp_attr, mask: u32) -> bool {
    mask & sys::IBV_QP_EN_SQD_ASYNC_NOTIFY != 0 && attr.en_sqd_async_notify != 0
}

impl QueuePair {
    /// `ibv_modify_qp`.
    ///
    /// # Errors
    /// `EINVAL` where the state, the mask or a value does not fit.
    pub(crate) fn modify(&self, attr: &sys::ibv_qp_attr, mask: u32) -> Result<()> {
        self.process.slot().take_visitors();
        self.device().faults.call(Call::ModifyQp)?;
        {
            let mut send = self.send.lock();
            self.change(&mut send, attr, mask)?;
        }
        match self.state() {
            sys::IBV_QPS_RESET => {
                self.keep_peer_out();
                self.receive.lock().reset(self);
                self.send_cq().drop_completions_of(self);
                self.recv_cq().drop_completions_of(self);
            }
            sys::IBV_QPS_ERR => self.take_in(),
            _ => {}
        }
        Ok(())
    }

    fn change(&self, send: &mut SendQueue, attr: &sys::ibv_qp_attr, mask: u32) -> Result<()> {
        let device = self.context().device;
        // What the peer found wrong counts before what the program wants.
        if self.entry.fault.load(Ordering::Acquire) != 0 && state::receives(self.state()) {
            self.set_state(sys::IBV_QPS_ERR);
            send.flush(self);
        }
        let from = self.state();
        let to = if mask & sys::IBV_QP_STATE != 0 { attr.qp_state } else { from };
        if mask & sys::IBV_QP_CUR_STATE != 0 && attr.cur_qp_state != from {
            return Err(Errno::INVALID);
        }
        state::check(from, to, mask)?;
        check_values(attr, mask, device)?;
        send.attr.take(attr, mask, device)?;
        self.set_state(to);
        match to {
            sys::IBV_QPS_RESET => {
                self.shut();
                send.reset(self);
            }
            sys::IBV_QPS_ERR => {
                self.shut();
                send.flush(self);
            }
            sys::IBV_QPS_RTR => {
                self.entry.fault.store(0, Ordering::Relaxed);
                self.entry.inbound.established.store(0, Ordering::Relaxed);
                send.begin_connection();
                send.attr.connection = send.attr.connection.wrapping_add(1);
                send.attr.publish(self.entry, device.is_active());
            }
            _ if state::receives(to) => {
                send.forget_peer();
                send.attr.publish(self.entry, device.is_active());
            }
            _ => {}
        }
        if (from, to) == (sys::IBV_QPS_RTS, sys::IBV_QPS_SQD) && attr_asks_for_notice(attr, mask) {
            self.raise(sys::IBV_EVENT_SQ_DRAINED);
        }
        send.advance(self);
        Ok(())
    }

    /// Lets the peer in again, where the state lets it.
    pub(crate) fn reopen(&self) {
        let mut send = self.send.lock();
        if state::receives(self.state()) {
            send.attr.publish(self.entry, true);
        }
    }

    /// `ibv_query_qp`.
    pub(crate) fn query(&self) -> (sys::ibv_qp_attr, sys::ibv_qp_init_attr) {
        self.take_in();
        let send = self.send.lock();
        let mut attr = send.attr.verbs;
        attr.qp_state = self.state();
        attr.cur_qp_state = attr.qp_state;
        attr.cap = self.init.cap;
        (attr, self.init)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Description;

    #[test]
    fn values_beyond_their_fields_are_refused() {
        let device = crate::device::test_device(Description::default().devices.remove(0));
        let good =
            sys::ibv_qp_attr { port_num: 1, timeout: 31, path_mtu: sys::IBV_MTU_4096, ..Default::default() };
        let check = |attr: sys::ibv_qp_attr, mask| check_values(&attr, mask, &device).is_ok();
        assert!(check(good, sys::IBV_QP_PORT | sys::IBV_QP_TIMEOUT | sys::IBV_QP_PATH_MTU));
        assert!(!check(sys::ibv_qp_attr { port_num: 2, ..good }, sys::IBV_QP_PORT));
        assert!(check(sys::ibv_qp_attr { port_num: 2, ..good }, sys::IBV_QP_TIMEOUT), "it is not named");
        assert!(!check(sys::ibv_qp_attr { timeout: 32, ..good }, sys::IBV_QP_TIMEOUT));
        assert!(!check(sys::ibv_qp_attr { retry_cnt: 8, ..good }, sys::IBV_QP_RETRY_CNT));
        assert!(!check(sys::ibv_qp_attr { path_mtu: 6, ..good }, sys::IBV_QP_PATH_MTU));
        assert!(!check(sys::ibv_qp_attr { path_mtu: 0, ..good }, sys::IBV_QP_PATH_MTU));
        assert!(!check(sys::ibv_qp_attr { dest_qp_num: 1 << 24, ..good }, sys::IBV_QP_DEST_QPN));
    }

    #[test]
    fn an_ethernet_address_needs_a_gid_that_is_there() {
        let device = crate::device::test_device(Description::default().devices.remove(0));
        let mut attr = sys::ibv_qp_attr::default();
        attr.ah_attr.port_num = 1;
        assert!(check_values(&attr, sys::IBV_QP_AV, &device).is_err());
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh.sgid_index = 1;
        assert!(check_values(&attr, sys::IBV_QP_AV, &device).is_ok());
        attr.ah_attr.grh.sgid_index = 9;
        assert!(check_values(&attr, sys::IBV_QP_AV, &device).is_err());
    }
}
