//! Memory regions: keys to registered memory.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use core::ffi::c_int;
use rdma_sys as sys;

use crate::config::Call;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::fabric::{lock, take};
use crate::gpu::{Registered, registered};
use crate::memory::{CrossMemory, page_size, pages};
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

/// Beside a region's access flags in its entry: its memory is on a GPU. None of C's flags.
pub(crate) const ON_GPU: u32 = 1 << 31;
const _: () = assert!((KNOWN | sys::IBV_ACCESS_OPTIONAL_RANGE) & ON_GPU == 0);

/// A memory region.
#[repr(C)]
pub(crate) struct MemoryRegion {
    verbs: sys::ibv_mr,
    index: u32,
    range: Range<u64>,
    /// Not on a GPU.
    on_host: bool,
}

/// What is to be registered.
pub(crate) struct Registration {
    pub(crate) address: u64,
    pub(crate) len: u64,
    /// The address that work requests will call its beginning.
    pub(crate) start: u64,
    pub(crate) access: u32,
    /// How it was asked for.
    pub(crate) by: By,
}

/// How memory is named that is to be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// By its address, as all host memory is.
    Address,
    /// As a dma-buf in which it begins at `offset`.
    DmaBuf { fd: c_int, offset: u64 },
}

impl Registration {
    /// Counts the call, and looks at everything but the memory.
    fn check(&self, context: &Context) -> Result<Range<u64>> {
        match self.by {
            By::Address => context.device.faults.call(Call::RegMr)?,
            By::DmaBuf { fd, offset } => {
                if !context.device.description.gpu.dma_buf {
                    return Err(Errno::NOT_SUPPORTED);
                }
                context.device.faults.call(Call::RegDmabufMr)?;
                check_dma_buf(fd, offset, self.start)?;
            }
        }
        self.check_access()?;
        self.range(context)
    }

    /// Where `range` is on a GPU; `None`: it is host memory.
    ///
    /// # Errors
    /// `EFAULT` where the device has no way to a GPU's memory by its address, `EINVAL` for a dma-buf of something else.
    fn on_gpu(&self, range: &Range<u64>, context: &Context) -> Result<Option<Registered>> {
        match self.by {
            By::DmaBuf { .. } => registered(range, true, Errno::INVALID)?.ok_or(Errno::INVALID).map(Some),
            By::Address => match registered(range, false, Errno::FAULT)? {
                Some(_) if !context.device.description.gpu.peer_memory => Err(Errno::FAULT),
                found => Ok(found),
            },
        }
    }

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
    /// `EINVAL` for flags or a range that can't be, `EFAULT` where memory is missing, `ENOMEM` where a limit is met; for
    /// a dma-buf also `EBADF`, and `EOPNOTSUPP` where the device takes none.
    pub(crate) fn register(pd: &ProtectionDomain, wanted: &Registration) -> Result<*mut sys::ibv_mr> {
        let context = pd.context();
        let range = wanted.check(context)?;
        let on_gpu = wanted.on_gpu(&range, context)?;
        context.process.slot().take_visitors();
        let mut steps = Steps::begin(context);
        steps.count()?;
        let (index, kind, shared) = match &on_gpu {
            Some(found) => {
                let index = take(&context.process.mrs)?;
                found.show(context.process.segment.gpu(index));
                (index, ON_GPU, range.start..range.start)
            }
            None => {
                let (index, shared) = steps.host_memory(wanted, &range)?;
                (index, 0, shared)
            }
        };
        let key = publish(context.process.segment.mr(index), index, pd, wanted, kind, &shared);
        steps.keep();
        pd.begin_use();
        Ok(Self::boxed(pd, wanted, key, range, on_gpu.is_none()))
    }

    fn boxed(
        pd: &ProtectionDomain,
        wanted: &Registration,
        key: u32,
        range: Range<u64>,
        on_host: bool,
    ) -> *mut sys::ibv_mr {
        let addr = match wanted.by {
            By::Address => wanted.address,
            // As libibverbs has it.
            By::DmaBuf { offset, .. } => offset,
        };
        let verbs = sys::ibv_mr {
            context: pd.context().raw(),
            pd: pd.raw(),
            addr: addr as *mut _,
            length: wanted.len as usize,
            handle: key >> 16,
            lkey: key,
            // As drivers have it: a key that opens nothing to peers is not shown as one that might.
            rkey: if wanted.access & REMOTE != 0 { key } else { 0 },
        };
        Box::into_raw(Box::new(Self { verbs, index: key >> 16, range, on_host })).cast()
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
        if mr.on_host {
            process.arena.deregister(&mr.range);
            process.pinned.release(pages(mr.range.start, mr.range.end - mr.range.start));
        }
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

    /// Charges host memory, and opens it to peers: its entry's index, and the part that they can map.
    fn host_memory(&mut self, wanted: &Registration, range: &Range<u64>) -> Result<(u32, Range<u64>)> {
        let process = self.context.process;
        self.charge(pages(wanted.address, wanted.len))?;
        let writable = wanted.access & sys::IBV_ACCESS_LOCAL_WRITE != 0;
        let shared = process.arena.register(range, writable)?;
        let index = take(&process.mrs).inspect_err(|_| process.arena.deregister(range))?;
        if wanted.access & REMOTE != 0 && shared != *range {
            CrossMemory::allow();
        }
        Ok((index, shared))
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

/// What the kernel asks of a dma-buf before it asks the device.
fn check_dma_buf(fd: c_int, offset: u64, start: u64) -> Result<()> {
    // SAFETY: asks about a descriptor, which need not be one.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(Errno::BAD_FD);
    }
    if offset % page_size() == start % page_size() { Ok(()) } else { Err(Errno::INVALID) }
}

/// Fills the entry and opens it with a new key, which it gives.
fn publish(
    entry: &MrEntry,
    index: u32,
    pd: &ProtectionDomain,
    wanted: &Registration,
    kind: u32,
    shared: &Range<u64>,
) -> u32 {
    let key = index << 16 | next_generation();
    entry.access.store(wanted.access | kind, Ordering::Relaxed);
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
