//! Numbers of the verbs interface under the names that `verbs.h` gives them, for checks and their reports.

use std::fmt;

use rdma_sys as sys;
use serde::{Deserialize, Serialize};

/// The answer of a verb: 0, or an errno value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    /// The answer of a verb that did what it was asked.
    pub(crate) const DONE: Self = Self(0);
    pub(crate) const EAGAIN: Self = Self(libc::EAGAIN);
    pub(crate) const EBUSY: Self = Self(libc::EBUSY);
    pub(crate) const EFAULT: Self = Self(libc::EFAULT);
    pub(crate) const EINVAL: Self = Self(libc::EINVAL);
    pub(crate) const ENODATA: Self = Self(libc::ENODATA);
    pub(crate) const ENOMEM: Self = Self(libc::ENOMEM);
    pub(crate) const ENOSPC: Self = Self(libc::ENOSPC);
    pub(crate) const EOPNOTSUPP: Self = Self(libc::EOPNOTSUPP);

    /// What errno holds after a call that only says that it failed.
    pub(crate) fn last() -> Self {
        Self(nix::errno::Errno::last_raw())
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("done"),
            // The manual pages have the value of errno; some providers answer as a kernel function would.
            negative if negative < 0 => {
                write!(
                    f,
                    "{negative}, {:?} made negative",
                    nix::errno::Errno::from_raw(negative.wrapping_neg())
                )
            }
            positive => write!(f, "{:?} ({positive})", nix::errno::Errno::from_raw(positive)),
        }
    }
}

/// Declares a number that has names.
macro_rules! named_number {
    ($(#[$doc:meta])* $type:ident: $($name:literal = $value:path,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub(crate) struct $type(pub(crate) u32);

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($value => f.write_str($name),)*
                    other => write!(f, "{other}, which has no name"),
                }
            }
        }
    };
}

named_number! {
    /// A queue pair's state.
    State:
    "RESET" = sys::IBV_QPS_RESET,
    "INIT" = sys::IBV_QPS_INIT,
    "RTR" = sys::IBV_QPS_RTR,
    "RTS" = sys::IBV_QPS_RTS,
    "SQD" = sys::IBV_QPS_SQD,
    "SQE" = sys::IBV_QPS_SQE,
    "ERR" = sys::IBV_QPS_ERR,
}

impl State {
    pub(crate) const RESET: Self = Self(sys::IBV_QPS_RESET);
    pub(crate) const INIT: Self = Self(sys::IBV_QPS_INIT);
    pub(crate) const RTR: Self = Self(sys::IBV_QPS_RTR);
    pub(crate) const RTS: Self = Self(sys::IBV_QPS_RTS);
    pub(crate) const SQD: Self = Self(sys::IBV_QPS_SQD);
    pub(crate) const SQE: Self = Self(sys::IBV_QPS_SQE);
    pub(crate) const ERR: Self = Self(sys::IBV_QPS_ERR);
}

named_number! {
    /// A completion's status.
    Status:
    "SUCCESS" = sys::IBV_WC_SUCCESS,
    "LOC_LEN_ERR" = sys::IBV_WC_LOC_LEN_ERR,
    "LOC_QP_OP_ERR" = sys::IBV_WC_LOC_QP_OP_ERR,
    "LOC_PROT_ERR" = sys::IBV_WC_LOC_PROT_ERR,
    "WR_FLUSH_ERR" = sys::IBV_WC_WR_FLUSH_ERR,
    "BAD_RESP_ERR" = sys::IBV_WC_BAD_RESP_ERR,
    "LOC_ACCESS_ERR" = sys::IBV_WC_LOC_ACCESS_ERR,
    "REM_INV_REQ_ERR" = sys::IBV_WC_REM_INV_REQ_ERR,
    "REM_ACCESS_ERR" = sys::IBV_WC_REM_ACCESS_ERR,
    "REM_OP_ERR" = sys::IBV_WC_REM_OP_ERR,
    "RETRY_EXC_ERR" = sys::IBV_WC_RETRY_EXC_ERR,
    "RNR_RETRY_EXC_ERR" = sys::IBV_WC_RNR_RETRY_EXC_ERR,
    "REM_ABORT_ERR" = sys::IBV_WC_REM_ABORT_ERR,
    "FATAL_ERR" = sys::IBV_WC_FATAL_ERR,
    "RESP_TIMEOUT_ERR" = sys::IBV_WC_RESP_TIMEOUT_ERR,
    "GENERAL_ERR" = sys::IBV_WC_GENERAL_ERR,
}

