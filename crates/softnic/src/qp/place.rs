//! Copying a message into the target's memory so that its last byte is seen last.
//!
//! Programs poll the last byte of a message for its arrival. Adapters write in the order of addresses, and so does
//! this: everything but the end first, then the end in one store that is not reordered with what came before.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Copies `len` bytes from `from` to `to`, the last one last.
///
/// # Safety
/// `from` has `len` bytes that may be read and `to` as many that may be written, not the same ones. Other threads and
/// processes may read and write both meanwhile, and see or cause any mix but for the last byte.
#[inline(always)]
pub(super) unsafe fn place(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller vouches for both; the aligned word lies within `to`.
    unsafe {
        if len == 8 && to.addr().is_multiple_of(8) {
            word(to, from);
        } else if len > 0 {
            place_any(to, from, len);
        }
    }
}

/// # Safety
/// As for [`place`], with `len` not 0.
#[inline]
unsafe fn place_any(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller vouches for both; all is within `len` bytes.
    unsafe {
        if len > 8 && (to.addr() + len).is_multiple_of(8) {
            std::ptr::copy_nonoverlapping(from, to, len - 8);
            word(to.add(len - 8), from.add(len - 8));
        } else {
            std::ptr::copy_nonoverlapping(from, to, len - 1);
            AtomicU8::from_ptr(to.add(len - 1)).store(from.add(len - 1).read(), Ordering::Release);
        }
    }
}

/// # Safety
/// As for [`place`], with eight bytes, aligned at `to`.
#[inline(always)]
unsafe fn word(to: *mut u8, from: *const u8) {
    // SAFETY: the caller vouches for both and for the alignment.
    unsafe { AtomicU64::from_ptr(to.cast()).store(from.cast::<u64>().read_unaligned(), Ordering::Release) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_arrives_and_nothing_beside_it() {
        let from: Vec<u8> = (1..=64).collect();
        for offset in 0..9 {
            for len in 0..40 {
                let mut to = [0_u64; 8];
                let bytes = to.as_mut_ptr().cast::<u8>();
                // SAFETY: offset + len is below 64.
                unsafe { place(bytes.add(offset), from.as_ptr(), len) };
                // SAFETY: the array has 64 bytes.
                let seen = unsafe { std::slice::from_raw_parts(bytes, 64) };
                assert_eq!(&seen[offset..offset + len], &from[..len]);
                let beside = seen[..offset].iter().chain(&seen[offset + len..]);
                assert!(beside.into_iter().all(|&byte| byte == 0), "{offset} {len}");
            }
        }
    }
}
