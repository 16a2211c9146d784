//! Page-aligned anonymous memory of this host.
#![allow(unsafe_code, reason = "memory that an adapter writes to can't be a Rust slice")]

use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::{Buffer, LESS_MEMORY, MemoryKind};
use crate::error::{Error, ErrorKind, Result, show_errno};
use crate::host::HostFiles;
use crate::units::ByteSize;

/// Anonymous pages, all of them present.
pub struct HostBuffer {
    start: NonNull<std::ffi::c_void>,
    len: usize,
    mapped: usize,
    kind: MemoryKind,
}

/// The page size that is asked for: the smaller huge one of x86-64, and one that arm64 has with base pages of 4 KiB.
const HUGE_PAGE: u64 = 2 * ByteSize::MIB;
/// Where the kernel tells of its pool of them.
const HUGE_POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

// SAFETY: the mapping belongs to this value alone, and is only reached by copies through raw pointers. Copies that
// race with the adapter or with a TCP receiver yield some mix of old and new bytes, which is what a check is for.
unsafe impl Send for HostBuffer {}
// SAFETY: as above.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// `len` zero bytes, populated, so that no page fault falls into a measurement.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] with the errno.
    pub fn new(len: u64, kind: MemoryKind) -> Result<Self> {
        let refused = |errno| {
            Error::new(
                ErrorKind::Memory,
                format!("cannot allocate {} of {}: mmap: {}", ByteSize(len), kind.name(), show_errno(errno)),
            )
            .hint(format!("use {LESS_MEMORY}"))
        };
        let (page, page_flags) = match kind {
            MemoryKind::Host => (1, MapFlags::empty()),
            MemoryKind::HostHuge => (HUGE_PAGE, MapFlags::MAP_HUGETLB | MapFlags::MAP_HUGE_2MB),
            MemoryKind::Cuda => return Err(refused(libc::EINVAL)),
        };
        let bytes = len.checked_next_multiple_of(page).and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.and_then(NonZeroUsize::new).ok_or_else(|| refused(libc::EINVAL))?;
        // SAFETY: an anonymous mapping at an address of the kernel's choosing touches nothing that exists.
        let start = unsafe {
            mmap_anonymous(
                None,
                bytes,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_PRIVATE | MapFlags::MAP_POPULATE | page_flags,
            )
        }
        .map_err(|errno| refused(errno as i32))?;
        Ok(Self { start, len: len as usize, mapped: bytes.get(), kind })
    }

    fn at(&self, offset: u64, length: usize) -> *mut u8 {
        let end = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(length));
        assert!(
            end.is_some_and(|end| end <= self.len),
            "{length} bytes at {offset} of a buffer of {}",
            self.len
        );
        self.start.as_ptr().cast::<u8>().wrapping_add(offset as usize)
    }

    /// Copies `bytes` to `offset`, which with host memory always works. Panics where they don't fit.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: `at` has checked the range; the mapping lives as long as `self`. The adapter may read it at the
        // same time and would then send a mix, which callers exclude by filling between rounds.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Copies from `offset` into `bytes`, which with host memory always works. Panics where they don't fit.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) {
        let from = self.at(offset, bytes.len());
        // SAFETY: `at` has checked the range. The peer's adapter may write it at the same time; callers read after
        // the peer has said that its round is over, and a byte that still changes is found wrong or right.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
    }
}

impl Buffer for HostBuffer {
    fn kind(&self) -> MemoryKind {
        self.kind
    }

    fn address(&self) -> u64 {
        self.start.as_ptr().addr() as u64
    }

    fn len(&self) -> u64 {
        self.len as u64
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        HostBuffer::write_at(self, offset, bytes);
        Ok(())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        HostBuffer::read_at(self, offset, bytes);
        Ok(())
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no reference into it exists; whoever registered it has borrowed or owns
        // `self`. munmap of a whole mapping does not fail.
        let _ = unsafe { munmap(self.start, self.mapped) };
    }
}

/// Whether `need` bytes can be had without pushing this machine into swap or its control group over its limit.
///
/// # Errors
/// [`ErrorKind::Memory`] with what there is.
pub fn check_available(need: u64, regions: &str, files: &HostFiles) -> Result<()> {
    match available(files) {
        Some(available) if need > available => Err(Error::new(
            ErrorKind::Memory,
            format!(
                "this run needs {} of host memory and {} is available",
                ByteSize(need),
                ByteSize(available)
            ),
        )
        .fact("this run needs", format!("{} ({regions})", ByteSize(need)))
        .hint(format!("use {LESS_MEMORY}"))),
        _ => Ok(()),
    }
}

