//! Protection domains, pages, and their registration.

use std::cell::Cell;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr;
use std::rc::Rc;

use rdma_sys as sys;

use super::gpu::{GpuMemory, dma_buf};
use super::kind::next_kind;
use super::{Device, MemoryKind, Refused, Remote, SOON, Sge, within};
use crate::fact::{Obstacle, Outcome};
use crate::shown::Errno;

/// A protection domain.
pub(crate) struct Pd {
    device: Rc<Device>,
    pub(super) raw: *mut sys::ibv_pd,
    live: Cell<bool>,
}

impl Pd {
    pub(super) fn new(device: &Rc<Device>) -> Result<Rc<Self>, Refused> {
        // SAFETY: the context is open.
        let raw = unsafe { (device.verbs.ibv_alloc_pd)(device.raw) };
        if raw.is_null() {
            return Err(Refused::last("ibv_alloc_pd"));
        }
        Ok(Rc::new(Self { device: Rc::clone(device), raw, live: Cell::new(true) }))
    }

    /// Its device.
    pub(crate) fn device(&self) -> &Rc<Device> {
        &self.device
    }

    /// Frees it, or is told why not.
    pub(crate) fn free(&self) -> Errno {
        // SAFETY: the domain is alive: only a call that succeeds frees it, and that is remembered.
        let errno = Errno(unsafe { (self.device.verbs.ibv_dealloc_pd)(self.raw) });
        self.live.set(errno != Errno::DONE);
        errno
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        if self.live.get() {
            self.free();
        }
    }
}

/// Pages of this process or of a GPU, zeroed at first. A device may change them at any time, so they are read and written byte
/// by byte, never borrowed.
pub(crate) struct Pages {
    start: *mut u8,
    len: usize,
    kind: MemoryKind,
    /// Where it is on a GPU: then nothing may be done at `start` by this process itself.
    gpu: Option<GpuMemory>,
}

/// The page size of x86-64 and of most other kernels; a larger one makes buffers larger and nothing else.
pub(crate) const PAGE: usize = 4096;

impl Pages {
    /// Pages for `len` bytes.
    pub(crate) fn new(len: usize) -> Result<Rc<Self>, Obstacle> {
        match next_kind() {
            MemoryKind::Host => Self::on_host(len),
            kind => {
                let memory = GpuMemory::new(len)?;
                let start = ptr::without_provenance_mut(memory.address() as usize);
                Ok(Rc::new(Self { start, len, kind, gpu: Some(memory) }))
            }
        }
    }

