//! The CUDA driver, loaded at run time.
//!
//! The types, constants and functions of `cuda.h` that the tools need, as a table of pointers ([`Cuda`]). A program
//! that uses it builds without a toolkit and starts where there is no driver: that is a [`LoadError`]. No C
//! enumeration is a Rust one, so that an error or attribute that only a newer driver knows is an odd number and nothing
//! worse. Names are C's, with the suffix of the version whose types are used. Nothing is checked here.

mod types;

pub use loader::LoadError;
pub use types::*;

use core::ffi::{c_char, c_int, c_uint, c_void};
use loader::library_table;

/// The name opened unless [`LIBRARY_VARIABLE`] says otherwise: it comes with the driver, not with a toolkit.
pub const DEFAULT_LIBRARY: &str = "libcuda.so.1";

/// The environment variable that names another library to open, as a path or a soname.
pub const LIBRARY_VARIABLE: &str = "LINKPROOF_CUDA";

library_table! {
    /// A loaded driver.
    ///
    /// Each field is the function of its name; those that are `Option`s are newer than CUDA 11.0.
    pub struct Cuda opens "the CUDA driver";
    required {
        /// Begins; before any other call.
        fn cuInit(flags: c_uint) -> CUresult;
        /// The newest CUDA that the driver knows, as `major * 1000 + minor * 10`.
        fn cuDriverGetVersion(version: *mut c_int) -> CUresult;
        /// A result's name; static.
        fn cuGetErrorName(error: CUresult, name: *mut *const c_char) -> CUresult;
        /// A result in words; static.
        fn cuGetErrorString(error: CUresult, words: *mut *const c_char) -> CUresult;
        /// How many GPUs this process may use.
        fn cuDeviceGetCount(count: *mut c_int) -> CUresult;
        /// A GPU by its number.
        fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> CUresult;
        /// Its name.
        fn cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice) -> CUresult;
        /// Its identity.
        fn cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice) -> CUresult;
        /// Its memory in bytes.
        fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) -> CUresult;
        /// Its PCI address, as `domain:bus:device.function`.
        fn cuDeviceGetPCIBusId(id: *mut c_char, length: c_int, device: CUdevice) -> CUresult;
        /// A GPU by its PCI address.
        fn cuDeviceGetByPCIBusId(device: *mut CUdevice, id: *const c_char) -> CUresult;
        /// One of its attributes.
        fn cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice) -> CUresult;
        /// Whether one GPU can reach the memory of another.
        fn cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice) -> CUresult;
        /// The context that the process shares on a GPU.
        fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> CUresult;
        /// Gives it back.
        fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> CUresult;
        /// Makes a context this thread's.
        fn cuCtxSetCurrent(context: CUcontext) -> CUresult;
        /// Makes a context this thread's until it is popped, whatever the thread had before.
        fn cuCtxPushCurrent_v2(context: CUcontext) -> CUresult;
        /// Ends that, and tells which it was.
        fn cuCtxPopCurrent_v2(context: *mut CUcontext) -> CUresult;
        /// Waits until all of the context is done.
        fn cuCtxSynchronize() -> CUresult;
        /// Free and whole memory in bytes.
        fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult;
        /// Device memory.
        fn cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytes: usize) -> CUresult;
        /// Frees it.
        fn cuMemFree_v2(pointer: CUdeviceptr) -> CUresult;
        /// Host memory that the GPU reaches directly.
        fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) -> CUresult;
        /// Frees it.
        fn cuMemFreeHost(pointer: *mut c_void) -> CUresult;
        /// Pins memory that the process has.
        fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint) -> CUresult;
        /// Ends that.
        fn cuMemHostUnregister(pointer: *mut c_void) -> CUresult;
        /// Copies to the device, and waits.
        fn cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize) -> CUresult;
        /// Copies from the device, and waits.
        fn cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize) -> CUresult;
        /// Copies to the device, in the stream's turn.
        fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) -> CUresult;
        /// Copies from the device, in the stream's turn.
        fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult;
        /// Copies on the device, in the stream's turn.
        fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult;
        /// Fills with one byte.
        fn cuMemsetD8_v2(pointer: CUdeviceptr, byte: u8, bytes: usize) -> CUresult;
        /// Sets an attribute of an allocation.
        fn cuPointerSetAttribute(
            value: *const c_void, attribute: CUpointer_attribute, pointer: CUdeviceptr,
        ) -> CUresult;
        /// Reads an attribute of a pointer.
        fn cuPointerGetAttribute(
            value: *mut c_void, attribute: CUpointer_attribute, pointer: CUdeviceptr,
        ) -> CUresult;
        /// The allocation that a pointer lies in.
        fn cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, pointer: CUdeviceptr) -> CUresult;
        /// What another process opens an allocation by.
        fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, pointer: CUdeviceptr) -> CUresult;
        /// Opens another process's allocation.
        fn cuIpcOpenMemHandle_v2(
            pointer: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint,
        ) -> CUresult;
        /// Closes it.
        fn cuIpcCloseMemHandle(pointer: CUdeviceptr) -> CUresult;
        /// A new stream.
        fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> CUresult;
        /// Destroys it when it is done.
        fn cuStreamDestroy_v2(stream: CUstream) -> CUresult;
        /// Waits until it is done.
        fn cuStreamSynchronize(stream: CUstream) -> CUresult;
        /// Whether it is done: success, or [`CUDA_ERROR_NOT_READY`].
        fn cuStreamQuery(stream: CUstream) -> CUresult;
        /// Makes what comes later in the stream wait for an event.
        fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) -> CUresult;
        /// A new event.
        fn cuEventCreate(event: *mut CUevent, flags: c_uint) -> CUresult;
        /// Destroys it.
        fn cuEventDestroy_v2(event: CUevent) -> CUresult;
        /// Puts it into a stream.
        fn cuEventRecord(event: CUevent, stream: CUstream) -> CUresult;
        /// Whether the stream has come to it.
        fn cuEventQuery(event: CUevent) -> CUresult;
        /// Waits until the stream has come to it.
        fn cuEventSynchronize(event: CUevent) -> CUresult;
        /// Milliseconds between two events, to about half a microsecond.
        fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) -> CUresult;
        /// Compiles PTX, or takes machine code.
        fn cuModuleLoadDataEx(
            module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut CUjit_option,
            values: *mut *mut c_void,
        ) -> CUresult;
        /// Unloads it.
        fn cuModuleUnload(module: CUmodule) -> CUresult;
        /// A kernel of a module.
        fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) -> CUresult;
        /// Launches a kernel.
        fn cuLaunchKernel(
            function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
            block_z: c_uint, shared_bytes: c_uint, stream: CUstream, parameters: *mut *mut c_void,
            extra: *mut *mut c_void,
        ) -> CUresult;
        /// Begins to record a stream instead of running it.
        fn cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint) -> CUresult;
        /// Ends that.
        fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) -> CUresult;
        /// Runs a recording.
        fn cuGraphLaunch(graph: CUgraphExec, stream: CUstream) -> CUresult;
        /// Frees what can be run.
        fn cuGraphExecDestroy(graph: CUgraphExec) -> CUresult;
        /// Frees a recording.
        fn cuGraphDestroy(graph: CUgraph) -> CUresult;
    }
    optional {
        /// Makes a recording ready to run; since 11.4.
        fn cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64) -> CUresult;
        /// Brings it to the GPU before it runs; since 11.1.
        fn cuGraphUpload(exec: CUgraphExec, stream: CUstream) -> CUresult;
        /// A dma-buf file descriptor for a range of device memory; since 11.7.
        fn cuMemGetHandleForAddressRange(
            handle: *mut c_void, pointer: CUdeviceptr, bytes: usize, kind: c_uint, flags: u64,
        ) -> CUresult;
    }
}

