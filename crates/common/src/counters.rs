//! A port's hardware counters, before and after: the adapter's own word on what went over the wire.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind, Origin};
use crate::host::HostFiles;

/// The counters of one port at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// All that the kernel shows for port `port_num` of `device`; empty where it shows none.
    pub fn read(device: &str, port_num: u8, files: &HostFiles) -> Self {
        let mut counters = BTreeMap::new();
        for folder in ["counters", "hw_counters"] {
            let folder = format!("/sys/class/infiniband/{device}/ports/{port_num}/{folder}");
            for name in files.names(&folder) {
                // "lifespan" is a setting (how long the driver caches the others), not a count.
                if name == "lifespan" {
                    continue;
                }
                if let Some(value) = files.number(&format!("{folder}/{name}")) {
                    counters.insert(name, value);
                }
            }
        }
        Self(counters)
    }

    /// As a map, by name.
    pub fn into_map(self) -> BTreeMap<String, u64> {
        self.0
    }

    /// The counters that have grown since `before`, and by how much.
    pub fn grown_since(&self, before: &Self) -> BTreeMap<String, u64> {
        let growth = |(name, now): (&String, &u64)| {
            let then = before.0.get(name).copied().unwrap_or(0);
            now.checked_sub(then).filter(|&more| more > 0).map(|more| (name.clone(), more))
        };
        self.0.iter().filter_map(growth).collect()
    }
}

/// Counters whose growth means that packets were lost, repeated, marked or refused, and what each counts. Names are
/// the drivers' own: the first group mlx5's, the second Soft-RoCE's, the last common to InfiniBand ports.
const TROUBLE: &[(&str, &str)] = &[
    ("packet_seq_err", "packets missing at the responder"),
    ("out_of_sequence", "packets out of order"),
    ("implied_nak_seq_err", "acknowledgements missing"),
    ("local_ack_timeout_err", "acknowledgement timeouts"),
    ("rnr_nak_retry_err", "receiver not ready"),
    ("roce_adp_retrans", "adaptive retransmissions"),
    ("roce_slow_restart", "slow restarts"),
    ("np_cnp_sent", "congestion notifications sent"),
    ("rp_cnp_handled", "congestion notifications obeyed"),
    ("np_ecn_marked_roce_packets", "packets marked for congestion"),
    ("rx_discards_phy", "packets dropped on arrival"),
    ("completer_retry_err", "retries"),
    ("retry_exceeded_err", "retries exhausted"),
    ("out_of_seq_request", "packets out of order"),
    ("rcvd_seq_err", "negative acknowledgements"),
    ("rcvd_rnr_err", "receiver not ready"),
    ("symbol_error", "symbol errors on the link"),
    ("link_downed", "link losses"),
    ("port_rcv_errors", "damaged packets"),
    ("port_xmit_discards", "packets dropped before sending"),
    ("port_rcv_remote_physical_errors", "packets that arrived marked as damaged"),
    ("local_link_integrity_errors", "errors of the link's integrity"),
    ("link_error_recovery", "recoveries of the link"),
    ("excessive_buffer_overrun_errors", "buffers that ran over"),
    ("rx_icrc_encapsulated", "check sums that were wrong"),
];

/// Whether growth of the counter called `name` means trouble.
pub fn is_trouble(name: &str) -> bool {
    TROUBLE.iter().any(|(known, _)| *known == name)
}

/// The counters among `growth` that mean trouble, in words; `None` where there is none.
pub fn trouble(growth: &BTreeMap<String, u64>) -> Option<String> {
    let known = |(name, more): (&String, &u64)| {
        let (_, meaning) = TROUBLE.iter().find(|(known, _)| known == name)?;
        Some(format!("{name} {more} ({meaning})"))
    };
    let found: Vec<String> = growth.iter().filter_map(known).collect();
    (!found.is_empty()).then(|| found.join(", "))
}

/// A write's failure at this end with what its adapter has counted since the bring-up. A standstill has no words of its own, so
/// that packets which were lost and repeated are its likely cause.
pub fn tell(error: Error, growth: &BTreeMap<String, u64>) -> Error {
    let is_a_write = matches!(error.kind, ErrorKind::Completion | ErrorKind::Stalled);
    if !is_a_write || error.origin == Origin::Peer {
        return error;
    }
    let is_lossy = error.kind == ErrorKind::Stalled && trouble(growth).is_some();
    let error = error.fact("counters", describe(growth));
    if is_lossy {
        error.hint(
            "packets get lost on the way and are sent again and again: look for drops on the switches' ports, for a cable or \
             a path that fails, and for flow control that is off (rdma-check counters --watch 10 on both ends)",
        )
    } else {
        error
    }
}

/// Growth in words: `retry_exceeded_err 1, sent_pkts 40`.
pub fn describe(growth: &BTreeMap<String, u64>) -> String {
    if growth.is_empty() {
        return "none moved".to_owned();
    }
    growth.iter().map(|(name, more)| format!("{name} {more}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_counters_that_mean_trouble_are_troubling() {
        let growth = |name: &str| [(name.to_owned(), 3), ("sent_pkts".to_owned(), 900)].into();
        assert_eq!(trouble(&growth("rcvd_pkts")), None);
        assert_eq!(
            trouble(&growth("rp_cnp_handled")).unwrap(),
            "rp_cnp_handled 3 (congestion notifications obeyed)"
        );
    }

    #[test]
    fn a_standstill_in_which_packets_are_repeated_is_loss() {
        let told = |error, name: &str| tell(error, &[(name.to_owned(), 26)].into());
        let stalled = || Error::new(ErrorKind::Stalled, "no write has completed");
        let lossy = told(stalled(), "rcvd_seq_err");
        assert!(lossy.hint.unwrap().contains("packets get lost"));
        assert_eq!(lossy.facts[0].value, "rcvd_seq_err 26");
        let silent = told(stalled(), "sent_pkts");
        assert_eq!((silent.hint, silent.facts.len()), (None, 1));
        let lost = told(Error::new(ErrorKind::Completion, "x").hint("its own"), "rcvd_seq_err");
        assert_eq!(lost.hint.as_deref(), Some("its own"));
    }

    #[test]
    fn what_is_no_write_of_this_end_has_none_of_its_counters() {
        for error in
            [Error::new(ErrorKind::PeerLost, "x"), Error::new(ErrorKind::Stalled, "x").from_peer("b")]
        {
            assert!(tell(error, &[("rcvd_seq_err".to_owned(), 1)].into()).facts.is_empty());
        }
    }

    #[test]
    fn only_what_has_grown_is_told() {
        let tree = tempfile::tempdir().unwrap();
        let folder = tree.path().join("sys/class/infiniband/rxe0/ports/1/hw_counters");
        fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, value: u64| fs::write(folder.join(name), format!("{value}\n")).unwrap();
        let files = HostFiles::below(tree.path());
        write("sent_pkts", 5);
        write("retry_exceeded_err", 0);
        write("lifespan", 10);
        let before = Counters::read("rxe0", 1, &files);
        write("sent_pkts", 9);
        write("lifespan", 12);
        let after = Counters::read("rxe0", 1, &files);
        assert_eq!(describe(&after.grown_since(&before)), "sent_pkts 4");
        assert_eq!(describe(&after.grown_since(&after)), "none moved");
        assert!(Counters::read("none", 1, &files).0.is_empty());
    }
}
