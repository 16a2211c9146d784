//! What the description of the GPUs changes.

use core::ffi::CStr;
use std::os::fd::{FromRawFd, OwnedFd};

use cuda_sys as sys;

use super::{Driver, alone};

#[test]
fn a_gpu_says_that_it_is_host_memory() {
    alone("driver::configured::a_gpu_says_that_it_is_host_memory", "gpus 2; pci 0000:3b:00.0", |driver| {
        let (mut text, mut device, mut count) = ([0_u8; 64], -1, 0);
        // SAFETY: all places are ours, and the text has as many bytes as the calls are told.
        unsafe {
            driver.good((driver.cuDeviceGetCount)(&mut count));
            driver.good((driver.cuDeviceGetName)(text.as_mut_ptr().cast(), 64, 1));
            assert_eq!(CStr::from_bytes_until_nul(&text).unwrap(), c"Softgpu (host memory)");
            driver.good((driver.cuDeviceGetPCIBusId)(text.as_mut_ptr().cast(), 64, 1));
            assert_eq!(CStr::from_bytes_until_nul(&text).unwrap(), c"FFFF:00:01.0");
            driver.good((driver.cuDeviceGetPCIBusId)(text.as_mut_ptr().cast(), 5, 0));
            assert_eq!(CStr::from_bytes_until_nul(&text).unwrap(), c"0000", "cut to the room");
            driver.good((driver.cuDeviceGetByPCIBusId)(&mut device, c"ffff:00:01.0".as_ptr()));
            assert_eq!((count, device), (2, 1));
            assert_eq!((driver.cuDeviceGet)(&mut device, 2), sys::CUDA_ERROR_INVALID_DEVICE);
        }
        assert_eq!(attribute(driver, sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0), 0);
    });
}

#[test]
fn a_range_of_whole_pages_has_a_descriptor_and_no_other_has() {
    alone("driver::configured::a_range_of_whole_pages_has_a_descriptor_and_no_other_has", "", |driver| {
        assert_eq!(attribute(driver, sys::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0), 1);
        let pointer = driver.alloc(10_000).unwrap();
        // SAFETY: the descriptor is new, and this test's.
        let file = unsafe { OwnedFd::from_raw_fd(driver.export(pointer + 4096, 8192).unwrap()) };
        drop(file);
        for (at, len) in [(0, 0), (0, 1), (1, 4096), (4096, 12_288), (12_288, 4096)] {
            assert_eq!(driver.export(pointer + at, len), Err(sys::CUDA_ERROR_INVALID_VALUE), "{at} {len}");
        }
    });
}

#[test]
fn without_dma_bufs_there_are_none() {
    alone("driver::configured::without_dma_bufs_there_are_none", "dma_buf off", |driver| {
        assert_eq!(attribute(driver, sys::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0), 0);
        let pointer = driver.alloc(4096).unwrap();
        assert_eq!(driver.export(pointer, 4096), Err(sys::CUDA_ERROR_NOT_SUPPORTED));
    });
}

#[test]
fn a_gpu_that_another_process_has_can_be_seen_and_not_used() {
    alone(
        "driver::configured::a_gpu_that_another_process_has_can_be_seen_and_not_used",
        "exclusive 0",
        |driver| {
            assert_eq!(attribute(driver, sys::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0), 3);
            let mut context = core::ptr::null_mut();
            // SAFETY: `context` is ours.
            let result = unsafe { (driver.cuDevicePrimaryCtxRetain)(&mut context, 0) };
            assert_eq!(result, sys::CUDA_ERROR_DEVICE_UNAVAILABLE);
        },
    );
}

#[test]
fn a_call_fails_when_it_is_described_to() {
    let config = "fail cuMemAlloc_v2@2 CUDA_ERROR_OUT_OF_MEMORY; fail cuMemGetHandleForAddressRange 719";
    alone("driver::configured::a_call_fails_when_it_is_described_to", config, |driver| {
        let results: Vec<_> = (0..3).map(|_| driver.alloc(4096).map(|_| ())).collect();
        assert_eq!(results, [Ok(()), Err(sys::CUDA_ERROR_OUT_OF_MEMORY), Ok(())]);
        assert_eq!(driver.export(driver.alloc(4096).unwrap(), 4096), Err(719));
    });
}

#[test]
fn kernels_and_graphs_are_not_supported() {
    alone("driver::configured::kernels_and_graphs_are_not_supported", "", |driver| {
        let none: *mut core::ffi::c_void = core::ptr::null_mut();
        // SAFETY: the calls refuse before they look at anything.
        unsafe {
            let loaded = (driver.cuModuleLoadDataEx)(none.cast(), none, 0, none.cast(), none.cast());
            assert_eq!(loaded, sys::CUDA_ERROR_NOT_SUPPORTED);
            assert_eq!((driver.cuStreamBeginCapture_v2)(none, 0), sys::CUDA_ERROR_NOT_SUPPORTED);
            let made = driver.cuGraphInstantiateWithFlags.expect("it is there")(none.cast(), none, 0);
            assert_eq!(made, sys::CUDA_ERROR_NOT_SUPPORTED);
        }
    });
}

#[test]
fn a_description_that_is_wrong_fails_at_once_and_says_why() {
    const NAME: &str = "driver::configured::a_description_that_is_wrong_fails_at_once_and_says_why";
    if super::role().is_some() {
        let driver = Driver::load();
        // SAFETY: the flags are 0.
        assert_eq!(unsafe { (driver.cuInit)(0) }, sys::CUDA_ERROR_INVALID_VALUE);
        return;
    }
    let output = super::again(NAME, "body", "gpus two").output().expect("the test can be started again");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(
        stderr.contains(
            "softgpu: cannot use the description of the GPUs: LINKPROOF_SOFTGPU: \"gpus two\": a number of GPUs is from 0 to 32"
        ),
        "{stderr}"
    );
}

fn attribute(driver: &Driver, which: u32, gpu: i32) -> i32 {
    let mut value = -1;
    // SAFETY: `value` is ours.
    driver.good(unsafe { (driver.cuDeviceGetAttribute)(&mut value, which, gpu) });
    value
}