impl Cuda {
    /// The file that the loader found, where it says so.
    pub fn file(&self) -> Option<std::path::PathBuf> {
        loader::file_of(self.cuInit as usize)
    }

    /// A result by name and in words: `CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected`.
    pub fn describe(&self, result: CUresult) -> String {
        let text = |of: unsafe extern "C" fn(CUresult, *mut *const c_char) -> CUresult| {
            let mut text = core::ptr::null();
            // SAFETY: `text` is ours; what it then points to is static.
            let known = unsafe { of(result, &mut text) } == CUDA_SUCCESS && !text.is_null();
            // SAFETY: as above.
            known.then(|| unsafe { core::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        match (text(self.cuGetErrorName), text(self.cuGetErrorString)) {
            (Some(name), Some(words)) => format!("{name} ({result}): {words}"),
            (Some(name), None) => format!("{name} ({result})"),
            _ => format!("CUDA error {result}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_driver_is_an_ordinary_error() {
        let error = Cuda::open("libcuda-not-here.so.1").unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot open the CUDA driver libcuda-not-here.so.1: cannot open shared object file: No such file or directory"
        );
        let error = Cuda::open("libc.so.6").unwrap_err();
        assert_eq!(error.to_string(), "cannot use the CUDA driver libc.so.6: it has no cuInit");
    }
}
