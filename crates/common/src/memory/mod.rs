//! Memory that an endpoint can use, chosen before the run: the loop sees an address and keys.

mod end;
mod gpu;
mod host;
mod inspect;

pub use end::{EndBuffer, EndMemory};
pub use gpu::{GpuMemory, GpuPath, GpuUse, Refusal};
use host::check_huge_pages;
pub use host::{HostBuffer, check_available};
pub use inspect::{Inspector, LastByte};

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::host::HostFiles;
use crate::plan::Slots;
use crate::validate::{Checked, Pattern};

/// What the bytes lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Anonymous pages of the base size.
    Host,
    /// Anonymous pages of 2 MiB.
    HostHuge,
    /// Memory of a GPU.
    Cuda,
}

impl MemoryKind {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host memory",
            Self::HostHuge => "host memory in pages of 2 MiB",
            Self::Cuda => "GPU memory",
        }
    }
}

/// What has a run need less memory, for hints.
pub(crate) const LESS_MEMORY: &str = "a smaller --size or --working-set, or fewer --qp";

/// What is asked for; an end gets a [`MemoryKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryRequest {
    /// Anonymous pages of the base size.
    Host,
    /// Anonymous pages of 2 MiB, or none.
    HostHuge,
    /// Anonymous pages of 2 MiB where there are enough, else of the base size.
    HostHugeIfAny,
}

impl MemoryRequest {
    /// Whether this machine can give `need` bytes of it.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Memory`] with what there is.
    pub fn check(self, need: u64, regions: &str, files: &HostFiles) -> Result<()> {
        match self {
            Self::Host => check_available(need, regions, files),
            Self::HostHuge => check_huge_pages(need, regions, files),
            Self::HostHugeIfAny => {
                check_huge_pages(need, regions, files).or_else(|_| check_available(need, regions, files))
            }
        }
    }

    /// `len` zero bytes of it.
    ///
    /// # Errors
    /// As [`HostBuffer::new`].
    pub fn allocate(self, len: u64) -> Result<HostBuffer> {
        match self {
            Self::Host => HostBuffer::new(len, MemoryKind::Host),
            Self::HostHuge => HostBuffer::new(len, MemoryKind::HostHuge),
            Self::HostHugeIfAny => {
                HostBuffer::new(len, MemoryKind::HostHuge).or_else(|_| HostBuffer::new(len, MemoryKind::Host))
            }
        }
    }
}

/// A stretch of memory at a fixed address that an adapter may read and write while this process does not look.
///
/// Reading and writing go by copy: nobody ever holds a reference into memory that a peer can change.
pub trait Buffer {
    /// What it is.
    fn kind(&self) -> MemoryKind;
    /// The address of its first byte, as the adapter uses it.
    fn address(&self) -> u64;
    /// Its length in bytes.
    fn len(&self) -> u64;
    /// Whether it has no byte at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies `bytes` to `offset`. Panics where they don't fit: offsets come from the layout.
    ///
    /// # Errors
    /// Those of the GPU that has the memory; there are none with host memory.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Copies from `offset` into `bytes`. Panics where they don't fit.
    ///
    /// # Errors
    /// As [`Buffer::write_at`].
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;
}

/// Patterns go through a piece of this size: it stays in the first-level cache, and bounds what a copy needs.
const PIECE: usize = 16 * 1024;

/// What a slot is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// The pattern.
    Right,
    /// Its complement, which differs in every byte.
    Poison,
}

/// Fills the slots of the region at `base` with `pattern`, whose offsets count from the region's start.
///
/// # Errors
/// Those of the memory.
pub fn fill_slots<B: Buffer>(
    buffer: &B,
    base: u64,
    slots: Slots,
    pattern: Pattern,
    fill: Fill,
) -> Result<()> {
    let mut piece = vec![0; PIECE];
    each_piece(slots, slots.count, |offset, length| {
        let bytes = &mut piece[..length];
        match fill {
            Fill::Right => pattern.fill(offset, bytes),
            Fill::Poison => pattern.poison(offset, bytes),
        }
        buffer.write_at(base + offset, bytes)
    })
}

/// Checks the first `used` slots of the region at `base`, which belongs to queue pair `qp`.
///
/// # Errors
/// Those of the memory.
pub fn check_slots<B: Buffer>(
    buffer: &B,
    base: u64,
    slots: Slots,
    used: u64,
    pattern: Pattern,
    qp: u32,
) -> Result<Checked> {
    let mut piece = vec![0; PIECE];
    let mut checked = Checked::default();
    each_piece(slots, used, |offset, length| {
        let bytes = &mut piece[..length];
        buffer.read_at(base + offset, bytes)?;
        checked.merge(pattern.check(qp, offset, bytes));
        Ok(())
    })?;
    Ok(checked)
}

fn each_piece(slots: Slots, count: u64, mut visit: impl FnMut(u64, usize) -> Result<()>) -> Result<()> {
    for slot in 0..count {
        let (begin, end) = (slots.offset(slot), slots.offset(slot) + slots.size);
        let mut offset = begin;
        while offset < end {
            let length = (end - offset).min(PIECE as u64);
            visit(offset, length as usize)?;
            offset += length;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::Direction;

    #[test]
    fn filled_slots_check_clean_and_poisoned_ones_do_not() {
        let pattern = Pattern::new(Direction::ClientToServer, 1, 0, 0);
        for size in [1, 3, 64, 1000, 4096, 40_000] {
            let slots = Slots::of(size);
            let buffer = HostBuffer::new(size.next_multiple_of(4096) + 4096, MemoryKind::Host).unwrap();
            fill_slots(&buffer, 4096, slots, pattern, Fill::Right).unwrap();
            let clean = check_slots(&buffer, 4096, slots, slots.count, pattern, 1).unwrap();
            assert_eq!((clean.checked_bytes, clean.wrong_bytes), (size * slots.count, 0));
            fill_slots(&buffer, 4096, slots, pattern, Fill::Poison).unwrap();
            assert_eq!(check_slots(&buffer, 4096, slots, 1, pattern, 1).unwrap().wrong_bytes, size);
        }
    }

    #[test]
    fn huge_pages_that_are_only_tried_for_give_way_to_base_pages() {
        let tree = tempfile::tempdir().unwrap();
        let files = HostFiles::below(tree.path());
        std::fs::create_dir_all(tree.path().join("proc")).unwrap();
        std::fs::write(tree.path().join("proc/meminfo"), "MemAvailable: 8 kB\n").unwrap();
        assert!(MemoryRequest::HostHuge.check(4096, "1", &files).is_err());
        assert!(MemoryRequest::HostHugeIfAny.check(4096, "1", &files).is_ok());
        let neither = MemoryRequest::HostHugeIfAny.check(65536, "1", &files).unwrap_err();
        assert!(neither.what.contains("8 KiB is available"), "{}", neither.what);
        // More pages than any pool has, so that the kernel refuses them; base pages are then refused as well.
        let refused = MemoryRequest::HostHugeIfAny.allocate(1 << 60).err().unwrap();
        assert!(refused.what.contains("of host memory: mmap"), "{}", refused.what);
    }
}
