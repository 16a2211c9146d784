use core::ptr::{null, null_mut, without_provenance_mut as fake};

use libc::EIO;

use super::*;

const FULL: usize = size_of::<verbs_context>();
const MADE: usize = 0x1000;

/// A context as a provider makes it: inside a table, marked, and with the table's size beside it.
struct Device(*mut verbs_context);

impl Device {
    fn new(fill: impl FnOnce(&mut verbs_context)) -> Self {
        let mut table = Box::new(verbs_context::default());
        table.sz = FULL;
        table.context.abi_compat = fake(usize::MAX);
        fill(&mut table);
        Self(Box::into_raw(table))
    }

    fn context(&self) -> *mut ibv_context {
        // SAFETY: the table is alive until drop; no reference is made.
        unsafe { &raw mut (*self.0).context }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the pointer came from Box::into_raw and is dropped once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

fn errno() -> Option<i32> {
    std::io::Error::last_os_error().raw_os_error()
}

/// So that an assertion about errno does not see an earlier call's.
fn clear_errno() {
    // SAFETY: errno is this thread's own, and always there.
    unsafe { *libc::__errno_location() = 0 };
}

unsafe extern "C" fn create_cq_ex(_: *mut ibv_context, _: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex {
    fake(MADE)
}

unsafe extern "C" fn create_qp_ex(_: *mut ibv_context, _: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    fake(MADE)
}

unsafe extern "C" fn create_qp(pd: *mut ibv_pd, _: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    pd.cast()
}

unsafe extern "C" fn query_port(
    _: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    len: usize,
) -> c_int {
    assert_eq!((port, len), (3, size_of::<ibv_port_attr>()));
    // SAFETY: the test passes a valid attr.
    unsafe { (*attr).port_cap_flags2 = 0x55 };
    0
}

unsafe extern "C" fn old_query_port(_: *mut ibv_context, _: u8, attr: *mut _compat_ibv_port_attr) -> c_int {
    // SAFETY: the test passes a valid attr; its first field belongs to the old part.
    unsafe { attr.cast::<ibv_port_state>().write(IBV_PORT_ACTIVE) };
    0
}

unsafe extern "C" fn query_device_ex<const STATUS: c_int>(
    _: *mut ibv_context,
    _: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    len: usize,
) -> c_int {
    assert_eq!(len, size_of::<ibv_device_attr_ex>());
    // SAFETY: the test passes a valid attr.
    unsafe { (*attr).xrc_odp_caps = 0x55 };
    STATUS
}

unsafe extern "C" fn old_query_device(_: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    // SAFETY: the test passes a valid attr.
    unsafe { (*attr).max_qp = 7 };
    0
}

unsafe extern "C" fn query_rt_values(_: *mut ibv_context, values: *mut ibv_values_ex) -> c_int {
    // SAFETY: the test passes valid values.
    unsafe { (*values).raw_clock.tv_nsec = 42 };
    0
}

fn cq_device(sz: usize) -> Device {
    Device::new(|table| {
        table.create_cq_ex = Some(create_cq_ex);
        table.sz = sz;
    })
}

fn cq_on(device: &Device) -> *mut ibv_cq_ex {
    clear_errno();
    // SAFETY: the context is inside a live table, and the operation ignores its attributes.
    unsafe { ibv_create_cq_ex(device.context(), null_mut()) }
}

#[test]
fn an_operation_is_reached_when_the_context_is_marked_and_the_table_covers_it() {
    let needed = FULL - offset_of!(verbs_context, create_cq_ex);
    for sz in [needed, FULL, FULL + 64] {
        let device = cq_device(sz);
        assert_eq!(cq_on(&device).addr(), MADE, "sz {sz}");
    }
}

#[test]
fn an_operation_outside_the_table_is_not_reached() {
    let needed = FULL - offset_of!(verbs_context, create_cq_ex);
    for sz in [0, needed - 1] {
        let device = cq_device(sz);
        assert!(cq_on(&device).is_null(), "sz {sz}");
        assert_eq!(errno(), Some(EOPNOTSUPP));
    }
}

#[test]
fn an_unmarked_context_has_no_table() {
    // The second is the value that a 32-bit comparison would take for the mark.
    for mark in [0, u32::MAX as usize] {
        let device = Device::new(|table| {
            table.create_cq_ex = Some(create_cq_ex);
            table.context.abi_compat = fake(mark);
        });
        assert!(cq_on(&device).is_null(), "mark {mark:#x}");
        assert_eq!(errno(), Some(EOPNOTSUPP));
    }
}

#[test]
fn an_operation_that_the_device_lacks_is_not_supported() {
    let device = Device::new(|_| ());
    assert!(cq_on(&device).is_null());
    assert_eq!(errno(), Some(EOPNOTSUPP));
    let mut values = ibv_values_ex { comp_mask: 0, raw_clock: libc::timespec { tv_sec: 0, tv_nsec: 0 } };
    // SAFETY: the context is inside a live table.
    let status = unsafe { ibv_query_rt_values_ex(device.context(), &raw mut values) };
    assert_eq!(status, EOPNOTSUPP);
}

#[test]
fn a_queue_pair_falls_back_only_when_nothing_extended_is_asked() {
    let verbs = Verbs { ibv_create_qp: create_qp, ..Verbs::stub() };
    let old = Device::new(|_| ());
    let new = Device::new(|table| table.create_qp_ex = Some(create_qp_ex));
    let create = |device: &Device, comp_mask| {
        clear_errno();
        let mut attr = ibv_qp_init_attr_ex { comp_mask, pd: fake(0x2000), ..Default::default() };
        // SAFETY: the context is inside a live table, and both operations only look at pointers.
        unsafe { ibv_create_qp_ex(&verbs, device.context(), &raw mut attr) }.addr()
    };
    let extended = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    assert_eq!(create(&old, IBV_QP_INIT_ATTR_PD), 0x2000);
    assert_eq!(create(&new, IBV_QP_INIT_ATTR_PD), 0x2000);
    assert_eq!(create(&new, extended), MADE);
    assert_eq!(create(&old, extended), 0);
    assert_eq!(errno(), Some(EOPNOTSUPP));
    assert_eq!(create(&old, 0), 0, "no PD either: C does not fall back, nor does this");
}

#[test]
fn a_port_is_queried_whole_or_with_the_newer_fields_zero() {
    let verbs = Verbs { ibv_query_port: old_query_port, ..Verbs::stub() };
    let query = |device: &Device| {
        let mut attr = ibv_port_attr { port_cap_flags2: 0xffff, lid: 0xffff, ..Default::default() };
        // SAFETY: the context is inside a live table and attr is valid.
        assert_eq!(unsafe { ibv_query_port(&verbs, device.context(), 3, &raw mut attr) }, 0);
        (attr.state, attr.lid, attr.port_cap_flags2)
    };
    let new = Device::new(|table| table.query_port = Some(query_port));
    assert_eq!(query(&new), (0, 0xffff, 0x55));
    assert_eq!(query(&Device::new(|_| ())), (IBV_PORT_ACTIVE, 0, 0));
}

fn device_limits(device: &Device) -> (c_int, i32, u32) {
    let verbs = Verbs { ibv_query_device: old_query_device, ..Verbs::stub() };
    let mut attr = ibv_device_attr_ex { xrc_odp_caps: 0xffff, ..Default::default() };
    // SAFETY: the context is inside a live table and attr is valid.
    let status = unsafe { ibv_query_device_ex(&verbs, device.context(), null(), &raw mut attr) };
    (status, attr.orig_attr.max_qp, attr.xrc_odp_caps)
}

#[test]
fn device_limits_fall_back_when_the_device_cannot_say_but_not_when_it_fails() {
    let device = |query| Device::new(|table| table.query_device_ex = query);
    assert_eq!(device_limits(&device(Some(query_device_ex::<0>))), (0, 0, 0x55));
    assert_eq!(device_limits(&device(Some(query_device_ex::<ENOSYS>))), (0, 7, 0));
    assert_eq!(device_limits(&device(Some(query_device_ex::<EOPNOTSUPP>))), (0, 7, 0));
    assert_eq!(device_limits(&device(None)), (0, 7, 0));
    assert_eq!(device_limits(&device(Some(query_device_ex::<EIO>))).0, EIO);
}

#[test]
fn a_device_query_with_an_input_mask_is_refused() {
    let device = Device::new(|table| table.query_device_ex = Some(query_device_ex::<0>));
    let input = ibv_query_device_ex_input { comp_mask: 1 };
    let mut attr = ibv_device_attr_ex::default();
    // SAFETY: the context is inside a live table; input and attr are valid.
    let status = unsafe { ibv_query_device_ex(&Verbs::stub(), device.context(), &input, &raw mut attr) };
    assert_eq!((status, attr.xrc_odp_caps), (EINVAL, 0));
}

#[test]
fn the_clock_is_read_through_the_table() {
    let device = Device::new(|table| table.query_rt_values = Some(query_rt_values));
    let mut values = ibv_values_ex { comp_mask: 1, raw_clock: libc::timespec { tv_sec: 0, tv_nsec: 0 } };
    // SAFETY: the context is inside a live table and values is valid.
    assert_eq!(unsafe { ibv_query_rt_values_ex(device.context(), &raw mut values) }, 0);
    assert_eq!(values.raw_clock.tv_nsec, 42);
}

#[test]
fn a_library_without_the_gid_queries_is_not_an_accident() {
    let verbs = Verbs::stub();
    let mut entry = ibv_gid_entry::default();
    // SAFETY: nothing is called, so nothing is looked at.
    let (one, all) = unsafe {
        (
            ibv_query_gid_ex(&verbs, null_mut(), 1, 0, &raw mut entry, 0),
            ibv_query_gid_table(&verbs, null_mut(), &raw mut entry, 1, 0),
        )
    };
    assert_eq!((one, all), (EOPNOTSUPP, -(EOPNOTSUPP as isize)));
}

#[test]
fn memory_goes_to_the_newer_registration_only_for_optional_access() {
    unsafe extern "C" fn old(_: *mut ibv_pd, _: *mut c_void, _: usize, access: c_int) -> *mut ibv_mr {
        assert_eq!(access, IBV_ACCESS_LOCAL_WRITE.cast_signed());
        fake(0x1)
    }
    unsafe extern "C" fn new(_: *mut ibv_pd, _: *mut c_void, _: usize, iova: u64, _: c_uint) -> *mut ibv_mr {
        assert_eq!(iova, 0x4000, "the address that the peer uses is the memory's own");
        fake(0x2)
    }
    let relaxed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
    // SAFETY: neither function touches the memory or the domain.
    let register =
        |verbs: &Verbs, access| unsafe { ibv_reg_mr(verbs, null_mut(), fake(0x4000), 64, access) }.addr();
    let modern = Verbs { ibv_reg_mr: old, ibv_reg_mr_iova2: Some(new), ..Verbs::stub() };
    let ancient = Verbs { ibv_reg_mr: old, ..Verbs::stub() };
    assert_eq!(register(&modern, IBV_ACCESS_LOCAL_WRITE), 0x1);
    assert_eq!(register(&modern, relaxed), 0x2);
    assert_eq!(register(&ancient, relaxed), 0);
    assert_eq!(errno(), Some(EOPNOTSUPP));
}
