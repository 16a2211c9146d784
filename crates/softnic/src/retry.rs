//! How long a request waits for its peer.

use std::time::{Duration, Instant};

use rdma_sys as sys;

/// How often a peer that does not answer is looked for: more often than any timeout that can be set but the shortest
/// ones, and seldom enough that looking costs little.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// The time, or the number of tries, that a request has left.
pub(crate) struct Patience {
    reason: Reason,
    end: End,
    every: Duration,
    next_look: Instant,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Nobody answers.
    Silence,
    /// The peer has no receive for it.
    NotReady,
}

enum End {
    Never,
    At(Instant),
    Tries(u32),
}

impl Patience {
    /// For a peer that does not answer: each try has the timeout that the queue pair was given, and there is one try
    /// more than there are retries.
    pub(crate) fn unanswered(attr: &sys::ibv_qp_attr) -> Self {
        let now = Instant::now();
        let one = ack_timeout(attr.timeout);
        let end = one.and_then(|one| now.checked_add(one * (u32::from(attr.retry_cnt) + 1)));
        Self {
            reason: Reason::Silence,
            end: end.map_or(End::Never, End::At),
            every: LOOK_AGAIN,
            next_look: now + LOOK_AGAIN,
        }
    }

    /// For a peer that has no receive, and said by `timer` how long to wait for it: as often as the queue pair retries,
    /// and for ever with 7 (InfiniBand specification, volume 1, 9.7.5.2.8).
    pub(crate) fn not_ready(attr: &sys::ibv_qp_attr, timer: u8) -> Self {
        let every = rnr_timer(timer);
        let end = if attr.rnr_retry == 7 { End::Never } else { End::Tries(attr.rnr_retry.into()) };
        Self { reason: Reason::NotReady, end, every, next_look: Instant::now() + every }
    }

    pub(crate) fn reason(&self) -> Reason {
        self.reason
    }

    /// A try has failed: whether it was the last.
    pub(crate) fn is_over(&mut self) -> bool {
        match &mut self.end {
            End::Never => false,
            End::At(end) => Instant::now() >= *end,
            End::Tries(0) => true,
            End::Tries(left) => {
                *left -= 1;
                false
            }
        }
    }

    /// Whether it is time for another try.
    pub(crate) fn may_try(&mut self) -> bool {
        let now = Instant::now();
        let may = now >= self.next_look;
        if may {
            self.next_look = now + self.every;
        }
        may
    }
}

/// 4.096 µs × 2ⁿ, and for ever for 0 (InfiniBand specification, volume 1, 9.9.2.1.1 "Local ACK Timeout").
fn ack_timeout(exponent: u8) -> Option<Duration> {
    (exponent > 0).then(|| Duration::from_nanos(4096 << exponent.min(31)))
}

/// The times of the five-bit RNR NAK timer field, in hundredths of a millisecond (InfiniBand specification, volume 1,
/// table 45).
fn rnr_timer(code: u8) -> Duration {
    const TIMES: [u64; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
        3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    Duration::from_micros(10 * TIMES[usize::from(code & 31)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_is_a_power_of_two_and_0_is_for_ever() {
        assert_eq!(ack_timeout(0), None);
        assert_eq!(ack_timeout(14), Some(Duration::from_nanos(67_108_864)));
        let attr = sys::ibv_qp_attr { timeout: 1, retry_cnt: 0, ..Default::default() };
        let mut patience = Patience::unanswered(&attr);
        std::thread::sleep(Duration::from_micros(100));
        assert!(patience.is_over());
        assert!(!Patience::unanswered(&sys::ibv_qp_attr::default()).is_over());
    }

    #[test]
    fn the_timer_of_a_missing_receive_has_the_specifications_times() {
        assert_eq!(rnr_timer(0), Duration::from_micros(655_360));
        assert_eq!(rnr_timer(1), Duration::from_micros(10));
        assert_eq!(rnr_timer(12), Duration::from_micros(640));
        assert_eq!(rnr_timer(26), Duration::from_micros(81_920));
        assert_eq!(rnr_timer(31), Duration::from_micros(491_520));
    }

    #[test]
    fn a_missing_receive_is_waited_for_as_often_as_there_are_retries() {
        let with = |rnr_retry| Patience::not_ready(&sys::ibv_qp_attr { rnr_retry, ..Default::default() }, 31);
        let tries = |mut patience: Patience| (0..10).take_while(|_| !patience.is_over()).count();
        assert_eq!((tries(with(0)), tries(with(2)), tries(with(6)), tries(with(7))), (0, 2, 6, 10));
        assert!(!with(1).may_try());
    }
}