impl Status {
    pub(crate) const SUCCESS: Self = Self(sys::IBV_WC_SUCCESS);
    pub(crate) const LOC_LEN_ERR: Self = Self(sys::IBV_WC_LOC_LEN_ERR);
    pub(crate) const LOC_PROT_ERR: Self = Self(sys::IBV_WC_LOC_PROT_ERR);
    pub(crate) const WR_FLUSH_ERR: Self = Self(sys::IBV_WC_WR_FLUSH_ERR);
    pub(crate) const REM_INV_REQ_ERR: Self = Self(sys::IBV_WC_REM_INV_REQ_ERR);
    pub(crate) const REM_ACCESS_ERR: Self = Self(sys::IBV_WC_REM_ACCESS_ERR);
    pub(crate) const REM_OP_ERR: Self = Self(sys::IBV_WC_REM_OP_ERR);
    pub(crate) const RETRY_EXC_ERR: Self = Self(sys::IBV_WC_RETRY_EXC_ERR);
    pub(crate) const RNR_RETRY_EXC_ERR: Self = Self(sys::IBV_WC_RNR_RETRY_EXC_ERR);
}

named_number! {
    /// What a completion completes.
    Opcode:
    "SEND" = sys::IBV_WC_SEND,
    "RDMA_WRITE" = sys::IBV_WC_RDMA_WRITE,
    "RDMA_READ" = sys::IBV_WC_RDMA_READ,
    "RECV" = sys::IBV_WC_RECV,
    "RECV_RDMA_WITH_IMM" = sys::IBV_WC_RECV_RDMA_WITH_IMM,
}

impl Opcode {
    pub(crate) const SEND: Self = Self(sys::IBV_WC_SEND);
    pub(crate) const RDMA_WRITE: Self = Self(sys::IBV_WC_RDMA_WRITE);
    pub(crate) const RDMA_READ: Self = Self(sys::IBV_WC_RDMA_READ);
    pub(crate) const RECV: Self = Self(sys::IBV_WC_RECV);
    pub(crate) const RECV_RDMA_WITH_IMM: Self = Self(sys::IBV_WC_RECV_RDMA_WITH_IMM);
}

named_number! {
    /// An asynchronous event's type.
    EventType:
    "CQ_ERR" = sys::IBV_EVENT_CQ_ERR,
    "QP_FATAL" = sys::IBV_EVENT_QP_FATAL,
    "QP_REQ_ERR" = sys::IBV_EVENT_QP_REQ_ERR,
    "QP_ACCESS_ERR" = sys::IBV_EVENT_QP_ACCESS_ERR,
    "COMM_EST" = sys::IBV_EVENT_COMM_EST,
    "SQ_DRAINED" = sys::IBV_EVENT_SQ_DRAINED,
    "DEVICE_FATAL" = sys::IBV_EVENT_DEVICE_FATAL,
    "PORT_ACTIVE" = sys::IBV_EVENT_PORT_ACTIVE,
    "PORT_ERR" = sys::IBV_EVENT_PORT_ERR,
    "QP_LAST_WQE_REACHED" = sys::IBV_EVENT_QP_LAST_WQE_REACHED,
}

impl EventType {
    pub(crate) const CQ_ERR: Self = Self(sys::IBV_EVENT_CQ_ERR);
    pub(crate) const QP_ACCESS_ERR: Self = Self(sys::IBV_EVENT_QP_ACCESS_ERR);
    pub(crate) const COMM_EST: Self = Self(sys::IBV_EVENT_COMM_EST);
    pub(crate) const SQ_DRAINED: Self = Self(sys::IBV_EVENT_SQ_DRAINED);
}

/// Things one after another, as they stand in a report.
pub(crate) fn list<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let words: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if words.is_empty() { "none".into() } else { words.join(", ") }
}

/// A number of 24 or 32 bits in hex.
pub(crate) fn hex(number: u32) -> String {
    format!("{number:#x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_shows_its_errno_and_whether_it_was_made_negative() {
        assert_eq!(Errno::DONE.to_string(), "done");
        assert_eq!(Errno::EINVAL.to_string(), "EINVAL (22)");
        assert_eq!(Errno(-12).to_string(), "-12, ENOMEM made negative");
    }

    #[test]
    fn names_are_those_of_the_header_and_unknown_numbers_are_shown_as_they_are() {
        assert_eq!(State(3).to_string(), "RTS");
        assert_eq!(Status(12).to_string(), "RETRY_EXC_ERR");
        assert_eq!(Status(77).to_string(), "77, which has no name");
    }
}
