//! Telling of those who were turned away, without letting them fill the terminal or a log file.

use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};

/// How many are told of one by one, in each [`SPELL`].
const ONE_BY_ONE: u32 = 20;
/// The time after which it begins anew.
const SPELL: Duration = Duration::from_secs(10);

/// Whom to tell, and how much was told.
pub(super) struct Complaints {
    tell: Box<dyn Fn(&Error) + Send>,
    since: Instant,
    told: u32,
    untold: u32,
}

impl Complaints {
    pub(super) fn new(tell: Box<dyn Fn(&Error) + Send>) -> Self {
        Self { tell, since: Instant::now(), told: 0, untold: 0 }
    }

    /// One more.
    pub(super) fn add(&mut self, error: &Error) {
        self.sum_up();
        if self.told < ONE_BY_ONE {
            self.told += 1;
            (self.tell)(error);
        } else {
            self.untold += 1;
        }
    }

    /// Tells how many were not told of, once the time has come.
    pub(super) fn sum_up(&mut self) {
        if self.since.elapsed() < SPELL {
            return;
        }
        if self.untold > 0 {
            let what = format!("turned {} more away in the last {} s", self.untold, SPELL.as_secs());
            (self.tell)(&Error::new(ErrorKind::Protocol, what).hint("see what connects to this port"));
        }
        (self.since, self.told, self.untold) = (Instant::now(), 0, 0);
    }

    /// Whether there is something left to sum up.
    pub(super) fn pending(&self) -> bool {
        self.untold > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn many_are_told_of_by_their_number() {
        let (sender, told) = channel();
        let mut complaints = Complaints::new(Box::new(move |error| sender.send(error.what.clone()).unwrap()));
        for _ in 0..1000 {
            complaints.add(&Error::new(ErrorKind::NotLinkproof, "a stranger"));
        }
        assert_eq!(told.try_iter().count(), ONE_BY_ONE as usize);
        complaints.since -= SPELL;
        complaints.sum_up();
        assert_eq!(told.try_iter().collect::<Vec<_>>(), ["turned 980 more away in the last 10 s"]);
        assert!(!complaints.pending());
    }
}
