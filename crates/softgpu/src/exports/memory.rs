//! Memory, and copies of it.

use core::ffi::{c_uint, c_void};
use cuda_sys::{CUdeviceptr, CUstream};

use crate::copy::Side;
use crate::driver::put;

exports! {
    required {
        /// Free and whole memory.
        fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |driver| {
            let (left, all) = driver.memory()?;
            // SAFETY: the caller has room for both.
            unsafe {
                put(free, left)?;
                put(total, all)
            }
        };
        /// Device memory.
        fn cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytes: usize) |driver| {
            // SAFETY: the caller has room for it.
            unsafe { put(pointer, 0)? };
            let address = driver.allocate(bytes as u64)?;
            // SAFETY: as above.
            unsafe { put(pointer, address) }
        };
        /// Frees it.
        fn cuMemFree_v2(pointer: CUdeviceptr) |driver| driver.free(pointer);
        /// Host memory.
        fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, _flags: c_uint) |driver| {
            // SAFETY: the caller has room for it.
            unsafe { put(pointer, core::ptr::null_mut())? };
            let address = driver.allocate_host(bytes as u64)?;
            // SAFETY: as above.
            unsafe { put(pointer, address.cast()) }
        };
        /// Frees it.
        fn cuMemFreeHost(pointer: *mut c_void) |driver| driver.free_host(pointer.addr() as u64);
        /// Pins memory of the program.
        fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, _flags: c_uint) |driver| {
            driver.register_host(pointer.expose_provenance() as u64, bytes as u64)
        };
        /// Ends that.
        fn cuMemHostUnregister(pointer: *mut c_void) |driver| driver.unregister_host(pointer.addr() as u64);
        /// Copies to the device.
        fn cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize) |driver| {
            // SAFETY: the caller's host memory has that many bytes.
            unsafe { driver.copy(Side::Device(to), Side::Host(from.cast_mut().cast()), bytes) }
        };
        /// Copies from the device.
        fn cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize) |driver| {
            // SAFETY: the caller's host memory has that many bytes.
            unsafe { driver.copy(Side::Host(to.cast()), Side::Device(from), bytes) }
        };
        /// Copies to the device, at once.
        fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) |driver| {
            driver.stream_is_done(stream)?;
            // SAFETY: the caller's host memory has that many bytes.
            unsafe { driver.copy(Side::Device(to), Side::Host(from.cast_mut().cast()), bytes) }
        };
        /// Copies from the device, at once.
        fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) |driver| {
            driver.stream_is_done(stream)?;
            // SAFETY: the caller's host memory has that many bytes.
            unsafe { driver.copy(Side::Host(to.cast()), Side::Device(from), bytes) }
        };
        /// Copies on the device, at once.
        fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) |driver| {
            driver.stream_is_done(stream)?;
            // SAFETY: both sides are ranges that the driver knows.
            unsafe { driver.copy(Side::Device(to), Side::Device(from), bytes) }
        };
        /// Fills with one byte.
        fn cuMemsetD8_v2(pointer: CUdeviceptr, byte: u8, bytes: usize) |driver| driver.fill(pointer, byte, bytes);
    }
    optional {}
}
