//! Verbs objects for facts: each frees itself, but can be freed, misused and looked into as a fact needs it.
//!
//! The only unsafe code of the suite. Unlike `linkproof-common`'s types these allow what is wrong: a fact asks what
//! the device says to it. What would be undefined behaviour of this process stays impossible: memory that a device
//! may reach outlives the objects that it is reached by, and nothing is used after it was freed.
#![allow(unsafe_code, reason = "the objects are libibverbs'")]

mod bench;
mod change;
mod completion;
mod device;
mod event;
mod extended;
mod gpu;
mod kind;
mod memory;
mod qp;
mod request;

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use bench::{Address, Answer, Bench, End, Pair, Shape};
pub(crate) use change::{Change, Connection, HOP_LIMIT, RD_ATOMIC, TRAFFIC_CLASS, Terms};
pub(crate) use completion::{Channel, Completion, Cq, CqEvent};
pub(crate) use device::{Device, DeviceKind, GidEntry};
pub(crate) use extended::Extended;
pub(crate) use kind::{MemoryKind, choose_memory, memory_arguments};
pub(crate) use memory::{ALL_ACCESS, PAGE, Pages, Pd, Region};
pub(crate) use qp::{Qp, QpShape};
pub(crate) use request::{Posted, Receive, Remote, Request, Sge};

use crate::shown::Errno;

/// How long anything may take that has to come: an emulated machine on a busy host.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// How long a fact waits for what some device never does, so that each run there waits as long.
pub(crate) const WHILE: Duration = Duration::from_secs(2);
/// How long a fact looks for what must not come. Longer finds no more: what is wrong here is wrong at once.
pub(crate) const MOMENT: Duration = Duration::from_millis(20);

/// A verb that makes something refused to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The verb.
    pub(crate) call: &'static str,
    /// Why.
    pub(crate) errno: Errno,
}

impl Refused {
    /// `call` failed just now and left its reason in errno.
    fn last(call: &'static str) -> Self {
        Self { call, errno: Errno::last() }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.errno)
    }
}

/// The errno of a verb that makes something; [`Errno::DONE`] where it made it.
pub(crate) fn answer<T>(result: &Result<T, Refused>) -> Errno {
    result.as_ref().err().map_or(Errno::DONE, |refused| refused.errno)
}

/// Tries `attempt` until it gives something, at most `limit` long, and at least once.
pub(crate) fn within<T>(limit: Duration, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        let found = attempt();
        if found.is_some() || Instant::now() >= deadline {
            return found;
        }
        // A device in software, and the peer's process, may need this processor.
        thread::yield_now();
    }
}
