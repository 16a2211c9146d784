//! NVIDIA's management library (NVML), loaded at run time: what the driver knows of its GPUs beside what CUDA tells.
//!
//! The types, constants and functions of `nvml.h` that the tools need, as a table of pointers ([`Nvml`]). It comes with
//! the driver. Names are C's, with the suffix of the version whose types are used. Nothing is checked here.

mod types;

pub use loader::LoadError;
pub use types::*;

use core::ffi::{c_char, c_int, c_uint};
use loader::library_table;

/// The name opened unless [`LIBRARY_VARIABLE`] says otherwise.
pub const DEFAULT_LIBRARY: &str = "libnvidia-ml.so.1";

/// The environment variable that names another library to open, as a path or a soname.
pub const LIBRARY_VARIABLE: &str = "LINKPROOF_NVML";

library_table! {
    /// A loaded library.
    pub struct Nvml opens "NVIDIA's management library";
    required {
        /// Begins; before any other call.
        fn nvmlInit_v2() -> nvmlReturn_t;
        /// A GPU by its PCI address.
        fn nvmlDeviceGetHandleByPciBusId_v2(address: *const c_char, device: *mut nvmlDevice_t) -> nvmlReturn_t;
    }
    optional {
        /// Whether two GPUs can do one of the things that a [`nvmlGpuP2PCapsIndex_t`] names.
        fn nvmlDeviceGetP2PStatus(
            one: nvmlDevice_t, other: nvmlDevice_t, index: nvmlGpuP2PCapsIndex_t, status: *mut nvmlGpuP2PStatus_t,
        ) -> nvmlReturn_t;
        /// Whether an NVLink of a GPU is up.
        fn nvmlDeviceGetNvLinkState(device: nvmlDevice_t, link: c_uint, active: *mut c_int) -> nvmlReturn_t;
        /// How busy a GPU was in the last moments.
        fn nvmlDeviceGetUtilizationRates(device: nvmlDevice_t, rates: *mut nvmlUtilization_t) -> nvmlReturn_t;
        /// The processes that compute on a GPU; `count` is the room and then the number of entries.
        fn nvmlDeviceGetComputeRunningProcesses_v3(
            device: nvmlDevice_t, count: *mut c_uint, processes: *mut nvmlProcessInfo_t,
        ) -> nvmlReturn_t;
        /// Values by their numbers, each with a result of its own.
        fn nvmlDeviceGetFieldValues(
            device: nvmlDevice_t, count: c_int, values: *mut nvmlFieldValue_t,
        ) -> nvmlReturn_t;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_it_is_an_ordinary_error() {
        let error = Nvml::open("libnvidia-ml-not-here.so.1").unwrap_err();
        assert!(error.to_string().starts_with("cannot open NVIDIA's management library"), "{error}");
        let error = Nvml::open("libc.so.6").unwrap_err();
        assert!(error.to_string().ends_with("it has no nvmlInit_v2"), "{error}");
    }

    /// The sizes that a C compiler gives the types of `nvml.h` on a 64-bit machine.
    #[test]
    fn types_are_as_large_as_in_c() {
        assert_eq!(size_of::<nvmlUtilization_t>(), 8);
        assert_eq!(size_of::<nvmlProcessInfo_t>(), 24);
        assert_eq!(size_of::<nvmlFieldValue_t>(), 40);
    }
}
