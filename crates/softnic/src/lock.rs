//! A lock for the data path: a few instructions where nobody else holds it, which is nearly always.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// Looks at a taken lock before the processor is given to somebody else: longer than a small write takes, short
/// against a time slice, which the holder may need where there are fewer processors than threads.
const LOOKS: u32 = 100;

/// A value that one thread at a time reaches. Verbs are called from any thread, and each call holds it briefly.
pub(crate) struct Spin<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by the holder of the lock.
unsafe impl<T: Send> Sync for Spin<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Spin<T> {}

/// The lock, held until dropped.
pub(crate) struct SpinGuard<'a, T> {
    lock: &'a Spin<T>,
}

impl<T> Spin<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        self.take();
        SpinGuard { lock: self }
    }

    /// Takes the lock beyond the end of a function: a batch of extended requests holds it from its start to its end.
    #[inline(always)]
    pub(crate) fn take(&self) {
        if self.taken.swap(true, Ordering::Acquire) {
            self.wait();
        }
    }

    /// Gives back what [`Spin::take`] took.
    ///
    /// # Safety
    /// The caller holds the lock, and no reference that [`Spin::held`] gave is used any more.
    #[inline(always)]
    pub(crate) unsafe fn give(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// The value, for whoever holds the lock by [`Spin::take`].
    ///
    /// # Safety
    /// The caller holds the lock, and has no other reference to the value.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "the lock makes it the only one")]
    pub(crate) unsafe fn held(&self) -> &mut T {
        // SAFETY: the caller holds the lock.
        unsafe { &mut *self.value.get() }
    }

    #[cold]
    fn wait(&self) {
        let mut looks = 0;
        while self.taken.load(Ordering::Relaxed) || self.taken.swap(true, Ordering::Acquire) {
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the guard holds the lock, and references through it have ended with it.
        unsafe { self.lock.give() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_reaches_the_value() {
        let counter = Spin::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *counter.lock() += 1));
            }
        });
        assert_eq!(*counter.lock(), 40_000);
    }

    #[test]
    fn a_taken_lock_is_held_until_given_back() {
        let lock = Spin::new(1);
        lock.take();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| *lock.lock());
            // SAFETY: this thread holds the lock.
            unsafe {
                *lock.held() = 2;
                lock.give();
            }
            assert_eq!(other.join().unwrap(), 2);
        });
    }
}
