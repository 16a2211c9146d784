//! The memory of a run, registered: all of it at once, or each queue pair's by itself (`--mr-per-qp`).

use std::sync::Arc;

use super::gpu;
use crate::error::Result;
use crate::host::HostFiles;
use crate::memory::{Buffer, EndBuffer, EndMemory, GpuPath, GpuUse, HostBuffer, MemoryKind};
use crate::mr::{Access, MemoryRegion, Ordering, ProtectionDomain, Registrar};
use crate::node::Node;
use crate::plan::{BufferLayout, Plan, Role, Traffic};

/// The memory of one end.
pub(in crate::session) struct Registered {
    reached: Reached,
    /// Beside GPU memory: what the processors of both ends look at.
    flags: Option<MemoryRegion<HostBuffer>>,
    gpu: Option<GpuUse>,
    buffer: Arc<EndBuffer>,
}

/// What the adapter reads from and writes to, whichever memory that is.
pub(super) struct Reached {
    /// The local and the remote key of each region.
    keys: Vec<(u32, u32)>,
    is_strict: bool,
    /// Where it begins.
    address: u64,
    // Registered, and with its memory, as long as this is there.
    _regions: Box<dyn Send + Sync>,
}

impl Reached {
    fn of<B: Buffer + Send + Sync + 'static>(buffer: &B, regions: Vec<MemoryRegion<B>>) -> Self {
        Self {
            keys: regions.iter().map(|region| (region.lkey(), region.rkey())).collect(),
            is_strict: regions.iter().any(|region| region.ordering() == Ordering::Strict),
            address: buffer.address(),
            _regions: Box::new(regions),
        }
    }
}

impl Registered {
    /// Registers `buffer` for `role`'s part in `plan`.
    pub(in crate::session) fn new(
        pd: &Arc<ProtectionDomain>,
        plan: &Plan,
        buffer: EndBuffer,
        role: Role,
        files: &HostFiles,
    ) -> Result<Self> {
        let buffer = Arc::new(buffer);
        let layout = BufferLayout::new(plan, role);
        let wanted = Wanted {
            pd,
            layout,
            access: if plan.is_target(role) { Access::RemoteWrite } else { Access::Source },
            ordering: ordering(plan),
            files,
        };
        let flags = plan.gpu.as_ref().map(|_| wanted.flags(plan)).transpose()?;
        let (reached, gpu) = match buffer.gpu() {
            None => (wanted.register(&buffer, Registrar::Plain)?, None),
            Some(memory) => {
                let (reached, path, refused) = gpu::reach(&wanted, plan, &buffer, memory)?;
                let topology = Node::of_files(files).topology;
                let gpu = GpuUse::of(memory.gpu(), path, refused).seen_from(wanted.device(), &topology);
                (reached, Some(gpu))
            }
        };
        Ok(Self { reached, flags, gpu, buffer })
    }

    /// The local key for the memory of `qp`.
    pub(super) fn lkey(&self, qp: u32) -> u32 {
        let keys = &self.reached.keys;
        // One region has the memory of all.
        keys.get(qp as usize).or(keys.first()).map_or(0, |(lkey, _)| *lkey)
    }

    /// The keys for the peer.
    pub(super) fn rkeys(&self) -> Vec<u32> {
        self.reached.keys.iter().map(|(_, rkey)| *rkey).collect()
    }

    /// Where what the adapter reads and writes begins.
    pub(super) fn address(&self) -> u64 {
        self.reached.address
    }

    /// How it was registered, in words.
    pub(super) fn describe(&self) -> String {
        let call = match self.path() {
            Some(GpuPath::Dmabuf | GpuPath::DmabufPcie) => "ibv_reg_dmabuf_mr",
            _ => "ibv_reg_mr",
        };
        let ordering = if self.reached.is_strict { "strict ordering" } else { "relaxed ordering allowed" };
        format!("{call}, {ordering}")
    }

    /// How a GPU's memory is reached; `None` where it is the host's.
    pub(super) fn path(&self) -> Option<GpuPath> {
        self.gpu.as_ref().map(|gpu| gpu.path)
    }

    /// What this end tells of it.
    pub(in crate::session) fn end_memory(&self) -> EndMemory {
        EndMemory::of(self.buffer.as_ref(), self.gpu.clone())
    }

    /// What the processors of both ends look at, beside GPU memory.
    pub(super) fn flags(&self) -> Option<&MemoryRegion<HostBuffer>> {
        self.flags.as_ref()
    }

    /// The memory.
    pub(super) fn buffer(&self) -> &EndBuffer {
        &self.buffer
    }
}

/// What a registration is to be like.
pub(super) struct Wanted<'a> {
    pd: &'a Arc<ProtectionDomain>,
    layout: BufferLayout,
    access: Access,
    ordering: Ordering,
    files: &'a HostFiles,
}

impl Wanted<'_> {
    /// The device that it is for.
    pub(super) fn device(&self) -> &str {
        self.pd.context().name()
    }

    /// Which emulation that is, if it is one.
    pub(super) fn software(&self) -> Option<String> {
        self.pd.context().software(self.files)
    }

    /// All of `buffer`.
    pub(super) fn register<B: Buffer + Send + Sync + 'static>(
        &self,
        buffer: &Arc<B>,
        registrar: Registrar,
    ) -> Result<Reached> {
        let register =
            |span| MemoryRegion::register_by(registrar, self.pd, buffer, span, self.access, self.ordering);
        let regions = self.layout.memory_regions().map(register).collect::<Result<_>>()?;
        Ok(Reached::of(buffer.as_ref(), regions))
    }

    /// Each write in its place before the next: where a count tells of messages, they have to be there.
    pub(super) fn in_order(&self) -> Self {
        Self { ordering: Ordering::Strict, ..*self }
    }

    fn flags(&self, plan: &Plan) -> Result<MemoryRegion<HostBuffer>> {
        let len = crate::plan::flags_len(plan);
        let buffer = Arc::new(HostBuffer::new(len, MemoryKind::Host)?);
        let span = crate::mr::Span { offset: 0, len };
        let (access, ordering) = (Access::RemoteWrite, Ordering::Strict);
        MemoryRegion::register(self.pd, &buffer, span, access, ordering)
    }
}

/// Bandwidth wants relaxed ordering. Checking the data wants each write in its place when it is looked for, and a
/// message whose last byte is polled, or that a flag tells of, must be there whole by then.
fn ordering(plan: &Plan) -> Ordering {
    let polled = plan.validate || plan.traffic == Traffic::PingPong;
    if polled { Ordering::Strict } else { Ordering::Relaxed }
}
