//! The memory of one end of a run, whatever it is.

use serde::{Deserialize, Serialize};

use super::{Buffer, GpuMemory, GpuUse, HostBuffer, MemoryKind};
use crate::error::Result;

/// The memory that an end reads from and is written to.
pub enum EndBuffer {
    /// Of the host.
    Host(HostBuffer),
    /// Of a GPU.
    Gpu(GpuMemory),
}

impl EndBuffer {
    /// It, where it is a GPU's.
    pub fn gpu(&self) -> Option<&GpuMemory> {
        match self {
            Self::Host(_) => None,
            Self::Gpu(memory) => Some(memory),
        }
    }
}

impl Buffer for EndBuffer {
    fn kind(&self) -> MemoryKind {
        match self {
            Self::Host(buffer) => buffer.kind(),
            Self::Gpu(memory) => memory.kind(),
        }
    }

    fn address(&self) -> u64 {
        match self {
            Self::Host(buffer) => buffer.address(),
            Self::Gpu(memory) => memory.address(),
        }
    }

    fn len(&self) -> u64 {
        match self {
            Self::Host(buffer) => buffer.len(),
            Self::Gpu(memory) => memory.len(),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Host(buffer) => Buffer::write_at(buffer, offset, bytes),
            Self::Gpu(memory) => memory.write_at(offset, bytes),
        }
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        match self {
            Self::Host(buffer) => Buffer::read_at(buffer, offset, bytes),
            Self::Gpu(memory) => memory.read_at(offset, bytes),
        }
    }
}

/// The memory of one end, as it tells the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndMemory {
    /// What this end got.
    pub kind: MemoryKind,
    /// Its length.
    pub bytes: u64,
    /// Whose it is and how it is reached; absent where it is the host's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gpu: Option<GpuUse>,
}

impl EndMemory {
    /// Of `buffer`; a GPU's is reached as `gpu` says.
    pub fn of<B: Buffer>(buffer: &B, gpu: Option<GpuUse>) -> Self {
        Self { kind: buffer.kind(), bytes: buffer.len(), gpu }
    }
}
