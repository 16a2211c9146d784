//! Protection domains and registered memory.
#![allow(unsafe_code, reason = "registration is a call into libibverbs")]

use std::sync::Arc;

use rdma_sys as sys;

use crate::device::Context;
use crate::error::{Error, ErrorKind, Result, show_io_error};
use crate::host::HostFiles;
use crate::memlock::LockedMemory;
use crate::memory::{Buffer, LESS_MEMORY, MemoryKind};
use crate::units::ByteSize;

/// A protection domain; holds its device open.
pub struct ProtectionDomain {
    context: Arc<Context>,
    raw: *mut sys::ibv_pd,
}

// SAFETY: a protection domain may be used from any thread; the pointer is set once and freed once, in Drop.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    /// A new one on `context`.
    ///
    /// # Errors
    /// [`ErrorKind::Resource`] with the errno.
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.verbs().ibv_alloc_pd)(context.raw()) };
        if raw.is_null() {
            return Err(resource_error("a protection domain", context, "ibv_alloc_pd"));
        }
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// The raw domain, for verbs.
    pub fn raw(&self) -> *mut sys::ibv_pd {
        self.raw
    }

    /// Its device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: queue pairs and memory regions hold an Arc of this, so none is left.
        unsafe { (self.context.verbs().ibv_dealloc_pd)(self.raw) };
    }
}

/// `what` could not be made on `context`: the errno of the call that just failed.
pub(crate) fn resource_error(what: &str, context: &Context, call: &str) -> Error {
    let errno = std::io::Error::last_os_error();
    let error = Error::new(
        ErrorKind::Resource,
        format!("cannot create {what} on {}: {call}: {}", context.name(), show_io_error(&errno)),
    );
    match errno.raw_os_error() {
        Some(libc::ENOMEM) => error
            .fact("memlock", LockedMemory::of_this_process(&HostFiles::this_machine()).describe())
            .hint("the device or the locked-memory limit has no room for the queues: use fewer --qp or a smaller --tx-depth"),
        _ => error,
    }
}

/// Who may reach a region, besides this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The local adapter reads it; nobody writes to it.
    Source,
    /// The peer's adapter writes to it.
    RemoteWrite,
}

/// Whether the adapter's writes may reach memory in another order than they were made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    /// Each write is visible before the next: what polling the last byte and checking data need.
    Strict,
    /// PCIe relaxed ordering where device, kernel and library have it: what bandwidth wants on many hosts.
    Relaxed,
}

/// A stretch of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Bytes from the buffer's start to its own.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// By which call memory is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registrar {
    /// `ibv_reg_mr`, for host memory, and for a GPU's where the driver has a peer memory module.
    Plain,
    /// `ibv_reg_dmabuf_mr`, for memory that is exported as this file descriptor, from the buffer's first byte on.
    DmaBuf(i32),
}

/// A span of a buffer, registered: the adapter may use it as long as this value lives.
pub struct MemoryRegion<B: Buffer> {
    raw: *mut sys::ibv_mr,
    ordering: Ordering,
    pd: Arc<ProtectionDomain>,
    // Held so that the memory outlives the registration. Declared last: dropped after Drop has ended that.
    buffer: Arc<B>,
}

// SAFETY: a memory region may be used from any thread; the pointer is set once and freed once, in Drop.
unsafe impl<B: Buffer + Send + Sync> Send for MemoryRegion<B> {}
// SAFETY: as above.
unsafe impl<B: Buffer + Send + Sync> Sync for MemoryRegion<B> {}

impl<B: Buffer> MemoryRegion<B> {
    /// Registers `span` of `buffer`, host memory. The caller has asked [`LockedMemory::check`] before. Panics where the span
    /// is not in the buffer: spans come from the layout.
    ///
    /// # Errors
    /// [`ErrorKind::Registration`] with errno, size and the limits that matter.
    pub fn register(
        pd: &Arc<ProtectionDomain>,
        buffer: &Arc<B>,
        span: Span,
        access: Access,
        ordering: Ordering,
    ) -> Result<Self> {
        Self::register_by(Registrar::Plain, pd, buffer, span, access, ordering)
    }

