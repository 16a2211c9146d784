//! Memory of a GPU as the memory of facts: the same facts then hold, or don't, for a device that reaches it.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;

use cuda_sys as sys;
use cuda_sys::Cuda;

use crate::fact::Obstacle;

/// What CUDA takes from a GPU's memory at a time.
const GRANULE: usize = 2 << 20;

/// The first GPU.
struct Gpu {
    cuda: Cuda,
    context: sys::CUcontext,
}

// SAFETY: a context may be current to many threads, and is never given back.
unsafe impl Sync for Gpu {}
// SAFETY: as above.
unsafe impl Send for Gpu {}

/// Memory on it.
pub(super) struct GpuMemory {
    gpu: &'static Gpu,
    pointer: sys::CUdeviceptr,
}

impl Gpu {
    fn get() -> Result<&'static Self, Obstacle> {
        static GPU: OnceLock<Result<Gpu, String>> = OnceLock::new();
        GPU.get_or_init(Self::open).as_ref().map_err(|what| Obstacle(what.clone()))
    }

    fn open() -> Result<Self, String> {
        let name = std::env::var_os(sys::LIBRARY_VARIABLE);
        let cuda = Cuda::open(name.unwrap_or_else(|| sys::DEFAULT_LIBRARY.into()));
        let cuda = cuda.map_err(|error| error.to_string())?;
        let (mut device, mut context) = (0, core::ptr::null_mut());
        // SAFETY: the places are ours.
        let results = unsafe {
            [
                (cuda.cuInit)(0),
                (cuda.cuDeviceGet)(&mut device, 0),
                (cuda.cuDevicePrimaryCtxRetain)(&mut context, device),
            ]
        };
        match results.iter().find(|&&result| result != sys::CUDA_SUCCESS) {
            Some(&failure) => Err(format!("the GPU can't be used: {}", cuda.describe(failure))),
            None => Ok(Self { cuda, context }),
        }
    }

    /// Makes the context this thread's, and calls.
    fn call(&self, what: &str, call: impl FnOnce(&Cuda) -> sys::CUresult) -> Result<(), Obstacle> {
        // SAFETY: the context is in use.
        let bound = unsafe { (self.cuda.cuCtxSetCurrent)(self.context) };
        match if bound == sys::CUDA_SUCCESS { call(&self.cuda) } else { bound } {
            sys::CUDA_SUCCESS => Ok(()),
            failure => Err(Obstacle(format!("{what}: {}", self.cuda.describe(failure)))),
        }
    }
}

impl GpuMemory {
    /// `len` bytes, zeroed, that begin a page: CUDA puts smaller allocations beside each other.
    pub(super) fn new(len: usize) -> Result<Self, Obstacle> {
        let (gpu, mut pointer) = (Gpu::get()?, 0);
        let whole = len.next_multiple_of(GRANULE);
        // SAFETY: `pointer` is ours, and then leads to `len` bytes.
        gpu.call("cuMemAlloc", |cuda| unsafe { (cuda.cuMemAlloc_v2)(&mut pointer, whole) })?;
        let memory = Self { gpu, pointer };
        // SAFETY: as above.
        gpu.call("cuMemsetD8", |cuda| unsafe { (cuda.cuMemsetD8_v2)(pointer, 0, len) })?;
        memory.set_sync_memops()?;
        Ok(memory)
    }

    /// Copies are done when their calls return: otherwise short ones are only begun then, and a device that reads the memory
    /// may be faster.
    fn set_sync_memops(&self) -> Result<(), Obstacle> {
        let on = 1_u32;
        // SAFETY: the attribute is a number of that width, read during the call.
        self.gpu.call("cuPointerSetAttribute", |cuda| unsafe {
            let which = sys::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
            (cuda.cuPointerSetAttribute)((&raw const on).cast(), which, self.pointer)
        })
    }

    /// Its address.
    pub(super) fn address(&self) -> u64 {
        self.pointer
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    /// Where the driver fails: facts have no use for that.
    pub(super) fn put(&self, offset: usize, bytes: &[u8]) {
        let to = self.pointer + offset as u64;
        // SAFETY: the slice has that many bytes; the driver checks the device's side.
        let copied = self.gpu.call("cuMemcpyHtoD", |cuda| unsafe {
            (cuda.cuMemcpyHtoD_v2)(to, bytes.as_ptr().cast(), bytes.len())
        });
        copied.unwrap_or_else(|Obstacle(what)| panic!("{what}"));
    }

    /// Copies from `offset`.
    ///
    /// # Panics
    /// As for [`GpuMemory::put`].
    pub(super) fn get(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.pointer + offset as u64;
        // SAFETY: the slice has that many bytes; the driver checks the device's side.
        let copied = self.gpu.call("cuMemcpyDtoH", |cuda| unsafe {
            (cuda.cuMemcpyDtoH_v2)(bytes.as_mut_ptr().cast(), from, bytes.len())
        });
        copied.unwrap_or_else(|Obstacle(what)| panic!("{what}"));
    }
}

impl Drop for GpuMemory {
    fn drop(&mut self) {
        // SAFETY: ours, and freed once. There is nobody to tell of a failure.
        let _ = self.gpu.call("cuMemFree", |cuda| unsafe { (cuda.cuMemFree_v2)(self.pointer) });
    }
}

/// A dma-buf of `len` bytes at `address`, both of them whole pages.
pub(super) fn dma_buf(address: u64, len: usize) -> Result<OwnedFd, Obstacle> {
    let (gpu, mut fd) = (Gpu::get()?, -1);
    let kind = sys::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    gpu.call("cuMemGetHandleForAddressRange", |cuda| match cuda.cuMemGetHandleForAddressRange {
        // SAFETY: `fd` is ours.
        Some(call) => unsafe { call((&raw mut fd).cast(), address, len, kind, 0) },
        None => sys::CUDA_ERROR_NOT_SUPPORTED,
    })?;
    // SAFETY: the descriptor is new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
