//! The end of a run, and what has ended it.

use std::sync::{Arc, OnceLock};

use linkproof_common::error::{Error, Result};

/// Raised when a rank has ended the run. Loops that wait on memory look at it; those that wait for a message are woken
/// by their group.
#[derive(Clone, Debug, Default)]
pub struct Alarm(Arc<OnceLock<Error>>);

impl Alarm {
    /// Whether the run is over.
    pub fn is_raised(&self) -> bool {
        self.0.get().is_some()
    }

    /// What has ended it, if it is over.
    pub fn story(&self) -> Option<Error> {
        self.0.get().cloned()
    }

    /// # Errors
    /// What has ended the run, if it is over.
    pub fn check(&self) -> Result<()> {
        self.story().map_or(Ok(()), Err)
    }

    /// Ends the run with `story`, if nothing has ended it before: the first story is the one that counts. True where
    /// this did.
    pub(super) fn raise(&self, story: &Error) -> bool {
        self.0.set(story.clone()).is_ok()
    }
}
