//! How long one client may hold a server that serves one after another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};
use crate::units::show_duration;

/// How long a client may be silent between two steps while others wait. An honest one says five times a second that it
/// lives, whatever it does; the rest is for its processor and its network.
pub const HELD_SILENCE: Duration = Duration::from_secs(1);
/// The same in a stretch, where a client says so twice a second: its processors may be busy to the last, its packets
/// may be lost among those that it measures with, and there is more to lose.
pub const HELD_SILENCE_IN_STRETCH: Duration = Duration::from_secs(3);
/// How long a step may take a client that does say that it lives: preparing and checking its memory takes up to a
/// second a GiB, and then it is a large one.
pub const HELD_STEP: Duration = Duration::from_secs(300);

/// A step in which the server waits for its client.
#[derive(Debug)]
pub struct Hold {
    since: Instant,
    others: Arc<AtomicUsize>,
    silence: Duration,
    step: Duration,
}

impl Hold {
    /// A step between two stretches, which begins now; `others` is how many clients wait.
    pub fn of_step(others: Arc<AtomicUsize>) -> Self {
        Self { since: Instant::now(), others, silence: HELD_SILENCE, step: HELD_STEP }
    }

    /// A stretch, which is as long as the plan says.
    pub fn of_stretch(others: Arc<AtomicUsize>) -> Self {
        Self { silence: HELD_SILENCE_IN_STRETCH, step: Duration::MAX, ..Self::of_step(others) }
    }

    /// Whether it is too long, seen that the client was last heard at `heard`.
    pub(super) fn over(&self, heard: Instant, peer: &str) -> Option<Error> {
        let too_long = |words: &str, limit| {
            let what = format!("{peer} {words} for {}", show_duration(limit));
            Some(Error::new(ErrorKind::PeerTimeout, what))
        };
        if self.since.elapsed() > self.step {
            return too_long("has not come to the next step", self.step);
        }
        let others = self.others.load(Ordering::Relaxed);
        if others > 0 && heard.max(self.since).elapsed() > self.silence {
            return too_long("has said nothing", self.silence)
                .map(|error| error.fact("clients that wait for their turn", others.to_string()))
                .map(|error| {
                    error
                        .hint("its process was stopped, or its host or its network stood still: run it again")
                });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long_ago(limit: Duration) -> Instant {
        Instant::now().checked_sub(limit * 2).unwrap()
    }

    #[test]
    fn a_client_that_says_nothing_is_let_go_only_while_others_wait() {
        for new in [Hold::of_step, Hold::of_stretch] {
            let others = Arc::new(AtomicUsize::new(0));
            let hold = new(Arc::clone(&others));
            let since = long_ago(hold.silence);
            let hold = Hold { since, ..hold };
            assert!(hold.over(since, "the client").is_none());
            others.store(1, Ordering::Relaxed);
            assert!(hold.over(Instant::now(), "the client").is_none());
            assert_eq!(hold.over(since, "the client").unwrap().kind, ErrorKind::PeerTimeout);
        }
    }

    #[test]
    fn no_step_lasts_for_ever_however_much_the_client_says() {
        let hold = Hold { since: long_ago(HELD_STEP), ..Hold::of_step(Arc::default()) };
        assert!(hold.over(Instant::now(), "the client").unwrap().what.ends_with("for 300 s"));
        let hold = Hold { since: long_ago(HELD_STEP), ..Hold::of_stretch(Arc::default()) };
        assert!(hold.over(Instant::now(), "the client").is_none(), "a stretch is as long as the plan says");
    }
}
