//! Contexts: which calls need one, and what goes with it.

use cuda_sys as sys;

use super::{Driver, alone};

#[test]
fn nothing_works_before_the_driver_is_initialised_but_its_version() {
    alone(
        "driver::contexts::nothing_works_before_the_driver_is_initialised_but_its_version",
        "gpus 0",
        |_| {
            let (driver, mut number) = (Driver::load(), -1);
            // SAFETY: `number` is ours.
            unsafe {
                // `gpus 0`: it can't be initialised.
                assert_eq!((driver.cuInit)(0), sys::CUDA_ERROR_NO_DEVICE);
                assert_eq!((driver.cuInit)(1), sys::CUDA_ERROR_INVALID_VALUE);
                assert_eq!((driver.cuDeviceGetCount)(&mut number), sys::CUDA_ERROR_NOT_INITIALIZED);
                driver.good((driver.cuDriverGetVersion)(&mut number));
            }
            assert_eq!(number, 12_080);
            assert_eq!(driver.alloc(1), Err(sys::CUDA_ERROR_NOT_INITIALIZED));
            assert_eq!(driver.describe(2), "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
            assert_eq!(driver.describe(77), "CUDA error 77");
        },
    );
}

#[test]
fn memory_needs_a_context_and_goes_with_its_last_use() {
    alone("driver::contexts::memory_needs_a_context_and_goes_with_its_last_use", "", |driver| {
        let pointer = driver.alloc(1).unwrap();
        // Each thread has its own, and a new one none.
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(driver.alloc(1), Err(sys::CUDA_ERROR_INVALID_CONTEXT)));
        });
        // SAFETY: takes a number.
        unsafe {
            driver.good((driver.cuDevicePrimaryCtxRelease_v2)(0));
            assert_eq!((driver.cuDevicePrimaryCtxRelease_v2)(0), sys::CUDA_ERROR_INVALID_CONTEXT);
        }
        assert_eq!(driver.alloc(1), Err(sys::CUDA_ERROR_CONTEXT_IS_DESTROYED));
        let gone = driver.pointer_attribute(sys::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer);
        assert_eq!(gone, Err(sys::CUDA_ERROR_INVALID_VALUE));
    });
}

#[test]
fn a_pushed_context_is_this_threads_until_it_is_popped() {
    alone("driver::contexts::a_pushed_context_is_this_threads_until_it_is_popped", "gpus 2", |driver| {
        let gpu_of_new_memory = || {
            let pointer = driver.alloc(1).unwrap();
            driver.pointer_attribute(sys::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer).unwrap()
        };
        let (mut second, mut popped) = (core::ptr::null_mut(), core::ptr::null_mut());
        // SAFETY: both are ours.
        unsafe {
            driver.good((driver.cuDevicePrimaryCtxRetain)(&mut second, 1));
            driver.good((driver.cuCtxPushCurrent_v2)(second));
            assert_eq!(gpu_of_new_memory(), 1);
            driver.good((driver.cuCtxPopCurrent_v2)(&mut popped));
            assert_eq!((popped, gpu_of_new_memory()), (second, 0));
            driver.good((driver.cuCtxSetCurrent)(core::ptr::null_mut()));
            assert_eq!((driver.cuCtxPopCurrent_v2)(&mut popped), sys::CUDA_ERROR_INVALID_CONTEXT);
            let nonsense = core::ptr::without_provenance_mut(64);
            assert_eq!((driver.cuCtxSetCurrent)(nonsense), sys::CUDA_ERROR_INVALID_CONTEXT);
        }
    });
}
