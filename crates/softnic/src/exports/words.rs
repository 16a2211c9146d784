//! Values in words.

use std::ffi::CStr;

use core::ffi::c_char;
use rdma_sys as sys;

/// The word at `index`, or the one for a value that is not known.
fn word(words: &'static [&'static CStr], index: Option<usize>, unknown: &'static CStr) -> *const c_char {
    index.and_then(|index| words.get(index)).unwrap_or(&unknown).as_ptr()
}

/// In the order of the values, in the specification's terms (InfiniBand specification, volume 1, 11.6.2).
const STATUSES: &[&CStr] = &[
    c"success",
    c"local length error",
    c"local queue pair operation error",
    c"local end-to-end context operation error",
    c"local protection error",
    c"flushed",
    c"memory window bind error",
    c"bad response",
    c"local access error",
    c"remote invalid request",
    c"remote access error",
    c"remote operation error",
    c"retries exceeded",
    c"receiver-not-ready retries exceeded",
    c"local domain violation",
    c"remote invalid datagram request",
    c"remote aborted",
    c"invalid end-to-end context number",
    c"invalid end-to-end context state",
    c"fatal error",
    c"response timeout",
    c"general error",
];

const PORT_STATES: &[&CStr] = &[c"no change", c"down", c"init", c"armed", c"active", c"active, deferred"];

const NODE_TYPES: &[&CStr] = &[c"unknown", c"channel adapter", c"switch", c"router", c"iWARP adapter"];

const EVENTS: &[&CStr] = &[
    c"completion queue in error",
    c"queue pair failed",
    c"queue pair refused a request",
    c"queue pair refused an access",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration refused",
    c"device failed",
    c"port active",
    c"port in error",
    c"LID changed",
    c"partition keys changed",
    c"subnet manager changed",
    c"shared receive queue in error",
    c"shared receive queue below its limit",
    c"last receive reached",
    c"client to register again",
    c"GID table changed",
];

/// A completion's status.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_wc_status_str(status: sys::ibv_wc_status) -> *const c_char {
    word(STATUSES, usize::try_from(status).ok(), c"unknown")
}

/// A port's state.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_port_state_str(state: sys::ibv_port_state) -> *const c_char {
    word(PORT_STATES, usize::try_from(state).ok(), c"invalid state")
}

/// A node's type.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_node_type_str(node_type: sys::ibv_node_type) -> *const c_char {
    word(NODE_TYPES, usize::try_from(node_type).ok(), c"unknown")
}

/// An event.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_event_type_str(event: sys::ibv_event_type) -> *const c_char {
    word(EVENTS, usize::try_from(event).ok(), c"unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_in_the_order_of_the_values() {
        // SAFETY: all of them are static C strings.
        let text = |pointer| unsafe { CStr::from_ptr(pointer) }.to_str().unwrap();
        // SAFETY: the functions only look into tables.
        unsafe {
            assert_eq!(text(ibv_wc_status_str(sys::IBV_WC_RETRY_EXC_ERR)), "retries exceeded");
            assert_eq!(text(ibv_wc_status_str(sys::IBV_WC_GENERAL_ERR)), "general error");
            assert_eq!(text(ibv_wc_status_str(99)), "unknown");
            assert_eq!(text(ibv_port_state_str(sys::IBV_PORT_ACTIVE)), "active");
            assert_eq!(text(ibv_node_type_str(sys::IBV_NODE_UNKNOWN)), "unknown");
            assert_eq!(text(ibv_event_type_str(sys::IBV_EVENT_GID_CHANGE)), "GID table changed");
        }
    }
}
