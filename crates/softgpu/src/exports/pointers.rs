//! What pointers are, and giving device memory to others.

use core::ffi::{c_uint, c_void};
use cuda_sys::{CUdeviceptr, CUipcMemHandle, CUpointer_attribute};

use crate::driver::put;
use crate::failure::Failure;

exports! {
    required {
        /// Sets an attribute.
        fn cuPointerSetAttribute(value: *const c_void, attribute: CUpointer_attribute, pointer: CUdeviceptr) |driver| {
            // SAFETY: the caller's value is of the attribute's type.
            unsafe { driver.set_attribute(value, attribute, pointer) }
        };
        /// Reads one.
        fn cuPointerGetAttribute(value: *mut c_void, attribute: CUpointer_attribute, pointer: CUdeviceptr) |driver| {
            // SAFETY: the caller has room for the attribute's type.
            unsafe { driver.attribute(value, attribute, pointer) }
        };
        /// The allocation that a pointer lies in; the caller may want one of both only.
        fn cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, pointer: CUdeviceptr) |driver| {
            let (address, len) = driver.address_range(pointer)?;
            // SAFETY: what is not NULL has room.
            unsafe {
                if !base.is_null() {
                    put(base, address)?;
                }
                if bytes.is_null() { Ok(()) } else { put(bytes, len) }
            }
        };
        /// What another process opens an allocation by.
        fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, pointer: CUdeviceptr) |driver| {
            // SAFETY: the caller has room for it.
            unsafe { put(handle, driver.ipc_handle(pointer)?) }
        };
        /// Opens another process's; the one flag that there is must be given, as with CUDA.
        fn cuIpcOpenMemHandle_v2(pointer: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) |driver| {
            if pointer.is_null() || flags != cuda_sys::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS {
                return Err(Failure::INVALID_VALUE);
            }
            // SAFETY: the caller has room for it.
            unsafe { put(pointer, driver.ipc_open(&handle)?) }
        };
        /// Closes it.
        fn cuIpcCloseMemHandle(pointer: CUdeviceptr) |driver| driver.ipc_close(pointer);
    }
    optional {
        /// A descriptor for a range of device memory.
        fn cuMemGetHandleForAddressRange(
            handle: *mut c_void, pointer: CUdeviceptr, bytes: usize, kind: c_uint, flags: u64,
        ) |driver| {
            if handle.is_null() {
                return Err(Failure::INVALID_VALUE);
            }
            // SAFETY: the caller has room for a descriptor.
            unsafe { put(handle.cast(), driver.export(pointer, bytes as u64, kind, flags)?) }
        };
    }
}
