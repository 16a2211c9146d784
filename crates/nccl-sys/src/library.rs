//! The library as a table of function pointers, and how a failure to load it reads.

use std::ffi::OsStr;
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use core::ffi::{c_char, c_int, c_void};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::types::*;

/// Why there is no [`Nccl`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The dynamic loader could not find the library, or refused it.
    NotOpened {
        /// What was asked for.
        path: PathBuf,
        /// The loader's own words.
        reason: String,
    },
    /// The library opened but lacks a function without which nothing can be measured.
    SymbolMissing {
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
            Self::NotOpened { path, reason } => write!(f, "cannot open {}: {reason}", path.display()),
            Self::SymbolMissing { path, symbol } => {
                write!(f, "{} is no NCCL that can be used: it has no {symbol}", path.display())
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// Declares [`Nccl`] and how it is filled, so that a function's name and type stand once.
macro_rules! nccl_table {
    (
        required { $( $(#[$rdoc:meta])* fn $r:ident($($ra:ident: $rt:ty),* $(,)?) -> $rr:ty; )* }
        optional { $( $(#[$odoc:meta])* fn $o:ident($($oa:ident: $ot:ty),* $(,)?) -> $or:ty; )* }
    ) => {
        /// A loaded NCCL or RCCL.
        ///
        /// Each field is the function of its name; those that are `Option`s are newer than the oldest library
        /// supported (2.18).
        #[allow(non_snake_case, reason = "named as in C")]
        pub struct Nccl {
            path: PathBuf,
            $( $(#[$rdoc])* pub $r: unsafe extern "C" fn($($ra: $rt),*) -> $rr, )*
            $( $(#[$odoc])* pub $o: Option<unsafe extern "C" fn($($oa: $ot),*) -> $or>, )*
        }

        impl Nccl {
            /// The functions that a library must have.
            pub const REQUIRED: &[&str] = &[$(stringify!($r)),*];
            /// The functions that a library may have.
            pub const OPTIONAL: &[&str] = &[$(stringify!($o)),*];

            fn resolve(library: &Library, path: &Path) -> Result<Self, LoadError> {
                let missing = |symbol| LoadError::SymbolMissing { path: path.to_path_buf(), symbol };
                Ok(Self {
                    path: path.to_path_buf(),
                    // SAFETY: the field's type is the C declaration of the function of that name.
                    $( $r: unsafe { symbol(library, stringify!($r)) }.ok_or_else(|| missing(stringify!($r)))?, )*
                    // SAFETY: as above.
                    $( $o: unsafe { symbol(library, stringify!($o)) }, )*
                })
            }
        }
    };
}

nccl_table! {
    required {
        /// The version, as `major * 10000 + minor * 100 + patch`. Works without a GPU and says nothing of one.
        fn ncclGetVersion(version: *mut c_int) -> ncclResult_t;
        /// A new identity for a communicator. The process that made it must stay while the others join.
        fn ncclGetUniqueId(id: *mut ncclUniqueId) -> ncclResult_t;
        /// Joins a communicator as `rank` of `nranks`, on the current device.
        fn ncclCommInitRankConfig(
            comm: *mut ncclComm_t, nranks: c_int, id: ncclUniqueId, rank: c_int, config: *mut ncclConfig_t,
        ) -> ncclResult_t;
        /// Flushes what is outstanding; before a destroy.
        fn ncclCommFinalize(comm: ncclComm_t) -> ncclResult_t;
        /// Frees a communicator.
        fn ncclCommDestroy(comm: ncclComm_t) -> ncclResult_t;
        /// Frees a communicator and gives up what is outstanding.
        fn ncclCommAbort(comm: ncclComm_t) -> ncclResult_t;
        /// What has become of a communicator, and of a non-blocking call on it.
        fn ncclCommGetAsyncError(comm: ncclComm_t, error: *mut ncclResult_t) -> ncclResult_t;
        /// A result in words; static.
        fn ncclGetErrorString(result: ncclResult_t) -> *const c_char;
        /// More words about the last error of this thread; may be empty.
        fn ncclGetLastError(comm: ncclComm_t) -> *const c_char;
        /// Begins a group: calls until its end are issued together.
        fn ncclGroupStart() -> ncclResult_t;
        /// Ends a group.
        fn ncclGroupEnd() -> ncclResult_t;
        /// Reduces and gives all ranks the result.
        fn ncclAllReduce(
            send: *const c_void, recv: *mut c_void, count: usize, datatype: ncclDataType_t, op: ncclRedOp_t,
            comm: ncclComm_t, stream: cudaStream_t,
        ) -> ncclResult_t;
        /// Reduces and gives `root` the result.
        fn ncclReduce(
            send: *const c_void, recv: *mut c_void, count: usize, datatype: ncclDataType_t, op: ncclRedOp_t,
            root: c_int, comm: ncclComm_t, stream: cudaStream_t,
        ) -> ncclResult_t;
        /// Gives all ranks what `root` has.
        fn ncclBroadcast(
            send: *const c_void, recv: *mut c_void, count: usize, datatype: ncclDataType_t, root: c_int,
            comm: ncclComm_t, stream: cudaStream_t,
        ) -> ncclResult_t;
        /// Reduces and gives each rank its part.
        fn ncclReduceScatter(
            send: *const c_void, recv: *mut c_void, recv_count: usize, datatype: ncclDataType_t, op: ncclRedOp_t,
            comm: ncclComm_t, stream: cudaStream_t,
        ) -> ncclResult_t;
        /// Gives all ranks what each has.
        fn ncclAllGather(
            send: *const c_void, recv: *mut c_void, send_count: usize, datatype: ncclDataType_t, comm: ncclComm_t,
            stream: cudaStream_t,
        ) -> ncclResult_t;
        /// Sends to a peer, which receives as much.
        fn ncclSend(
            send: *const c_void, count: usize, datatype: ncclDataType_t, peer: c_int, comm: ncclComm_t,
            stream: cudaStream_t,
        ) -> ncclResult_t;
        /// Receives from a peer, which sends as much.
        fn ncclRecv(
            recv: *mut c_void, count: usize, datatype: ncclDataType_t, peer: c_int, comm: ncclComm_t,
            stream: cudaStream_t,
        ) -> ncclResult_t;
    }
    optional {
        /// Memory that NCCL can use best; since 2.19.
        fn ncclMemAlloc(pointer: *mut *mut c_void, size: usize) -> ncclResult_t;
        /// Frees such memory; since 2.19.
        fn ncclMemFree(pointer: *mut c_void) -> ncclResult_t;
        /// Registers a buffer with a communicator; since 2.19.
        fn ncclCommRegister(
            comm: ncclComm_t, buffer: *mut c_void, size: usize, handle: *mut *mut c_void,
        ) -> ncclResult_t;
        /// Ends a registration; since 2.19.
        fn ncclCommDeregister(comm: ncclComm_t, handle: *mut c_void) -> ncclResult_t;
        /// Gives each rank its part of what each has; since 2.28.
        fn ncclAlltoAll(
            send: *const c_void, recv: *mut c_void, count: usize, datatype: ncclDataType_t, comm: ncclComm_t,
            stream: cudaStream_t,
        ) -> ncclResult_t;
        /// Gives `root` what each has; since 2.28.
        fn ncclGather(
            send: *const c_void, recv: *mut c_void, count: usize, datatype: ncclDataType_t, root: c_int,
            comm: ncclComm_t, stream: cudaStream_t,
        ) -> ncclResult_t;
        /// Gives each rank its part of what `root` has; since 2.28.
        fn ncclScatter(
            send: *const c_void, recv: *mut c_void, count: usize, datatype: ncclDataType_t, root: c_int,
            comm: ncclComm_t, stream: cudaStream_t,
        ) -> ncclResult_t;
    }
}

impl Nccl {
    /// Opens the library at `path`, or of that soname. It is never unloaded: it keeps threads and handlers of its own.
    ///
    /// # Errors
    /// [`LoadError`], naming the file.
    pub fn open(path: impl AsRef<OsStr>) -> Result<Self, LoadError> {
        let path = Path::new(path.as_ref());
        // SAFETY: the library's initialisers run. Naming a library is trusting it with this process.
        let opened = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let library = opened.map_err(|error| LoadError::NotOpened {
            path: path.to_path_buf(),
            reason: words(&error, path),
        })?;
        Self::resolve(&ManuallyDrop::new(library), path)
    }

    /// What was opened, as it was named.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file that the loader found, where it says so.
    pub fn file(&self) -> Option<PathBuf> {
        // SAFETY: all zeros is a valid Dl_info; dladdr fills it for an address in a loaded file.
        let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
        let address = self.ncclGetVersion as *const c_void;
        // SAFETY: `info` is ours, and any address may be asked for.
        if unsafe { libc::dladdr(address, &mut info) } == 0 || info.dli_fname.is_null() {
            return None;
        }
        // SAFETY: the name lives as long as the library, which is never closed.
        let name = unsafe { core::ffi::CStr::from_ptr(info.dli_fname) };
        Some(PathBuf::from(name.to_string_lossy().into_owned()))
    }

    /// The version, as `major * 10000 + minor * 100 + patch`; `None` where the library does not say.
    pub fn version(&self) -> Option<u32> {
        let mut version = 0;
        // SAFETY: `version` is ours.
        let result = unsafe { (self.ncclGetVersion)(&mut version) };
        (result == ncclSuccess).then_some(version).and_then(|version| u32::try_from(version).ok())
    }
}

impl fmt::Debug for Nccl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nccl").field("path", &self.path).finish_non_exhaustive()
    }
}

/// # Safety
///
/// `F` must be a function pointer type that matches the function's C declaration.
unsafe fn symbol<F: Copy>(library: &Library, name: &'static str) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*const ()>()) };
    // SAFETY: the caller vouches for F. The pointer stays valid because the library is never closed.
    unsafe { library.get::<F>(name) }.ok().map(|found| *found)
}

/// The loader's message, which libloading keeps in the error's source; without `path`, which the error has already.
fn words(error: &libloading::Error, path: &Path) -> String {
    let text = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    let stripped = text.strip_prefix(&format!("{}: ", path.display())).map(str::to_owned);
    stripped.unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_error_that_names_it() {
        let error = Nccl::open("libnccl-not-here.so.9").unwrap_err();
        assert_eq!(error.path(), Path::new("libnccl-not-here.so.9"));
        assert_eq!(
            error.to_string(),
            "cannot open libnccl-not-here.so.9: cannot open shared object file: No such file or directory"
        );
    }

    #[test]
    fn another_library_is_an_error_that_names_the_first_missing_function() {
        let error = Nccl::open("libc.so.6").unwrap_err();
        assert_eq!(error.to_string(), "libc.so.6 is no NCCL that can be used: it has no ncclGetVersion");
    }

    #[test]
    fn a_library_with_all_that_is_required_opens_and_says_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (source, library) = (folder.path().join("stub.c"), folder.path().join("libstub.so"));
        let stub = |name: &&&str| match **name {
            "ncclGetVersion" => "int ncclGetVersion(int *v) { *v = 21805; return 0; }\n".to_owned(),
            other => format!("int {other}(void) {{ return 1; }}\n"),
        };
        std::fs::write(
            &source,
            Nccl::REQUIRED.iter().collect::<Vec<_>>().iter().map(stub).collect::<String>(),
        )
        .unwrap();
        let status = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .status()
            .unwrap();
        assert!(status.success());
        let nccl = Nccl::open(&library).unwrap();
        assert_eq!(nccl.version(), Some(21805));
        assert_eq!(nccl.file().as_deref(), Some(library.as_path()));
        assert!(nccl.ncclAlltoAll.is_none());
    }
}
