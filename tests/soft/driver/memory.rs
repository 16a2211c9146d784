//! Device memory, and host memory that GPUs reach.

use core::ffi::c_void;
use cuda_sys as sys;

use super::{Driver, alone};

#[test]
fn device_memory_is_aligned_and_no_host_code_can_read_it() {
    alone("driver::memory::device_memory_is_aligned_and_no_host_code_can_read_it", "", |driver| {
        let pointer = driver.alloc(100).unwrap();
        assert_eq!(pointer % (2 << 20), 0);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let covers = |line: &&str| {
            let bounds = line.split_whitespace().next().and_then(|range| range.split_once('-'));
            let number = |text: &str| u64::from_str_radix(text, 16).expect("an address");
            bounds.is_some_and(|(from, to)| (number(from)..number(to)).contains(&pointer))
        };
        assert_eq!(maps.lines().find(covers), None, "nothing is mapped there");
        driver.good(driver.free(pointer));
        assert_eq!(driver.free(pointer), sys::CUDA_ERROR_INVALID_VALUE, "it is gone");
        driver.good(driver.free(0));
    });
}

#[test]
fn a_gpu_has_the_memory_that_is_described_and_no_more() {
    alone("driver::memory::a_gpu_has_the_memory_that_is_described_and_no_more", "memory 8M", |driver| {
        let free = || {
            let (mut free, mut total) = (0, 0);
            // SAFETY: both are ours.
            driver.good(unsafe { (driver.cuMemGetInfo_v2)(&mut free, &mut total) });
            (free, total)
        };
        assert_eq!(free(), (8 << 20, 8 << 20));
        let first = driver.alloc(6 << 20).unwrap();
        assert_eq!(driver.alloc(3 << 20), Err(sys::CUDA_ERROR_OUT_OF_MEMORY));
        assert_eq!(driver.alloc(usize::MAX), Err(sys::CUDA_ERROR_OUT_OF_MEMORY));
        assert_eq!(driver.alloc(0), Err(sys::CUDA_ERROR_INVALID_VALUE));
        driver.alloc(1).unwrap();
        assert_eq!(free().0, 0, "memory is taken in pieces of 2 MiB");
        driver.good(driver.free(first));
        assert_eq!(free().0, 6 << 20);
    });
}

#[test]
fn the_driver_knows_its_own_pointers_and_no_others() {
    alone("driver::memory::the_driver_knows_its_own_pointers_and_no_others", "", |driver| {
        let device = driver.alloc(4096).unwrap() + 17;
        let pinned = host_alloc(driver, 64) as u64;
        let plain = Box::new(0_u8);
        let type_of = |pointer| driver.pointer_attribute(sys::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer);
        assert_eq!(type_of(device), Ok(sys::CU_MEMORYTYPE_DEVICE));
        assert_eq!(type_of(pinned + 63), Ok(sys::CU_MEMORYTYPE_HOST));
        assert_eq!(type_of(&raw const *plain as u64), Err(sys::CUDA_ERROR_INVALID_VALUE));
        let gpu = |pointer| driver.pointer_attribute(sys::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer);
        assert_eq!((gpu(device), gpu(pinned)), (Ok(0), Ok(0)));
        let (mut base, mut len) = (0, 0);
        // SAFETY: both are ours.
        driver.good(unsafe { (driver.cuMemGetAddressRange_v2)(&mut base, &mut len, device) });
        assert_eq!((base, len), (device - 17, 4096));
    });
}

#[test]
fn what_is_set_of_an_allocation_can_be_read() {
    alone("driver::memory::what_is_set_of_an_allocation_can_be_read", "", |driver| {
        let (pointer, on) = (driver.alloc(4096).unwrap(), 1_u32);
        let sync = sys::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
        assert_eq!(driver.pointer_attribute(sync, pointer), Ok(0));
        // SAFETY: the value is of the attribute's width.
        driver.good(unsafe { (driver.cuPointerSetAttribute)((&raw const on).cast(), sync, pointer) });
        assert_eq!(driver.pointer_attribute(sync, pointer), Ok(1));
        // SAFETY: as above.
        let refused = unsafe { (driver.cuPointerSetAttribute)((&raw const on).cast(), sync, 4096) };
        assert_eq!(refused, sys::CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn host_memory_is_freed_or_unregistered_once() {
    alone("driver::memory::host_memory_is_freed_or_unregistered_once", "", |driver| {
        let mut own = vec![0_u8; 8192];
        let (address, pinned) = (own.as_mut_ptr().cast::<c_void>(), host_alloc(driver, 64));
        // SAFETY: the memory is this test's, and outlives its registration.
        unsafe {
            driver.good((driver.cuMemHostRegister_v2)(address, 8192, 0));
            let again = (driver.cuMemHostRegister_v2)(address.byte_add(4096), 16, 0);
            assert_eq!(again, sys::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
            assert_eq!((driver.cuMemFreeHost)(address), sys::CUDA_ERROR_INVALID_VALUE);
            assert_eq!((driver.cuMemHostUnregister)(pinned), sys::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
            driver.good((driver.cuMemHostUnregister)(address));
            driver.good((driver.cuMemFreeHost)(pinned));
            assert_eq!((driver.cuMemFreeHost)(pinned), sys::CUDA_ERROR_INVALID_VALUE);
        }
    });
}

/// Pinned host memory.
pub(super) fn host_alloc(driver: &Driver, len: usize) -> *mut c_void {
    let mut pointer = core::ptr::null_mut();
    // SAFETY: `pointer` is ours.
    driver.good(unsafe { (driver.cuMemHostAlloc)(&mut pointer, len, sys::CU_MEMHOSTALLOC_PORTABLE) });
    pointer
}
