//! The file that registered memory lives in, and moving memory into it and out again.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::Mutex;

use super::mapping::{new_memfd, page_size};
use super::maps::{self, Area};
use super::ranges::Counts;
use crate::errno::{Errno, Result};

/// Beyond every address that a program on 64-bit Linux can have.
const SIZE: u64 = 1 << 56;

/// This process's registered memory.
pub(crate) struct Arena {
    /// `None` where the file could not be made (a limit on file sizes): then nothing is moved.
    file: Option<OwnedFd>,
    inode: u64,
    pages: Mutex<Pages>,
}

#[derive(Default)]
struct Pages {
    /// How many registrations a page has.
    registered: Counts,
    /// The pages that lie in the file.
    moved: Counts,
}

impl Arena {
    pub(crate) fn create(name: &str) -> Self {
        let file = new_memfd(name, SIZE).ok();
        let inode = file.as_ref().and_then(|file| {
            let file = File::from(file.try_clone().ok()?);
            file.metadata().ok().map(|metadata| metadata.ino())
        });
        Self { file: file.filter(|_| inode.is_some()), inode: inode.unwrap_or(0), pages: Mutex::default() }
    }

    /// Its file.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Begins a registration of `range`; gives the part of it that peers can map.
    ///
    /// # Errors
    /// `EFAULT` where a part is not mapped, or not readable, or not writable and `to_write`.
    pub(crate) fn register(&self, range: &Range<u64>, to_write: bool) -> Result<Range<u64>> {
        let areas = maps::areas(range)?;
        if areas.iter().any(|area| !area.readable || (to_write && !area.writable)) {
            return Err(Errno::FAULT);
        }
        let mut pages = self.pages.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let whole = whole_pages(range);
        let moved = self.file.is_some() && !whole.is_empty() && self.move_in(&mut pages, &whole, &areas);
        pages.registered.add(&touched_pages(range));
        Ok(if moved { whole } else { range.start..range.start })
    }

    /// Ends it.
    pub(crate) fn deregister(&self, range: &Range<u64>) {
        let mut pages = self.pages.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for left in pages.registered.remove(&touched_pages(range)) {
            for part in pages.moved.present(&left) {
                self.move_out(&part);
                pages.moved.remove(&part);
            }
        }
    }

    /// Whether all of `whole` lies in the file now.
    fn move_in(&self, pages: &mut Pages, whole: &Range<u64>, areas: &[Area]) -> bool {
        let missing = pages.moved.missing(whole);
        let movable = |part: &Range<u64>| {
            areas.iter().filter(|area| overlaps(&area.range, part)).all(Area::is_private_memory)
        };
        if !missing.iter().all(movable) {
            return false;
        }
        for part in &missing {
            if self.move_part_in(part).is_err() {
                return false;
            }
            pages.moved.add(part);
        }
        true
    }

    fn move_part_in(&self, part: &Range<u64>) -> Result<()> {
        let file = self.file().ok_or(Errno::NOT_SUPPORTED)?;
        write_all(file, part)?;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_POPULATE | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: replaces pages of private memory by pages with the same contents; whoever uses them sees no
        // difference. The kernel does it at once, so that no access finds a hole.
        let address = unsafe {
            let (start, len) = (part.start as *mut libc::c_void, (part.end - part.start) as usize);
            libc::mmap(start, len, protection, flags, file.as_raw_fd(), part.start as i64)
        };
        if address == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(()) }
    }

    /// Makes the pages private again where they are still the file's: a program may have unmapped them meanwhile,
    /// and what lies there now is another's.
    fn move_out(&self, part: &Range<u64>) {
        let Ok(text) = std::fs::read_to_string("/proc/self/maps") else { return };
        for area in maps::overlapping(&text, part).filter(|area| area.is_of_arena(self.inode)) {
            let still = area.range.start.max(part.start)..area.range.end.min(part.end);
            // Where it fails the pages stay shared: nobody has a key to them any more.
            let _ = make_private(&still);
        }
        self.free(part);
    }

    fn free(&self, part: &Range<u64>) {
        let Some(file) = self.file() else { return };
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (offset, len) = (part.start as i64, (part.end - part.start) as i64);
        // SAFETY: frees pages of a file that is ours.
        unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) };
    }
}

