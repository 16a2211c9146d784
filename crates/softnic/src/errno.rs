//! Failures as C knows them.

use core::ffi::c_int;

/// An errno value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

/// What everything that can fail here returns.
pub(crate) type Result<T> = std::result::Result<T, Errno>;

impl Errno {
    pub(crate) const AGAIN: Self = Self(libc::EAGAIN);
    pub(crate) const BAD_FD: Self = Self(libc::EBADF);
    pub(crate) const BUSY: Self = Self(libc::EBUSY);
    pub(crate) const FAULT: Self = Self(libc::EFAULT);
    pub(crate) const INVALID: Self = Self(libc::EINVAL);
    pub(crate) const NO_DEVICE: Self = Self(libc::ENODEV);
    pub(crate) const NO_MEMORY: Self = Self(libc::ENOMEM);
    pub(crate) const NOT_SUPPORTED: Self = Self(libc::EOPNOTSUPP);

    /// What the last call of the C library left.
    pub(crate) fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// Leaves it for the caller of a C function.
    pub(crate) fn set(self) {
        // SAFETY: errno is this thread's own, and always there.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// What a function that returns a pointer returns: NULL and errno on failure.
pub(crate) fn pointer<T>(result: Result<*mut T>) -> *mut T {
    result.unwrap_or_else(|errno| {
        errno.set();
        std::ptr::null_mut()
    })
}

/// What a function that returns a number returns: 0 or the errno value. Most programs look at one of it and errno
/// only, so it is left in both.
pub(crate) fn status(result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            errno.set();
            errno.0
        }
    }
}
