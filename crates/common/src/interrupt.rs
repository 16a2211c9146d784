//! Ctrl-C and its relatives, as a question that loops can ask.
#![allow(unsafe_code, reason = "installing a signal handler")]

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction};

/// What ends a run.
const ENDING: [Signal; 2] = [Signal::SIGINT, Signal::SIGTERM];

static REQUESTED: AtomicBool = AtomicBool::new(false);
/// When the first signal came, in nanoseconds of the monotonic clock; 0: none yet.
static FIRST_AT: AtomicU64 = AtomicU64::new(0);

/// A second signal this soon is the first one again: `timeout` sends it to its child and to the child's group.
const SAME_WISH_NS: u64 = 1_000_000_000;

extern "C" fn note(signal: i32) {
    let now = now_ns();
    let first = FIRST_AT.load(Ordering::Relaxed);
    if first != 0 && now - first > SAME_WISH_NS {
        // SAFETY: signal and raise are async-signal-safe; the default action of both signals ends the process.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
    if first == 0 {
        FIRST_AT.store(now, Ordering::Relaxed);
        REQUESTED.store(true, Ordering::Relaxed);
    }
}

fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime is async-signal-safe and writes one timespec, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Makes SIGINT and SIGTERM end the run in good order: partial results, the peer told. A second one, a second or
/// more later, kills, for whoever does not want to wait.
pub fn install() {
    // Without SA_RESTART a blocked system call returns, so that the wish is noticed at once.
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::empty(), SigSet::empty());
    for signal in ENDING {
        // SAFETY: the handler uses atomics and async-signal-safe calls only.
        let installed = unsafe { sigaction(signal, &action) };
        debug_assert!(installed.is_ok(), "SIGINT and SIGTERM can be handled");
    }
}

/// As long as this lives, SIGINT and SIGTERM go to the other threads of the process, and the calling one is not held up.
pub struct Undisturbed {
    before: Option<SigSet>,
    // The mask is the thread's: it has to be put back there.
    here: PhantomData<*const ()>,
}

impl Undisturbed {
    /// From now on.
    pub fn begin() -> Self {
        let signals: SigSet = ENDING.into_iter().collect();
        Self { before: signals.thread_swap_mask(SigmaskHow::SIG_BLOCK).ok(), here: PhantomData }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        let restored = self.before.is_none_or(|before| before.thread_set_mask().is_ok());
        debug_assert!(restored, "a mask that was there can be set");
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

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked() -> [bool; 2] {
        let mask = SigSet::thread_get_mask().unwrap();
        ENDING.map(|signal| mask.contains(signal))
    }

    #[test]
    fn a_thread_is_undisturbed_for_as_long_as_it_says() {
        assert_eq!(blocked(), [false, false]);
        let undisturbed = Undisturbed::begin();
        assert_eq!(blocked(), [true, true]);
        // Who is started meanwhile is part of it.
        assert_eq!(std::thread::spawn(blocked).join().unwrap(), [true, true]);
        drop(undisturbed);
        assert_eq!(blocked(), [false, false]);
    }
}