fn overlaps(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// The pages that lie within `range` from end to end.
fn whole_pages(range: &Range<u64>) -> Range<u64> {
    let page = page_size();
    let start = range.start.next_multiple_of(page);
    start..(range.end / page * page).max(start)
}

/// The pages that have a byte in `range`.
fn touched_pages(range: &Range<u64>) -> Range<u64> {
    let page = page_size();
    range.start / page * page..range.end.next_multiple_of(page)
}

/// Copies memory into the file, each byte to the offset that is its address.
fn write_all(file: BorrowedFd, part: &Range<u64>) -> Result<()> {
    let mut at = part.start;
    while at < part.end {
        // SAFETY: the kernel reads the memory, and says so where it can't.
        let written = unsafe {
            libc::pwrite(file.as_raw_fd(), at as *const libc::c_void, (part.end - at) as usize, at as i64)
        };
        match written {
            1.. => at += written as u64,
            _ => return Err(Errno::last()),
        }
    }
    Ok(())
}

/// Replaces pages by private ones with the same contents, at once for whoever uses them.
fn make_private(part: &Range<u64>) -> Result<()> {
    let len = (part.end - part.start) as usize;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new pages are filled from pages that are mapped and readable, and take their place.
    unsafe {
        let fresh = libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0);
        if fresh == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let place = part.start as *mut libc::c_void;
        std::ptr::copy_nonoverlapping(place.cast::<u8>(), fresh.cast::<u8>(), len);
        if libc::mremap(fresh, len, len, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, place) == libc::MAP_FAILED
        {
            let errno = Errno::last();
            libc::munmap(fresh, len);
            return Err(errno);
        }
    }
    Ok(())
}

/// Opens the descriptor `fd` of process `pid`, which must be of this user, or this user root; a pipe so that nothing
/// waits for room in it.
pub(crate) fn open_to_peer(pid: i32, fd: i32) -> Result<File> {
    let path = format!("/proc/{pid}/fd/{fd}");
    File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(Errno::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Mapping;

    /// `pages` private pages, filled with their number; leaked, so that no other test gets them.
    fn memory(pages: usize) -> (*mut u8, Range<u64>) {
        let len = pages * page_size() as usize;
        // SAFETY: a new mapping, filled within its bounds.
        let address = unsafe {
            let address = libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(address, libc::MAP_FAILED);
            address.cast::<u8>()
        };
        // SAFETY: within the mapping.
        (0..len).for_each(|at| unsafe { address.add(at).write((at / page_size() as usize) as u8 + 1) });
        (address, address.addr() as u64..(address.addr() + len) as u64)
    }

    #[test]
    fn a_page_keeps_its_bytes_on_the_way_in_and_out() {
        let arena = Arena::create("softnic-test");
        let (address, range) = memory(3);
        assert_eq!(arena.register(&range, true).unwrap(), range);
        let seen = Mapping::shared(arena.file().unwrap(), range.start, 3 * page_size() as usize).unwrap();
        // SAFETY: all within the three pages, which are mapped here and through the file.
        unsafe {
            assert_eq!((*address, *seen.address().add(2 * page_size() as usize)), (1, 3));
            seen.address().write(77);
            assert_eq!(address.read_volatile(), 77);
            arena.deregister(&range);
            assert_eq!(address.read_volatile(), 77);
            seen.address().write(78);
            assert_eq!(address.read_volatile(), 77, "it is private again");
        }
    }

    #[test]
    fn only_pages_without_neighbours_are_moved() {
        let arena = Arena::create("softnic-test");
        let page = page_size();
        let (_, range) = memory(4);
        let inner = range.start + 1..range.end - 1;
        assert_eq!(arena.register(&inner, true).unwrap(), range.start + page..range.end - page);
        let small = range.start + 8..range.start + 64;
        assert!(arena.register(&small, true).unwrap().is_empty());
        arena.deregister(&small);
        arena.deregister(&inner);
    }

    #[test]
    fn a_page_is_shared_as_long_as_it_is_registered_once() {
        let arena = Arena::create("softnic-test");
        let (address, range) = memory(2);
        let first = range.start..range.start + page_size();
        arena.register(&range, true).unwrap();
        arena.register(&first, false).unwrap();
        arena.deregister(&range);
        let seen = Mapping::shared(arena.file().unwrap(), range.start, page_size() as usize).unwrap();
        // SAFETY: within the first page.
        unsafe {
            seen.address().write(99);
            assert_eq!(address.read_volatile(), 99);
        }
        arena.deregister(&first);
    }

    #[test]
    fn memory_that_is_not_there_is_a_fault() {
        let arena = Arena::create("softnic-test");
        let (address, range) = memory(2);
        // SAFETY: the second page is this test's own.
        unsafe { libc::munmap(address.add(page_size() as usize).cast(), page_size() as usize) };
        assert_eq!(arena.register(&range, false), Err(Errno::FAULT));
        // SAFETY: as above, of the first.
        unsafe { libc::mprotect(address.cast(), page_size() as usize, libc::PROT_READ) };
        let first = range.start..range.start + page_size();
        assert_eq!(arena.register(&first, true), Err(Errno::FAULT));
        assert!(arena.register(&first, false).unwrap().is_empty(), "it can be read, through the kernel");
        // SAFETY: as above.
        unsafe { libc::mprotect(address.cast(), page_size() as usize, libc::PROT_NONE) };
        assert_eq!(arena.register(&first, false), Err(Errno::FAULT));
    }
}
