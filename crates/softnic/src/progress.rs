//! A thread for requests that wait while their program sleeps.
//!
//! Requests that wait are looked at when their program posts or polls. A program that sleeps on a completion channel
//! does neither. The thread is there only where such a request waits, and sleeps between its looks.

use std::sync::{Arc, Condvar, Mutex, Once};
use std::time::Duration;

use crate::fabric::{lock, with_signals_blocked};
use crate::qp::QueuePair;

/// Between two looks: short against the timeouts that it is for, and cheap.
const LOOK: Duration = Duration::from_millis(1);

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
        drop(now);
        lock(&WAITING).retain(|qp| qp.is_waiting());
        std::thread::sleep(LOOK);
    }
}
