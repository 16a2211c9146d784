//! Waking whoever sleeps: completion channels, asynchronous events, and the pipes behind both.
//!
//! A pipe and no eventfd: a peer that has something for a sleeping process opens the pipe's writing end through
//! `/proc`, which an eventfd does not allow.

mod asynchronous;
mod channel;
mod pipe;

pub(crate) use asynchronous::{AsyncEvent, Subject, acknowledge, next_event};
pub(crate) use channel::{Channel, next_completion_event, record_of};
pub(crate) use pipe::{Pipe, Record, is_pipe, write_record};

use std::sync::{Condvar, Mutex};

use crate::fabric::lock;

/// Events of an object that a program has taken, and those that it has acknowledged: an object can't go before all are.
#[derive(Default)]
pub(crate) struct Acknowledged {
    /// Taken, and not acknowledged.
    open: Mutex<u64>,
    changed: Condvar,
}

impl Acknowledged {
    /// One more was taken.
    pub(crate) fn take(&self) {
        *lock(&self.open) += 1;
    }

    /// `count` more are acknowledged.
    pub(crate) fn acknowledge(&self, count: u64) {
        let mut open = lock(&self.open);
        *open = open.saturating_sub(count);
        self.changed.notify_all();
    }

    /// Waits until all are.
    pub(crate) fn wait(&self) {
        let mut open = lock(&self.open);
        while *open > 0 {
            open = self.changed.wait(open).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_waits_for_its_last_event() {
        let events = Acknowledged::default();
        events.wait();
        events.take();
        events.take();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| events.wait());
            events.acknowledge(1);
            events.acknowledge(1);
            waiting.join().unwrap();
        });
    }
}
