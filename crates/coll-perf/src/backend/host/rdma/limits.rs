//! What the ranks of a machine ask of its device and of its limits, found out before anything is made.

use linkproof_common::device::DeviceLimits;
use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::memlock::LockedMemory;

use super::super::messages::needs;
use super::control::Control;
use super::queue::{COMPLETIONS, DEPTH};
use crate::plan::Plan;

/// What pins less.
pub(super) const LESS: &str = "raise the locked-memory limit (ulimit -l; in a systemd unit LimitMEMLOCK), or use a smaller -e or \
                               fewer ranks on this host";

/// The bytes that `rank` pins for `plan`: its buffers, and what goes between the ranks.
///
/// # Errors
/// [`ErrorKind::Usage`]: the plan's own.
pub fn pinned_bytes(plan: &Plan, rank: u32) -> Result<u64> {
    Ok(Control::bytes(plan.n_ranks) + needs(&plan.points()?, rank))
}

/// Whether a process within `limit` may pin `bytes` for each of its ranks, of which there are so many: it has one limit.
///
/// # Errors
/// [`ErrorKind::Memlock`].
pub fn check_pinned(limit: &LockedMemory, bytes: u64, ranks_here: u32, device: &str) -> Result<()> {
    let regions = match ranks_here {
        1 => "the buffers of this rank, and what goes between the ranks".to_owned(),
        ranks => format!("the buffers of {ranks} ranks, and what goes between them"),
    };
    limit.check(bytes * u64::from(ranks_here), &regions, device).map_err(|error| error.hint(LESS))
}

/// Whether `device` can hold the queue pairs of a rank of `n_ranks`, and their completions.
///
/// # Errors
/// [`ErrorKind::DeviceLimit`] with both numbers.
pub fn check_device(n_ranks: u32, device: &str, limits: &DeviceLimits) -> Result<()> {
    let others = n_ranks - 1;
    let at_most = |asked: u32, limit: u32, what: &str| {
        if asked <= limit {
            return Ok(());
        }
        let what = format!("{n_ranks} ranks take {asked} {what}, and {device} allows {limit}");
        Err(Error::new(ErrorKind::DeviceLimit, what).hint("start fewer ranks, or use --transport tcp"))
    };
    at_most(others, limits.max_qp, "queue pairs in each")?;
    at_most(DEPTH.sends.max(DEPTH.receives), limits.max_qp_wr, "outstanding requests for each")?;
    at_most(COMPLETIONS * others, limits.max_cqe, "completion queue entries in each")
}
