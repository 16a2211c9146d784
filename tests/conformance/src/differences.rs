//! Where a device legitimately does otherwise than the specification and the manual pages have it.
//!
//! The one list of them. A fact that meets what stands here for its device "differs as listed"; it fails where it
//! meets anything else, and also where it no longer meets what stands here.

use crate::objects::DeviceKind;

/// The differences of a device in one fact.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Difference {
    /// Whose they are.
    pub(crate) kind: DeviceKind,
    /// The fact, by its full name.
    pub(crate) fact: &'static str,
    /// The checks in it, each with what is seen in place of what is expected.
    pub(crate) seen: &'static [(&'static str, &'static str)],
    /// Why that is so, and why it is left so.
    pub(crate) reason: &'static str,
}

/// Every one.
pub(crate) const DIFFERENCES: &[Difference] = &[
    rxe(
        "creation::the_limits_granted_are_those_that_the_query_gives",
        &[("max_send_wr", "31"), ("max_recv_wr", "31")],
        "it rounds up to 2ⁿ - 1, and its library gives the caller back what was asked for",
    ),
    rxe(
        "transitions::a_drained_queue_pair_goes_on",
        &[("completions in RTS", "none"), ("completions after another write", "2 SUCCESS, 3 SUCCESS")],
        "it looks at its send queue again only when something more is posted",
    ),
    rxe(
        "ranges::a_partition_key_beyond_the_table_is_refused",
        &[("the table's length", "done, now in INIT")],
        LAX,
    ),
    rxe(
        "ranges::a_path_mtu_that_is_none_is_refused",
        &[("0", "done, now in RTR")],
        "it looks only whether it is larger than the port's max_mtu",
    ),
    rxe(
        "ranges::a_path_mtu_above_the_ports_is_refused",
        &[("one more than active_mtu", "done, now in RTR")],
        "it looks only whether it is larger than the port's max_mtu",
    ),
    rxe(
        "ranges::more_reads_in_flight_than_the_device_has_are_refused",
        &[("max_dest_rd_atomic", "done, now in RTR")],
        LAX,
    ),
    rxe("ranges::a_timer_beyond_five_bits_is_refused", &[("min_rnr_timer 32", "done, now in RTR")], LAX),
    rxe(
        "ranges::retries_beyond_three_bits_are_refused",
        &[("retry_cnt 8", "done, now in RTS"), ("rnr_retry 8", "done, now in RTS")],
        LAX,
    ),
    rxe(
        "query::what_rtr_was_given_reads_back",
        &[("hop_limit", "64")],
        "the kernel takes the hop limit of its IP route",
    ),
    rxe(
        "posting::a_send_before_rts_is_refused",
        &[("in RESET", NO_BAD_WR), ("in INIT", NO_BAD_WR), ("in RTR", NO_BAD_WR)],
        "the kernel refuses after the library has queued the whole list, and can't tell it which one",
    ),
    rxe(
        "posting::a_refused_send_is_not_sent_later",
        &[
            ("completions in RTS", "1 SUCCESS, 2 SUCCESS"),
            ("bytes at the target", "0x74 at 0 in place of 0x00"),
        ],
        "the refused request stays in the queue that library and kernel share",
    ),
    rxe(
        "posting::a_receive_in_reset_is_refused",
        &[("in RESET", NO_BAD_WR)],
        "its library refuses before it looks at the list",
    ),
    rxe(
        "posting::a_receive_in_err_is_flushed",
        &[("completions", "none")],
        "nothing tells the kernel of a receive that is posted in ERR",
    ),
    rxe(
        "posting::an_opcode_that_does_not_exist_is_refused",
        &[("opcode 99", "done"), ("a write after it", "LOC_QP_OP_ERR")],
        "opcodes are looked at when the request is executed",
    ),
    rxe(
        "limits::a_slot_is_taken_until_its_completion_is_polled",
        &[("one more, nothing polled", "done")],
        EARLY_SLOTS,
    ),
    rxe("limits::slots_without_completions_stay_taken", &[("one more", "done")], EARLY_SLOTS),
    rxe(
        "messages::a_message_longer_than_its_receive_fails_on_both_ends",
        &[("send", "REM_OP_ERR"), ("receive", "9 LOC_QP_OP_ERR")],
        "running out of pieces it finds the receive malformed",
    ),
    rxe(
        "messages::a_receive_with_a_wrong_key_fails_on_both_ends",
        &[("receive", "9 LOC_QP_OP_ERR")],
        KEY_STATUS,
    ),
    rxe(
        "messages::a_receive_without_local_write_fails_on_both_ends",
        &[("receive", "9 LOC_QP_OP_ERR")],
        KEY_STATUS,
    ),
    rxe("keys::a_wrong_local_key_fails_here", &[("status", "LOC_QP_OP_ERR")], KEY_STATUS),
    rxe(
        "keys::the_local_key_of_an_ended_registration_fails_here",
        &[("status", "LOC_QP_OP_ERR")],
        KEY_STATUS,
    ),
    rxe("keys::a_local_key_of_another_domain_fails_here", &[("status", "LOC_QP_OP_ERR")], KEY_STATUS),
    rxe("keys::a_local_failure_leaves_the_target_in_peace", &[("status", "LOC_QP_OP_ERR")], KEY_STATUS),
    rxe("events::a_message_in_rtr_tells_of_the_connection", &[("event", "none")], NO_EVENT),
    rxe("events::a_refused_access_tells_the_target", &[("event", "none")], NO_EVENT),
    rxe(
        "events::a_drained_queue_keeps_quiet_unless_asked",
        &[("an event", "true")],
        "it doesn't look at en_sqd_async_notify",
    ),
    rxe(
        "extended::inline_data_is_copied_when_it_is_set",
        &[
            ("completions", "1 LOC_QP_OP_ERR, 2 WR_FLUSH_ERR"),
            ("bytes at the target", "0x00 at 0 in place of 0x66"),
        ],
        "its library wants IBV_SEND_INLINE in wr_flags besides",
    ),
    rxe(
        "extended::pieces_are_gathered",
        &[("status", "LOC_QP_OP_ERR"), ("bytes at the target", "0x00 at 0 in place of 0x65")],
        "its library (to rdma-core 44 at least) takes each piece to be as long as the first",
    ),
];

const LAX: &str = "it doesn't check the value";
const NO_BAD_WR: &str = "EINVAL (22), bad_wr is none of the requests";
const EARLY_SLOTS: &str = "a slot of its queue is free again as soon as the request is done";
const KEY_STATUS: &str = "a request with a key that it can't use is malformed to it";
const NO_EVENT: &str = "it has no such event";

const fn rxe(
    fact: &'static str,
    seen: &'static [(&'static str, &'static str)],
    reason: &'static str,
) -> Difference {
    Difference { kind: DeviceKind::Rxe, fact, seen, reason }
}

/// That of `kind` in `fact`.
pub(crate) fn of(kind: DeviceKind, fact: &str) -> Option<&'static Difference> {
    DIFFERENCES.iter().find(|difference| difference.kind == kind && difference.fact == fact)
}
