//! The kernel's calls about cores and memory nodes. All of them are about the calling thread.
#![allow(unsafe_code, reason = "system calls without a safe name")]

use nix::errno::Errno;

use super::cores::{Cores, MAX_CORES};

/// What a call gives; its name goes into the message, since a filter may refuse one and allow the others.
pub(super) type Result<T> = std::result::Result<T, Refusal>;

/// A call that the kernel refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The call.
    pub(super) call: &'static str,
    /// Its errno.
    pub(super) errno: Errno,
}

impl Refusal {
    /// `set_mempolicy: EPERM (1), Operation not permitted`.
    pub(super) fn describe(self) -> String {
        format!("{}: {}", self.call, crate::error::show_errno(self.errno as i32))
    }
}

/// No address, no flag, this process: as wide as an argument of a system call, which a plain 0 is not.
const NONE: libc::c_long = 0;

const WORDS: usize = MAX_CORES as usize / 64;

/// A bit for each core or node, as the kernel takes them. Larger than the C library's `cpu_set_t`, which ends at 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mask([u64; WORDS]);

impl Mask {
    const EMPTY: Self = Self([0; WORDS]);
    const BYTES: usize = WORDS * 8;

    fn of(cores: &Cores) -> Self {
        let mut mask = Self::EMPTY;
        for &core in cores.numbers().iter().filter(|&&core| core < MAX_CORES) {
            mask.0[core as usize / 64] |= 1 << (core % 64);
        }
        mask
    }

    fn cores(&self) -> Cores {
        Cores::of((0..MAX_CORES).filter(|&core| self.0[core as usize / 64] >> (core % 64) & 1 == 1))
    }
}

fn checked(call: &'static str, returned: libc::c_long) -> Result<()> {
    Errno::result(returned).map(drop).map_err(|errno| Refusal { call, errno })
}

/// The cores that this thread may run on.
pub(super) fn cores() -> Result<Cores> {
    let mut mask = Mask::EMPTY;
    // SAFETY: the kernel writes at most the given number of bytes into the mask, which is ours.
    let returned = unsafe { libc::sched_getaffinity(0, Mask::BYTES, mask.0.as_mut_ptr().cast()) };
    checked("sched_getaffinity", returned.into()).map(|()| mask.cores())
}

/// Has this thread run on `cores` only; on those of them that its control group allows.
pub(super) fn run_on(cores: &Cores) -> Result<()> {
    let mask = Mask::of(cores);
    // SAFETY: the kernel reads the given number of bytes of the mask, which is ours.
    let returned = unsafe { libc::sched_setaffinity(0, Mask::BYTES, mask.0.as_ptr().cast()) };
    checked("sched_setaffinity", returned.into())
}

/// Where new pages of this thread go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryPolicy {
    mode: libc::c_int,
    nodes: Mask,
}

/// Bits of a node mask, and one: the kernel takes one off.
const MAX_NODE: libc::c_ulong = Mask::BYTES as libc::c_ulong * 8 + 1;

impl MemoryPolicy {
    /// On `node` as long as there is room, then elsewhere. Not "there or nowhere" (`MPOL_BIND`): a node that is full
    /// would bring the kernel's out-of-memory killer. Whoever insists looks where the pages are ([`nodes_of`]).
    pub(super) fn prefer(node: u32) -> Self {
        Self { mode: libc::MPOL_PREFERRED, nodes: Mask::of(&Cores::of([node])) }
    }

    /// Whether nobody has chosen anything: the thread's own node.
    pub(super) fn is_default(&self) -> bool {
        self.mode == libc::MPOL_DEFAULT
    }

    /// The policy of this thread.
    pub(super) fn current() -> Result<Self> {
        let mut policy = Self { mode: 0, nodes: Mask::EMPTY };
        let (mode, nodes) = (&raw mut policy.mode, policy.nodes.0.as_mut_ptr());
        // SAFETY: the kernel writes one int, and at most the given number of bits, into what is ours.
        let returned = unsafe { libc::syscall(libc::SYS_get_mempolicy, mode, nodes, MAX_NODE, NONE, NONE) };
        checked("get_mempolicy", returned).map(|()| policy)
    }

    /// Makes it this thread's.
    pub(super) fn set(&self) -> Result<()> {
        let (nodes, bits) =
            if self.is_default() { (std::ptr::null(), 0) } else { (self.nodes.0.as_ptr(), MAX_NODE) };
        // SAFETY: the kernel reads at most the given number of bits of the mask, which is ours.
        checked("set_mempolicy", unsafe { libc::syscall(libc::SYS_set_mempolicy, self.mode, nodes, bits) })
    }
}

/// The NUMA nodes of the pages at `addresses`; `None` for one that is not present.
pub(super) fn nodes_of(addresses: &[u64]) -> Result<Vec<Option<u32>>> {
    let pages: Vec<*const libc::c_void> =
        addresses.iter().map(|&address| std::ptr::without_provenance(address as usize)).collect();
    let mut nodes = vec![0 as libc::c_int; pages.len()];
    let nowhere: *const libc::c_int = std::ptr::null();
    // SAFETY: without nodes to move to, the kernel moves nothing: it looks the addresses up, without touching what is
    // there, and writes one int for each into `nodes`, which has as many.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            NONE,
            pages.len(),
            pages.as_ptr(),
            nowhere,
            nodes.as_mut_ptr(),
            NONE,
        )
    };
    checked("move_pages", returned).map(|()| nodes.into_iter().map(|node| node.try_into().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_hold_the_first_and_the_last_core() {
        let cores = Cores::of([0, 63, 64, 1023, 1024, MAX_CORES - 1]);
        assert_eq!(Mask::of(&cores).cores(), cores);
    }

    #[test]
    fn a_thread_that_is_bound_to_one_core_runs_there() {
        // On a thread of its own: the next test on this one must not inherit it.
        std::thread::spawn(|| {
            let one = Cores::of(cores().unwrap().numbers().first().copied());
            run_on(&one).unwrap();
            assert_eq!(cores().unwrap(), one);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_core_that_is_not_there_is_refused_by_name() {
        let refusal = run_on(&Cores::of([MAX_CORES - 1])).unwrap_err();
        assert_eq!(refusal.describe(), "sched_setaffinity: EINVAL (22), Invalid argument");
    }

    #[test]
    fn a_memory_policy_is_read_back_and_undone() {
        std::thread::spawn(|| {
            // A container's filter may refuse these calls; what is refused can't be read back.
            let Ok(before) = MemoryPolicy::current() else { return };
            let prefer = MemoryPolicy::prefer(0);
            if prefer.set().is_ok() {
                assert_eq!(MemoryPolicy::current(), Ok(prefer));
                before.set().unwrap();
                assert_eq!(MemoryPolicy::current(), Ok(before));
            }
        })
        .join()
        .unwrap();
    }
}
