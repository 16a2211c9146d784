//! Completion queues, and what a completion's status means.
#![allow(unsafe_code, reason = "polling is a call into libibverbs")]

use std::sync::Arc;

use rdma_sys as sys;

use crate::device::{Context, SOFT_ROCE, SOFTNIC};
use crate::error::Result;
use crate::gid::OtherPair;
use crate::mr::resource_error;

/// A completion queue; holds its device open.
pub struct CompletionQueue {
    context: Arc<Context>,
    raw: *mut sys::ibv_cq,
}

// SAFETY: a completion queue may be used from any thread; the pointer is set once and freed once, in Drop.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// A queue with room for `entries` completions.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Resource`] with the errno.
    pub fn new(context: &Arc<Context>, entries: u32) -> Result<Self> {
        let entries = i32::try_from(entries).unwrap_or(i32::MAX);
        let none = std::ptr::null_mut();
        // SAFETY: the context is open; without a channel nothing else has to live.
        let raw =
            unsafe { (context.verbs().ibv_create_cq)(context.raw(), entries, none, std::ptr::null_mut(), 0) };
        if raw.is_null() {
            return Err(resource_error(
                &format!("a completion queue of {entries} entries"),
                context,
                "ibv_create_cq",
            ));
        }
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// The raw queue, for verbs.
    pub fn raw(&self) -> *mut sys::ibv_cq {
        self.raw
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold an Arc of this, so none uses it any more.
        unsafe { (self.context.verbs().ibv_destroy_cq)(self.raw) };
    }
}

/// The status of a work completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionStatus(pub sys::ibv_wc_status);

