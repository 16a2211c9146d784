//! Protection domains and registered memory.
#![allow(unsafe_code, reason = "registration is a call into libibverbs")]

use std::sync::Arc;

use rdma_sys as sys;

use crate::device::Context;
use crate::error::{Error, ErrorKind, Result, show_io_error};
use crate::host::HostFiles;
use crate::memlock::LockedMemory;
use crate::memory::{Buffer, MemoryKind};
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

/// A span of a buffer, registered: the adapter may use it as long as this value lives.
pub struct MemoryRegion<B: Buffer> {
    raw: *mut sys::ibv_mr,
    ordering: Ordering,
    pd: Arc<ProtectionDomain>,
    // Held so that the memory outlives the registration. Declared last: dropped after Drop has ended that.
    _buffer: Arc<B>,
}

// SAFETY: a memory region may be used from any thread; the pointer is set once and freed once, in Drop.
unsafe impl<B: Buffer + Send + Sync> Send for MemoryRegion<B> {}
// SAFETY: as above.
unsafe impl<B: Buffer + Send + Sync> Sync for MemoryRegion<B> {}

impl<B: Buffer> MemoryRegion<B> {
    /// Registers `span` of `buffer`. The caller has asked [`LockedMemory::check`] before. Panics where the span is not
    /// in the buffer: spans come from the layout.
    ///
    /// # Errors
    /// [`ErrorKind::Registration`] with errno, size and the limits that matter.
    pub fn register(
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
        let flags = access_flags(access, ordering);
        let verbs = pd.context().verbs();
        let (address, len) = ((buffer.address() + span.offset) as *mut libc::c_void, span.len as usize);
        // SAFETY: the buffer's memory is ours and lives until after `ibv_dereg_mr` in Drop; from here on the
        // peer's adapter may write to it, which is why a Buffer is only ever read by copy.
        let mut raw = unsafe { sys::ibv_reg_mr(verbs, pd.raw(), address, len, flags) };
        if raw.is_null() && ordering == Ordering::Relaxed {
            // Relaxed ordering is an optional flag: a library that cannot pass it on refuses it here.
            ordering = Ordering::Strict;
            let strict = access_flags(access, ordering);
            // SAFETY: as above.
            raw = unsafe { sys::ibv_reg_mr(verbs, pd.raw(), address, len, strict) };
        }
        if raw.is_null() {
            return Err(registration_error(buffer.kind(), span, pd.context()));
        }
        Ok(Self { raw, ordering, pd: Arc::clone(pd), _buffer: Arc::clone(buffer) })
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

    /// The ordering that was granted.
    pub fn ordering(&self) -> Ordering {
        self.ordering
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

fn registration_error(kind: MemoryKind, span: Span, context: &Context) -> Error {
    let errno = std::io::Error::last_os_error();
    let error = Error::new(
        ErrorKind::Registration,
        format!(
            "cannot register {} of {} on {}: ibv_reg_mr: {}",
            ByteSize(span.len),
            kind.name(),
            context.name(),
            show_io_error(&errno)
        ),
    )
    .fact("memlock", LockedMemory::of_this_process(&HostFiles::this_machine()).describe());
    match errno.raw_os_error() {
        Some(libc::ENOMEM) => {
            error.hint("raise the locked-memory limit (ulimit -l), or use a smaller --size or fewer --qp")
        }
        _ => error,
    }
}
