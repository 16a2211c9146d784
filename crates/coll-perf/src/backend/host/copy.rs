//! Copying between buffers of one address space, and storing what was reduced.
#![allow(unsafe_code, reason = "memory that other ranks write can't be a Rust slice")]

/// How results are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stores {
    /// Through the caches: the line is fetched before it is written, and is there for whoever reads it next.
    Cached,
    /// Past the caches: nothing is fetched, which saves a third of the memory traffic of a copy, and nothing of the
    /// result is in a cache afterwards. For results that no cache could hold anyway.
    Streaming,
}

/// Copies `bytes` from `from` to `to`.
///
/// # Safety
/// Both ranges are valid, nobody writes to either, nobody reads the second, and they don't overlap.
#[inline(always)]
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize, stores: Stores) {
    match stores {
        // SAFETY: as the caller says.
        Stores::Cached => unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) },
        // SAFETY: as the caller says.
        Stores::Streaming => unsafe { stream(to, from, bytes) },
    }
}

/// Makes streaming stores visible before any later store: they are not ordered by themselves.
#[inline(always)]
pub(super) fn fence(stores: Stores) {
    #[cfg(target_arch = "x86_64")]
    if stores == Stores::Streaming {
        // SAFETY: every x86-64 processor has it, and it touches no memory.
        unsafe { std::arch::x86_64::_mm_sfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = stores;
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn stream(to: *mut u8, from: *const u8, bytes: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    const LINE: usize = 64;
    let head = to.align_offset(LINE).min(bytes);
    let lines = (bytes - head) / LINE;
    // SAFETY: head, lines and tail make up the range; streaming stores go to whole aligned lines of `to` only. SSE2
    // belongs to every x86-64 processor.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        for line in 0..lines {
            let at = head + line * LINE;
            let source = from.add(at).cast::<__m128i>();
            let target = to.add(at).cast::<__m128i>();
            let words = [0, 1, 2, 3].map(|word| _mm_loadu_si128(source.add(word)));
            for (word, value) in words.into_iter().enumerate() {
                _mm_stream_si128(target.add(word), value);
            }
        }
        let done = head + lines * LINE;
        std::ptr::copy_nonoverlapping(from.add(done), to.add(done), bytes - done);
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn stream(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: as the caller says.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_stores_copy_exactly_the_range_whatever_its_alignment() {
        let source: Vec<u8> = (0..1000_u32).map(|i| (i * 7) as u8).collect();
        for stores in [Stores::Cached, Stores::Streaming] {
            for (begin, bytes) in [(0, 0), (0, 1), (3, 60), (1, 64), (5, 129), (64, 640), (13, 900)] {
                let mut target = vec![0xaa; 1100];
                // SAFETY: the ranges lie in two vectors of this test.
                unsafe { copy(target.as_mut_ptr().add(begin), source.as_ptr().add(2), bytes, stores) };
                fence(stores);
                assert_eq!(target[begin..begin + bytes], source[2..2 + bytes]);
                assert!(target[..begin].iter().chain(&target[begin + bytes..]).all(|byte| *byte == 0xaa));
            }
        }
    }
}
