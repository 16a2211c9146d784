//! Beginning, GPUs and contexts.

use core::ffi::{CStr, c_char, c_int, c_uint};
use cuda_sys as sys;
use sys::{CUcontext, CUdevice, CUdevice_attribute, CUresult};

use crate::context::pop_current;
use crate::driver::{initialise, put, status};
use crate::failure::{Failure, Result, name, words};
use crate::gpu::{VERSION, put_text};

/// Begins.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "named as in C")]
pub(crate) unsafe extern "C" fn cuInit(flags: c_uint) -> CUresult {
    status(initialise(flags))
}

/// The CUDA that the driver follows; before [`cuInit`] too.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "named as in C")]
pub(crate) unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> CUresult {
    // SAFETY: the caller has room for it.
    status(unsafe { put(version, VERSION) })
}

/// A result's name.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "named as in C")]
pub(crate) unsafe extern "C" fn cuGetErrorName(error: CUresult, text: *mut *const c_char) -> CUresult {
    // SAFETY: the caller has room for it.
    status(unsafe { put_words(text, name(error)) })
}

/// A result in words.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "named as in C")]
pub(crate) unsafe extern "C" fn cuGetErrorString(error: CUresult, text: *mut *const c_char) -> CUresult {
    // SAFETY: the caller has room for it.
    status(unsafe { put_words(text, words(error)) })
}

/// NULL and `CUDA_ERROR_INVALID_VALUE` for a result that is not known, as with CUDA.
unsafe fn put_words(place: *mut *const c_char, text: Option<&'static CStr>) -> Result<()> {
    // SAFETY: the caller vouches for the room.
    unsafe { put(place, text.map_or(core::ptr::null(), CStr::as_ptr)) }?;
    text.map(drop).ok_or(Failure::INVALID_VALUE)
}

exports! {
    required {
        /// How many GPUs there are.
        fn cuDeviceGetCount(count: *mut c_int) |driver| {
            // SAFETY: the caller has room for it.
            unsafe { put(count, driver.config.gpus as c_int) }
        };
        /// A GPU by its number, which is its handle.
        fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) |driver| {
            // SAFETY: the caller has room for it.
            unsafe { put(device, driver.gpu(ordinal)? as CUdevice) }
        };
        /// Its name.
        fn cuDeviceGetName(text: *mut c_char, length: c_int, device: CUdevice) |driver| {
            driver.gpu(device)?;
            // SAFETY: the caller has room for `length` bytes.
            unsafe { put_text(text, length, &driver.config.name) }
        };
        /// Its identity.
        fn cuDeviceGetUuid(uuid: *mut sys::CUuuid, device: CUdevice) |driver| {
            // SAFETY: the caller has room for it.
            unsafe { put(uuid, driver.uuid(driver.gpu(device)?)) }
        };
        /// Its memory in bytes.
        fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) |driver| {
            driver.gpu(device)?;
            // SAFETY: the caller has room for it.
            unsafe { put(bytes, driver.config.memory as usize) }
        };
        /// Its PCI address.
        fn cuDeviceGetPCIBusId(id: *mut c_char, length: c_int, device: CUdevice) |driver| {
            // SAFETY: the caller has room for `length` bytes.
            unsafe { put_text(id, length, &driver.pci_address(driver.gpu(device)?)) }
        };
        /// A GPU by its PCI address.
        fn cuDeviceGetByPCIBusId(device: *mut CUdevice, id: *const c_char) |driver| {
            if id.is_null() {
                return Err(Failure::INVALID_VALUE);
            }
            // SAFETY: the caller's address is a C string, and there is room for the number.
            unsafe { put(device, driver.gpu_at(CStr::from_ptr(id))? as CUdevice) }
        };
        /// One of its attributes.
        fn cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice) |driver| {
            // SAFETY: the caller has room for it.
            unsafe { put(value, driver.gpu_attribute(driver.gpu(device)?, attribute)?) }
        };
        /// Every GPU reaches the memory of every other one.
        fn cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice) |driver| {
            let other = driver.gpu(device)? != driver.gpu(peer)?;
            // SAFETY: the caller has room for it.
            unsafe { put(can, other.into()) }
        };
        /// Takes a primary context into use.
        fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) |driver| {
            let gpu = driver.gpu(device)?;
            if context.is_null() {
                return Err(Failure::INVALID_VALUE);
            }
            // SAFETY: the caller has room for it.
            unsafe { put(context, driver.retain(gpu)?) }
        };
        /// Gives it back.
        fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) |driver| driver.release(driver.gpu(device)?);
        /// Makes a context this thread's.
        fn cuCtxSetCurrent(context: CUcontext) |driver| driver.set_current(context);
        /// Makes a context this thread's until it is popped.
        fn cuCtxPushCurrent_v2(context: CUcontext) |driver| driver.push_current(context);
        /// Ends that.
        fn cuCtxPopCurrent_v2(context: *mut CUcontext) |_driver| {
            let popped = pop_current()?;
            // SAFETY: the caller has room for it, or does not want to know.
            if context.is_null() { Ok(()) } else { unsafe { put(context, popped) } }
        };
        /// All is done.
        fn cuCtxSynchronize() |driver| driver.read().current().map(drop);
    }
    optional {}
}
