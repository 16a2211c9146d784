//! Time in nanoseconds, for atomics.

use std::sync::OnceLock;
use std::time::Instant;

/// Nanoseconds since the first call in this process, from 1.
pub(crate) fn now() -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}
