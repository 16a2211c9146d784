//! Protection domains: which memory regions a queue pair may use.

use std::sync::atomic::{AtomicU32, Ordering};

use rdma_sys as sys;

use crate::config::Call;
use crate::context::Context;
use crate::errno::{Errno, Result};

/// A protection domain.
#[repr(C)]
pub(crate) struct ProtectionDomain {
    verbs: sys::ibv_pd,
    /// Its number, unlike all others of this process.
    pub(crate) number: u32,
    /// Queue pairs and memory regions in it.
    users: AtomicU32,
}

impl ProtectionDomain {
    /// A new one; freed by [`ProtectionDomain::free`].
    pub(crate) fn allocate(context: &Context) -> Result<*mut sys::ibv_pd> {
        context.device.faults.call(Call::AllocPd)?;
        context.objects.pds.add(context.device.description.limits.max_pd)?;
        let number = context.process.new_pd();
        let verbs = sys::ibv_pd { context: context.raw(), handle: number };
        let pd = Box::into_raw(Box::new(Self { verbs, number, users: AtomicU32::new(0) }));
        Ok(pd.cast())
    }

    /// The domain behind C's pointer.
    ///
    /// # Safety
    /// `pd` came from [`ProtectionDomain::allocate`] and is not freed.
    pub(crate) unsafe fn of<'a>(pd: *mut sys::ibv_pd) -> &'a Self {
        // SAFETY: the part that C knows comes first.
        unsafe { &*pd.cast_const().cast() }
    }

    /// # Errors
    /// `EBUSY` while something uses it.
    ///
    /// # Safety
    /// As for [`ProtectionDomain::of`].
    pub(crate) unsafe fn free(pd: *mut sys::ibv_pd) -> Result<()> {
        // SAFETY: the caller vouches for the pointer; where nothing uses the domain, it was a Box and is freed once.
        unsafe {
            let domain = Self::of(pd);
            if domain.users.load(Ordering::Acquire) > 0 {
                return Err(Errno::BUSY);
            }
            domain.context().objects.pds.remove();
            drop(Box::from_raw(pd.cast::<Self>()));
        }
        Ok(())
    }

    /// Its device.
    pub(crate) fn context(&self) -> &Context {
        // SAFETY: the device is closed after everything made on it is gone.
        unsafe { Context::of(self.verbs.context) }
    }

    /// C's pointer to it.
    pub(crate) fn raw(&self) -> *mut sys::ibv_pd {
        (&raw const self.verbs).cast_mut()
    }

    pub(crate) fn begin_use(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_use(&self) {
        self.users.fetch_sub(1, Ordering::Release);
    }
}
