//! A word that tells peers when this process is gone, whatever ended it.
//!
//! The memory of a process that was killed is still there for who has it mapped, and would take writes for ever. Peers
//! therefore look at a word before each message. The kernel itself marks it: a thread that does nothing else than hold
//! the word as a robust futex dies with the process, and its futexes are then marked as abandoned, before anybody can
//! learn of the death in another way.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use crate::errno::{Errno, Result};

/// Set in the word by the kernel (`linux/futex.h`).
const OWNER_DIED: u32 = 0x4000_0000;

/// Whether the process of the word lives.
#[inline(always)]
pub(crate) fn is_alive(life: &AtomicU32) -> bool {
    life.load(Ordering::Relaxed) & OWNER_DIED == 0
}

/// The kernel's form of a list of robust futexes (`struct robust_list_head`): here of one.
#[repr(C)]
struct RobustList {
    first: *const Node,
    futex_offset: isize,
    pending: *const Node,
    node: Node,
}

#[repr(C)]
struct Node {
    next: *const RobustList,
}

/// A word, for the thread that holds it.
struct Held(NonNull<AtomicU32>);

// SAFETY: the word is an atomic.
unsafe impl Send for Held {}

/// Has `word` marked when this process ends. It lies in memory that is mapped as long as the process lives.
///
/// # Errors
/// The kernel's, where there can be no thread.
pub(super) fn mark_at_the_end(word: &AtomicU32) -> Result<()> {
    let held = Held(NonNull::from(word));
    let (tell, told) = mpsc::channel();
    with_signals_blocked(|| {
        let thread = std::thread::Builder::new().name("softnic-life".to_owned()).stack_size(32 << 10);
        thread.spawn(move || hold(held, &tell))
    })?;
    told.recv().map_err(|_| Errno::AGAIN)?
}

/// Runs `body` with all signals blocked, which a thread that it starts inherits: they are for the program's own.
pub(crate) fn with_signals_blocked<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: both sets are filled by the calls before they are used.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = body();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

fn hold(held: Held, tell: &mpsc::Sender<Result<()>>) {
    let word = held.0;
    let mut list = RobustList {
        first: std::ptr::null(),
        futex_offset: 0,
        pending: std::ptr::null(),
        node: Node { next: std::ptr::null() },
    };
    list.first = &list.node;
    list.node.next = &list;
    list.futex_offset = (word.as_ptr().addr() as isize).wrapping_sub((&raw const list.node).addr() as isize);
    // SAFETY: the list lies on the stack of a thread that does not return where it is set; the word is mapped as long.
    let set = unsafe {
        word.as_ref().store(libc::syscall(libc::SYS_gettid) as u32, Ordering::Release);
        libc::syscall(libc::SYS_set_robust_list, &raw const list, std::mem::offset_of!(RobustList, node))
    };
    if set != 0 {
        let _ = tell.send(Err(Errno::last()));
        return;
    }
    let _ = tell.send(Ok(()));
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Mapping, new_memfd};
    use std::os::fd::AsFd;

    #[test]
    fn the_kernel_marks_the_word_of_a_process_that_is_killed() {
        let file = new_memfd("softnic-test", 4096).unwrap();
        let mapping = Mapping::shared(file.as_fd(), 0, 4096).unwrap();
        // SAFETY: the child makes system calls only: it maps the file anew and waits to be killed.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let own = Mapping::shared(file.as_fd(), 0, 4096).unwrap();
                let word = AtomicU32::from_ptr(own.address().cast());
                let list = RobustList {
                    first: std::ptr::null(),
                    futex_offset: 0,
                    pending: std::ptr::null(),
                    node: Node { next: std::ptr::null() },
                };
                let list = Box::leak(Box::new(list));
                list.first = &list.node;
                list.node.next = list;
                list.futex_offset = own.address().addr() as isize - (&raw const list.node).addr() as isize;
                libc::syscall(libc::SYS_set_robust_list, &raw const *list, 24);
                word.store(libc::getpid() as u32, Ordering::Release);
                loop {
                    libc::pause();
                }
            }
            let word = AtomicU32::from_ptr(mapping.address().cast());
            while word.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            assert!(is_alive(word));
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
            assert!(!is_alive(word));
        }
    }

    #[test]
    fn a_word_is_held_by_a_thread() {
        let word: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
        mark_at_the_end(word).unwrap();
        assert!(is_alive(word) && word.load(Ordering::Relaxed) != 0);
    }
}