/// What is known about a status: its name without `IBV_WC_`, its meaning, and what to try, if there is something.
struct Knowledge(&'static str, &'static str, Option<&'static str>);

impl CompletionStatus {
    /// Whether the work was done.
    pub fn is_success(self) -> bool {
        self.0 == sys::IBV_WC_SUCCESS
    }

    /// The name in `verbs.h` without its prefix, and the number.
    pub fn name(self) -> String {
        format!("{} ({})", self.knowledge().0, self.0)
    }

    /// What the specification says that it means.
    pub fn meaning(self) -> &'static str {
        self.knowledge().1
    }

    /// What to look at first, on the emulation `software` if it is one, and what to try where the ends could use `other` GIDs.
    pub fn hint(self, software: Option<&str>, other: Option<&OtherPair>) -> Option<String> {
        let hint = self.first_look(software)?;
        // A firewall or a switch may drop one family and let the other pass.
        let is_lost_on_the_way = self.0 == sys::IBV_WC_RETRY_EXC_ERR && software != Some(SOFTNIC);
        Some(match other.filter(|_| is_lost_on_the_way) {
            Some(other) => format!("{hint}; or try other addresses, which both ends have: {}", other.how()),
            None => hint.to_owned(),
        })
    }

    fn first_look(self, software: Option<&str>) -> Option<&'static str> {
        match (self.0, software) {
            (sys::IBV_WC_RETRY_EXC_ERR, Some(SOFTNIC)) => Some(
                "see that the peer's process lives, and that both run on one machine as one user, in one network namespace \
                 and of one fabric (docs/softnic.md)",
            ),
            // Its packets are made by the kernel, and in 6.1 it makes wrong ones of a write whose late acknowledgement meets
            // its repetition (benches/results/2026-11-30-perftest-interop.md).
            (sys::IBV_WC_REM_INV_REQ_ERR, Some(SOFT_ROCE)) => Some(
                "Soft-RoCE sends wrong packets when it repeats what was only slow (completer_retry_err counts how often): wait \
                 longer for acknowledgements, --qp-timeout 18 or more",
            ),
            _ => self.knowledge().2,
        }
    }

    // Meanings after InfiniBand specification, volume 1, 11.6.2.
    fn knowledge(self) -> Knowledge {
        match self.0 {
            sys::IBV_WC_SUCCESS => Knowledge("SUCCESS", "the work was done", None),
            sys::IBV_WC_LOC_LEN_ERR => Knowledge(
                "LOC_LEN_ERR",
                "the message is longer than this end allows",
                Some("use a smaller --size"),
            ),
            sys::IBV_WC_LOC_QP_OP_ERR => {
                Knowledge("LOC_QP_OP_ERR", "the queue pair met an inconsistency of its own", None)
            }
            sys::IBV_WC_LOC_PROT_ERR => {
                Knowledge("LOC_PROT_ERR", "the local memory is not registered for this access", None)
            }
            sys::IBV_WC_WR_FLUSH_ERR => Knowledge(
                "WR_FLUSH_ERR",
                "the queue pair was already in error when this request came up",
                None,
            ),
            sys::IBV_WC_BAD_RESP_ERR => {
                Knowledge("BAD_RESP_ERR", "the peer's answer made no sense here", None)
            }
            sys::IBV_WC_LOC_ACCESS_ERR => {
                Knowledge("LOC_ACCESS_ERR", "a protection error on this end's memory", None)
            }
            sys::IBV_WC_REM_INV_REQ_ERR => {
                Knowledge("REM_INV_REQ_ERR", "the peer's adapter refused the request as invalid", None)
            }
            sys::IBV_WC_REM_ACCESS_ERR => Knowledge(
                "REM_ACCESS_ERR",
                "the peer's memory is not open to this write: key, range or right",
                None,
            ),
            sys::IBV_WC_REM_OP_ERR => {
                Knowledge("REM_OP_ERR", "the peer's adapter could not finish the request", None)
            }
            sys::IBV_WC_RETRY_EXC_ERR => Knowledge(
                "RETRY_EXC_ERR",
                "the peer's adapter acknowledged nothing until the retries ran out",
                Some(
                    "packets got lost and did not recover: see that UDP port 4791 passes in both directions (RoCE v2), \
                     that both ports have one MTU end to end, and that the peer is up",
                ),
            ),
            sys::IBV_WC_RNR_RETRY_EXC_ERR => Knowledge(
                "RNR_RETRY_EXC_ERR",
                "the peer said until the retries ran out that it is not ready to receive",
                None,
            ),
            sys::IBV_WC_REM_ABORT_ERR => Knowledge("REM_ABORT_ERR", "the peer aborted the request", None),
            sys::IBV_WC_FATAL_ERR => {
                Knowledge("FATAL_ERR", "the adapter failed", Some("look for the driver's words in dmesg"))
            }
            sys::IBV_WC_RESP_TIMEOUT_ERR => {
                Knowledge("RESP_TIMEOUT_ERR", "the peer did not answer in time", None)
            }
            sys::IBV_WC_GENERAL_ERR => Knowledge("GENERAL_ERR", "an error of no named kind", None),
            _ => Knowledge("unknown status", "a status that this tool does not know", None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gid::{Gid, GidEntry, GidType};

    #[test]
    fn every_status_has_the_name_that_verbs_gives_it() {
        assert_eq!(CompletionStatus(12).name(), "RETRY_EXC_ERR (12)");
        assert_eq!(CompletionStatus(10).name(), "REM_ACCESS_ERR (10)");
        assert_eq!(CompletionStatus(5).name(), "WR_FLUSH_ERR (5)");
        assert_eq!(CompletionStatus(999).name(), "unknown status (999)");
    }

    #[test]
    fn an_invalid_request_on_soft_roce_is_its_own() {
        assert!(CompletionStatus(9).hint(Some(SOFT_ROCE), None).unwrap().contains("--qp-timeout 18"));
        assert_eq!(CompletionStatus(9).hint(None, None), None);
        assert_eq!(CompletionStatus(9).hint(Some("softnic"), None), None);
    }

    #[test]
    fn silence_has_other_causes_on_a_device_that_has_no_network() {
        let lost = CompletionStatus(12);
        assert!(lost.hint(None, None).unwrap().contains("UDP port 4791"));
        assert!(lost.hint(Some("rxe"), None).unwrap().contains("UDP port 4791"));
        assert!(lost.hint(Some("softnic"), None).unwrap().contains("on one machine"));
        assert_eq!(CompletionStatus(5).hint(Some("softnic"), None), None);
    }

    #[test]
    fn where_packets_are_lost_another_family_is_there_to_be_tried() {
        let entry = |gid: &str| GidEntry {
            index: 2,
            gid: Gid(gid.parse().unwrap()),
            gid_type: GidType::RoceV2,
            netdev: None,
            prefix_len: None,
        };
        let other = OtherPair { client: entry("fd77::2"), server: entry("fd77::1") };
        let hint =
            |status, software| CompletionStatus(status).hint(software, Some(&other)).unwrap_or_default();
        assert!(hint(12, Some(SOFT_ROCE)).ends_with("-x 2 on the client makes it IPv6 (fd77::2 to fd77::1)"));
        assert!(hint(12, None).contains("UDP port 4791") && hint(12, None).contains("-x 2"));
        assert!(!hint(12, Some(SOFTNIC)).contains("-x 2"));
        assert!(!hint(9, Some(SOFT_ROCE)).contains("-x 2"));
    }
}
