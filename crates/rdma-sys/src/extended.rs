//! Verbs that the C header builds on a device's own table (`verbs_context`), each with the fallback that C
//! has; and the few that the header turns into a call with more arguments.
//!
//! Failures read as in C: a function that returns a pointer returns NULL and sets errno, one that returns a
//! number returns the errno value itself (0 is success) and leaves errno alone.

use core::ffi::{c_int, c_uint, c_void};
use core::mem::{offset_of, size_of};

use libc::{EINVAL, ENOSYS, EOPNOTSUPP};

use crate::bindings::*;
use crate::library::Verbs;

/// The table that surrounds `context`; NULL where the context is not an extended one.
///
/// # Safety
///
/// `context` must come from `ibv_open_device` and be open.
#[inline]
pub unsafe fn verbs_get_ctx(context: *mut ibv_context) -> *mut verbs_context {
    // SAFETY: the context is open. libibverbs marks an extended one by the highest address, not a pointer.
    if unsafe { (*context).abi_compat }.addr() != usize::MAX {
        return core::ptr::null_mut();
    }
    context.wrapping_byte_sub(offset_of!(verbs_context, context)).cast()
}

/// The operation called `$op` of a context, as an `Option`: `None` where the table is absent, too small (it
/// grows at its front, so its size tells which operations it has), or has no such operation.
macro_rules! context_op {
    ($context:expr, $op:ident) => {{
        const NEEDED: usize = size_of::<verbs_context>() - offset_of!(verbs_context, $op);
        let table = verbs_get_ctx($context);
        if table.is_null() || (*table).sz < NEEDED { None } else { (*table).$op }
    }};
}

/// Says in errno that the device has no such operation, and is the NULL to return.
fn unsupported<T>() -> *mut T {
    // SAFETY: errno is this thread's own, and always there.
    unsafe { *libc::__errno_location() = EOPNOTSUPP };
    core::ptr::null_mut()
}

/// A queue pair with extended attributes; NULL and errno on failure.
///
/// As in C, `comp_mask == IBV_QP_INIT_ATTR_PD` exactly is an ordinary `ibv_create_qp`; anything more needs
/// the device's own operation, and is EOPNOTSUPP without it.
///
/// # Safety
///
/// `context` must be open, and `attr` and what it points to valid for it; the limits granted are written to
/// `attr`.
pub unsafe fn ibv_create_qp_ex(
    verbs: &Verbs,
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller's promises are those of each callee. ibv_qp_init_attr is a prefix of the extended
    // struct.
    unsafe {
        if (*attr).comp_mask == IBV_QP_INIT_ATTR_PD {
            return (verbs.ibv_create_qp)((*attr).pd, attr.cast());
        }
        match context_op!(context, create_qp_ex) {
            Some(create) => create(context, attr),
            None => unsupported(),
        }
    }
}

/// A completion queue with extended attributes (timestamps, no overrun check); NULL and errno on failure.
///
/// # Safety
///
/// `context` must be open, and `attr` and what it points to valid for it.
pub unsafe fn ibv_create_cq_ex(context: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex {
    // SAFETY: the caller's promises are those of the operation.
    unsafe {
        match context_op!(context, create_cq_ex) {
            Some(create) => create(context, attr),
            None => unsupported(),
        }
    }
}

/// The device's limits, extended ones included; 0 or an errno value.
///
/// Where the device cannot say, the old query fills `orig_attr` and the rest is zero. A `comp_mask` in
/// `input` is EINVAL: none is defined.
///
/// # Safety
///
/// `context` must be open, `attr` writable, and `input` NULL or valid.
pub unsafe fn ibv_query_device_ex(
    verbs: &Verbs,
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
) -> c_int {
    // SAFETY: the caller's promises are those of each callee; all zeros is a valid ibv_device_attr_ex.
    unsafe {
        if !input.is_null() && (*input).comp_mask != 0 {
            return EINVAL;
        }
        if let Some(query) = context_op!(context, query_device_ex) {
            let status = query(context, input, attr, size_of::<ibv_device_attr_ex>());
            if status != EOPNOTSUPP && status != ENOSYS {
                return status;
            }
        }
        attr.write_bytes(0, 1);
        (verbs.ibv_query_device)(context, &raw mut (*attr).orig_attr)
    }
}

/// A port's attributes; 0 or an errno value.
///
/// Where the device has no operation of its own, the exported function fills the older fields and the newer
/// ones are zero.
///
/// # Safety
///
/// `context` must be open and `attr` writable.
pub unsafe fn ibv_query_port(
    verbs: &Verbs,
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the caller's promises are those of each callee; all zeros is a valid ibv_port_attr, and the
    // struct that the exported function fills is a prefix of it.
    unsafe {
        if let Some(query) = context_op!(context, query_port) {
            return query(context, port, attr, size_of::<ibv_port_attr>());
        }
        attr.write_bytes(0, 1);
        (verbs.ibv_query_port)(context, port, attr.cast())
    }
}

/// The device's free-running clock, if `values.comp_mask` asks for it; 0 or an errno value (EOPNOTSUPP where
/// the device has no such operation).
///
/// # Safety
///
/// `context` must be open and `values` writable.
pub unsafe fn ibv_query_rt_values_ex(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int {
    // SAFETY: the caller's promises are those of the operation.
    unsafe { context_op!(context, query_rt_values).map_or(EOPNOTSUPP, |query| query(context, values)) }
}

/// A GID with its type and network interface; 0 or an errno value (EOPNOTSUPP where the library is too old).
///
/// # Safety
///
/// `context` must be open and `entry` writable.
pub unsafe fn ibv_query_gid_ex(
    verbs: &Verbs,
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
) -> c_int {
    let Some(query) = verbs._ibv_query_gid_ex else { return EOPNOTSUPP };
    // SAFETY: the caller's promises are those of the function, and the size is the entry's own.
    unsafe { query(context, port, index, entry, flags, size_of::<ibv_gid_entry>()) }
}

/// The GIDs in use on all ports; how many were written, or a negated errno value (-EOPNOTSUPP where the
/// library is too old).
///
/// # Safety
///
/// `context` must be open and `entries` have room for `max_entries`.
pub unsafe fn ibv_query_gid_table(
    verbs: &Verbs,
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
) -> isize {
    let Some(query) = verbs._ibv_query_gid_table else { return -(EOPNOTSUPP as isize) };
    // SAFETY: the caller's promises are those of the function, and the size is an entry's own.
    unsafe { query(context, entries, max_entries, flags, size_of::<ibv_gid_entry>()) }
}

/// Registers memory; NULL and errno on failure.
///
/// An access flag in [`crate::IBV_ACCESS_OPTIONAL_RANGE`] needs the newer function: the old one would refuse
/// or drop it. Where the library has only the old one, such a flag is EOPNOTSUPP, and the caller decides.
///
/// # Safety
///
/// `pd` must be alive. The memory must stay mapped until `ibv_dereg_mr`; while remote access is allowed, the
/// NIC may read and write it at any time on the peer's behalf.
pub unsafe fn ibv_reg_mr(
    verbs: &Verbs,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the caller's promises are those of each callee.
    unsafe {
        if access & crate::IBV_ACCESS_OPTIONAL_RANGE == 0 {
            return (verbs.ibv_reg_mr)(pd, addr, length, access.cast_signed());
        }
        match verbs.ibv_reg_mr_iova2 {
            Some(register) => register(pd, addr, length, addr.addr() as u64, access),
            None => unsupported(),
        }
    }
}

#[cfg(test)]
mod tests;
