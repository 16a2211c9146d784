//! Completion channels and asynchronous events.

use core::ffi::{c_int, c_uint, c_void};
use rdma_sys as sys;

use crate::context::Context;
use crate::cq::CompletionQueue;
use crate::errno::{Result, pointer, status};
use crate::events::{Channel, acknowledge, next_completion_event, next_event};

/// A new completion channel.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut sys::ibv_context,
) -> *mut sys::ibv_comp_channel {
    // SAFETY: the caller's context is open.
    pointer(Channel::create(unsafe { Context::of(context) }))
}

/// Destroys a completion channel.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut sys::ibv_comp_channel) -> c_int {
    // SAFETY: the caller's channel is alive.
    status(unsafe { Channel::destroy(channel) })
}

/// What a function returns that says with -1 that errno tells more.
fn or_minus_one<T>(result: Result<T>, found: impl FnOnce(T)) -> c_int {
    match result {
        Ok(value) => {
            found(value);
            0
        }
        Err(errno) => {
            errno.set();
            -1
        }
    }
}

/// Waits for a completion event.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut sys::ibv_comp_channel,
    cq: *mut *mut sys::ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's channel is alive.
    or_minus_one(unsafe { next_completion_event(channel) }, |(queue, context)| {
        // SAFETY: the caller has room for both.
        unsafe {
            *cq = queue;
            *cq_context = context;
        }
    })
}

/// Acknowledges completion events.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut sys::ibv_cq, count: c_uint) {
    // SAFETY: the caller's queue is alive: it can't go before.
    unsafe { CompletionQueue::of(cq) }.events.acknowledge(count.into());
}

/// Waits for an asynchronous event.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_async_event(
    context: *mut sys::ibv_context,
    event: *mut sys::ibv_async_event,
) -> c_int {
    // SAFETY: the caller's context is open, and there is room for the event.
    or_minus_one(next_event(unsafe { Context::of(context) }), |found| unsafe { event.write(found) })
}

/// Acknowledges an asynchronous event.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_ack_async_event(event: *mut sys::ibv_async_event) {
    // SAFETY: the caller's event was taken, and is acknowledged once.
    unsafe { acknowledge(&*event) };
}
