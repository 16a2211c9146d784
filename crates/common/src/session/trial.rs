//! A trial: GPU memory is taken and registered as a run would do it, and given back.

use std::sync::Arc;

use super::rdma::Registered;
use super::{allocate, tcp};
use crate::device::{self, DeviceWish};
use crate::error::Result;
use crate::host::HostFiles;
use crate::memory::{EndBuffer, GpuUse};
use crate::mr::ProtectionDomain;
use crate::plan::{BufferLayout, Plan, Role, Transport};

/// Whether `role` could have the GPU memory that `plan` wants, and how the device that is wished for would come to it; `None`
/// where it wants none. The registration is the only proof that an adapter can.
///
/// # Errors
/// The GPU and device kinds of [`crate::error::ErrorKind`], and [`crate::error::ErrorKind::Registration`].
pub fn try_gpu_memory(
    plan: &Plan,
    role: Role,
    wish: &DeviceWish,
    files: &HostFiles,
) -> Result<Option<GpuUse>> {
    if plan.gpu_of(role).is_none() {
        return Ok(None);
    }
    let buffer = allocate(plan, role, BufferLayout::new(plan, role))?;
    match plan.transport {
        Transport::Tcp => Ok(tcp::staged(&buffer)),
        Transport::Rdma => registered(plan, role, buffer, wish, files),
    }
}

fn registered(
    plan: &Plan,
    role: Role,
    buffer: EndBuffer,
    wish: &DeviceWish,
    files: &HostFiles,
) -> Result<Option<GpuUse>> {
    let chosen = device::choose(wish, files)?;
    let pd = Arc::new(ProtectionDomain::new(&chosen.context)?);
    Ok(Registered::new(&pd, plan, buffer, role, files)?.end_memory().gpu)
}
