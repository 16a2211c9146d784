//! Who takes part, and how the ranks agree outside the measurement.
//!
//! A [`Group`] carries small things, seldom: addresses, counts of wrong elements, times of iterations. It is never on
//! the measured path. [`in_process`] is for ranks that are threads of one process,
//! [`tcp`] for processes of any machines.

mod alarm;
pub mod in_process;
pub mod tcp;

pub use alarm::Alarm;

use linkproof_common::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// How this rank's monotonic clock stands to rank 0's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// Its reading minus rank 0's at one moment, in nanoseconds.
    pub ahead_ns: i64,
    /// How far off that may be, in nanoseconds; 0 where it is one clock.
    pub uncertainty_ns: u64,
}

/// The ranks of a run, seen from one of them.
///
/// All ranks make the same calls in the same order. Each call fails within seconds on every rank when one of them has
/// failed or is gone, with that rank's story; nothing waits for ever.
pub trait Group {
    /// This rank, from 0.
    fn rank(&self) -> u32;

    /// How many there are.
    fn n_ranks(&self) -> u32;

    /// Returns when every rank has called it.
    ///
    /// # Errors
    /// The failure of the rank that ended the run.
    fn barrier(&mut self) -> Result<()> {
        self.all_gather(&[]).map(drop)
    }

    /// Every rank's `blob`, by rank.
    ///
    /// # Errors
    /// As [`Group::barrier`].
    fn all_gather(&mut self, blob: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// Every rank's `blob`, by rank, at rank 0; `None` elsewhere.
    ///
    /// # Errors
    /// As [`Group::barrier`].
    fn gather(&mut self, blob: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        let blobs = self.all_gather(blob)?;
        Ok((self.rank() == 0).then_some(blobs))
    }

    /// Whether any rank says so.
    ///
    /// # Errors
    /// As [`Group::barrier`].
    fn any(&mut self, so: bool) -> Result<bool> {
        Ok(self.all_gather(&[u8::from(so)])?.iter().any(|blob| blob.first() == Some(&1)))
    }

    /// How this rank's clock stands to rank 0's; the same clock unless told otherwise.
    ///
    /// # Errors
    /// As [`Group::barrier`].
    fn clock_offset(&mut self) -> Result<ClockOffset> {
        Ok(ClockOffset::default())
    }

    /// Ends the run for every rank: their calls, those under way too, fail with `error` as this rank's.
    fn abort(&mut self, error: &Error);
}
