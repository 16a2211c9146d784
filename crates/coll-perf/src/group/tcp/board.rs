//! What has come in from the other ranks, and whether the run is over.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use linkproof_common::error::{Error, ErrorKind, Result};

use super::frame::Frame;
use crate::group::Alarm;

/// What one link has brought.
#[derive(Default)]
struct Inbox {
    frames: VecDeque<Frame>,
    /// The other end has said that it is done.
    left: bool,
}

/// Filled by the thread that reads, emptied by the rank.
#[derive(Default)]
pub(super) struct Board {
    state: Mutex<State>,
    changed: Condvar,
    pub(super) alarm: Alarm,
}

#[derive(Default)]
struct State {
    inboxes: Vec<Inbox>,
    over: bool,
}

impl Board {
    pub(super) fn new(links: usize) -> Self {
        let board = Self::default();
        board.lock().inboxes.resize_with(links, Inbox::default);
        board
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn post(&self, link: usize, frame: Frame) {
        self.lock().inboxes[link].frames.push_back(frame);
        self.changed.notify_all();
    }

    /// The rank behind `link` is done.
    pub(super) fn leave(&self, link: usize) {
        self.lock().inboxes[link].left = true;
        self.changed.notify_all();
    }

    /// Ends the run with `error`, if nothing has ended it before. True where this did.
    pub(super) fn fail(&self, error: &Error) -> bool {
        // Under the lock: a rank that has just looked, and is about to wait, must not miss it.
        let _state = self.lock();
        let first = self.alarm.raise(error);
        self.changed.notify_all();
        first
    }

    /// The rank is done: connections may end now.
    pub(super) fn close(&self) {
        self.lock().over = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().over
    }

    /// What has ended the run; waits for it until `deadline`.
    pub(super) fn failure(&self, deadline: Instant) -> Option<Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(self.lock(), left, |_| !self.alarm.is_raised());
        drop(waited);
        self.alarm.story()
    }

    /// The next frame from `link`, behind which is `peer`; `None` where none comes before `deadline`.
    ///
    /// # Errors
    /// What has ended the run.
    pub(super) fn next(&self, link: usize, peer: &str, deadline: Instant) -> Result<Option<Frame>> {
        let mut state = self.lock();
        loop {
            // What came before the end is taken before it: a last gathering, for instance.
            if let Some(frame) = state.inboxes[link].frames.pop_front() {
                return Ok(Some(frame));
            }
            self.alarm.check()?;
            if state.inboxes[link].left {
                return Err(Error::new(ErrorKind::PeerLost, format!("{peer} has left the run")));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
