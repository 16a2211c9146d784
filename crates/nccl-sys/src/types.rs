//! The types of `nccl.h`. Enumerations are plain numbers: a library may know values that this crate does not.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "named as in C")]

use core::ffi::{c_char, c_int, c_uint, c_void};

/// An opaque communicator.
pub type ncclComm_t = *mut c_void;
/// A CUDA stream; `CUstream` and `cudaStream_t` are the same pointer.
pub type cudaStream_t = *mut c_void;
/// What a function returns.
pub type ncclResult_t = c_int;
/// The type of an element.
pub type ncclDataType_t = c_int;
/// The operation of a reduction.
pub type ncclRedOp_t = c_int;

/// The result of success.
pub const ncclSuccess: ncclResult_t = 0;
/// A call to CUDA failed.
pub const ncclUnhandledCudaError: ncclResult_t = 1;
/// A call to the system failed.
pub const ncclSystemError: ncclResult_t = 2;
/// A bug in NCCL, or memory that was written over.
pub const ncclInternalError: ncclResult_t = 3;
/// An argument has a value that it can't have.
pub const ncclInvalidArgument: ncclResult_t = 4;
/// The call is not one that can be made, two ranks on one GPU for one.
pub const ncclInvalidUsage: ncclResult_t = 5;
/// A peer is gone, or its connection.
pub const ncclRemoteError: ncclResult_t = 6;
/// A non-blocking call is under way.
pub const ncclInProgress: ncclResult_t = 7;

/// Signed 8-bit integers.
pub const ncclInt8: ncclDataType_t = 0;
/// Unsigned 8-bit integers.
pub const ncclUint8: ncclDataType_t = 1;
/// Signed 32-bit integers.
pub const ncclInt32: ncclDataType_t = 2;
/// Unsigned 32-bit integers.
pub const ncclUint32: ncclDataType_t = 3;
/// Signed 64-bit integers.
pub const ncclInt64: ncclDataType_t = 4;
/// Unsigned 64-bit integers.
pub const ncclUint64: ncclDataType_t = 5;
/// IEEE half precision.
pub const ncclFloat16: ncclDataType_t = 6;
/// IEEE single precision.
pub const ncclFloat32: ncclDataType_t = 7;
/// IEEE double precision.
pub const ncclFloat64: ncclDataType_t = 8;
/// The upper half of a single.
pub const ncclBfloat16: ncclDataType_t = 9;
/// Eight bits, four of them exponent; since 2.24.
pub const ncclFloat8e4m3: ncclDataType_t = 10;
/// Eight bits, five of them exponent; since 2.24.
pub const ncclFloat8e5m2: ncclDataType_t = 11;

/// The sum.
pub const ncclSum: ncclRedOp_t = 0;
/// The product.
pub const ncclProd: ncclRedOp_t = 1;
/// The largest.
pub const ncclMax: ncclRedOp_t = 2;
/// The smallest.
pub const ncclMin: ncclRedOp_t = 3;
/// The sum divided by the number of ranks.
pub const ncclAvg: ncclRedOp_t = 4;

/// Bytes of a [`ncclUniqueId`].
pub const NCCL_UNIQUE_ID_BYTES: usize = 128;

/// What the ranks of a communicator find each other by: rank 0 makes it and hands it to the others.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ncclUniqueId {
    /// Opaque bytes; the address of a socket of the process that made it is among them.
    pub internal: [c_char; NCCL_UNIQUE_ID_BYTES],
}

/// How a communicator is made: the fields that 2.18 knew. A newer library goes by `size` and `version` and takes its
/// defaults for the rest.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ncclConfig_t {
    /// Bytes of this struct.
    pub size: usize,
    /// [`NCCL_CONFIG_MAGIC`].
    pub magic: c_uint,
    /// The version whose fields these are.
    pub version: c_uint,
    /// Whether calls wait until they are done (1), or return at once (0).
    pub blocking: c_int,
    /// Blocks in a cluster.
    pub cgaClusterSize: c_int,
    /// Fewest blocks.
    pub minCTAs: c_int,
    /// Most blocks.
    pub maxCTAs: c_int,
    /// The network to use; NULL leaves the choice to the library.
    pub netName: *const c_char,
    /// Whether split communicators share resources.
    pub splitShare: c_int,
}

/// What marks a [`ncclConfig_t`] as one.
pub const NCCL_CONFIG_MAGIC: c_uint = 0xcafe_beef;
/// A field that is left to the library.
pub const NCCL_CONFIG_UNDEF_INT: c_int = c_int::MIN;
/// The version of [`ncclConfig_t`] here: 2.18.0.
pub const CONFIG_VERSION: c_uint = 21800;

impl Default for ncclConfig_t {
    /// As the header's initialiser: everything is left to the library.
    fn default() -> Self {
        Self {
            size: size_of::<Self>(),
            magic: NCCL_CONFIG_MAGIC,
            version: CONFIG_VERSION,
            blocking: NCCL_CONFIG_UNDEF_INT,
            cgaClusterSize: NCCL_CONFIG_UNDEF_INT,
            minCTAs: NCCL_CONFIG_UNDEF_INT,
            maxCTAs: NCCL_CONFIG_UNDEF_INT,
            netName: core::ptr::null(),
            splitShare: NCCL_CONFIG_UNDEF_INT,
        }
    }
}
