//! Another process, as this one reaches it: its control segment, and its registered memory.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::life::is_alive;
use super::process::{Process, lock};
use super::slot::process_of;
use crate::errno::{Errno, Result};
use crate::events::{Record, is_pipe, write_record};
use crate::gpu::{PeerMemory, Place};
use crate::memory::{CrossMemory, Mapping, open_to_peer, page_size};
use crate::mr::ON_GPU;
use crate::shared::{Doorbell, MrEntry, Segment};

/// The name of the control segment of a process, which shows in `/proc`.
pub(super) fn segment_name(fabric: &str, slot: u32) -> String {
    format!("softnic-control/{fabric}/{slot}")
}

/// A process that holds queue pairs which ones of this process are connected to.
pub(crate) struct Peer {
    segment: PeerSegment,
    /// `None`: this process itself.
    other: Option<Other>,
    regions: Mutex<HashMap<u32, Arc<Region>>>,
    bells: Mutex<HashMap<(i32, u64), File>>,
}

enum PeerSegment {
    Own(&'static Segment),
    Theirs(Segment),
}

struct Other {
    pid: i32,
    arena: OnceLock<Result<File>>,
}

/// A memory region of a peer, as this process reaches it. What it says was true while `key` was `rkey`.
pub(crate) struct Region {
    /// The key as the owner has it now.
    pub(crate) key: *const AtomicU32,
    pub(crate) rkey: u32,
    pub(crate) access: u32,
    pub(crate) pd: u32,
    /// The address that work requests call its beginning.
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// The part that this process has mapped, as offsets from the beginning.
    pub(crate) mapped: Range<u64>,
    /// Where the beginning is, or would be if it were mapped.
    pub(crate) base: *mut u8,
    /// Where it begins in the owner's memory, and how to reach that.
    pub(crate) address: u64,
    pub(crate) cross: Option<CrossMemory>,
    /// Where it is on a GPU; nothing of it is mapped then, or reached through the kernel.
    pub(crate) gpu: Option<PeerMemory>,
    _mapping: Option<Mapping>,
}

// SAFETY: the pointers lead to memory that the value keeps mapped, shared with other threads and processes anyway, and
// reached only by atomics and copies.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Peer {
    /// This process.
    pub(super) fn own(segment: &'static Segment) -> Self {
        Self {
            segment: PeerSegment::Own(segment),
            other: None,
            regions: Mutex::default(),
            bells: Mutex::default(),
        }
    }

    /// The process of `slot`.
    pub(super) fn at(fabric: &str, slot: u32) -> Result<Self> {
        let pid = process_of(fabric, slot)?;
        // The segment's name has the slot in it: another process that took the id meanwhile has none of that name.
        let segment = open_segment(pid, &segment_name(fabric, slot))?;
        if !is_alive(&segment.header().life) {
            return Err(Errno::NO_DEVICE);
        }
        Ok(Self {
            segment: PeerSegment::Theirs(segment),
            other: Some(Other { pid, arena: OnceLock::new() }),
            regions: Mutex::default(),
            bells: Mutex::default(),
        })
    }

    /// Its control segment.
    pub(crate) fn segment(&self) -> &Segment {
        match &self.segment {
            PeerSegment::Own(segment) => segment,
            PeerSegment::Theirs(segment) => segment,
        }
    }

    /// Whether it has not ended.
    pub(crate) fn is_alive(&self) -> bool {
        is_alive(&self.segment().header().life)
    }

    /// The memory region that `rkey` opens now; `None` where it opens none.
    pub(crate) fn region(self: &Arc<Self>, rkey: u32) -> Option<Arc<Region>> {
        let mut regions = lock(&self.regions);
        // Mappings of what is not registered any more, and that no queue pair holds.
        regions.retain(|_, region| region.is_open() || Arc::strong_count(region) > 1);
        if let Some(region) = regions.get(&rkey).filter(|region| region.is_open()) {
            return Some(Arc::clone(region));
        }
        let region = Arc::new(self.open(rkey)?);
        regions.insert(rkey, Arc::clone(&region));
        Some(region)
    }

    /// Writes `record` into a pipe of the peer. One that has none, or is gone, is not woken.
    pub(crate) fn ring(&self, doorbell: &Doorbell, record: &Record) {
        let (fd, inode) = (doorbell.fd.load(Ordering::Acquire), doorbell.inode.load(Ordering::Relaxed));
        let Some(other) = &self.other else {
            return if fd >= 0 {
                write_record(fd, record)
            };
        };
        let mut bells = lock(&self.bells);
        if fd >= 0 && !bells.contains_key(&(fd, inode)) {
            // For reading, too: without a reader of its own a pipe whose owner has gone would end this process.
            let pipe = open_to_peer(other.pid, fd).ok().filter(|pipe| is_pipe(pipe, inode));
            let Some(pipe) = pipe else { return };
            bells.insert((fd, inode), pipe);
        }
        if let Some(pipe) = bells.get(&(fd, inode)) {
            write_record(pipe.as_raw_fd(), record);
        }
    }

    fn open(self: &Arc<Self>, rkey: u32) -> Option<Region> {
        let entry = self.segment().mr(rkey >> 16);
        let facts = Facts::read(entry, rkey)?;
        if facts.access & ON_GPU != 0 {
            return self.open_on_gpu(entry, rkey, &facts);
        }
        let (base, mapped, mapping) = match &self.other {
            None => (facts.address as *mut u8, 0..facts.len, None),
            Some(other) => other.map(&facts, self.segment().header().arena_fd.load(Ordering::Relaxed)),
        };
        let cross = self.other.as_ref().map(|other| CrossMemory::of(other.pid));
        Some(Region { mapped, base, cross, _mapping: mapping, ..facts.region(entry, rkey) })
    }

