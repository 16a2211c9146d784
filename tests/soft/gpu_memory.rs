//! softnic's registrations of GPU memory: what is refused, with which errno value, and what faults there are. What
//! messages do there is `verbs_facts`'s.
#![allow(unsafe_code, reason = "the interfaces are C's")]

use std::ffi::OsString;

use linkproof_tests::{Tool, free_port, library, softgpu};
use nix::errno::Errno;
use rdma_sys as sys;
use rdma_sys::Verbs;

use crate::driver::{Driver, alone_among};

const PAGE: usize = 4096;
const LOCAL: u32 = sys::IBV_ACCESS_LOCAL_WRITE;
const ALL: u32 = LOCAL | sys::IBV_ACCESS_REMOTE_WRITE | sys::IBV_ACCESS_REMOTE_READ;

/// The device, open in the process of a test.
struct Nic {
    verbs: &'static Verbs,
    pd: *mut sys::ibv_pd,
}

/// Runs `body` in a process of its own with a GPU and the device that `devices` describes.
fn beside_a_gpu(test: &str, devices: &str, body: fn(&Driver)) {
    beside(test, devices, softgpu(), body);
}

/// The same with another `driver` in the environment.
fn beside(test: &str, devices: &str, driver: impl Into<OsString>, body: fn(&Driver)) {
    let fabric = format!("fabric=gpu-memory-{}; {devices}", std::process::id());
    let environment = [
        ("LINKPROOF_IBVERBS", library("softnic").into_os_string()),
        ("LINKPROOF_SOFTNIC", OsString::from(fabric)),
        ("LINKPROOF_CUDA", driver.into()),
    ];
    alone_among(test, "", &environment, body);
}

impl Nic {
    fn open() -> Self {
        let verbs = Verbs::load().expect("the library is there");
        // SAFETY: the list has a device; both objects live as long as the process.
        let pd = unsafe {
            let list = (verbs.ibv_get_device_list)(core::ptr::null_mut());
            (verbs.ibv_alloc_pd)((verbs.ibv_open_device)(*list))
        };
        assert!(!pd.is_null());
        Self { verbs, pd }
    }

    /// Registers by address.
    fn by_address(&self, address: u64, len: usize, access: u32) -> Result<*mut sys::ibv_mr, Errno> {
        let pointer = core::ptr::without_provenance_mut(address as usize);
        // SAFETY: nobody is told the key.
        let mr = unsafe { sys::ibv_reg_mr(self.verbs, self.pd, pointer, len, access) };
        if mr.is_null() { Err(Errno::last()) } else { Ok(mr) }
    }

    /// Registers by a dma-buf.
    fn by_dma_buf(&self, fd: i32, offset: u64, iova: u64, len: usize) -> Result<*mut sys::ibv_mr, Errno> {
        let call = self.verbs.ibv_reg_dmabuf_mr.expect("it is there");
        // SAFETY: as above.
        let mr = unsafe { call(self.pd, offset, len, iova, fd, ALL.cast_signed()) };
        if mr.is_null() { Err(Errno::last()) } else { Ok(mr) }
    }

    fn end(&self, mr: *mut sys::ibv_mr) {
        // SAFETY: a registration, ended once.
        assert_eq!(unsafe { (self.verbs.ibv_dereg_mr)(mr) }, 0);
    }
}

#[test]
fn device_memory_is_registered_by_its_address_within_its_allocation() {
    let test = "gpu_memory::device_memory_is_registered_by_its_address_within_its_allocation";
    beside_a_gpu(test, "soft0", |driver| {
        let (nic, pointer) = (Nic::open(), driver.alloc(10_000).unwrap());
        for (at, len) in [(0, 10_000), (77, 1), (0, 12_288)] {
            nic.end(nic.by_address(pointer + at, len, ALL).unwrap());
        }
        assert_eq!(nic.by_address(pointer, 12_289, ALL), Err(Errno::EFAULT), "behind its last page");
        driver.good(driver.free(pointer));
        assert_eq!(nic.by_address(pointer, 64, ALL), Err(Errno::EFAULT), "it is gone");
    });
}

#[test]
fn without_peer_memory_its_address_is_a_fault_whatever_the_rights() {
    let test = "gpu_memory::without_peer_memory_its_address_is_a_fault_whatever_the_rights";
    beside_a_gpu(test, "soft0 peer_memory=off", |driver| {
        let (nic, pointer) = (Nic::open(), driver.alloc(2 * PAGE).unwrap());
        assert_eq!(nic.by_address(pointer, PAGE, ALL), Err(Errno::EFAULT));
        assert_eq!(nic.by_address(pointer, PAGE, sys::IBV_ACCESS_REMOTE_READ), Err(Errno::EFAULT));
        let fd = driver.export(pointer, 2 * PAGE).unwrap();
        nic.end(nic.by_dma_buf(fd, 0, pointer, PAGE).unwrap());
        let host = vec![0_u8; PAGE];
        nic.end(nic.by_address(host.as_ptr() as u64, PAGE, ALL).unwrap());
    });
}

