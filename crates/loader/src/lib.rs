//! A C library as a table of function pointers, filled at run time from a file that is named.
//!
//! libibverbs, NCCL and the CUDA driver may each be missing, older than expected, or somewhere unusual. A program that
//! opens them itself builds without any of them, starts where they are not, takes newer functions as they come, and
//! can say which file it opened. [`library_table!`] declares such a table, so that a function's name and type stand
//! once.

use std::ffi::CStr;
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use core::ffi::c_void;
use libloading::os::unix::{RTLD_LOCAL, RTLD_NOW};

/// Why there is no table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadError {
    /// The dynamic loader could not find the library, or refused it.
    NotOpened {
        /// What kind of library it is, for messages: `the verbs library`.
        what: &'static str,
        /// What was asked for.
        path: PathBuf,
        /// The loader's own words.
        reason: String,
    },
    /// The library opened but lacks a function without which it is of no use.
    SymbolMissing {
        /// What kind of library it is.
        what: &'static str,
        /// The library that was opened.
        path: PathBuf,
        /// The first function found missing.
        symbol: &'static str,
    },
}

impl LoadError {
    /// The library that was asked for.
    pub fn path(&self) -> &Path {
        match self {
            Self::NotOpened { path, .. } | Self::SymbolMissing { path, .. } => path,
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOpened { what, path, reason } => {
                write!(f, "cannot open {what} {}: {reason}", path.display())
            }
            Self::SymbolMissing { what, path, symbol } => {
                write!(f, "cannot use {what} {}: it has no {symbol}", path.display())
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// An open library. It stays open to the end of the process: libraries like these keep threads, handlers and static
/// state of their own, and there is no moment at which unloading one is known to be safe.
pub struct Library {
    handle: ManuallyDrop<libloading::os::unix::Library>,
    what: &'static str,
    path: PathBuf,
}

impl Library {
    /// Opens the library at `path`, or of that soname; `what` names its kind in messages.
    ///
    /// # Errors
    /// [`LoadError::NotOpened`] with the loader's words.
    pub fn open(what: &'static str, path: &Path) -> Result<Self, LoadError> {
        // RTLD_NOW: a symbol that cannot be bound shows here, and no lookup happens inside a measured loop.
        // SAFETY: the library's initialisers run. Naming a library is trusting it with this process, as is having one
        // installed.
        let opened = unsafe { libloading::os::unix::Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let handle = opened.map_err(|error| LoadError::NotOpened {
            what,
            path: path.to_path_buf(),
            reason: words(&error, path),
        })?;
        Ok(Self { handle: ManuallyDrop::new(handle), what, path: path.to_path_buf() })
    }

    /// The function called `name`, of the default version where the library has several.
    ///
    /// # Safety
    ///
    /// `F` must be a function pointer type that matches the function's C declaration.
    pub unsafe fn optional<F: Copy>(&self, name: &'static str) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*const ()>()) };
        // SAFETY: the caller vouches for F. The pointer stays valid because the library is never closed.
        unsafe { self.handle.get::<F>(name) }.ok().map(|found| *found)
    }

    /// The same for a function without which the library is of no use.
    ///
    /// # Errors
    /// [`LoadError::SymbolMissing`].
    ///
    /// # Safety
    ///
    /// As for [`Library::optional`].
    pub unsafe fn required<F: Copy>(&self, name: &'static str) -> Result<F, LoadError> {
        // SAFETY: the caller vouches for F.
        unsafe { self.optional(name) }.ok_or_else(|| LoadError::SymbolMissing {
            what: self.what,
            path: self.path.clone(),
            symbol: name,
        })
    }
}

/// The file that the loader mapped for the function at `address`, where it says so.
pub fn file_of(address: usize) -> Option<PathBuf> {
    // SAFETY: all zeros is a valid Dl_info; dladdr fills it for an address in a loaded file.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: `info` is ours, and any address may be asked for.
    if unsafe { libc::dladdr(address as *const c_void, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the name lives as long as the library, which is never closed.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(name.to_string_lossy().into_owned()))
}

/// The loader's message, which libloading keeps in the error's source; without `path`, which the error has already.
/// Another file's name stays: a library that this one needs may be what is missing.
fn words(error: &libloading::Error, path: &Path) -> String {
    let text = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    let stripped = text.strip_prefix(&format!("{}: ", path.display())).map(str::to_owned);
    stripped.unwrap_or(text)
}

/// Declares a table: a struct with one field for each function, of its name; newer ones are `Option`s.
///
/// The struct gets `open(path)`, `path()`, and the names of its functions as `REQUIRED` and `OPTIONAL`. A call is
/// `(table.function)(…)`, and unsafe: pointers must be what C asks for.
#[macro_export]
macro_rules! library_table {
    (
        $(#[$meta:meta])*
        pub struct $table:ident opens $what:literal;
        required { $( $(#[$rdoc:meta])* fn $r:ident($($ra:ident: $rt:ty),* $(,)?) $(-> $rr:ty)?; )* }
        optional { $( $(#[$odoc:meta])* fn $o:ident($($oa:ident: $ot:ty),* $(,)?) $(-> $or:ty)?; )* }
    ) => {
        $(#[$meta])*
        #[allow(non_snake_case, reason = "named as in C")]
        pub struct $table {
            pub(crate) path: std::path::PathBuf,
            $( $(#[$rdoc])* pub $r: unsafe extern "C" fn($($ra: $rt),*) $(-> $rr)?, )*
            $( $(#[$odoc])* pub $o: Option<unsafe extern "C" fn($($oa: $ot),*) $(-> $or)?>, )*
        }

        impl $table {
            /// The functions that a library must have.
            pub const REQUIRED: &[&str] = &[$(stringify!($r)),*];
            /// The functions that a library may have.
            pub const OPTIONAL: &[&str] = &[$(stringify!($o)),*];

            /// Opens the library at `path`, or of that soname. It stays loaded.
            ///
            /// # Errors
            /// The file could not be opened, or lacks a required function.
            pub fn open(path: impl AsRef<std::ffi::OsStr>) -> Result<Self, $crate::LoadError> {
                let path = std::path::Path::new(path.as_ref());
                let library = $crate::Library::open($what, path)?;
                Ok(Self {
                    path: path.to_path_buf(),
                    // SAFETY: the field's type is the C declaration of the function of that name.
                    $( $r: unsafe { library.required(stringify!($r)) }?, )*
                    // SAFETY: as above.
                    $( $o: unsafe { library.optional(stringify!($o)) }, )*
                })
            }

            /// What was opened, as it was named.
            pub fn path(&self) -> &std::path::Path {
                &self.path
            }

            /// A table whose required functions all abort the test, and which has no optional ones.
            #[cfg(test)]
            #[allow(dead_code, reason = "not every crate's tests need one")]
            pub(crate) fn stub() -> Self {
                $( #[allow(non_snake_case, reason = "named as in C")]
                unsafe extern "C" fn $r($(_: $rt),*) $(-> $rr)? {
                    panic!(concat!(stringify!($r), " was not expected"))
                } )*
                Self { path: std::path::PathBuf::from("stub"), $($r,)* $($o: None,)* }
            }
        }

        impl std::fmt::Debug for $table {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($table)).field("path", &self.path).finish_non_exhaustive()
            }
        }
    };
}

#[cfg(test)]
#[allow(dead_code, unreachable_pub, reason = "the macro's items are for other crates")]
mod tests {
    use super::*;

    library_table! {
        /// A few functions of the C library.
        pub struct Numbers opens "the C library";
        required {
            /// The absolute value.
            fn labs(value: core::ffi::c_long) -> core::ffi::c_long;
        }
        optional {
            /// The absolute value.
            fn llabs(value: core::ffi::c_longlong) -> core::ffi::c_longlong;
            /// Does not exist.
            fn linkproof_not_there();
        }
    }

    library_table! {
        /// Needs what is not there.
        pub struct Lacking opens "the C library";
        required {
            /// Does not exist.
            fn linkproof_not_there();
        }
        optional {}
    }

    #[test]
    fn functions_are_found_and_missing_ones_are_options() {
        let numbers = Numbers::open("libc.so.6").unwrap();
        // SAFETY: labs takes any value but the least.
        assert_eq!(unsafe { (numbers.labs)(-7) }, 7);
        assert!(numbers.llabs.is_some() && numbers.linkproof_not_there.is_none());
        assert_eq!(Numbers::OPTIONAL, ["llabs", "linkproof_not_there"]);
        let file = file_of(numbers.labs as usize).unwrap();
        assert!(file.to_string_lossy().contains("libc"), "{}", file.display());
    }

    #[test]
    fn failures_name_the_library_and_what_is_missing() {
        let error = Numbers::open("libnot-here.so.9").unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot open the C library libnot-here.so.9: cannot open shared object file: No such file or directory"
        );
        let error = Lacking::open("libc.so.6").unwrap_err();
        assert_eq!(error.to_string(), "cannot use the C library libc.so.6: it has no linkproof_not_there");
        assert!(matches!(Numbers::open("a\0b"), Err(LoadError::NotOpened { .. })));
    }
}
