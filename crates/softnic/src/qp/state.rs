//! Which changes of a queue pair's state there are, and which attributes each needs and takes.
//!
//! After the InfiniBand specification, volume 1, table 91 ("QP State Transition Properties"), for reliable
//! connections without alternate paths.

use rdma_sys as sys;

use crate::errno::{Errno, Result};

/// The attributes that a change needs, and those that it takes besides.
struct Transition {
    from: sys::ibv_qp_state,
    to: sys::ibv_qp_state,
    required: u32,
    optional: u32,
}

const fn transition(
    from: sys::ibv_qp_state,
    to: sys::ibv_qp_state,
    required: u32,
    optional: u32,
) -> Transition {
    Transition { from, to, required, optional }
}

const TO_INIT: u32 = sys::IBV_QP_PKEY_INDEX | sys::IBV_QP_PORT | sys::IBV_QP_ACCESS_FLAGS;
const TO_RTR: u32 = sys::IBV_QP_AV
    | sys::IBV_QP_PATH_MTU
    | sys::IBV_QP_DEST_QPN
    | sys::IBV_QP_RQ_PSN
    | sys::IBV_QP_MAX_DEST_RD_ATOMIC
    | sys::IBV_QP_MIN_RNR_TIMER;
const TO_RTS: u32 = sys::IBV_QP_TIMEOUT
    | sys::IBV_QP_RETRY_CNT
    | sys::IBV_QP_RNR_RETRY
    | sys::IBV_QP_SQ_PSN
    | sys::IBV_QP_MAX_QP_RD_ATOMIC;
const CONNECTED: u32 = sys::IBV_QP_CUR_STATE
    | sys::IBV_QP_ACCESS_FLAGS
    | sys::IBV_QP_MIN_RNR_TIMER
    | sys::IBV_QP_ALT_PATH
    | sys::IBV_QP_PATH_MIG_STATE;
const DRAINED: u32 = sys::IBV_QP_PORT
    | sys::IBV_QP_AV
    | sys::IBV_QP_TIMEOUT
    | sys::IBV_QP_RETRY_CNT
    | sys::IBV_QP_RNR_RETRY
    | sys::IBV_QP_MAX_QP_RD_ATOMIC
    | sys::IBV_QP_MAX_DEST_RD_ATOMIC
    | sys::IBV_QP_PKEY_INDEX
    | CONNECTED;

const TRANSITIONS: &[Transition] = &[
    transition(sys::IBV_QPS_RESET, sys::IBV_QPS_INIT, TO_INIT, 0),
    transition(sys::IBV_QPS_INIT, sys::IBV_QPS_INIT, 0, TO_INIT),
    transition(
        sys::IBV_QPS_INIT,
        sys::IBV_QPS_RTR,
        TO_RTR,
        sys::IBV_QP_ALT_PATH | sys::IBV_QP_ACCESS_FLAGS | sys::IBV_QP_PKEY_INDEX,
    ),
    transition(sys::IBV_QPS_RTR, sys::IBV_QPS_RTS, TO_RTS, CONNECTED),
    transition(sys::IBV_QPS_RTS, sys::IBV_QPS_RTS, 0, CONNECTED),
    transition(sys::IBV_QPS_RTS, sys::IBV_QPS_SQD, 0, sys::IBV_QP_EN_SQD_ASYNC_NOTIFY),
    transition(sys::IBV_QPS_SQD, sys::IBV_QPS_RTS, 0, CONNECTED),
    transition(sys::IBV_QPS_SQD, sys::IBV_QPS_SQD, 0, DRAINED),
];

/// # Errors
/// `EINVAL` where there is no such change, an attribute is missing, or one is given that does not belong to it.
pub(super) fn check(from: sys::ibv_qp_state, to: sys::ibv_qp_state, mask: u32) -> Result<()> {
    let given = mask & !sys::IBV_QP_STATE;
    if to == sys::IBV_QPS_RESET || to == sys::IBV_QPS_ERR {
        return if given == 0 { Ok(()) } else { Err(Errno::INVALID) };
    }
    let known = TRANSITIONS.iter().find(|known| known.from == from && known.to == to);
    let fits = known.is_some_and(|known| {
        given & known.required == known.required && given & !(known.required | known.optional) == 0
    });
    if fits { Ok(()) } else { Err(Errno::INVALID) }
}

/// Whether messages of the peer get in.
pub(super) fn receives(state: sys::ibv_qp_state) -> bool {
    [sys::IBV_QPS_RTR, sys::IBV_QPS_RTS, sys::IBV_QPS_SQD].contains(&state)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESET: u32 = sys::IBV_QPS_RESET;
    const INIT: u32 = sys::IBV_QPS_INIT;
    const RTR: u32 = sys::IBV_QPS_RTR;
    const RTS: u32 = sys::IBV_QPS_RTS;
    const SQD: u32 = sys::IBV_QPS_SQD;
    const ERR: u32 = sys::IBV_QPS_ERR;

    #[test]
    fn the_way_up_needs_each_of_its_attributes() {
        for (from, to, required) in [(RESET, INIT, TO_INIT), (INIT, RTR, TO_RTR), (RTR, RTS, TO_RTS)] {
            assert!(check(from, to, sys::IBV_QP_STATE | required).is_ok());
            for bit in (0..32).map(|bit| 1_u32 << bit).filter(|bit| required & bit != 0) {
                assert_eq!(check(from, to, sys::IBV_QP_STATE | required & !bit), Err(Errno::INVALID));
            }
            let foreign = required | sys::IBV_QP_QKEY;
            assert_eq!(check(from, to, sys::IBV_QP_STATE | foreign), Err(Errno::INVALID));
        }
    }

    #[test]
    fn every_state_can_be_left_for_reset_and_error_and_no_attribute_goes_with_it() {
        for from in RESET..=ERR {
            for to in [RESET, ERR] {
                assert!(check(from, to, sys::IBV_QP_STATE).is_ok());
                assert!(check(from, to, sys::IBV_QP_STATE | sys::IBV_QP_ACCESS_FLAGS).is_err());
            }
        }
    }

    #[test]
    fn no_step_can_be_skipped() {
        let all = u32::MAX;
        for (from, to) in [(RESET, RTR), (RESET, RTS), (INIT, RTS), (RTS, INIT), (RTS, RTR), (ERR, RTS)] {
            for mask in [sys::IBV_QP_STATE, sys::IBV_QP_STATE | TO_RTR, sys::IBV_QP_STATE | TO_RTS, all] {
                assert!(check(from, to, mask).is_err(), "{from} to {to}");
            }
        }
    }

    #[test]
    fn a_drained_queue_pair_can_be_changed_and_goes_on() {
        assert!(check(RTS, SQD, sys::IBV_QP_STATE | sys::IBV_QP_EN_SQD_ASYNC_NOTIFY).is_ok());
        assert!(check(SQD, SQD, sys::IBV_QP_TIMEOUT | sys::IBV_QP_AV).is_ok());
        assert!(check(SQD, RTS, sys::IBV_QP_STATE | sys::IBV_QP_CUR_STATE).is_ok());
        assert!(check(RTS, RTS, sys::IBV_QP_TIMEOUT).is_err());
    }
}
