//! What needs processors. The functions exist, because a program that may need one won't start without it.

use core::ffi::{c_char, c_uint, c_void};
use cuda_sys::{CUfunction, CUgraph, CUgraphExec, CUjit_option, CUmodule, CUstream};

use crate::failure::Failure;

exports! {
    required {
        /// There are no modules.
        fn cuModuleLoadDataEx(
            _module: *mut CUmodule, _image: *const c_void, _count: c_uint, _options: *mut CUjit_option,
            _values: *mut *mut c_void,
        ) |_driver| Err(Failure::NOT_SUPPORTED);
        /// As [`cuModuleLoadDataEx`].
        fn cuModuleUnload(_module: CUmodule) |_driver| Err(Failure::NOT_SUPPORTED);
        /// As [`cuModuleLoadDataEx`].
        fn cuModuleGetFunction(_function: *mut CUfunction, _module: CUmodule, _name: *const c_char)
            |_driver| Err(Failure::NOT_SUPPORTED);
        /// There are no kernels.
        fn cuLaunchKernel(
            _function: CUfunction, _grid_x: c_uint, _grid_y: c_uint, _grid_z: c_uint, _block_x: c_uint,
            _block_y: c_uint, _block_z: c_uint, _shared_bytes: c_uint, _stream: CUstream,
            _parameters: *mut *mut c_void, _extra: *mut *mut c_void,
        ) |_driver| Err(Failure::NOT_SUPPORTED);
        /// Nothing is recorded: there are no graphs.
        fn cuStreamBeginCapture_v2(_stream: CUstream, _mode: c_uint) |_driver| Err(Failure::NOT_SUPPORTED);
        /// As [`cuStreamBeginCapture_v2`].
        fn cuStreamEndCapture(_stream: CUstream, _graph: *mut CUgraph) |_driver| Err(Failure::NOT_SUPPORTED);
        /// As [`cuStreamBeginCapture_v2`].
        fn cuGraphLaunch(_graph: CUgraphExec, _stream: CUstream) |_driver| Err(Failure::NOT_SUPPORTED);
        /// As [`cuStreamBeginCapture_v2`].
        fn cuGraphExecDestroy(_graph: CUgraphExec) |_driver| Err(Failure::NOT_SUPPORTED);
        /// As [`cuStreamBeginCapture_v2`].
        fn cuGraphDestroy(_graph: CUgraph) |_driver| Err(Failure::NOT_SUPPORTED);
    }
    optional {
        /// As [`cuStreamBeginCapture_v2`].
        fn cuGraphInstantiateWithFlags(_exec: *mut CUgraphExec, _graph: CUgraph, _flags: u64)
            |_driver| Err(Failure::NOT_SUPPORTED);
        /// As [`cuStreamBeginCapture_v2`].
        fn cuGraphUpload(_exec: CUgraphExec, _stream: CUstream) |_driver| Err(Failure::NOT_SUPPORTED);
    }
}