    fn on_host(len: usize) -> Result<Rc<Self>, Obstacle> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping where the kernel likes touches nothing that exists.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Obstacle(format!("mmap of {len} bytes: {}", Errno::last())));
        }
        Ok(Rc::new(Self { start: start.cast(), len, kind: MemoryKind::Host, gpu: None }))
    }

    /// Takes the right to write away.
    pub(crate) fn make_read_only(&self) -> Outcome {
        if self.gpu.is_some() {
            return Err(Obstacle("memory of a GPU can't be made read-only".into()));
        }
        // SAFETY: the mapping is ours; `put` is not called after this by the fact that does it.
        match unsafe { libc::mprotect(self.start.cast(), self.len, libc::PROT_READ) } {
            0 => Ok(()),
            _ => Err(Obstacle(format!("mprotect: {}", Errno::last()))),
        }
    }

    /// The address of the byte at `offset`.
    pub(crate) fn address(&self, offset: usize) -> u64 {
        self.start.addr() as u64 + offset as u64
    }

    /// Writes `bytes` at `offset`.
    pub(crate) fn put(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len);
        if let Some(gpu) = &self.gpu {
            return gpu.put(offset, bytes);
        }
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: within the mapping; volatile, since the device may write at the same time.
            unsafe { self.start.add(offset + index).write_volatile(*byte) };
        }
    }

    /// The bytes of `range`, as they are now.
    pub(crate) fn get(&self, range: Range<usize>) -> Vec<u8> {
        assert!(range.end <= self.len);
        if let Some(gpu) = &self.gpu {
            let mut bytes = vec![0; range.len()];
            gpu.get(range.start, &mut bytes);
            return bytes;
        }
        // SAFETY: within the mapping; volatile, since the device may write at the same time.
        range.map(|offset| unsafe { self.start.add(offset).read_volatile() }).collect()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.gpu.is_some() {
            return;
        }
        // SAFETY: the mapping is ours, and registrations of it hold an Rc.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// Everything a peer may do here.
pub(crate) const ALL_ACCESS: u32 = sys::IBV_ACCESS_LOCAL_WRITE
    | sys::IBV_ACCESS_REMOTE_WRITE
    | sys::IBV_ACCESS_REMOTE_READ
    | sys::IBV_ACCESS_REMOTE_ATOMIC;

/// A registered part of pages.
pub(crate) struct Region {
    pd: Rc<Pd>,
    raw: *mut sys::ibv_mr,
    live: Cell<bool>,
    range: Range<usize>,
    /// What the device calls the first byte.
    base: u64,
    // Held so that the memory outlives its registration.
    pages: Rc<Pages>,
}

impl Region {
    /// Registers `range` of `pages`.
    pub(crate) fn new(
        pd: &Rc<Pd>,
        pages: &Rc<Pages>,
        range: Range<usize>,
        access: u32,
    ) -> Result<Self, Refused> {
        assert!(range.end <= pages.len);
        let base = pages.address(range.start);
        // SAFETY: the memory is mapped until after the registration ends, and is only ever read by copy.
        let raw = unsafe {
            match pages.kind {
                MemoryKind::DmaBuf => register_dma_buf(pd, base, range.len(), access),
                MemoryKind::Host | MemoryKind::Gpu => register(pd, base, range.len(), access),
            }?
        };
        Ok(Self { pd: Rc::clone(pd), raw, live: Cell::new(true), range, base, pages: Rc::clone(pages) })
    }

    /// Registers all of `pages` under addresses that begin at `iova`.
    pub(crate) fn at_iova(pd: &Rc<Pd>, pages: &Rc<Pages>, iova: u64, access: u32) -> Result<Self, Refused> {
        const CALL: &str = "ibv_reg_mr_iova2";
        let Some(call) = pd.device.verbs.ibv_reg_mr_iova2 else {
            return Err(Refused { call: CALL, errno: Errno::EOPNOTSUPP });
        };
        // SAFETY: as above.
        let raw = unsafe { call(pd.raw, pages.start.cast(), pages.len, iova, access) };
        if raw.is_null() {
            return Err(Refused::last(CALL));
        }
        let range = 0..pages.len;
        Ok(Self { pd: Rc::clone(pd), raw, live: Cell::new(true), range, base: iova, pages: Rc::clone(pages) })
    }

    /// Asks to register `len` bytes at `address`, where nothing of ours may be; ends the registration at once.
    pub(crate) fn try_at(pd: &Rc<Pd>, address: u64, len: usize, access: u32) -> Result<(), Refused> {
        // SAFETY: nobody is given the key, so nothing is read or written through the registration.
        let raw = unsafe { register(pd, address, len, access) }?;
        // SAFETY: it is ours and freed once.
        unsafe { (pd.device.verbs.ibv_dereg_mr)(raw) };
        Ok(())
    }

    /// The memory.
    pub(crate) fn pages(&self) -> &Rc<Pages> {
        &self.pages
    }

    /// How long it is.
    pub(crate) fn len(&self) -> usize {
        self.range.len()
    }

    /// What the library wrote into the `ibv_mr`: address, length, whether context and domain are ours.
    pub(crate) fn fields(&self) -> (u64, usize, bool) {
        // SAFETY: the registration is alive.
        let mr = unsafe { &*self.raw };
        let ours = mr.pd == self.pd.raw && mr.context == self.pd.device.raw;
        (mr.addr.addr() as u64, mr.length, ours)
    }

    /// The local key.
    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: the registration is alive; facts that end it take the keys before.
        unsafe { (*self.raw).lkey }
    }

    /// The remote key.
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.raw).rkey }
    }

    /// A piece of it as local memory of a request.
    pub(crate) fn sge(&self, part: Range<usize>) -> Sge {
        assert!(part.end <= self.len());
        Sge { addr: self.base + part.start as u64, len: part.len() as u32, lkey: self.lkey() }
    }

    /// A place in it as a peer names it.
    pub(crate) fn remote(&self, offset: usize) -> Remote {
        Remote { addr: self.base + offset as u64, rkey: self.rkey() }
    }

    /// Writes into the region's memory.
    pub(crate) fn put(&self, offset: usize, bytes: &[u8]) {
        self.pages.put(self.range.start + offset, bytes);
    }

    /// Reads from the region's memory.
    pub(crate) fn get(&self, part: Range<usize>) -> Vec<u8> {
        let start = self.range.start;
        self.pages.get(start + part.start..start + part.end)
    }

    /// Waits until the byte at `offset` is `byte`: until a peer has written it, whatever completions say.
    pub(crate) fn await_byte(&self, offset: usize, byte: u8) -> Outcome {
        within(SOON, || (self.get(offset..offset + 1) == [byte]).then_some(()))
            .ok_or_else(|| Obstacle(format!("byte {offset} did not become {byte:#04x} within {SOON:?}")))
    }

    /// Ends the registration, or is told why not.
    pub(crate) fn end(&self) -> Errno {
        // SAFETY: the registration is alive: only a call that succeeds ends it, and that is remembered.
        let errno = Errno(unsafe { (self.pd.device.verbs.ibv_dereg_mr)(self.raw) });
        self.live.set(errno != Errno::DONE);
        errno
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.live.get() {
            self.end();
        }
    }
}

/// The same by a dma-buf of the pages that the bytes lie in.
///
/// # Safety
/// As for [`register`].
unsafe fn register_dma_buf(
    pd: &Rc<Pd>,
    address: u64,
    len: usize,
    access: u32,
) -> Result<*mut sys::ibv_mr, Refused> {
    const CALL: &str = "ibv_reg_dmabuf_mr";
    let offset = address % PAGE as u64;
    let refused = |errno| Refused { call: CALL, errno };
    let whole = (offset as usize + len).next_multiple_of(PAGE);
    let fd = dma_buf(address - offset, whole).map_err(|_| refused(Errno(libc::EIO)))?;
    let call = pd.device.verbs.ibv_reg_dmabuf_mr.ok_or(refused(Errno::EOPNOTSUPP))?;
    // SAFETY: the domain is alive; the rest is the caller's promise. The registration keeps the memory, not the
    // descriptor.
    let raw = unsafe { call(pd.raw, offset, len, address, fd.as_raw_fd(), access.cast_signed()) };
    if raw.is_null() { Err(Refused::last(CALL)) } else { Ok(raw) }
}

/// # Safety
/// The memory must stay as it is until the registration is ended, or the key be told to nobody.
unsafe fn register(pd: &Rc<Pd>, address: u64, len: usize, access: u32) -> Result<*mut sys::ibv_mr, Refused> {
    let address = ptr::without_provenance_mut(address as usize);
    // SAFETY: the domain is alive; the rest is the caller's promise.
    let raw = unsafe { sys::ibv_reg_mr(pd.device.verbs, pd.raw, address, len, access) };
    if raw.is_null() { Err(Refused::last("ibv_reg_mr")) } else { Ok(raw) }
}
