//! This process's place in the fabric: its slot, its control segment, its memory, and the peers it has met.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use super::life;
use super::peer::{self, Peer, Peers, segment_name};
use super::slot::Slot;
use crate::errno::{Errno, Result};
use crate::memory::{Arena, Pinned};
use crate::pool::Pool;
use crate::shared::{Heap, MAX_CQS, MAX_MRS, MAX_QPS, Segment};

/// All that the devices of this process share.
pub(crate) struct Process {
    fabric: String,
    slot: Slot,
    pub(crate) segment: Segment,
    pub(crate) arena: Arena,
    pub(crate) pinned: Pinned,
    pub(crate) qps: Mutex<Pool>,
    pub(crate) mrs: Mutex<Pool>,
    pub(crate) cqs: Mutex<Pool>,
    /// The queue pairs that there are: index and address.
    pub(crate) live_qps: Mutex<BTreeMap<u32, usize>>,
    /// The completion queues that there are: index and address.
    pub(crate) live_cqs: Mutex<BTreeMap<u32, usize>>,
    /// Room in the segment for receives.
    pub(crate) heap: Mutex<Heap>,
    generations: AtomicU32,
    pds: AtomicU32,
    peers: Mutex<Peers>,
    own: OnceLock<Arc<Peer>>,
    barriers: Barriers,
}

/// How the owner of memory makes sure that a peer has seen a change before it looks whether the peer is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Barriers {
    /// The owner has the kernel put a barrier into every process of the fabric; peers need none of their own.
    Owner,
    /// The kernel has no such call: every message begins with a barrier.
    Peer,
}

impl Process {
    /// This process, on the fabric from the first call on.
    ///
    /// # Errors
    /// That of the first call, always.
    pub(crate) fn get() -> Result<&'static Self> {
        static PROCESS: OnceLock<Result<Process>> = OnceLock::new();
        let process = PROCESS.get_or_init(|| Self::join(&crate::device::description().fabric));
        process.as_ref().map_err(|&errno| errno)
    }

    fn join(fabric: &str) -> Result<Self> {
        let slot = Slot::take(fabric)?;
        let number = slot.number();
        let segment = Segment::create(&segment_name(fabric, number))?;
        let arena = Arena::create(&format!("softnic-arena/{fabric}/{number}"));
        let arena_fd = arena.file().map_or(-1, |file| file.as_raw_fd());
        life::mark_at_the_end(&segment.header().life)?;
        segment.publish(arena_fd);
        leave_out_of_children(&slot);
        // Begun at another place by each process, so that what is left from one that is gone fits no other.
        let seed = std::process::id();
        Ok(Self {
            fabric: fabric.to_owned(),
            slot,
            segment,
            arena,
            pinned: Pinned::default(),
            qps: Mutex::new(Pool::new(1, MAX_QPS, seed)),
            mrs: Mutex::new(Pool::new(1, MAX_MRS, seed)),
            cqs: Mutex::new(Pool::new(0, MAX_CQS, 0)),
            live_qps: Mutex::default(),
            live_cqs: Mutex::default(),
            heap: Mutex::new(Segment::heap()),
            generations: AtomicU32::new(1),
            pds: AtomicU32::new(1),
            peers: Mutex::default(),
            own: OnceLock::new(),
            barriers: Barriers::register(),
        })
    }

    pub(crate) fn fabric(&self) -> &str {
        &self.fabric
    }

    pub(crate) fn slot(&self) -> &Slot {
        &self.slot
    }

    /// A number for a protection domain, unlike all others of this process.
    pub(crate) fn new_pd(&self) -> u32 {
        self.pds.fetch_add(1, Ordering::Relaxed)
    }

    /// A number that tells an object from those that had its index before.
    pub(crate) fn new_generation(&self) -> u32 {
        self.generations.fetch_add(1, Ordering::Relaxed)
    }

    /// The process of `slot`.
    ///
    /// # Errors
    /// The kernel's, where there is none or it can't be reached.
    pub(crate) fn peer(&'static self, slot: u32) -> Result<Arc<Peer>> {
        if slot == self.slot.number() {
            return Ok(Arc::clone(self.own.get_or_init(|| Arc::new(Peer::own(&self.segment)))));
        }
        peer::find(self, &mut lock(&self.peers), slot)
    }

    pub(crate) fn barriers(&self) -> Barriers {
        self.barriers
    }
}

/// The value, whatever became of a thread that had it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Barriers {
    const QUERY: i32 = 0;
    const GLOBAL_EXPEDITED: i32 = 1 << 1;
    const REGISTER_GLOBAL_EXPEDITED: i32 = 1 << 2;

    fn register() -> Self {
        let has = Self::call(Self::QUERY);
        let needed = i64::from(Self::GLOBAL_EXPEDITED | Self::REGISTER_GLOBAL_EXPEDITED);
        if has >= 0 && has & needed == needed && Self::call(Self::REGISTER_GLOBAL_EXPEDITED) == 0 {
            Self::Owner
        } else {
            Self::Peer
        }
    }

    /// Whatever a peer does after this, it does in the knowledge of what this process did before.
    pub(crate) fn owner(self) {
        match self {
            Self::Owner => drop(Self::call(Self::GLOBAL_EXPEDITED)),
            Self::Peer => std::sync::atomic::fence(Ordering::SeqCst),
        }
    }

    fn call(command: i32) -> i64 {
        // SAFETY: membarrier takes numbers only.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
    }
}

/// A child that is forked without exec has a copy of every descriptor. The listener's would keep the slot when this
/// process is gone, so it is closed there.
fn leave_out_of_children(slot: &Slot) {
    static LISTENER: AtomicI32 = AtomicI32::new(-1);
    extern "C" fn in_child() {
        let fd = LISTENER.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            // SAFETY: closes the child's copy, which nothing in the child uses: queue pairs don't survive a fork.
            unsafe { libc::close(fd) };
        }
    }
    LISTENER.store(slot.listener_fd(), Ordering::Relaxed);
    // SAFETY: registers a function that only closes a descriptor. Where there is no memory for it, nothing is lost
    // but the slot of a process that forks and dies.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// `EAGAIN` for a table that is full.
pub(crate) fn take(pool: &Mutex<Pool>) -> Result<u32> {
    lock(pool).take().ok_or(Errno::NO_MEMORY)
}