/// Whether the kernel's pool has huge pages for `need` bytes. They are set aside beforehand, so that free memory of
/// other kinds does not count.
///
/// # Errors
/// [`ErrorKind::Memory`] with the pool's counts.
pub(super) fn check_huge_pages(need: u64, regions: &str, files: &HostFiles) -> Result<()> {
    let pages = need.div_ceil(HUGE_PAGE);
    let count = |name: &str| files.number(&format!("{HUGE_POOL}/{name}"));
    let (free, total, reserved) = (count("free_hugepages"), count("nr_hugepages"), count("resv_hugepages"));
    let usable = free.unwrap_or(0).saturating_sub(reserved.unwrap_or(0));
    if pages <= usable {
        return Ok(());
    }
    let known = |count: Option<u64>| count.map_or("unknown".to_owned(), |count| count.to_string());
    Err(Error::new(
        ErrorKind::Memory,
        format!("--hugepages needs {pages} pages of {} and {usable} can be had", ByteSize(HUGE_PAGE)),
    )
    .fact("this run needs", format!("{} ({regions})", ByteSize(need)))
    .fact(
        HUGE_POOL,
        format!("{} in all, {} free, {} of them reserved", known(total), known(free), known(reserved)),
    )
    .hint(format!(
        "as root: echo {} > {HUGE_POOL}/nr_hugepages; or leave --hugepages out",
        total.unwrap_or(0) + pages - usable
    )))
}

fn available(files: &HostFiles) -> Option<u64> {
    let kib = files.value_of("/proc/meminfo", "MemAvailable")?;
    let machine: u64 = kib.strip_suffix(" kB")?.parse().ok()?;
    let machine = machine.saturating_mul(ByteSize::KIB);
    Some(cgroup_left(files).map_or(machine, |left| left.min(machine)))
}

/// What the control group of this process (version 2) still allows.
fn cgroup_left(files: &HostFiles) -> Option<u64> {
    let groups = files.text("/proc/self/cgroup")?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let folder = format!("/sys/fs/cgroup{}", path.trim_end_matches('/'));
    let limit = files.number(&format!("{folder}/memory.max"))?;
    let used = files.number(&format!("{folder}/memory.current"))?;
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn is_page_aligned_and_keeps_what_is_written() {
        let buffer = HostBuffer::new(10_000, MemoryKind::Host).unwrap();
        assert_eq!(buffer.address() % 4096, 0);
        buffer.write_at(5000, b"abc");
        let mut read = [0; 4];
        buffer.read_at(5000, &mut read);
        assert_eq!(&read, b"abc\0");
    }

    #[test]
    #[should_panic(expected = "2 bytes at 9999 of a buffer of 10000")]
    fn a_copy_beyond_the_end_is_stopped() {
        HostBuffer::new(10_000, MemoryKind::Host).unwrap().write_at(9999, b"ab");
    }

    #[test]
    fn too_few_huge_pages_are_refused_with_the_pools_counts() {
        let tree = tempfile::tempdir().unwrap();
        let files = HostFiles::below(tree.path());
        let none = check_huge_pages(1, "1", &files).unwrap_err();
        assert_eq!(none.what, "--hugepages needs 1 pages of 2 MiB and 0 can be had");
        let pool = tree.path().join("sys/kernel/mm/hugepages/hugepages-2048kB");
        fs::create_dir_all(&pool).unwrap();
        for (name, count) in [("nr_hugepages", "8"), ("free_hugepages", "5"), ("resv_hugepages", "2")] {
            fs::write(pool.join(name), count).unwrap();
        }
        assert!(check_huge_pages(6 << 20, "1", &files).is_ok());
        let error = check_huge_pages((6 << 20) + 1, "2 of 3 MiB", &files).unwrap_err();
        assert_eq!(error.facts[1].value, "8 in all, 5 free, 2 of them reserved");
        assert!(error.hint.unwrap().contains("echo 9 > "));
    }

    #[test]
    fn more_than_the_machine_or_its_control_group_has_is_refused() {
        let tree = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = tree.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/meminfo", "MemAvailable:    1024 kB\n");
        let files = HostFiles::below(tree.path());
        assert!(check_available(1 << 20, "1", &files).is_ok());
        assert_eq!(check_available((1 << 20) + 1, "1", &files).unwrap_err().kind, ErrorKind::Memory);
        write("proc/self/cgroup", "0::/job\n");
        write("sys/fs/cgroup/job/memory.max", "500000\n");
        write("sys/fs/cgroup/job/memory.current", "400000\n");
        assert!(check_available(100_001, "1", &files).unwrap_err().what.contains("is available"));
    }
}
