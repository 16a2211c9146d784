//! The end of a run, for loops that can't wait for a message.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set when a rank has ended the run: for loops that wait on memory and can't wait here.
#[derive(Clone, Debug, Default)]
pub struct Alarm(Arc<AtomicBool>);

impl Alarm {
    /// Whether the run is over.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
