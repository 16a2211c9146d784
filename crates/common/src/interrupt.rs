//! Ctrl-C and its relatives, as a question that loops can ask.
#![allow(unsafe_code, reason = "installing a signal handler")]

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static REQUESTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: i32) {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// Makes SIGINT and SIGTERM end the run in good order: partial results, the peer told. A second one kills.
pub fn install() {
    // SA_RESETHAND gives the second Ctrl-C its default action, for whoever does not want to wait. Without
    // SA_RESTART a blocked system call returns, so that it is noticed at once.
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::SA_RESETHAND, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        let installed = unsafe { sigaction(signal, &action) };
        debug_assert!(installed.is_ok(), "SIGINT and SIGTERM can be handled");
    }
}

/// Whether the user has asked to stop.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// The same, and the wish is taken as heard: whoever asks next is told no.
pub fn take() -> bool {
    REQUESTED.swap(false, Ordering::Relaxed)
}
