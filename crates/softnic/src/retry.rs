//! How long a request waits for an answer.

use std::time::{Duration, Instant};

use rdma_sys as sys;

/// How often a peer that does not answer is looked for: more often than any timeout that can be set but the shortest
/// ones, and seldom enough that looking costs little.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// The time that a request has left.
pub(crate) struct Patience {
    /// `None`: for ever.
    end: Option<Instant>,
    next_look: Instant,
}

impl Patience {
    /// For a peer that does not answer: each try has the timeout that the queue pair was given, and there is one try
    /// more than there are retries.
    pub(crate) fn unanswered(attr: &sys::ibv_qp_attr) -> Self {
        let now = Instant::now();
        let one = ack_timeout(attr.timeout);
        let end = one.and_then(|one| now.checked_add(one * (u32::from(attr.retry_cnt) + 1)));
        Self { end, next_look: now + LOOK_AGAIN }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Whether it is time for another look.
    pub(crate) fn may_try(&mut self) -> bool {
        let now = Instant::now();
        let may = now >= self.next_look;
        if may {
            self.next_look = now + LOOK_AGAIN;
        }
        may
    }
}

/// 4.096 µs × 2ⁿ, and for ever for 0 (InfiniBand specification, volume 1, 9.9.2.1.1 "Local ACK Timeout").
fn ack_timeout(exponent: u8) -> Option<Duration> {
    (exponent > 0).then(|| Duration::from_nanos(4096 << exponent.min(31)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_is_a_power_of_two_and_0_is_for_ever() {
        assert_eq!(ack_timeout(0), None);
        assert_eq!(ack_timeout(14), Some(Duration::from_nanos(67_108_864)));
        let attr = sys::ibv_qp_attr { timeout: 1, retry_cnt: 0, ..Default::default() };
        let patience = Patience::unanswered(&attr);
        std::thread::sleep(Duration::from_micros(100));
        assert!(patience.is_over());
        assert!(!Patience::unanswered(&sys::ibv_qp_attr::default()).is_over());
    }
}
