//! Memory of GPUs, through the CUDA driver.
//!
//! An adapter reads and writes a GPU's memory over PCIe. Here the CUDA driver copies for whoever posts: the memory of
//! another process it opens by its IPC handle, which stands in that process's segment beside the region's entry.
//!
//! The driver is opened at run time, and only where memory of a GPU may be meant: for a registration where the program
//! has loaded it already or [`cuda_sys::LIBRARY_VARIABLE`] names one, and for a peer's memory where that is on a GPU. A
//! program without GPUs never comes here, but for a question to the loader at a registration.
//!
//! What is needed of a GPU (its primary context, and a stream of its own, so that a copy waits for no kernel of the
//! program's) is made once and kept to the end of the process.

mod device;
mod peer;
mod registered;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use cuda_sys::Cuda;

pub(crate) use device::{Gpu, Side};
pub(crate) use peer::{PeerMemory, Place};
pub(crate) use registered::{Registered, of_entry, registered};

/// What a call of the driver may return in place of success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed(pub(crate) cuda_sys::CUresult);

/// # Errors
/// What is not success.
fn check(result: cuda_sys::CUresult) -> Result<(), Failed> {
    if result == cuda_sys::CUDA_SUCCESS { Ok(()) } else { Err(Failed(result)) }
}

/// The library to open, and whether it was named.
fn library() -> (CString, bool) {
    let named = std::env::var_os(cuda_sys::LIBRARY_VARIABLE).filter(|name| !name.is_empty());
    let name = |text: &[u8]| CString::new(text).unwrap_or_default();
    match named {
        Some(named) => (name(named.as_bytes()), true),
        None => (name(cuda_sys::DEFAULT_LIBRARY.as_bytes()), false),
    }
}

/// The driver, where the program has loaded it or the environment names one.
fn loaded() -> Option<&'static Cuda> {
    if let Some(driver) = DRIVER.get() {
        return Some(driver);
    }
    let (name, named) = library();
    // SAFETY: the name is a C string, and nothing is loaded: the library's own count of users goes up where it is
    // there, and is left so.
    let there =
        named || !unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) }.is_null();
    if there { load() } else { None }
}

static DRIVER: OnceLock<Cuda> = OnceLock::new();

/// The driver, loaded where it is not yet; `None` where there is none.
fn load() -> Option<&'static Cuda> {
    if DRIVER.get().is_none() {
        let (name, _) = library();
        let opened = Cuda::open(std::ffi::OsStr::from_bytes(name.as_bytes())).ok()?;
        // Another thread's is as good.
        let _ = DRIVER.set(opened);
    }
    DRIVER.get()
}
