//! A GPU, and copies by it.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

use cuda_sys as sys;
use cuda_sys::Cuda;

use super::{Failed, check, load};
use crate::fabric::lock;

/// A GPU that this process uses.
pub(crate) struct Gpu {
    pub(super) cuda: &'static Cuda,
    context: sys::CUcontext,
    /// Copies of ours wait for nothing of the program's, as an adapter's do.
    stream: sys::CUstream,
}

// SAFETY: the driver's handles are for all threads, and never given back.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

/// One side of a copy.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Host(*mut u8),
    Device(sys::CUdeviceptr),
}

impl Gpu {
    /// The GPU of that number in this process.
    ///
    /// # Errors
    /// The driver's, where it can't be used.
    pub(crate) fn get(ordinal: i32) -> Result<&'static Self, Failed> {
        static GPUS: OnceLock<Mutex<HashMap<i32, &'static Gpu>>> = OnceLock::new();
        let mut gpus = lock(GPUS.get_or_init(Mutex::default));
        if let Some(gpu) = gpus.get(&ordinal) {
            return Ok(gpu);
        }
        let gpu: &'static Self = Box::leak(Box::new(Self::open(ordinal)?));
        gpus.insert(ordinal, gpu);
        Ok(gpu)
    }

    /// The GPU with that identity.
    ///
    /// # Errors
    /// As for [`Gpu::get`]; `CUDA_ERROR_INVALID_DEVICE` where this process does not see it.
    pub(super) fn of_uuid(uuid: sys::CUuuid) -> Result<&'static Self, Failed> {
        let cuda = ready()?;
        let mut count = 0;
        // SAFETY: `count` is ours.
        check(unsafe { (cuda.cuDeviceGetCount)(&mut count) })?;
        let is_it = |&ordinal: &i32| uuid_of(cuda, ordinal).is_ok_and(|found| found == uuid);
        let ordinal = (0..count).find(is_it).ok_or(Failed(sys::CUDA_ERROR_INVALID_DEVICE))?;
        Self::get(ordinal)
    }

    fn open(ordinal: i32) -> Result<Self, Failed> {
        let cuda = ready()?;
        let (mut device, mut context, mut stream) = (0, core::ptr::null_mut(), core::ptr::null_mut());
        // SAFETY: the places are ours.
        unsafe {
            check((cuda.cuDeviceGet)(&mut device, ordinal))?;
            check((cuda.cuDevicePrimaryCtxRetain)(&mut context, device))?;
        }
        let gpu = Self { cuda, context, stream: core::ptr::null_mut() };
        // SAFETY: as above, with the context this thread's.
        gpu.with(|| unsafe { check((cuda.cuStreamCreate)(&mut stream, sys::CU_STREAM_NON_BLOCKING)) })?;
        Ok(Self { stream, ..gpu })
    }

    /// Runs `body` with the GPU's context this thread's, which the thread's own is again afterwards.
    pub(super) fn with<T>(&self, body: impl FnOnce() -> Result<T, Failed>) -> Result<T, Failed> {
        // SAFETY: the context is never given back; what is popped is what was pushed.
        unsafe {
            check((self.cuda.cuCtxPushCurrent_v2)(self.context))?;
            let result = body();
            let mut own = core::ptr::null_mut();
            check((self.cuda.cuCtxPopCurrent_v2)(&mut own))?;
            result
        }
    }

    /// Copies `len` bytes, of which one side at least is on a device, and waits until they are there.
    ///
    /// # Errors
    /// The driver's, for instance where device memory is not there any more.
    ///
    /// # Safety
    /// A side on the host has `len` bytes that may be read or written.
    pub(crate) unsafe fn copy(&self, to: Side, from: Side, len: usize) -> Result<(), Failed> {
        let (cuda, stream) = (self.cuda, self.stream);
        // SAFETY: the caller vouches for the host; the driver checks the device. The stream is waited for in any case,
        // so that nothing reads or writes the memory after this.
        self.with(|| unsafe {
            let begun = check(match (to, from) {
                (Side::Device(to), Side::Host(from)) => {
                    (cuda.cuMemcpyHtoDAsync_v2)(to, from.cast_const().cast(), len, stream)
                }
                (Side::Host(to), Side::Device(from)) => {
                    (cuda.cuMemcpyDtoHAsync_v2)(to.cast(), from, len, stream)
                }
                (Side::Device(to), Side::Device(from)) => (cuda.cuMemcpyDtoDAsync_v2)(to, from, len, stream),
                (Side::Host(to), Side::Host(from)) => {
                    core::ptr::copy_nonoverlapping(from, to, len);
                    sys::CUDA_SUCCESS
                }
            });
            check((cuda.cuStreamSynchronize)(stream)).and(begun)
        })
    }

    /// Whether the driver knows of device memory there.
    pub(crate) fn knows(&self, pointer: sys::CUdeviceptr) -> bool {
        super::registered::gpu_of(self.cuda, pointer).is_some()
    }
}

/// The driver, initialised.
fn ready() -> Result<&'static Cuda, Failed> {
    let cuda = load().ok_or(Failed(sys::CUDA_ERROR_NO_DEVICE))?;
    // SAFETY: the flags are 0. Where the program has done it, it is done.
    check(unsafe { (cuda.cuInit)(0) })?;
    Ok(cuda)
}

/// The identity of a GPU.
pub(super) fn uuid_of(cuda: &Cuda, ordinal: i32) -> Result<sys::CUuuid, Failed> {
    let (mut device, mut uuid) = (0, sys::CUuuid::default());
    // SAFETY: both are ours.
    unsafe {
        check((cuda.cuDeviceGet)(&mut device, ordinal))?;
        check((cuda.cuDeviceGetUuid)(&mut uuid, device))?;
    }
    Ok(uuid)
}
