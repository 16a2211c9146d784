//! What is made on a device.

use core::ffi::{c_int, c_uint, c_void};
use rdma_sys as sys;

use crate::context::{Context, copy_out};
use crate::cq::CompletionQueue;
use crate::errno::{Errno, pointer, status};
use crate::mr::{By, MemoryRegion, Registration};
use crate::pd::ProtectionDomain;
use crate::qp::{QueuePair, Wanted};

/// A new protection domain.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut sys::ibv_context) -> *mut sys::ibv_pd {
    // SAFETY: the caller's context is open.
    pointer(ProtectionDomain::allocate(unsafe { Context::of(context) }))
}

/// Frees a protection domain.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut sys::ibv_pd) -> c_int {
    // SAFETY: the caller's domain is alive.
    status(unsafe { ProtectionDomain::free(pd) })
}

/// Registers memory; heeds no optional flag, as C's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut sys::ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut sys::ibv_mr {
    let access = access.cast_unsigned() & !sys::IBV_ACCESS_OPTIONAL_RANGE;
    let start = if access & sys::IBV_ACCESS_ZERO_BASED != 0 { 0 } else { addr as u64 };
    // SAFETY: the caller's domain is alive.
    unsafe { register(pd, addr, length, start, access) }
}

/// Registers memory under an address of the program's choosing.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut sys::ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut sys::ibv_mr {
    // SAFETY: the caller's domain is alive.
    unsafe { register(pd, addr, length, iova, access) }
}

/// The same, in the form before optional flags.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut sys::ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut sys::ibv_mr {
    // SAFETY: the caller's domain is alive.
    unsafe { register(pd, addr, length, iova, access.cast_unsigned()) }
}

unsafe fn register(
    pd: *mut sys::ibv_pd,
    addr: *mut c_void,
    length: usize,
    start: u64,
    access: u32,
) -> *mut sys::ibv_mr {
    let wanted = Registration { address: addr as u64, len: length as u64, start, access, by: By::Address };
    // SAFETY: the caller's domain is alive.
    pointer(MemoryRegion::register(unsafe { ProtectionDomain::of(pd) }, &wanted))
}

/// Registers a GPU's memory by a dma-buf. A program can't map that, nor learn of which memory it is: `iova` has to be
/// the memory's own address, as it is with all programs that have the address.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut sys::ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut sys::ibv_mr {
    let access = access.cast_unsigned() & !sys::IBV_ACCESS_OPTIONAL_RANGE;
    let by = By::DmaBuf { fd, offset };
    let wanted = Registration { address: iova, len: length as u64, start: iova, access, by };
    // SAFETY: the caller's domain is alive.
    pointer(MemoryRegion::register(unsafe { ProtectionDomain::of(pd) }, &wanted))
}

/// Ends a registration.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut sys::ibv_mr) -> c_int {
    // SAFETY: the caller's region is alive.
    unsafe { MemoryRegion::deregister(mr) };
    0
}

/// A new completion queue.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut sys::ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut sys::ibv_comp_channel,
    comp_vector: c_int,
) -> *mut sys::ibv_cq {
    if comp_vector != 0 {
        return pointer(Err(Errno::INVALID));
    }
    // SAFETY: the caller's context is open, and its channel alive.
    pointer(unsafe { CompletionQueue::create(Context::of(context), cqe, cq_context, channel) })
}

/// Destroys a completion queue.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut sys::ibv_cq) -> c_int {
    // SAFETY: the caller's queue is alive.
    status(unsafe { CompletionQueue::destroy(cq) })
}

/// A new queue pair.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_qp(
    pd: *mut sys::ibv_pd,
    attr: *mut sys::ibv_qp_init_attr,
) -> *mut sys::ibv_qp {
    // SAFETY: the caller's attributes are readable; the domain and the queues in them are alive.
    pointer(unsafe { QueuePair::create(&Wanted { pd, init: *attr, send_ops: None }) })
}

/// A new queue pair with extended attributes, for the table of a context.
pub(crate) unsafe extern "C" fn create_qp_ex(
    _context: *mut sys::ibv_context,
    attr: *mut sys::ibv_qp_init_attr_ex,
) -> *mut sys::ibv_qp {
    const TAKEN: u32 = sys::IBV_QP_INIT_ATTR_PD | sys::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    // SAFETY: the caller's attributes are readable; the older form is a prefix of them.
    let (wide, init) = unsafe { (&*attr, *attr.cast::<sys::ibv_qp_init_attr>()) };
    if wide.comp_mask & !TAKEN != 0 {
        return pointer(Err(Errno::NOT_SUPPORTED));
    }
    if wide.comp_mask & sys::IBV_QP_INIT_ATTR_PD == 0 {
        return pointer(Err(Errno::INVALID));
    }
    let extended = wide.comp_mask & sys::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    let wanted = Wanted { pd: wide.pd, init, send_ops: extended.then_some(wide.send_ops_flags) };
    // SAFETY: the domain and the queues are alive.
    pointer(unsafe { QueuePair::create(&wanted) })
}

/// The extended face of a queue pair.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut sys::ibv_qp) -> *mut sys::ibv_qp_ex {
    // SAFETY: the caller's queue pair is alive.
    unsafe { QueuePair::of(qp) }.extended()
}

/// Changes a queue pair.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_qp(
    qp: *mut sys::ibv_qp,
    attr: *mut sys::ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: the caller's queue pair is alive, and the attributes are readable.
    status(unsafe { QueuePair::of(qp).modify(&*attr, mask.cast_unsigned()) })
}

/// Tells a queue pair's attributes, all of them whatever is asked for.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_qp(
    qp: *mut sys::ibv_qp,
    attr: *mut sys::ibv_qp_attr,
    _mask: c_int,
    init: *mut sys::ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's queue pair is alive, and there is room for both.
    unsafe {
        let (attributes, initial) = QueuePair::of(qp).query();
        copy_out(&attributes, attr.cast(), size_of::<sys::ibv_qp_attr>());
        copy_out(&initial, init.cast(), size_of::<sys::ibv_qp_init_attr>());
    }
    0
}

/// Destroys a queue pair.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut sys::ibv_qp) -> c_int {
    // SAFETY: the caller's queue pair is alive.
    unsafe { QueuePair::destroy(qp) };
    0
}

/// Whether a write's bytes land in the order of their addresses: its last byte does land last.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_qp_data_in_order(
    _qp: *mut sys::ibv_qp,
    op: sys::ibv_wr_opcode,
    _flags: u32,
) -> c_int {
    (op == sys::IBV_WR_RDMA_WRITE).into()
}

/// Nothing has to be done for a fork: children have no part in what is mapped here.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_fork_init() -> c_int {
    0
}