#[test]
fn a_dma_buf_needs_a_descriptor_and_the_memorys_own_address() {
    let test = "gpu_memory::a_dma_buf_needs_a_descriptor_and_the_memorys_own_address";
    beside_a_gpu(test, "soft0", |driver| {
        let (nic, pointer) = (Nic::open(), driver.alloc(2 * PAGE).unwrap());
        let fd = driver.export(pointer, 2 * PAGE).unwrap();
        let mr = nic.by_dma_buf(fd, PAGE as u64 + 5, pointer + PAGE as u64 + 5, 100).unwrap();
        // SAFETY: the registration is alive.
        let (addr, length) = unsafe { ((*mr).addr.addr(), (*mr).length) };
        assert_eq!((addr, length), (PAGE + 5, 100), "as libibverbs shows a dma-buf");
        nic.end(mr);
        assert_eq!(nic.by_dma_buf(-1, 0, pointer, PAGE), Err(Errno::EBADF));
        assert_eq!(nic.by_dma_buf(987, 0, pointer, PAGE), Err(Errno::EBADF));
        assert_eq!(nic.by_dma_buf(fd, 5, pointer, 100), Err(Errno::EINVAL), "another place in a page");
        assert_eq!(nic.by_dma_buf(fd, 0, pointer, 0), Err(Errno::EINVAL));
        assert_eq!(nic.by_dma_buf(fd, 0, pointer, 2 * PAGE + 1), Err(Errno::EINVAL), "behind its end");
        let host = vec![0_u8; 2 * PAGE];
        let page = (host.as_ptr() as u64).next_multiple_of(PAGE as u64);
        assert_eq!(nic.by_dma_buf(fd, 0, page, 64), Err(Errno::EINVAL), "host memory");
    });
}

#[test]
fn a_device_without_dma_bufs_does_not_support_them() {
    beside_a_gpu(
        "gpu_memory::a_device_without_dma_bufs_does_not_support_them",
        "soft0 dma_buf=off",
        |driver| {
            let (nic, pointer) = (Nic::open(), driver.alloc(PAGE).unwrap());
            let fd = driver.export(pointer, PAGE).unwrap();
            assert_eq!(nic.by_dma_buf(fd, 0, pointer, PAGE), Err(Errno::EOPNOTSUPP));
            nic.end(nic.by_address(pointer, PAGE, ALL).unwrap());
        },
    );
}

#[test]
fn each_way_has_its_own_fault_and_both_the_devices_limit() {
    let test = "gpu_memory::each_way_has_its_own_fault_and_both_the_devices_limit";
    let devices = "soft0 max_mr=2 fault=reg_mr@1:ENOMEM fault=reg_dmabuf_mr@2:EIO";
    beside_a_gpu(test, devices, |driver| {
        let (nic, pointer) = (Nic::open(), driver.alloc(PAGE).unwrap());
        let fd = driver.export(pointer, PAGE).unwrap();
        let first = nic.by_dma_buf(fd, 0, pointer, PAGE).unwrap();
        assert_eq!(nic.by_dma_buf(fd, 0, pointer, PAGE), Err(Errno::EIO));
        assert_eq!(nic.by_address(pointer, PAGE, ALL), Err(Errno::ENOMEM));
        let second = nic.by_address(pointer, PAGE, ALL).unwrap();
        assert_eq!(nic.by_address(pointer, PAGE, ALL), Err(Errno::ENOMEM), "there are two");
        assert_eq!(nic.by_dma_buf(fd, 0, pointer, PAGE), Err(Errno::ENOMEM), "there are two");
        nic.end(first);
        nic.end(nic.by_dma_buf(fd, 0, pointer, PAGE).unwrap());
        nic.end(second);
    });
}

#[test]
fn the_threads_own_context_stays_as_it_was() {
    beside_a_gpu("gpu_memory::the_threads_own_context_stays_as_it_was", "soft0", |driver| {
        let (nic, pointer) = (Nic::open(), driver.alloc(PAGE).unwrap());
        let current = || {
            let mut context = core::ptr::null_mut();
            // SAFETY: the place is ours, and what is popped is this thread's again.
            unsafe {
                let popped = (driver.cuCtxPopCurrent_v2)(&mut context);
                (popped == 0).then(|| driver.good((driver.cuCtxSetCurrent)(context)));
            }
            context
        };
        let before = current();
        nic.end(nic.by_address(pointer, PAGE, ALL).unwrap());
        assert!(!before.is_null() && current() == before);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let nic = Nic::open();
                nic.end(nic.by_address(pointer, PAGE, ALL).unwrap());
                assert!(current().is_null(), "a thread without a context has none");
            });
        });
    });
}

#[test]
fn a_process_that_softnic_finds_no_driver_in_has_host_memory_only() {
    let test = "gpu_memory::a_process_that_softnic_finds_no_driver_in_has_host_memory_only";
    // Empty is unset: softnic looks for a driver that the process has loaded under its usual name.
    beside(test, "soft0", "", |driver| {
        let (nic, pointer) = (Nic::open(), driver.alloc(PAGE).unwrap());
        let fd = driver.export(pointer, PAGE).unwrap();
        assert_eq!(nic.by_dma_buf(fd, 0, pointer, PAGE), Err(Errno::EINVAL));
        assert_eq!(nic.by_address(pointer, PAGE, sys::IBV_ACCESS_REMOTE_READ), Err(Errno::EFAULT));
        let host = vec![0_u8; PAGE];
        nic.end(nic.by_address(host.as_ptr() as u64, PAGE, ALL).unwrap());
    });
}

#[test]
fn a_fault_changes_a_byte_of_a_gpus_message_as_of_any() {
    let fabric = format!("corrupt-{}", free_port());
    let tool = Tool::soft("verbs-facts", &fabric, "soft0 fault=send~1:corrupt=2");
    let fact = "processes::a_write_lands_in_the_other_process";
    let run = tool.args("--memory gpu").args(fact).env("LINKPROOF_CUDA", softgpu()).run();
    assert!(run.exits(1).stdout.contains("8 bytes there"), "{}", run.stdout);
}
