//! The limit on locked memory, which an adapter's driver charges for every registration.
//!
//! Nothing is locked here. The limit is held to all the same: it is what many a registration fails by in the field.

use std::sync::atomic::{AtomicU64, Ordering};

use super::mapping::page_size;
use crate::errno::{Errno, Result};

/// Bit of `CAP_IPC_LOCK` in a capability mask (`linux/capability.h`).
const CAP_IPC_LOCK: u32 = 14;

/// The pages that this process has registered.
#[derive(Default)]
pub(crate) struct Pinned(AtomicU64);

impl Pinned {
    /// Charges `pages`.
    ///
    /// # Errors
    /// `ENOMEM` where the limit does not allow them.
    pub(crate) fn charge(&self, pages: u64) -> Result<()> {
        let before = self.0.fetch_add(pages, Ordering::Relaxed);
        if limit_pages().is_some_and(|limit| before + pages > limit) && !may_exceed() {
            self.release(pages);
            return Err(Errno::NO_MEMORY);
        }
        Ok(())
    }

    /// Takes the charge back.
    pub(crate) fn release(&self, pages: u64) {
        self.0.fetch_sub(pages, Ordering::Relaxed);
    }
}

/// The pages that have a byte in `len` bytes from `address`.
pub(crate) fn pages(address: u64, len: u64) -> u64 {
    (address + len).div_ceil(page_size()) - address / page_size()
}

/// `None`: no limit.
fn limit_pages() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills a struct of ours.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then(|| limit.rlim_cur / page_size())
}

/// Whether this process may lock more: the kernel asks for the capability in the initial user namespace.
fn may_exceed() -> bool {
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    let initial = text("/proc/self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]);
    initial && effective_capabilities(&text("/proc/self/status")) & (1 << CAP_IPC_LOCK) != 0
}

fn effective_capabilities(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_that_have_a_byte() {
        let page = page_size();
        assert_eq!(pages(page, page), 1);
        assert_eq!(pages(page - 1, 2), 2);
        assert_eq!(pages(1, 1), 1);
        assert_eq!(pages(0, 10 * page + 1), 11);
    }

    #[test]
    fn capabilities_are_read_from_the_kernels_words() {
        assert_eq!(effective_capabilities("Name:\tx\nCapEff:\t0000000000004000\n"), 1 << 14);
        assert_eq!(effective_capabilities(""), 0);
    }
}
