//! NCCL, found and opened, and what its failures say.
#![allow(unsafe_code, reason = "NCCL is a C library")]

use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::OnceLock;

use linkproof_common::error::{Error, ErrorKind, Result};
use nccl_sys as sys;
use nccl_sys::Nccl;

/// The oldest version that works: 2.18, as `major * 10000 + minor * 100 + patch`.
const OLDEST: u32 = 21800;

/// The library of this process.
pub(super) struct Library {
    table: Nccl,
    version: u32,
}

impl Library {
    /// Opens it, once for a process: the file that was asked for, or the first that is found.
    ///
    /// # Errors
    /// [`ErrorKind::LibraryMissing`] with what was tried; the library is too old.
    pub(super) fn load(asked_for: Option<&PathBuf>) -> Result<&'static Self> {
        static LOADED: OnceLock<Result<Library>> = OnceLock::new();
        LOADED.get_or_init(|| Self::open(asked_for)).as_ref().map_err(Error::clone)
    }

    fn open(asked_for: Option<&PathBuf>) -> Result<Self> {
        let variable =
            std::env::var_os(sys::LIBRARY_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from);
        let mut tried = Vec::new();
        for path in sys::candidates(asked_for.or(variable.as_ref()).map(PathBuf::as_path)) {
            match Nccl::open(&path) {
                Ok(table) => return Self::checked(table),
                Err(error) => tried.push(error.to_string()),
            }
        }
        Err(Error::new(ErrorKind::LibraryMissing, "there is no NCCL that can be used")
            .fact("tried", tried.join("; "))
            .hint(format!(
                "install libnccl2 or the Python wheel nvidia-nccl-cu13, or name the file with --nccl-lib or {}",
                sys::LIBRARY_VARIABLE
            )))
    }

    fn checked(table: Nccl) -> Result<Self> {
        let version = table.version().unwrap_or(0);
        if version < OLDEST {
            let what = format!(
                "{} is NCCL {}, and 2.18 is the oldest that works",
                table.path().display(),
                show_version(version)
            );
            return Err(Error::new(ErrorKind::LibraryMissing, what)
                .hint("install a newer one, or name another file with --nccl-lib"));
        }
        Ok(Self { table, version })
    }

    /// The table.
    pub(super) fn table(&self) -> &Nccl {
        &self.table
    }

    /// In words: `NCCL 2.28.9 (/usr/lib/libnccl.so.2)`.
    pub(super) fn describe(&self) -> String {
        let file = self.table.file().unwrap_or_else(|| self.table.path().to_path_buf());
        format!("NCCL {} ({})", show_version(self.version), file.display())
    }

    /// What a call returned, as a failure with the library's own words.
    ///
    /// # Errors
    /// [`ErrorKind::Collective`].
    pub(super) fn check(&self, result: sys::ncclResult_t, call: &str) -> Result<()> {
        match result {
            sys::ncclSuccess | sys::ncclInProgress => Ok(()),
            failed => Err(self.failed(failed, call)),
        }
    }

    #[cold]
    pub(super) fn failed(&self, result: sys::ncclResult_t, call: &str) -> Error {
        // SAFETY: both strings are static or the library's own, and end with a zero.
        let (words, last) = unsafe {
            (
                text((self.table.ncclGetErrorString)(result)),
                text((self.table.ncclGetLastError)(std::ptr::null_mut())),
            )
        };
        if let Some(error) = no_interface(&last, std::env::var("NCCL_SOCKET_IFNAME").ok()) {
            return error;
        }
        let error = Error::new(ErrorKind::Collective, format!("{call}: {words} ({result})"))
            .fact_if("last error", Some(last).filter(|last| !last.is_empty()));
        match result {
            sys::ncclInvalidUsage => {
                error.hint("two ranks on one GPU are refused: give each its own, or test with --shared-gpu")
            }
            sys::ncclSystemError | sys::ncclRemoteError => error.hint(
                "see that NCCL uses an interface that reaches the others: NCCL_SOCKET_IFNAME, NCCL_IB_HCA",
            ),
            _ => error,
        }
    }
}

/// An interface that the user has named and that is not there.
fn no_interface(last_error: &str, named: Option<String>) -> Option<Error> {
    let named = named.filter(|_| last_error.contains("no socket interface"))?;
    let what = format!("NCCL finds no interface that is NCCL_SOCKET_IFNAME: {named}");
    Some(Error::new(ErrorKind::Usage, what).hint("name one that is up and has an address: ip -brief address"))
}

/// # Safety
/// `pointer` is NULL or a string that ends with a zero.
unsafe fn text(pointer: *const std::ffi::c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: as the caller says.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().trim().to_owned()
}

fn show_version(version: u32) -> String {
    format!("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100)
}
