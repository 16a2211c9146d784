//! Copies, and the streams and events around them.

use cuda_sys as sys;

use super::alone;
use super::memory::host_alloc;

#[test]
fn bytes_go_there_and_back_and_across_gpus_memory() {
    alone("driver::copies::bytes_go_there_and_back_and_across_gpus_memory", "", |driver| {
        let (a, b) = (driver.alloc(8192).unwrap(), driver.alloc(8192).unwrap());
        let bytes: Vec<u8> = (0..8192).map(|i| (i % 251) as u8).collect();
        driver.good(driver.put(a, &bytes));
        // SAFETY: the ranges are allocations.
        unsafe {
            driver.good((driver.cuMemcpyDtoDAsync_v2)(b + 1, a + 4000, 100, core::ptr::null_mut()));
            driver.good((driver.cuMemsetD8_v2)(b + 101, 0xab, 2));
        }
        assert_eq!(driver.get(b + 1, 100), bytes[4000..4100]);
        assert_eq!(driver.get(b + 100, 4), [bytes[4099], 0xab, 0xab, 0]);
        driver.good(driver.put(a, &[]));
    });
}

#[test]
fn a_copy_beyond_an_allocation_is_refused() {
    alone("driver::copies::a_copy_beyond_an_allocation_is_refused", "", |driver| {
        let pointer = driver.alloc(4096).unwrap();
        driver.good(driver.put(pointer + 4000, &[1; 96]));
        for (at, len) in [(4000, 97), (4096, 1), (0, 4097), (5000, 1)] {
            let mut bytes = vec![0_u8; len];
            assert_eq!(driver.put(pointer + at, &bytes), sys::CUDA_ERROR_INVALID_VALUE, "{at} {len}");
            // SAFETY: the vector has that many bytes.
            let result = unsafe { (driver.cuMemcpyDtoH_v2)(bytes.as_mut_ptr().cast(), pointer + at, len) };
            assert_eq!(result, sys::CUDA_ERROR_INVALID_VALUE, "{at} {len}");
        }
        // SAFETY: the driver refuses the range.
        let result = unsafe { (driver.cuMemsetD8_v2)(pointer + 4095, 0, 2) };
        assert_eq!(result, sys::CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn a_gpu_reaches_host_memory_that_is_pinned_and_no_other() {
    alone("driver::copies::a_gpu_reaches_host_memory_that_is_pinned_and_no_other", "", |driver| {
        let (device, pinned) = (driver.alloc(64).unwrap(), host_alloc(driver, 64));
        let mut plain = [7_u8; 64];
        // SAFETY: all ranges are 64 bytes of this test's.
        unsafe {
            pinned.cast::<u8>().write_bytes(5, 64);
            let none = core::ptr::null_mut();
            driver.good((driver.cuMemcpyDtoDAsync_v2)(device, pinned as u64, 64, none));
            let result = (driver.cuMemcpyDtoDAsync_v2)(device, plain.as_ptr() as u64, 64, none);
            assert_eq!(result, sys::CUDA_ERROR_INVALID_VALUE);
            assert_eq!(driver.put(pinned as u64, &plain), sys::CUDA_SUCCESS);
            assert_eq!(driver.put(plain.as_mut_ptr() as u64, &[0; 8]), sys::CUDA_ERROR_INVALID_VALUE);
            // Where the host's side is device memory the driver sees it, as CUDA does with unified addresses.
            driver.good((driver.cuMemcpyHtoD_v2)(pinned as u64, device as *const _, 64));
        }
        assert_eq!((driver.get(device, 64), driver.get(pinned as u64, 64)), (vec![5; 64], vec![5; 64]));
    });
}

#[test]
fn events_have_times_in_the_order_that_they_are_recorded_in() {
    alone("driver::copies::events_have_times_in_the_order_that_they_are_recorded_in", "", |driver| {
        let event = |flags| {
            let mut event = core::ptr::null_mut();
            // SAFETY: `event` is ours.
            driver.good(unsafe { (driver.cuEventCreate)(&mut event, flags) });
            event
        };
        let (start, end, timeless) =
            (event(sys::CU_EVENT_DEFAULT), event(sys::CU_EVENT_DEFAULT), event(sys::CU_EVENT_DISABLE_TIMING));
        let (mut stream, mut time) = (core::ptr::null_mut(), -1.0);
        // SAFETY: the handles are the driver's, the places ours.
        unsafe {
            driver.good((driver.cuStreamCreate)(&mut stream, sys::CU_STREAM_NON_BLOCKING));
            assert_eq!((driver.cuEventElapsedTime)(&mut time, start, end), sys::CUDA_ERROR_INVALID_HANDLE);
            for event in [start, end, timeless] {
                driver.good((driver.cuEventRecord)(event, stream));
                driver.good((driver.cuEventQuery)(event));
                driver.good((driver.cuEventSynchronize)(event));
            }
            driver.good((driver.cuEventElapsedTime)(&mut time, start, end));
            assert!((0.0..10_000.0).contains(&time), "{time}");
            assert_eq!(
                (driver.cuEventElapsedTime)(&mut time, start, timeless),
                sys::CUDA_ERROR_INVALID_HANDLE
            );
            driver.good((driver.cuStreamWaitEvent)(stream, end, 0));
            driver.good((driver.cuStreamQuery)(stream));
            driver.good((driver.cuStreamDestroy_v2)(stream));
            assert_eq!((driver.cuStreamSynchronize)(stream), sys::CUDA_ERROR_INVALID_HANDLE);
            assert_eq!((driver.cuEventRecord)(end, stream), sys::CUDA_ERROR_INVALID_HANDLE);
            driver.good((driver.cuEventDestroy_v2)(end));
            assert_eq!((driver.cuEventQuery)(end), sys::CUDA_ERROR_INVALID_HANDLE);
        }
    });
}
