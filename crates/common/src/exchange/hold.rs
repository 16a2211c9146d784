//! How long one client may hold a server that serves one after another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};
use crate::units::show_duration;

/// How long a client may be silent while others wait, so that they are served within a second. An honest one says five
/// times a second that it lives, whatever it does: a word that the network loses twice comes 0.6 s late (TCP's first
/// retransmission follows after 0.2 s, the second after 0.4 s more), and the rest is for its processor.
pub const HELD_SILENCE: Duration = Duration::from_millis(900);
/// How long a perftest may give no sign of life while others wait. It measures its processor's clock between two sizes, for
/// a part of a second, and sleeps for one before it begins.
pub const PERFTEST_HELD_SILENCE: Duration = Duration::from_secs(3);
/// How long a step may take a client that does say that it lives: preparing and checking its memory takes up to a
/// second a GiB, and then it is a large one.
pub const HELD_STEP: Duration = Duration::from_secs(300);

/// A step in which the server waits for its client.
#[derive(Debug)]
pub struct Hold {
    since: Instant,
    others: Arc<AtomicUsize>,
    step: Duration,
    silence: Duration,
}

impl Hold {
    /// A step between two stretches, which begins now; `others` is how many clients wait.
    pub fn of_step(others: Arc<AtomicUsize>) -> Self {
        Self { since: Instant::now(), others, step: HELD_STEP, silence: HELD_SILENCE }
    }

    /// A stretch, which is as long as the plan says.
    pub fn of_stretch(others: Arc<AtomicUsize>) -> Self {
        Self { step: Duration::MAX, ..Self::of_step(others) }
    }

    /// The same for a perftest, which says nothing while it measures, and nothing while it works out its own figures.
    pub fn of_perftest(others: Arc<AtomicUsize>) -> Self {
        Self { silence: PERFTEST_HELD_SILENCE, ..Self::of_stretch(others) }
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
        if self.silence_left(heard).is_some_and(|left| left.is_zero()) {
            let others = self.others.load(Ordering::Relaxed);
            return too_long("has said nothing", self.silence)
                .map(|error| error.fact("clients that wait for their turn", others.to_string()))
                .map(|error| {
                    error
                        .hint("its process was stopped, or its host or its network stood still: run it again")
                });
        }
        None
    }

    /// How much longer the client may be silent; `None` as long as nobody waits.
    pub(super) fn silence_left(&self, heard: Instant) -> Option<Duration> {
        let silent = heard.max(self.since).elapsed();
        (self.others.load(Ordering::Relaxed) > 0).then(|| self.silence.saturating_sub(silent))
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
            let since = long_ago(HELD_SILENCE);
            let hold = Hold { since, ..hold };
            assert!(hold.over(since, "the client").is_none());
            others.store(1, Ordering::Relaxed);
            assert_eq!(hold.silence_left(since), Some(Duration::ZERO));
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
