//! The types and constants of `nvml.h`.
#![allow(
    non_camel_case_types,
    non_snake_case,
    missing_docs,
    reason = "named as in C, where they are documented"
)]

use core::ffi::{c_int, c_uint, c_void};

pub type nvmlReturn_t = c_int;
pub type nvmlDevice_t = *mut c_void;
pub type nvmlGpuP2PCapsIndex_t = c_uint;
pub type nvmlGpuP2PStatus_t = c_uint;

pub const NVML_SUCCESS: nvmlReturn_t = 0;
pub const NVML_ERROR_INSUFFICIENT_SIZE: nvmlReturn_t = 7;

pub const NVML_P2P_CAPS_INDEX_NVLINK: nvmlGpuP2PCapsIndex_t = 2;
pub const NVML_P2P_STATUS_OK: nvmlGpuP2PStatus_t = 0;

/// More than any GPU has.
pub const NVML_NVLINK_MAX_LINKS: c_uint = 18;

/// Bytes that all NVLinks together have sent, without overhead, in KiB.
pub const NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: c_uint = 138;
/// The scope of a field that is of all links.
pub const NVML_ALL_LINKS: c_uint = c_uint::MAX;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nvmlUtilization_t {
    /// Percent of the time in which a kernel ran.
    pub gpu: c_uint,
    /// Percent of the time in which memory was read or written.
    pub memory: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nvmlProcessInfo_t {
    pub pid: c_uint,
    pub usedGpuMemory: u64,
    pub gpuInstanceId: c_uint,
    pub computeInstanceId: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nvmlFieldValue_t {
    pub fieldId: c_uint,
    pub scopeId: c_uint,
    pub timestamp: i64,
    pub latencyUsec: i64,
    pub valueType: c_uint,
    pub nvmlReturn: nvmlReturn_t,
    /// A union in C: what [`nvmlFieldValue_t::valueType`] says.
    pub value: u64,
}

/// [`nvmlFieldValue_t::valueType`] of an `unsigned long long`.
pub const NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: c_uint = 3;
