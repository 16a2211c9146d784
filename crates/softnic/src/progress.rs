//! A thread for requests that wait while their program does something else.
//!
//! Requests that wait are looked at when their program posts or polls. A program that sleeps on a completion channel
//! does neither, nor does one that waits for its peer's answer to a message that is still under way by the model. The
//! thread is there only where such a request waits, and sleeps between its looks.

use std::sync::{Arc, Condvar, Mutex, Once};
use std::time::Duration;

use crate::clock;
use crate::fabric::{lock, with_signals_blocked};
use crate::qp::QueuePair;

/// Between two looks: short against the timeouts that it is for, and cheap.
const LOOK: Duration = Duration::from_millis(1);

/// The kernel wakes a sleeping thread up to so much later than it was asked to (its timer slack, 50 µs, and a switch).
const OVERSLEPT: Duration = Duration::from_micros(70);

/// The queue pairs that are looked after.
static WAITING: Mutex<Vec<Arc<QueuePair>>> = Mutex::new(Vec::new());
static MORE: Condvar = Condvar::new();

/// Looks after `qp` until nothing of it waits any more.
pub(crate) fn look_after(qp: Arc<QueuePair>) {
    static STARTED: Once = Once::new();
    STARTED.call_once(start);
    let mut waiting = lock(&WAITING);
    if !waiting.iter().any(|known| Arc::ptr_eq(known, &qp)) {
        waiting.push(qp);
        MORE.notify_one();
    }
}

/// Forgets `qp`, which is being destroyed.
pub(crate) fn forget(qp: *const QueuePair) {
    lock(&WAITING).retain(|known| !std::ptr::eq(&**known, qp));
}

fn start() {
    // Without a thread the requests are looked at when the program polls, as ever.
    let _ = with_signals_blocked(|| std::thread::Builder::new().name("softnic".to_owned()).spawn(run));
}

fn run() {
    loop {
        let mut waiting = lock(&WAITING);
        while waiting.is_empty() {
            waiting = MORE.wait(waiting).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        let now = waiting.clone();
        drop(waiting);
        now.iter().for_each(|qp| qp.advance());
        let due = now.iter().map(|qp| qp.next_due()).filter(|&due| due > 0).min();
        drop(now);
        lock(&WAITING).retain(|qp| qp.is_waiting());
        rest_until(due);
    }
}

/// Rests until shortly before `due`, if that is known, and not longer than between two looks.
fn rest_until(due: Option<u64>) {
    let left = due.map_or(LOOK, |due| Duration::from_nanos(due.saturating_sub(clock::now())));
    match left.min(LOOK).checked_sub(OVERSLEPT) {
        Some(rest) if !rest.is_zero() => std::thread::sleep(rest),
        _ => std::thread::yield_now(),
    }
}
