//! The context that a process shares on a GPU.

use std::sync::Arc;

use cuda_sys as sys;

use super::{Driver, Gpu};
use crate::error::Result;

/// A GPU in use. The primary context: what the runtime and NCCL use too.
pub struct GpuContext {
    driver: &'static Driver,
    device: sys::CUdevice,
    raw: sys::CUcontext,
    gpu: Gpu,
}

// SAFETY: a primary context may be current to many threads; the pointer is set once and given back once, in Drop.
unsafe impl Send for GpuContext {}
// SAFETY: as above; the driver's calls are thread-safe.
unsafe impl Sync for GpuContext {}

impl GpuContext {
    /// Takes `gpu` into use and makes its context this thread's.
    ///
    /// # Errors
    /// The driver's, for instance where another process has the GPU for itself.
    pub fn open(driver: &'static Driver, gpu: Gpu) -> Result<Arc<Self>> {
        let device = driver.device(gpu.ordinal.cast_signed())?;
        let mut raw = core::ptr::null_mut();
        // SAFETY: `raw` is ours; the context is given back in Drop.
        let result = unsafe { (driver.table().cuDevicePrimaryCtxRetain)(&mut raw, device) };
        driver
            .check(result, "cuDevicePrimaryCtxRetain")
            .map_err(|error| error.fact("gpu", gpu.describe()))?;
        let context = Arc::new(Self { driver, device, raw, gpu });
        context.bind()?;
        Ok(context)
    }

    /// Makes the context this thread's.
    ///
    /// # Errors
    /// The driver's.
    pub fn bind(&self) -> Result<()> {
        // SAFETY: the context is in use until Drop.
        self.driver.check(unsafe { (self.driver.table().cuCtxSetCurrent)(self.raw) }, "cuCtxSetCurrent")
    }

    /// The GPU.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The driver.
    pub fn driver(&self) -> &'static Driver {
        self.driver
    }

    /// Free memory in bytes.
    ///
    /// # Errors
    /// The driver's.
    pub fn free_bytes(&self) -> Result<u64> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are ours, and the context is this thread's.
        let result = unsafe { (self.driver.table().cuMemGetInfo_v2)(&mut free, &mut total) };
        self.driver.check(result, "cuMemGetInfo").map(|()| free as u64)
    }

    /// Waits until all that was asked of the GPU is done.
    ///
    /// # Errors
    /// What failed meanwhile.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: takes nothing.
        self.driver.check(unsafe { (self.driver.table().cuCtxSynchronize)() }, "cuCtxSynchronize")
    }
}

impl Drop for GpuContext {
    fn drop(&mut self) {
        // SAFETY: everything made in the context holds an Arc of it, so nothing is left. There is nobody to tell of a
        // failure.
        unsafe { (self.driver.table().cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}
