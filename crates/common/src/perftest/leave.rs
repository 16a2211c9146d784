//! What can be known of why a perftest has left: it tells nobody but its own user.

use crate::counters;
use crate::error::{Error, ErrorKind};
use crate::report::Evidence;

/// What an adapter calls requests that it had taken already.
const REPEATS: &str = "duplicate_request";

/// A perftest's departure, with what this end's adapter has seen of it. Writes that arrived twice say that the other end did
/// not wait long enough for acknowledgements, of which a failed write may have come: its default is 67 ms, and Soft-RoCE sends
/// wrong packets when it repeats.
pub fn with_repeats(error: Error, evidence: &[Evidence]) -> Error {
    if error.kind != ErrorKind::PeerLost {
        return error;
    }
    let repeats = |of: &Evidence| of.moved.get(REPEATS).copied().filter(|&repeats| repeats > 0);
    let Some((seen, repeats)) = evidence.iter().find_map(|of| Some((of, repeats(of)?))) else { return error };
    error.fact("counters", counters::describe(&seen.moved)).hint(format!(
        "perftest's own output says why it left; {repeats} packets of it came twice, so give it more time for \
         acknowledgements, -u 18 (1.07 s; its default is 67 ms). On Soft-RoCE such repeats end in its \"Failed status 9\""
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Role;

    fn left_after(kind: ErrorKind, repeats: u64) -> Error {
        let moved = [("rcvd_pkts".to_owned(), 900), (REPEATS.to_owned(), repeats)].into();
        let evidence = Evidence { role: Role::Server, source: "rxe0 port 1".to_owned(), moved };
        with_repeats(Error::new(kind, "the client closed the connection").hint("its own output"), &[evidence])
    }

    #[test]
    fn a_departure_after_repeats_names_them_and_the_way_out() {
        let error = left_after(ErrorKind::PeerLost, 46);
        let hint = error.hint.unwrap();
        assert!(hint.contains("46 packets") && hint.contains("-u 18"), "{hint}");
        assert_eq!(error.facts[0].value, "duplicate_request 46, rcvd_pkts 900");
    }

    #[test]
    fn without_repeats_or_a_departure_nothing_is_added() {
        for error in [left_after(ErrorKind::PeerLost, 0), left_after(ErrorKind::PeerTimeout, 46)] {
            assert_eq!(error.hint.as_deref(), Some("its own output"));
            assert!(error.facts.is_empty());
        }
    }
}
