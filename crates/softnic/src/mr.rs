//! Memory regions: keys to registered memory.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use rdma_sys as sys;

use crate::config::Call;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::fabric::{lock, take};
use crate::memory::{CrossMemory, pages};
use crate::pd::ProtectionDomain;
use crate::shared::MrEntry;

/// Access flags that there are; the optional ones are taken and change nothing.
const KNOWN: u32 = sys::IBV_ACCESS_LOCAL_WRITE
    | sys::IBV_ACCESS_REMOTE_WRITE
    | sys::IBV_ACCESS_REMOTE_READ
    | sys::IBV_ACCESS_REMOTE_ATOMIC
    | sys::IBV_ACCESS_MW_BIND
    | sys::IBV_ACCESS_ZERO_BASED
    | sys::IBV_ACCESS_ON_DEMAND
    | sys::IBV_ACCESS_HUGETLB
    | sys::IBV_ACCESS_OPTIONAL_RANGE;
const REMOTE: u32 =
    sys::IBV_ACCESS_REMOTE_WRITE | sys::IBV_ACCESS_REMOTE_READ | sys::IBV_ACCESS_REMOTE_ATOMIC;

/// A memory region.
#[repr(C)]
pub(crate) struct MemoryRegion {
    verbs: sys::ibv_mr,
    index: u32,
    range: Range<u64>,
}

/// What is to be registered.
pub(crate) struct Registration {
    pub(crate) address: u64,
    pub(crate) len: u64,
    /// The address that work requests will call its beginning.
    pub(crate) start: u64,
    pub(crate) access: u32,
}

impl Registration {
    /// The range of this process's memory.
    fn range(&self, context: &Context) -> Result<Range<u64>> {
        let end = self.address.checked_add(self.len).ok_or(Errno::INVALID)?;
        if self.len == 0 || self.len > context.device.description.limits.max_mr_size {
            return Err(Errno::INVALID);
        }
        Ok(self.address..end)
    }

    fn check_access(&self) -> Result<()> {
        let needs_local = sys::IBV_ACCESS_REMOTE_WRITE | sys::IBV_ACCESS_REMOTE_ATOMIC;
        let local = self.access & sys::IBV_ACCESS_LOCAL_WRITE != 0;
        if self.access & !KNOWN != 0 || (self.access & needs_local != 0 && !local) {
            return Err(Errno::INVALID);
        }
        if self.access & sys::IBV_ACCESS_ON_DEMAND != 0 {
            return Err(Errno::NOT_SUPPORTED);
        }
        Ok(())
    }
}

impl MemoryRegion {
    /// Registers memory; freed by [`MemoryRegion::deregister`].
    ///
    /// # Errors
    /// `EINVAL` for flags or a range that can't be, `EFAULT` where memory is missing, `ENOMEM` where a limit is met.
    pub(crate) fn register(pd: &ProtectionDomain, wanted: &Registration) -> Result<*mut sys::ibv_mr> {
        let context = pd.context();
        context.device.faults.call(Call::RegMr)?;
        wanted.check_access()?;
        let range = wanted.range(context)?;
        context.process.slot().take_visitors();
        let mut steps = Steps::begin(context);
        steps.count()?;
        steps.charge(pages(wanted.address, wanted.len))?;
        let writable = wanted.access & sys::IBV_ACCESS_LOCAL_WRITE != 0;
        let shared = context.process.arena.register(&range, writable)?;
        let key = match take(&context.process.mrs) {
            Ok(index) => publish(context.process.segment.mr(index), index, pd, wanted, &shared),
            Err(errno) => {
                context.process.arena.deregister(&range);
                return Err(errno);
            }
        };
        if wanted.access & REMOTE != 0 && shared != range {
            CrossMemory::allow();
        }
        steps.keep();
        pd.begin_use();
        Ok(Self::boxed(pd, wanted, key, range))
    }

    fn boxed(pd: &ProtectionDomain, wanted: &Registration, key: u32, range: Range<u64>) -> *mut sys::ibv_mr {
        let verbs = sys::ibv_mr {
            context: pd.context().raw(),
            pd: pd.raw(),
            addr: wanted.address as *mut _,
            length: wanted.len as usize,
            handle: key >> 16,
            lkey: key,
            // As drivers have it: a key that opens nothing to peers is not shown as one that might.
            rkey: if wanted.access & REMOTE != 0 { key } else { 0 },
        };
        Box::into_raw(Box::new(Self { verbs, index: key >> 16, range })).cast()
    }

    /// Ends a registration: from then on no peer reaches the memory.
    ///
    /// # Safety
    /// `mr` came from [`MemoryRegion::register`] and is not freed.
    pub(crate) unsafe fn deregister(mr: *mut sys::ibv_mr) {
        // SAFETY: the caller vouches for the pointer; it was a Box, and is freed once.
        let mr = unsafe { Box::from_raw(mr.cast::<Self>()) };
        // SAFETY: the domain is freed after everything in it.
        let pd = unsafe { ProtectionDomain::of(mr.verbs.pd) };
        let context = pd.context();
        let process = context.process;
        process.segment.mr(mr.index).key.store(0, Ordering::Release);
        crate::qp::wait_for_peers(process);
        process.arena.deregister(&mr.range);
        process.pinned.release(pages(mr.range.start, mr.range.end - mr.range.start));
        lock(&process.mrs).give(mr.index);
        context.objects.mrs.remove();
        pd.end_use();
    }
}

/// The parts of a registration that have to be taken back where a later part fails.
struct Steps<'a> {
    context: &'a Context,
    counted: bool,
    charged: u64,
}

impl<'a> Steps<'a> {
    fn begin(context: &'a Context) -> Self {
        Self { context, counted: false, charged: 0 }
    }

    fn count(&mut self) -> Result<()> {
        self.context.objects.mrs.add(self.context.device.description.limits.max_mr)?;
        self.counted = true;
        Ok(())
    }

    fn charge(&mut self, pages: u64) -> Result<()> {
        self.context.process.pinned.charge(pages)?;
        self.charged = pages;
        Ok(())
    }

    fn keep(mut self) {
        self.counted = false;
        self.charged = 0;
    }
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        self.context.process.pinned.release(self.charged);
        if self.counted {
            self.context.objects.mrs.remove();
        }
    }
}

/// Fills the entry and opens it with a new key, which it gives.
fn publish(
    entry: &MrEntry,
    index: u32,
    pd: &ProtectionDomain,
    wanted: &Registration,
    shared: &Range<u64>,
) -> u32 {
    let key = index << 16 | next_generation();
    entry.access.store(wanted.access, Ordering::Relaxed);
    entry.pd.store(pd.number, Ordering::Relaxed);
    entry.start.store(wanted.start, Ordering::Relaxed);
    entry.len.store(wanted.len, Ordering::Relaxed);
    entry.address.store(wanted.address, Ordering::Relaxed);
    entry.shared_from.store(shared.start, Ordering::Relaxed);
    entry.shared_to.store(shared.end, Ordering::Relaxed);
    entry.key.store(key, Ordering::Release);
    key
}

/// The low half of a key, another for each region of this process, and begun at another place by each process: a key
/// that is not valid any more, or that is another process's, opens nothing by accident.
fn next_generation() -> u32 {
    static GENERATION: AtomicU32 = AtomicU32::new(0);
    let count = GENERATION.fetch_add(1, Ordering::Relaxed);
    std::process::id().wrapping_mul(0x9e37).wrapping_add(count) & 0xffff
}
