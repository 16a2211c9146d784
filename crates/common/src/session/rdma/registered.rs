//! The memory of a run, registered: all of it at once, or each queue pair's by itself (`--mr-per-qp`).

use std::sync::Arc;

use crate::error::Result;
use crate::memory::HostBuffer;
use crate::mr::{Access, MemoryRegion, Ordering, ProtectionDomain};
use crate::plan::{BufferLayout, Plan, Role, Traffic};

/// The memory of one end.
pub(super) struct Registered {
    regions: Vec<MemoryRegion<HostBuffer>>,
    buffer: Arc<HostBuffer>,
}

impl Registered {
    /// Registers `buffer` for `role`'s part in `plan`.
    pub(super) fn new(
        pd: &Arc<ProtectionDomain>,
        plan: &Plan,
        buffer: HostBuffer,
        role: Role,
    ) -> Result<Self> {
        let buffer = Arc::new(buffer);
        let access = if plan.is_target(role) { Access::RemoteWrite } else { Access::Source };
        let register = |span| MemoryRegion::register(pd, &buffer, span, access, ordering(plan));
        let regions = BufferLayout::new(plan, role).memory_regions().map(register).collect::<Result<_>>()?;
        Ok(Self { regions, buffer })
    }

    /// The local key for the memory of `qp`.
    pub(super) fn lkey(&self, qp: u32) -> u32 {
        let of = |region: &MemoryRegion<HostBuffer>| region.lkey();
        // One region has the memory of all.
        self.regions.get(qp as usize).or(self.regions.first()).map_or(0, of)
    }

    /// The keys for the peer.
    pub(super) fn rkeys(&self) -> Vec<u32> {
        self.regions.iter().map(MemoryRegion::rkey).collect()
    }

    /// Relaxed where all are.
    pub(super) fn ordering(&self) -> Ordering {
        let strict = self.regions.iter().any(|region| region.ordering() == Ordering::Strict);
        if strict { Ordering::Strict } else { Ordering::Relaxed }
    }

    /// The memory.
    pub(super) fn buffer(&self) -> &HostBuffer {
        &self.buffer
    }
}

/// Bandwidth wants relaxed ordering. Checking the data wants each write in its place when it is looked for, and a
/// message whose last byte is polled must not have it before the others.
fn ordering(plan: &Plan) -> Ordering {
    if plan.validate || plan.traffic == Traffic::PingPong { Ordering::Strict } else { Ordering::Relaxed }
}
