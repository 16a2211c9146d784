//! Failures as CUDA knows them.

use core::ffi::CStr;
use cuda_sys as sys;
use sys::CUresult;

/// A result that is not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) CUresult);

/// What everything that can fail here returns.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) const INVALID_VALUE: Self = Self(sys::CUDA_ERROR_INVALID_VALUE);
    pub(crate) const OUT_OF_MEMORY: Self = Self(sys::CUDA_ERROR_OUT_OF_MEMORY);
    pub(crate) const NOT_INITIALIZED: Self = Self(sys::CUDA_ERROR_NOT_INITIALIZED);
    pub(crate) const DEVICE_UNAVAILABLE: Self = Self(sys::CUDA_ERROR_DEVICE_UNAVAILABLE);
    pub(crate) const NO_DEVICE: Self = Self(sys::CUDA_ERROR_NO_DEVICE);
    pub(crate) const INVALID_DEVICE: Self = Self(sys::CUDA_ERROR_INVALID_DEVICE);
    pub(crate) const INVALID_CONTEXT: Self = Self(sys::CUDA_ERROR_INVALID_CONTEXT);
    pub(crate) const MAP_FAILED: Self = Self(sys::CUDA_ERROR_MAP_FAILED);
    pub(crate) const INVALID_HANDLE: Self = Self(sys::CUDA_ERROR_INVALID_HANDLE);
    pub(crate) const CONTEXT_IS_DESTROYED: Self = Self(sys::CUDA_ERROR_CONTEXT_IS_DESTROYED);
    pub(crate) const ALREADY_REGISTERED: Self = Self(sys::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    pub(crate) const NOT_REGISTERED: Self = Self(sys::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    pub(crate) const NOT_SUPPORTED: Self = Self(sys::CUDA_ERROR_NOT_SUPPORTED);
}

/// A result's name, and the result in words.
type Words = (CUresult, &'static CStr, &'static CStr);

/// Those that a call here gives, or that a fault may name.
const RESULTS: &[Words] = &[
    (sys::CUDA_SUCCESS, c"CUDA_SUCCESS", c"no error"),
    (sys::CUDA_ERROR_INVALID_VALUE, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (sys::CUDA_ERROR_OUT_OF_MEMORY, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (sys::CUDA_ERROR_NOT_INITIALIZED, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
    (
        sys::CUDA_ERROR_DEVICE_UNAVAILABLE,
        c"CUDA_ERROR_DEVICE_UNAVAILABLE",
        c"CUDA-capable device(s) is/are busy or unavailable",
    ),
    (sys::CUDA_ERROR_NO_DEVICE, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
    (sys::CUDA_ERROR_INVALID_DEVICE, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (sys::CUDA_ERROR_INVALID_CONTEXT, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (sys::CUDA_ERROR_MAP_FAILED, c"CUDA_ERROR_MAP_FAILED", c"mapping of buffer object failed"),
    (sys::CUDA_ERROR_INVALID_HANDLE, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
    (sys::CUDA_ERROR_NOT_READY, c"CUDA_ERROR_NOT_READY", c"device not ready"),
    (sys::CUDA_ERROR_CONTEXT_IS_DESTROYED, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"context is destroyed"),
    (
        sys::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
        c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
        c"part or all of the requested memory range is already mapped",
    ),
    (
        sys::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
        c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
        c"pointer does not correspond to a registered memory region",
    ),
    (sys::CUDA_ERROR_NOT_SUPPORTED, c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
    (
        sys::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
        c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        c"system has unsupported display driver / cuda driver combination",
    ),
    (sys::CUDA_ERROR_UNKNOWN, c"CUDA_ERROR_UNKNOWN", c"unknown error"),
];

fn find(result: CUresult) -> Option<&'static Words> {
    RESULTS.iter().find(|&&(known, ..)| known == result)
}

/// A result's name.
pub(crate) fn name(result: CUresult) -> Option<&'static CStr> {
    find(result).map(|&(_, name, _)| name)
}

/// A result in words.
pub(crate) fn words(result: CUresult) -> Option<&'static CStr> {
    find(result).map(|&(.., words)| words)
}

/// The failure of that name or number, which need not be a known one.
pub(crate) fn named(text: &str) -> Option<Failure> {
    let known = RESULTS.iter().find(|(_, name, _)| name.to_str() == Ok(text));
    let result = known.map(|&(result, ..)| result).or_else(|| text.parse().ok())?;
    (result > sys::CUDA_SUCCESS).then_some(Failure(result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_a_name_or_a_number() {
        assert_eq!(named("CUDA_ERROR_OUT_OF_MEMORY"), Some(Failure::OUT_OF_MEMORY));
        assert_eq!(named("719"), Some(Failure(719)));
        assert_eq!((named("CUDA_SUCCESS"), named("0"), named("-1"), named("EIO")), (None, None, None, None));
        assert_eq!(name(719), None);
        assert_eq!(words(46).unwrap().to_str().unwrap(), "CUDA-capable device(s) is/are busy or unavailable");
    }
}
