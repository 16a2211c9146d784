//! What the devices don't have. The functions exist, because a program that may need one won't start without it, and
//! fail as they do on an adapter that lacks the feature.

use core::ffi::{c_char, c_int, c_void};
use rdma_sys as sys;

use crate::errno::{Errno, pointer, status};

/// Declares functions that fail with `EOPNOTSUPP`: those that return a pointer with NULL, the others with the number.
macro_rules! unsupported {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) -> *mut $pointer:ty;)*) => {
        $($(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($(_: $type),*) -> *mut $pointer {
            pointer(Err(Errno::NOT_SUPPORTED))
        })*
    };
}

unsupported! {
    /// There are no address handles: they are for datagrams.
    fn ibv_create_ah(pd: *mut sys::ibv_pd, attr: *mut sys::ibv_ah_attr) -> *mut sys::ibv_ah;
    /// As [`ibv_create_ah`].
    fn ibv_create_ah_from_wc(pd: *mut sys::ibv_pd, wc: *mut sys::ibv_wc, grh: *mut sys::ibv_grh, port: u8) -> *mut sys::ibv_ah;
    /// There are no shared receive queues.
    fn ibv_create_srq(pd: *mut sys::ibv_pd, attr: *mut sys::ibv_srq_init_attr) -> *mut sys::ibv_srq;
}

/// As [`ibv_create_ah`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_ah(_: *mut sys::ibv_ah) -> c_int {
    status(Err(Errno::NOT_SUPPORTED))
}

/// As [`ibv_create_srq`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_srq(_: *mut sys::ibv_srq) -> c_int {
    status(Err(Errno::NOT_SUPPORTED))
}

/// As [`ibv_create_srq`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_srq(
    _: *mut sys::ibv_srq,
    _: *mut sys::ibv_srq_attr,
    _: c_int,
) -> c_int {
    status(Err(Errno::NOT_SUPPORTED))
}

/// As [`ibv_create_srq`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_srq(_: *mut sys::ibv_srq, _: *mut sys::ibv_srq_attr) -> c_int {
    status(Err(Errno::NOT_SUPPORTED))
}

/// Queues keep their size.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_resize_cq(_: *mut sys::ibv_cq, _: c_int) -> c_int {
    status(Err(Errno::NOT_SUPPORTED))
}

/// There is no multicast: it is for datagrams.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_attach_mcast(
    _: *mut sys::ibv_qp,
    _: *const sys::ibv_gid,
    _: u16,
) -> c_int {
    status(Err(Errno::NOT_SUPPORTED))
}

/// As [`ibv_attach_mcast`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_detach_mcast(
    _: *mut sys::ibv_qp,
    _: *const sys::ibv_gid,
    _: u16,
) -> c_int {
    status(Err(Errno::NOT_SUPPORTED))
}

/// A registration is not changed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_rereg_mr(
    _: *mut sys::ibv_mr,
    _: c_int,
    _: *mut sys::ibv_pd,
    _: *mut c_void,
    _: usize,
    _: c_int,
) -> c_int {
    status(Err(Errno::NOT_SUPPORTED))
}

/// A device has no folder in `/sys`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_read_sysfs_file(
    _: *const c_char,
    _: *const c_char,
    _: *mut c_char,
    _: usize,
) -> c_int {
    -1
}
