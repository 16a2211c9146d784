//! How long one client may hold a server that serves one after another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};
use crate::units::show_duration;

/// How long a client may be silent between two steps while others wait. An honest one says each second that it
/// lives, but for the registration of its memory, which takes 0.1 to 0.3 s a GiB.
pub const HELD_SILENCE: Duration = Duration::from_secs(10);
/// How long a step may take a client that does say that it lives: preparing and checking its memory takes up to a
/// second a GiB, and then it is a large one.
pub const HELD_STEP: Duration = Duration::from_secs(300);

/// A step in which the server waits for its client.
#[derive(Debug)]
pub struct Hold {
    since: Instant,
    others: Arc<AtomicUsize>,
}

impl Hold {
    /// Begins now; `others` is how many clients wait.
    pub fn new(others: Arc<AtomicUsize>) -> Self {
        Self { since: Instant::now(), others }
    }

    /// Whether it is too long, seen that the client was last heard at `heard`.
    pub(super) fn over(&self, heard: Instant, peer: &str) -> Option<Error> {
        let too_long = |words: &str, limit| {
            let what = format!("{peer} {words} for {}", show_duration(limit));
            Some(Error::new(ErrorKind::PeerTimeout, what))
        };
        let others = self.others.load(Ordering::Relaxed);
        if self.since.elapsed() > HELD_STEP {
            return too_long("has not come to the next step", HELD_STEP);
        }
        if others > 0 && heard.max(self.since).elapsed() > HELD_SILENCE {
            return too_long("has said nothing", HELD_SILENCE)
                .map(|error| error.fact("waiting", format!("{others} other clients")));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_says_nothing_is_let_go_sooner_while_others_wait() {
        let others = Arc::new(AtomicUsize::new(0));
        let long_ago = Instant::now().checked_sub(HELD_SILENCE * 2).unwrap();
        let hold = Hold { since: long_ago, others: Arc::clone(&others) };
        assert!(hold.over(long_ago, "the client").is_none());
        others.store(1, Ordering::Relaxed);
        assert!(hold.over(Instant::now(), "the client").is_none());
        assert_eq!(hold.over(long_ago, "the client").unwrap().kind, ErrorKind::PeerTimeout);
    }

    #[test]
    fn no_step_lasts_for_ever_however_much_the_client_says() {
        let hold = Hold { since: Instant::now().checked_sub(HELD_STEP * 2).unwrap(), others: Arc::default() };
        assert!(hold.over(Instant::now(), "the client").unwrap().what.ends_with("for 300 s"));
    }
}
