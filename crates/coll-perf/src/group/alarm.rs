//! The end of a run, for loops that can't wait for a message.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use linkproof_common::error::{Error, ErrorKind};

/// Raised when a rank has ended the run: for loops that wait on memory and can't wait here.
#[derive(Clone, Debug, Default)]
pub struct Alarm(Arc<Raised>);

#[derive(Debug, Default)]
struct Raised {
    is: AtomicBool,
    story: OnceLock<Error>,
}

impl Alarm {
    /// Whether the run is over.
    pub fn is_raised(&self) -> bool {
        self.0.is.load(Ordering::Relaxed)
    }

    /// What has ended it.
    pub fn story(&self) -> Error {
        let unknown = || Error::new(ErrorKind::PeerLost, "another rank has ended the run");
        self.0.story.get().cloned().unwrap_or_else(unknown)
    }

    pub(super) fn raise(&self, story: &Error) {
        // The first story is the one that counts.
        let _ = self.0.story.set(story.clone());
        self.0.is.store(true, Ordering::Release);
    }
}
