//! The counters by which ranks of one address space tell each other how far they are.
//!
//! A counter is written by one rank only and grows for ever. Whoever waits for it reads it again and again; the cache
//! line moves once when it has changed. Each rank's counters have lines of their own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use linkproof_common::affinity::allowed;
use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::host::HostFiles;
use linkproof_common::units::show_duration;

use super::super::caches::last_level_bytes;
use super::super::memory::Buffers;
use super::small::Slots;
use crate::group::Alarm;

/// What all ranks share.
pub struct World {
    boards: Vec<Board>,
    slots: Slots,
    alarm: Alarm,
    limit: Duration,
    patience: u32,
    cache_bytes: u64,
    /// The buffers of all ranks. When a run ends by a failure ranks leave one by one, and one that is late may still
    /// reach for another's buffer: so they are freed with the world, when all have left.
    buffers: Mutex<Vec<Arc<Buffers>>>,
}

/// One rank's counters. Processors fetch lines in pairs, so a board has two to itself, and each counter its own.
#[repr(align(128))]
#[derive(Default)]
struct Board {
    /// Calls that the rank has come to: its buffers may be read and written for that call.
    arrived: Counter,
    /// Calls in which it has done all that it does to other ranks' buffers.
    done: Counter,
    /// Steps of calls of several steps.
    steps: Counter,
    /// Meetings outside the time.
    met: Counter,
}

#[repr(align(64))]
#[derive(Default)]
struct Counter(AtomicU64);

/// Looks at a counter before the processor is given to somebody else, where each rank can have a processor of its own:
/// some 50 µs. Giving it away costs a system call and, if somebody takes it, a time slice.
const PATIENCE: u32 = 2000;
/// The same where ranks share processors, and the one that is waited for may need this one's.
const NO_PATIENCE: u32 = 20;

/// Where the kernel does not tell of caches.
const USUAL_CACHE: u64 = 32 << 20;

impl World {
    /// For `n_ranks` ranks. A rank that waits longer than `limit` for another fails; so does one that waits when
    /// `alarm` is raised.
    pub fn new(n_ranks: u32, limit: Duration, alarm: Alarm) -> Arc<Self> {
        let cache_bytes = last_level_bytes(&HostFiles::this_machine(), &allowed()).unwrap_or(USUAL_CACHE);
        Self::with_caches_of(cache_bytes, n_ranks, limit, alarm)
    }

    /// The same on a machine whose last-level caches hold `cache_bytes`.
    pub(super) fn with_caches_of(cache_bytes: u64, n_ranks: u32, limit: Duration, alarm: Alarm) -> Arc<Self> {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        let patience = if n_ranks as usize > processors { NO_PATIENCE } else { PATIENCE };
        let boards = (0..n_ranks).map(|_| Board::default()).collect();
        let (slots, buffers) = (Slots::new(n_ranks), Mutex::default());
        Arc::new(Self { boards, slots, alarm, limit, patience, cache_bytes, buffers })
    }
}

/// A rank's place in the world, and how many calls it has made.
#[derive(Clone)]
pub(super) struct Seat {
    world: Arc<World>,
    rank: u32,
}

impl Seat {
    pub(super) fn new(world: Arc<World>, rank: u32) -> Self {
        Self { world, rank }
    }

    pub(super) fn rank(&self) -> u32 {
        self.rank
    }

    pub(super) fn n_ranks(&self) -> u32 {
        self.world.boards.len() as u32
    }

    pub(super) fn slots(&self) -> &Slots {
        &self.world.slots
    }

    /// Bytes that the last-level caches hold.
    pub(super) fn cache_bytes(&self) -> u64 {
        self.world.cache_bytes
    }

    /// Every rank but this one, the next one first.
    pub(super) fn others(&self) -> Vec<u32> {
        let n = self.n_ranks();
        (1..n).map(|distance| (self.rank + distance) % n).collect()
    }

    /// Keeps `buffers` until no rank can reach them any more.
    pub(super) fn keep(&self, buffers: Arc<Buffers>) {
        self.world.buffers.lock().unwrap_or_else(PoisonError::into_inner).push(buffers);
    }

    fn own(&self) -> &Board {
        &self.world.boards[self.rank as usize]
    }

    /// How many calls this rank has come to.
    #[inline(always)]
    pub(super) fn calls(&self) -> u64 {
        // Only this rank writes its counters.
        self.own().arrived.0.load(Ordering::Relaxed)
    }

    /// Begins a call: whatever this rank has written before is there for the others. Returns the call's number.
    #[inline(always)]
    pub(super) fn arrive(&self) -> u64 {
        let number = self.calls() + 1;
        self.own().arrived.0.store(number, Ordering::Release);
        number
    }

    /// Whatever this rank does to others' buffers in call `number` is done.
    #[inline(always)]
    pub(super) fn finish(&self, number: u64) {
        self.own().done.0.store(number, Ordering::Release);
    }

    /// This rank has done `steps` steps, over all calls.
    #[inline(always)]
    pub(super) fn step(&self, steps: u64) {
        self.own().steps.0.store(steps, Ordering::Release);
    }

    /// Waits until `rank` has come to call `number`.
    #[inline(always)]
    pub(super) fn wait_arrived(&self, rank: u32, number: u64) -> Result<()> {
        self.wait(rank, |board| &board.arrived, number)
    }

    /// Waits until `rank` is done with others' buffers in call `number`.
    #[inline(always)]
    pub(super) fn wait_done(&self, rank: u32, number: u64) -> Result<()> {
        self.wait(rank, |board| &board.done, number)
    }

    /// Waits until `rank` has done `steps` steps.
    #[inline(always)]
    pub(super) fn wait_steps(&self, rank: u32, steps: u64) -> Result<()> {
        self.wait(rank, |board| &board.steps, steps)
    }

    /// Waits for every rank to come here.
    pub(super) fn meet(&self) -> Result<()> {
        let number = self.own().met.0.load(Ordering::Relaxed) + 1;
        self.own().met.0.store(number, Ordering::Release);
        (0..self.n_ranks()).try_for_each(|rank| self.wait(rank, |board| &board.met, number))
    }

    #[inline(always)]
    fn wait(&self, rank: u32, counter: impl Fn(&Board) -> &Counter, at_least: u64) -> Result<()> {
        let counter = &counter(&self.world.boards[rank as usize]).0;
        for _ in 0..self.world.patience {
            if counter.load(Ordering::Acquire) >= at_least {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.wait_long(rank, counter, at_least)
    }

    #[cold]
    fn wait_long(&self, rank: u32, counter: &AtomicU64, at_least: u64) -> Result<()> {
        let deadline = Instant::now() + self.world.limit;
        while counter.load(Ordering::Acquire) < at_least {
            self.world.alarm.check()?;
            if Instant::now() >= deadline {
                return Err(self.nobody_came(rank));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    fn nobody_came(&self, rank: u32) -> Error {
        let limit = show_duration(self.world.limit);
        let what = format!("rank {} has waited {limit} for rank {rank} in a collective", self.rank);
        Error::new(ErrorKind::PeerTimeout, what).hint("a longer limit is set with --timeout")
    }
}
