//! Streams and events.

use core::ffi::c_uint;
use cuda_sys::{CUevent, CUstream};

use crate::driver::put;
use crate::failure::Failure;

exports! {
    required {
        /// A new stream.
        fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) |driver| {
            if stream.is_null() {
                return Err(Failure::INVALID_VALUE);
            }
            // SAFETY: the caller has room for it.
            unsafe { put(stream, driver.create_stream(flags)?) }
        };
        /// Destroys it.
        fn cuStreamDestroy_v2(stream: CUstream) |driver| driver.destroy_stream(stream);
        /// It is done.
        fn cuStreamSynchronize(stream: CUstream) |driver| driver.stream_is_done(stream);
        /// It is done.
        fn cuStreamQuery(stream: CUstream) |driver| driver.stream_is_done(stream);
        /// The event is over.
        fn cuStreamWaitEvent(stream: CUstream, event: CUevent, _flags: c_uint) |driver| {
            driver.wait_in_stream(stream, event)
        };
        /// A new event.
        fn cuEventCreate(event: *mut CUevent, flags: c_uint) |driver| {
            if event.is_null() {
                return Err(Failure::INVALID_VALUE);
            }
            // SAFETY: the caller has room for it.
            unsafe { put(event, driver.create_event(flags)?) }
        };
        /// Destroys it.
        fn cuEventDestroy_v2(event: CUevent) |driver| driver.destroy_event(event);
        /// Records it: it is over.
        fn cuEventRecord(event: CUevent, stream: CUstream) |driver| driver.record(event, stream);
        /// It is over.
        fn cuEventQuery(event: CUevent) |driver| driver.event_is_done(event);
        /// It is over.
        fn cuEventSynchronize(event: CUevent) |driver| driver.event_is_done(event);
        /// Milliseconds between two events.
        fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) |driver| {
            // SAFETY: the caller has room for it.
            unsafe { put(milliseconds, driver.elapsed(start, end)?) }
        };
    }
    optional {}
}
