//! The sizes of a run: `-b`, `-e`, and `-i` or `-f`.

use linkproof_common::units::ByteSize;

/// Sizes of a run at most. More would be a mistake: a step that was meant to be larger.
pub const MAX_SIZES: usize = 1000;

/// How one size follows from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// Times this, 2 or more.
    Factor(u64),
    /// Plus so many bytes, 1 or more.
    Bytes(u64),
}

/// The sizes from `first` to at most `last`.
///
/// # Errors
/// What is wrong, in words.
pub fn sizes(first: u64, last: u64, advance: Advance) -> Result<Vec<u64>, String> {
    if first == 0 {
        return Err("the smallest size is 0; there is nothing to measure with no data".to_owned());
    }
    if first > last {
        let (first, last) = (ByteSize(first), ByteSize(last));
        return Err(format!("the smallest size, {first}, is larger than the largest, {last}"));
    }
    let next = |size: &u64| match advance {
        Advance::Factor(factor) => size.checked_mul(factor),
        Advance::Bytes(bytes) => size.checked_add(bytes),
    };
    let all = std::iter::successors(Some(first), next).take_while(|size| *size <= last);
    let sizes: Vec<u64> = all.take(MAX_SIZES + 1).collect();
    if sizes.len() > MAX_SIZES {
        return Err(format!("there are more than {MAX_SIZES} sizes in it: take a larger step"));
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn by_factor_or_by_bytes() {
        assert_eq!(sizes(8, 64, Advance::Factor(2)), Ok(vec![8, 16, 32, 64]));
        assert_eq!(sizes(8, 63, Advance::Factor(2)), Ok(vec![8, 16, 32]));
        assert_eq!(sizes(1, 100, Advance::Factor(10)), Ok(vec![1, 10, 100]));
        assert_eq!(sizes(10, 25, Advance::Bytes(5)), Ok(vec![10, 15, 20, 25]));
        assert_eq!(sizes(7, 7, Advance::Factor(2)), Ok(vec![7]));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refusal = |first, last, advance| sizes(first, last, advance).unwrap_err();
        assert!(refusal(0, 8, Advance::Factor(2)).contains("is 0"));
        assert!(refusal(16, 8, Advance::Factor(2)).contains("16 B, is larger than the largest, 8 B"));
        assert!(refusal(8, 1 << 28, Advance::Bytes(8)).contains("more than 1000 sizes"));
    }

    proptest! {
        #[test]
        fn sizes_rise_and_stay_in_the_range(first in 1_u64.., last: u64, step in 2_u64..) {
            for advance in [Advance::Factor(step), Advance::Bytes(step)] {
                if let Ok(sizes) = sizes(first, last, advance) {
                    prop_assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]));
                    prop_assert!(sizes[0] == first && sizes[sizes.len() - 1] <= last);
                }
            }
        }
    }
}
