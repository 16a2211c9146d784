//! What `ibv_query_qp` reads back.

use rdma_sys as sys;

use crate::fact::{Notes, Obstacle, Outcome, facts};
use crate::objects::{Bench, Change, Connection, HOP_LIMIT, Qp, RD_ATOMIC, TRAFFIC_CLASS, Terms};
use crate::shown::{Errno, State, hex};

facts! { "query":
    what_init_was_given_reads_back,
    what_rtr_was_given_reads_back,
    what_rts_was_given_reads_back,
    a_refused_change_changes_nothing,
}

/// Values that are nobody's default.
const TERMS: Terms = Terms {
    access: sys::IBV_ACCESS_REMOTE_WRITE | sys::IBV_ACCESS_REMOTE_READ,
    timeout: 11,
    retry_cnt: 3,
    rnr_retry: 5,
    min_rnr_timer: 23,
};

fn in_state(bench: &Bench, state: State) -> Result<(Qp, Connection), Obstacle> {
    let qp = bench.lone_qp()?;
    let mut to = bench.connection(qp.qpn(), TERMS);
    (to.sq_psn, to.rq_psn, to.path_mtu) = (0xab_cdef, 0x12_3457, sys::IBV_MTU_256);
    qp.take_to(state, &to)?;
    Ok((qp, to))
}

fn what_init_was_given_reads_back(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (qp, to) = in_state(bench, State::INIT)?;
    let attr = qp.query()?.attr;
    notes.equal("port_num", to.port_num, attr.port_num);
    notes.equal("pkey_index", 0, attr.pkey_index);
    notes.equal("qp_access_flags", hex(TERMS.access), hex(attr.qp_access_flags));
    notes.equal("qp_state", State::INIT, State(attr.qp_state));
    Ok(())
}

fn what_rtr_was_given_reads_back(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (qp, to) = in_state(bench, State::RTR)?;
    let attr = qp.query()?.attr;
    notes.equal("path_mtu", to.path_mtu, attr.path_mtu);
    notes.equal("dest_qp_num", hex(to.dest_qpn), hex(attr.dest_qp_num));
    notes.equal("rq_psn", hex(to.rq_psn), hex(attr.rq_psn));
    notes.equal("min_rnr_timer", TERMS.min_rnr_timer, attr.min_rnr_timer);
    notes.equal("max_dest_rd_atomic", RD_ATOMIC, attr.max_dest_rd_atomic);
    let way = attr.ah_attr;
    notes.equal("ah_attr.port_num", to.port_num, way.port_num);
    notes.equal("is_global", u8::from(to.peer.gid.is_some()), way.is_global);
    if let (Some(local), Some(peer)) = (to.local.gid, to.peer.gid) {
        notes.equal("sgid_index", local.0, way.grh.sgid_index);
        notes.equal("dgid", peer.1, Connection::gid_of(&way));
        notes.equal("hop_limit", HOP_LIMIT, way.grh.hop_limit);
        notes.equal("traffic_class", TRAFFIC_CLASS, way.grh.traffic_class);
    } else {
        notes.equal("dlid", to.peer.lid, way.dlid);
    }
    Ok(())
}

fn what_rts_was_given_reads_back(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (qp, to) = in_state(bench, State::RTS)?;
    let attr = qp.query()?.attr;
    notes.equal("sq_psn", hex(to.sq_psn), hex(attr.sq_psn));
    notes.equal("timeout", TERMS.timeout, attr.timeout);
    notes.equal("retry_cnt", TERMS.retry_cnt, attr.retry_cnt);
    notes.equal("rnr_retry", TERMS.rnr_retry, attr.rnr_retry);
    notes.equal("max_rd_atomic", RD_ATOMIC, attr.max_rd_atomic);
    notes.equal("min_rnr_timer, given before", TERMS.min_rnr_timer, attr.min_rnr_timer);
    Ok(())
}

fn a_refused_change_changes_nothing(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (qp, to) = in_state(bench, State::RTS)?;
    // Of these two the second is not RTS's.
    let mask = sys::IBV_QP_MIN_RNR_TIMER | sys::IBV_QP_DEST_QPN;
    let change = Change::to(State::RTS).also(mask, |attr| {
        attr.min_rnr_timer = 9;
        attr.dest_qp_num = 0x77_7777;
    });
    let errno = qp.modify(change);
    notes.equal("the change", Errno::EINVAL, errno);
    let attr = qp.query()?.attr;
    notes.equal("min_rnr_timer", TERMS.min_rnr_timer, attr.min_rnr_timer);
    notes.equal("dest_qp_num", hex(to.dest_qpn), hex(attr.dest_qp_num));
    notes.equal("state", State::RTS, qp.state()?);
    Ok(())
}