    /// The same for any memory, by `registrar`.
    ///
    /// # Errors
    /// As for [`MemoryRegion::register`].
    pub fn register_by(
        registrar: Registrar,
        pd: &Arc<ProtectionDomain>,
        buffer: &Arc<B>,
        span: Span,
        access: Access,
        mut ordering: Ordering,
    ) -> Result<Self> {
        assert!(
            span.offset.checked_add(span.len).is_some_and(|end| end <= buffer.len()),
            "{span:?} of a buffer"
        );
        let address = buffer.address() + span.offset;
        // SAFETY: the buffer's memory is ours and lives until after `ibv_dereg_mr` in Drop; from here on the
        // peer's adapter may write to it, which is why a Buffer is only ever read by copy.
        let call = |flags| unsafe { registrar.call(pd, address, span, flags) };
        let mut raw = call(access_flags(access, ordering));
        if raw.is_null() && ordering == Ordering::Relaxed {
            // Relaxed ordering is an optional flag: a library that cannot pass it on refuses it here.
            ordering = Ordering::Strict;
            raw = call(access_flags(access, ordering));
        }
        if raw.is_null() {
            return Err(registration_error(buffer.kind(), span, pd.context(), registrar));
        }
        Ok(Self { raw, ordering, pd: Arc::clone(pd), buffer: Arc::clone(buffer) })
    }

    /// The key by which this end's adapter reaches it.
    pub fn lkey(&self) -> u32 {
        // SAFETY: the region is registered as long as `self` lives.
        unsafe { (*self.raw).lkey }
    }

    /// The key by which the peer's adapter reaches it.
    pub fn rkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.raw).rkey }
    }

    /// The memory.
    pub fn buffer(&self) -> &B {
        &self.buffer
    }

    /// The ordering that was granted.
    pub fn ordering(&self) -> Ordering {
        self.ordering
    }
}

impl Registrar {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "ibv_reg_mr",
            Self::DmaBuf(_) => "ibv_reg_dmabuf_mr",
        }
    }

    /// Registers `span` at `address`; NULL and errno on failure.
    ///
    /// # Safety
    /// The memory is there until the region is freed.
    unsafe fn call(self, pd: &ProtectionDomain, address: u64, span: Span, flags: u32) -> *mut sys::ibv_mr {
        let (verbs, len) = (pd.context().verbs(), span.len as usize);
        match (self, verbs.ibv_reg_dmabuf_mr) {
            // SAFETY: the caller vouches for the memory.
            (Self::Plain, _) => unsafe {
                sys::ibv_reg_mr(verbs, pd.raw(), address as *mut libc::c_void, len, flags)
            },
            // The address that work requests use is the GPU's own, as peer memory has it.
            // SAFETY: as above; the descriptor is open.
            (Self::DmaBuf(fd), Some(register)) => unsafe {
                register(pd.raw(), span.offset, len, address, fd, flags.cast_signed())
            },
            // As the kernel says it of a device that can't.
            (Self::DmaBuf(_), None) => {
                nix::errno::Errno::EOPNOTSUPP.set();
                std::ptr::null_mut()
            }
        }
    }
}

impl<B: Buffer> Drop for MemoryRegion<B> {
    fn drop(&mut self) {
        // SAFETY: the region is registered, and freed once; queue pairs that use it are dropped before it, so no
        // work request of ours is outstanding, and a late write of the peer is refused by its adapter.
        unsafe { (self.pd.context().verbs().ibv_dereg_mr)(self.raw) };
    }
}

fn access_flags(access: Access, ordering: Ordering) -> u32 {
    let access = match access {
        Access::Source => 0,
        // Remote write demands local write (InfiniBand specification, volume 1, 10.6.3.1).
        Access::RemoteWrite => sys::IBV_ACCESS_LOCAL_WRITE | sys::IBV_ACCESS_REMOTE_WRITE,
    };
    match ordering {
        Ordering::Strict => access,
        Ordering::Relaxed => access | sys::IBV_ACCESS_RELAXED_ORDERING,
    }
}

fn registration_error(kind: MemoryKind, span: Span, context: &Context, registrar: Registrar) -> Error {
    let errno = std::io::Error::last_os_error();
    let error = Error::new(
        ErrorKind::Registration,
        format!(
            "cannot register {} of {} on {}: {}: {}",
            ByteSize(span.len),
            kind.name(),
            context.name(),
            registrar.name(),
            show_io_error(&errno)
        ),
    )
    .fact("memlock", LockedMemory::of_this_process(&HostFiles::this_machine()).describe());
    match errno.raw_os_error() {
        Some(libc::ENOMEM) => {
            error.hint(format!("raise the locked-memory limit (ulimit -l), or use {LESS_MEMORY}"))
        }
        _ => error,
    }
}
