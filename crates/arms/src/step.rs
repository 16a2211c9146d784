//! Keeping in step: where a launcher has started a process for each rank, every one of them starts its own runs. A run's
//! processes find each other as these have: they have the same environment and options.

use linkproof_common::error::{Error, Result};

/// The processes that together make a run.
pub trait Lockstep {
    /// Whether this is the process that shows the result.
    fn leads(&self) -> bool;

    /// The failure of any of the processes: this one's own if it has one, so that all go the same way afterwards.
    ///
    /// # Errors
    /// A process that does not come.
    fn any(&mut self, own: Option<Error>) -> Result<Option<Error>>;
}

/// One process does it all.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Lockstep for Alone {
    fn leads(&self) -> bool {
        true
    }

    fn any(&mut self, own: Option<Error>) -> Result<Option<Error>> {
        Ok(own)
    }
}
