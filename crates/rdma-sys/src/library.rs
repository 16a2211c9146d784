//! The library as a table of function pointers: which file is opened, which functions it must and may have,
//! and how a failure reads. It calls none of them.

use std::ffi::{OsStr, OsString};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fmt, mem};

use core::ffi::{c_char, c_int, c_uint, c_void};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::bindings::*;

/// The name opened unless [`LIBRARY_VARIABLE`] says otherwise: the soname, which run-time packages install.
pub const DEFAULT_LIBRARY: &str = "libibverbs.so.1";

/// The environment variable that names another library to open, as a path or a soname.
pub const LIBRARY_VARIABLE: &str = "LINKPROOF_IBVERBS";

/// Why there is no [`Verbs`].
#[derive(Debug, Clone, PartialEq, Eq)]
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
            Self::NotOpened { path, reason } => {
                write!(f, "cannot open the verbs library {}: {reason}", path.display())
            }
            Self::SymbolMissing { path, symbol } => {
                write!(f, "cannot use the verbs library {}: it has no {symbol}", path.display())
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// Declares [`Verbs`] and how it is filled, so that a function's name and type stand once.
macro_rules! verbs_table {
    (
        required { $( $(#[$rdoc:meta])* fn $r:ident($($ra:ident: $rt:ty),* $(,)?) $(-> $rr:ty)?; )* }
        optional { $( $(#[$odoc:meta])* fn $o:ident($($oa:ident: $ot:ty),* $(,)?) $(-> $or:ty)?; )* }
    ) => {
        /// A loaded verbs library.
        ///
        /// Each field is the function of its name; those that are `Option`s are newer than the oldest library
        /// supported. A call is `(verbs.ibv_alloc_pd)(context)`, and unsafe: pointers must be what C asks
        /// for.
        pub struct Verbs {
            pub(crate) path: PathBuf,
            $( $(#[$rdoc])* pub $r: unsafe extern "C" fn($($ra: $rt),*) $(-> $rr)?, )*
            $( $(#[$odoc])* pub $o: Option<unsafe extern "C" fn($($oa: $ot),*) $(-> $or)?>, )*
        }

        impl Verbs {
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

            /// A table whose required functions all abort the test, and which has no optional ones.
            #[cfg(test)]
            pub(crate) fn stub() -> Self {
                $( unsafe extern "C" fn $r($(_: $rt),*) $(-> $rr)? {
                    panic!(concat!(stringify!($r), " was not expected"))
                } )*
                Self { path: PathBuf::from("stub"), $($r,)* $($o: None,)* }
            }
        }
    };
}

verbs_table! {
    required {
        /// Lists the devices, NULL-terminated; NULL and errno when there is no verbs support in the kernel.
        fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
        /// Frees the list; devices not opened by then are gone.
        fn ibv_free_device_list(list: *mut *mut ibv_device);
        /// The kernel's name of a device, valid as long as the device.
        fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
        /// Opens a device; NULL and errno on failure.
        fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
        /// Closes a device; objects made on it must be gone.
        fn ibv_close_device(context: *mut ibv_context) -> c_int;
        /// The device's limits; 0 or an errno value.
        fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
        /// Writes the oldest part of a port's attributes only: call [`crate::ibv_query_port`].
        fn ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut _compat_ibv_port_attr) -> c_int;
        /// A GID by index, all zeros where the index is unused.
        fn ibv_query_gid(context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int;
        /// A partition key by index, in network byte order.
        fn ibv_query_pkey(context: *mut ibv_context, port: u8, index: c_int, pkey: *mut __be16) -> c_int;
        /// A new protection domain; NULL and errno on failure.
        fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
        /// Frees a protection domain; 0 or an errno value (EBUSY while something uses it).
        fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
        /// Registers memory, heeding no optional access flag: see [`crate::ibv_reg_mr`].
        fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
        /// Ends a registration; 0 or an errno value.
        fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
        /// A new completion queue of at least `cqe` entries; NULL and errno on failure.
        fn ibv_create_cq(
            context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void,
            channel: *mut ibv_comp_channel, comp_vector: c_int,
        ) -> *mut ibv_cq;
        /// Destroys a completion queue; 0 or an errno value. Waits for unacknowledged events.
        fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
        /// A new queue pair; NULL and errno on failure. Writes the limits granted into `attr`.
        fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
        /// Changes a queue pair's state and attributes; 0 or an errno value.
        fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
        /// Reads a queue pair's attributes; 0 or an errno value.
        fn ibv_query_qp(
            qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int, init: *mut ibv_qp_init_attr,
        ) -> c_int;
        /// Destroys a queue pair; 0 or an errno value. Waits for unacknowledged events.
        fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
        /// A completion status in words; static, and "unknown" for one it does not know.
        fn ibv_wc_status_str(status: ibv_wc_status) -> *const c_char;
        /// Waits for an asynchronous event; 0, or -1 and errno.
        fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
        /// Acknowledges an event; exactly once for each.
        fn ibv_ack_async_event(event: *mut ibv_async_event);
        /// A new completion channel; NULL and errno on failure.
        fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
        /// Destroys a completion channel; 0 or an errno value.
        fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
        /// Waits for a completion event; 0, or -1 and errno.
        fn ibv_get_cq_event(
            channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void,
        ) -> c_int;
        /// Acknowledges completion events; takes a lock, so better many at a time.
        fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint);
        /// A port state in words; static.
        fn ibv_port_state_str(state: ibv_port_state) -> *const c_char;
        /// A node type in words; static.
        fn ibv_node_type_str(node_type: ibv_node_type) -> *const c_char;
        /// An asynchronous event's type in words; static.
        fn ibv_event_type_str(event_type: ibv_event_type) -> *const c_char;
    }
    optional {
        /// A GID with its type and network interface: see [`crate::ibv_query_gid_ex`].
        fn _ibv_query_gid_ex(
            context: *mut ibv_context, port: u32, index: u32, entry: *mut ibv_gid_entry,
            flags: u32, entry_size: usize,
        ) -> c_int;
        /// All GIDs of all ports: see [`crate::ibv_query_gid_table`].
        fn _ibv_query_gid_table(
            context: *mut ibv_context, entries: *mut ibv_gid_entry, max_entries: usize,
            flags: u32, entry_size: usize,
        ) -> isize;
        /// Registers memory under an address of one's own, heeding optional access flags.
        fn ibv_reg_mr_iova2(
            pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_uint,
        ) -> *mut ibv_mr;
        /// Registers memory that a dma-buf file descriptor stands for, GPU memory for one.
        fn ibv_reg_dmabuf_mr(
            pd: *mut ibv_pd, offset: u64, length: usize, iova: u64, fd: c_int, access: c_int,
        ) -> *mut ibv_mr;
        /// The extended face of a queue pair made with `send_ops_flags`; NULL for any other.
        fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex;
        /// Keeps registered pages out of children; must come before any registration.
        fn ibv_fork_init() -> c_int;
        /// Whether a write's bytes land in order of address, so that its last byte can be polled.
        fn ibv_query_qp_data_in_order(qp: *mut ibv_qp, op: ibv_wr_opcode, flags: u32) -> c_int;
        /// A device's node GUID, in network byte order.
        fn ibv_get_device_guid(device: *mut ibv_device) -> __be64;
    }
}

impl Verbs {
    /// The process's library, opened by the first call; later calls give the same table, or the same failure.
    ///
    /// It is never unloaded: it keeps its providers open, devices and their background state in static
    /// memory, and may have installed fork handlers, so there is no moment at which unloading is known to be
    /// safe. The name comes from `LINKPROOF_IBVERBS`, else it is `libibverbs.so.1`; empty counts as unset.
    pub fn load() -> Result<&'static Self, LoadError> {
        static LOADED: OnceLock<Result<Verbs, LoadError>> = OnceLock::new();
        LOADED
            .get_or_init(|| Self::open(chosen_library(std::env::var_os(LIBRARY_VARIABLE))))
            .as_ref()
            .map_err(LoadError::clone)
    }

    /// Opens the library at `path` (or of that soname) beside any other; for tests. It stays loaded, too.
    pub fn open(path: impl AsRef<OsStr>) -> Result<Self, LoadError> {
        let path = Path::new(path.as_ref());
        // RTLD_NOW: a symbol that cannot be bound shows here, and no lookup happens inside a measured loop.
        // SAFETY: the library's initialisers run. Naming a library is trusting it with this process, as is
        // having one installed; ours and rdma-core's only fill tables of their own.
        let opened = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let library = opened.map_err(|error| LoadError::NotOpened {
            path: path.to_path_buf(),
            reason: words(&error, path),
        })?;
        // Never closed, also when a symbol is missing: its initialisers have run.
        Self::resolve(&ManuallyDrop::new(library), path)
    }

    /// What was opened, as it was named.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Debug for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verbs").field("path", &self.path).finish_non_exhaustive()
    }
}

fn chosen_library(variable: Option<OsString>) -> OsString {
    variable.filter(|path| !path.is_empty()).unwrap_or_else(|| DEFAULT_LIBRARY.into())
}

/// The function called `name`, of the default version where the library has several.
///
/// # Safety
///
/// `F` must be a function pointer type that matches the function's C declaration.
unsafe fn symbol<F: Copy>(library: &Library, name: &'static str) -> Option<F> {
    const { assert!(mem::size_of::<F>() == mem::size_of::<*const ()>()) };
    // SAFETY: the caller vouches for F. The pointer stays valid because the library is never closed.
    unsafe { library.get::<F>(name) }.ok().map(|found| *found)
}

/// The loader's message, which libloading keeps in the error's source; without `path`, which the error has
/// already. Another file's name stays: a library that this one needs may be what is missing.
fn words(error: &libloading::Error, path: &Path) -> String {
    let text = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    let stripped = text.strip_prefix(&format!("{}: ", path.display())).map(str::to_owned);
    stripped.unwrap_or(text)
}

#[cfg(test)]
mod tests;
