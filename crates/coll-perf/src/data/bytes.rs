//! Bytes to move: pseudo-random, and a function of seed, rank and place.

use super::Seed;

/// 2⁶⁴ divided by the golden ratio: the step between neighbours (Weyl), as in SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64: every bit of `value` decides about every bit of the result.
#[inline(always)]
pub(super) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A word for a place: `stream` tells apart what belongs to one seed.
#[inline(always)]
pub(super) fn word(seed: Seed, stream: u64, index: u64) -> u64 {
    mix(seed.0.wrapping_add(stream << 48).wrapping_add(index.wrapping_mul(STEP)))
}

/// The bytes of `rank`'s buffer from `offset`, a multiple of 8.
pub(super) fn fill(seed: Seed, rank: u32, offset: u64, out: &mut [u8]) {
    debug_assert!(offset.is_multiple_of(8), "words begin at multiples of 8");
    let first = offset / 8;
    let (words, rest) = out.as_chunks_mut::<8>();
    for (index, bytes) in words.iter_mut().enumerate() {
        *bytes = word(seed, u64::from(rank) + 1, first + index as u64).to_le_bytes();
    }
    let last = word(seed, u64::from(rank) + 1, first + words.len() as u64).to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}
