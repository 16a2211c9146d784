//! What this machine can't do for a run, found out before the ranks meet.

use linkproof_common::error::Result;
use linkproof_common::host::HostFiles;
use linkproof_common::memory::check_available;

use crate::backend::host::shm::Shm;
use crate::launch::Launch;
use crate::plan::{Plan, Transport, largest_buffers};

/// Whether this machine has the memory for the buffers of the ranks of this process: all of them, where they are threads. How many
/// processes share the machine is not known. GPUs have memory of their own.
///
/// # Errors
/// [`linkproof_common::error::ErrorKind::Memory`]; the plan's own.
pub fn check_memory(plan: &Plan, launch: Option<&Launch>, files: &HostFiles) -> Result<()> {
    if plan.transport == Transport::Gpu {
        return Ok(());
    }
    let points = plan.points()?;
    let needs = |rank: u32| {
        let (send, recv) = largest_buffers(&points, rank);
        Shm::needs(send, recv)
    };
    match launch {
        Some(launch) => check_available(needs(launch.rank), "the buffers of this rank", files)
            .map_err(|error| error.hint("use a smaller -e")),
        None => {
            let need = (0..plan.n_ranks).map(needs).sum();
            check_available(need, &format!("the buffers of {} ranks", plan.n_ranks), files)
                .map_err(|error| error.hint("use a smaller -e or fewer --ranks"))
        }
    }
}