    /// A region on a GPU. One that this process has no way to is a region all the same, that nothing can be written to.
    #[cold]
    fn open_on_gpu(&self, entry: &MrEntry, rkey: u32, facts: &Facts) -> Option<Region> {
        let place = Place::read(self.segment().gpu(rkey >> 16));
        std::sync::atomic::fence(Ordering::Acquire);
        if entry.key.load(Ordering::Relaxed) != rkey {
            return None;
        }
        let gpu = match &self.other {
            None => PeerMemory::own(self.segment(), rkey, facts.address),
            Some(_) => PeerMemory::open(&place, facts.len),
        };
        Some(Region { gpu: gpu.ok(), ..facts.region(entry, rkey) })
    }
}

impl Region {
    /// Whether its key still opens it.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        // SAFETY: the key lies in a segment that the peer keeps mapped, and whoever holds a region holds the peer.
        unsafe { (*self.key).load(Ordering::Acquire) == self.rkey }
    }
}

impl Region {
    /// Where `len` bytes from `address` on begin in the region; `None` where it has not all of them, or not the right
    /// `access`.
    #[inline(always)]
    pub(crate) fn offset(&self, address: u64, len: u64, access: u32) -> Option<u64> {
        let offset = address.wrapping_sub(self.start);
        let fits = offset <= self.len && len <= self.len - offset && self.access & access != 0;
        fits.then_some(offset)
    }
}

impl Other {
    /// Maps what can be mapped of a memory region: its beginning's place here, the part, and what keeps it.
    fn map(&self, facts: &Facts, arena_fd: i32) -> (*mut u8, Range<u64>, Option<Mapping>) {
        let none = (std::ptr::null_mut(), 0..0, None);
        if !facts.shared_is_sound() {
            return none;
        }
        let arena = self.arena.get_or_init(|| open_to_peer(self.pid, arena_fd));
        let Ok(arena) = arena else { return none };
        let len = (facts.shared.end - facts.shared.start) as usize;
        let Ok(mapping) = Mapping::populated(arena.as_fd(), facts.shared.start, len) else { return none };
        let before = facts.shared.start - facts.address;
        let base = mapping.address().wrapping_sub(before as usize);
        (base, before..before + len as u64, Some(mapping))
    }
}

/// What an entry says, read while its key was in place.
struct Facts {
    access: u32,
    pd: u32,
    start: u64,
    len: u64,
    address: u64,
    shared: Range<u64>,
}

impl Facts {
    fn read(entry: &MrEntry, rkey: u32) -> Option<Self> {
        if rkey == 0 || entry.key.load(Ordering::Acquire) != rkey {
            return None;
        }
        let read = |field: &std::sync::atomic::AtomicU64| field.load(Ordering::Relaxed);
        let facts = Self {
            access: entry.access.load(Ordering::Relaxed),
            pd: entry.pd.load(Ordering::Relaxed),
            start: read(&entry.start),
            len: read(&entry.len),
            address: read(&entry.address),
            shared: read(&entry.shared_from)..read(&entry.shared_to),
        };
        std::sync::atomic::fence(Ordering::Acquire);
        (entry.key.load(Ordering::Relaxed) == rkey).then_some(facts)
    }

    /// The region that `entry` has under `rkey`, which this process has no way to yet.
    fn region(&self, entry: &MrEntry, rkey: u32) -> Region {
        Region {
            key: &entry.key,
            rkey,
            access: self.access,
            pd: self.pd,
            start: self.start,
            len: self.len,
            mapped: 0..0,
            base: std::ptr::null_mut(),
            address: self.address,
            cross: None,
            gpu: None,
            _mapping: None,
        }
    }

    /// Whether there is a shared part, and it lies within the region and on pages.
    fn shared_is_sound(&self) -> bool {
        let end = self.address.checked_add(self.len);
        !self.shared.is_empty()
            && self.address <= self.shared.start
            && end.is_some_and(|end| self.shared.end <= end)
            && self.shared.start.is_multiple_of(page_size())
            && self.shared.end.is_multiple_of(page_size())
    }
}

/// The control segment called `name` of process `pid`: the one descriptor whose link says so.
fn open_segment(pid: i32, name: &str) -> Result<Segment> {
    let wanted = format!("/memfd:{name} (deleted)");
    let folder = std::fs::read_dir(format!("/proc/{pid}/fd"))?;
    for entry in folder.flatten() {
        let link = std::fs::read_link(entry.path()).unwrap_or_default();
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let (true, Some(number)) = (link.as_os_str() == wanted.as_str(), number) else { continue };
        if let Ok(segment) = open_to_peer(pid, number).and_then(Segment::of_peer) {
            return Ok(segment);
        }
    }
    Err(Errno::NO_DEVICE)
}

/// Weak references to peers, by slot, that [`Process`] keeps.
pub(super) type Peers = HashMap<u32, std::sync::Weak<Peer>>;

/// The peer of `slot`, opened unless it is already, and alive.
pub(super) fn find(process: &Process, peers: &mut Peers, slot: u32) -> Result<Arc<Peer>> {
    if let Some(peer) = peers.get(&slot).and_then(std::sync::Weak::upgrade).filter(|peer| peer.is_alive()) {
        return Ok(peer);
    }
    let peer = Arc::new(Peer::at(process.fabric(), slot)?);
    peers.insert(slot, Arc::downgrade(&peer));
    Ok(peer)
}
