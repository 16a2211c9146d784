//! Kernels from PTX, which the driver compiles for the GPU that is there.

use std::ffi::CString;
use std::sync::Arc;

use cuda_sys as sys;

use super::{GpuContext, Stream};
use crate::error::{Error, ErrorKind, Result};

/// A compiled module.
pub struct Module {
    context: Arc<GpuContext>,
    raw: sys::CUmodule,
}

// SAFETY: modules may be used from any thread that has the context; the pointer is set once and freed once.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Compiles `ptx`.
    ///
    /// # Errors
    /// [`ErrorKind::GpuFailed`]; a GPU older than the PTX was written for is the usual cause.
    pub fn from_ptx(context: &Arc<GpuContext>, ptx: &str) -> Result<Arc<Self>> {
        let text = CString::new(ptx)
            .map_err(|_| Error::new(ErrorKind::GpuFailed, "the kernels' text has a zero byte in it"))?;
        let (driver, mut raw) = (context.driver(), core::ptr::null_mut());
        let none = core::ptr::null_mut();
        // SAFETY: `raw` is ours, the text ends with a zero and is read during the call, there are no options.
        let result = unsafe {
            (driver.table().cuModuleLoadDataEx)(&mut raw, text.as_ptr().cast(), 0, none, none.cast())
        };
        driver.check(result, "cuModuleLoadData").map_err(|error| {
            error.fact("gpu", format!("compute capability {}", context.gpu().compute_capability))
        })?;
        Ok(Arc::new(Self { context: Arc::clone(context), raw }))
    }

    /// The kernel called `name`.
    ///
    /// # Errors
    /// The driver's.
    pub fn kernel(self: &Arc<Self>, name: &str) -> Result<Kernel> {
        let text = CString::new(name).unwrap_or_default();
        let (driver, mut function) = (self.context.driver(), core::ptr::null_mut());
        // SAFETY: `function` is ours, the name ends with a zero.
        let result = unsafe { (driver.table().cuModuleGetFunction)(&mut function, self.raw, text.as_ptr()) };
        driver.check(result, &format!("cuModuleGetFunction {name}"))?;
        Ok(Kernel { module: Arc::clone(self), function })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: ours, and unloaded once; kernels hold an Arc of it.
        unsafe { (self.context.driver().table().cuModuleUnload)(self.raw) };
    }
}

/// A kernel.
pub struct Kernel {
    module: Arc<Module>,
    function: sys::CUfunction,
}

// SAFETY: as for its module.
unsafe impl Send for Kernel {}

impl Kernel {
    /// Launches `blocks` blocks of `threads` threads in `stream`, with what `parameters` point to, which is copied.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    ///
    /// The parameters must be those that the kernel declares, in order, and the memory that they name must stay until
    /// the stream has come to the kernel's end.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        blocks: u32,
        threads: u32,
        parameters: &mut [*mut core::ffi::c_void],
    ) -> Result<()> {
        let driver = self.module.context.driver();
        // SAFETY: the caller vouches for the parameters.
        let result = unsafe {
            (driver.table().cuLaunchKernel)(
                self.function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream.raw(),
                parameters.as_mut_ptr(),
                core::ptr::null_mut(),
            )
        };
        driver.check(result, "cuLaunchKernel")
    }
}
