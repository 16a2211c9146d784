//! `--size`: one size, a list, a range, or a list of both.
//!
//! `64,4K,1M` are three sizes, `64:1M` is 64 bytes and every doubling of it up to 1 MiB. perftest has `-s` for one
//! size and `-a` for all; the colon is ours, since a comma, a minus and `-b`/`-e` (nccl-tests) mean something else.

use std::str::FromStr;

use crate::plan::{MAX_MSG_SIZE, MAX_SIZES};
use crate::units::ByteSize;

/// Message sizes in bytes, in the order given: at least one, at most [`MAX_SIZES`], none twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(Vec<u64>);

impl Sizes {
    /// The sizes.
    pub fn bytes(&self) -> &[u64] {
        &self.0
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut sizes = Vec::new();
        for item in text.split(',') {
            let more = match item.split_once(':') {
                Some((from, to)) => range(from, to)?,
                None => vec![size(item)?],
            };
            if let Some(twice) = more.iter().find(|size| sizes.contains(*size)) {
                return Err(format!("{} is there twice", ByteSize(*twice)));
            }
            sizes.extend(more);
        }
        if sizes.len() > MAX_SIZES {
            return Err(format!("{} sizes, and a run has at most {MAX_SIZES}", sizes.len()));
        }
        Ok(Self(sizes))
    }
}

fn size(text: &str) -> Result<u64, String> {
    let size = ByteSize::from_str(text).map_err(|error| error.to_string())?;
    if size.bytes() == 0 || size.bytes() > MAX_MSG_SIZE {
        return Err(format!("a message has 1 byte to {}", ByteSize(MAX_MSG_SIZE)));
    }
    Ok(size.bytes())
}

/// `from` and its doublings. Both ends must be among them: `64:1000` would say 1000 and never measure it.
fn range(from: &str, to: &str) -> Result<Vec<u64>, String> {
    let (first, last) = (size(from)?, size(to)?);
    let sizes: Vec<u64> = std::iter::successors(Some(first), |size| size.checked_mul(2))
        .take_while(|&size| size <= last)
        .collect();
    if sizes.last() != Some(&last) {
        return Err(format!(
            "a range FROM:TO is doubled from FROM until it is TO, and {from} never becomes {to}"
        ));
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Result<Vec<u64>, String> {
        text.parse::<Sizes>().map(|sizes| sizes.bytes().to_vec())
    }

    #[test]
    fn one_a_list_and_a_range() {
        assert_eq!(parsed("64K"), Ok(vec![65536]));
        assert_eq!(parsed("1M,64,4K"), Ok(vec![1 << 20, 64, 4096]), "the order is kept");
        assert_eq!(parsed("64:1K"), Ok(vec![64, 128, 256, 512, 1024]));
        assert_eq!(parsed("3:12,1000"), Ok(vec![3, 6, 12, 1000]));
        assert_eq!(parsed("8:8"), Ok(vec![8]));
        assert_eq!(parsed("1:2G").unwrap().len(), 32);
    }

    #[test]
    fn what_is_refused_is_named() {
        let refusal = |text| parsed(text).unwrap_err();
        assert_eq!(refusal("64,4K,64"), "64 B is there twice");
        assert_eq!(refusal("64:1K,256"), "256 B is there twice");
        assert!(refusal("64:1000").ends_with("64 never becomes 1000"));
        assert!(refusal("1K:64").ends_with("1K never becomes 64"));
        assert!(refusal("64,,4K").contains("starts with a digit"));
        assert!(refusal("64:128:256").contains("\":256\" is no unit"));
        assert!(refusal("0:8").contains("1 byte to 2 GiB"));
        let many: Vec<String> = (1..=65).map(|size| size.to_string()).collect();
        assert_eq!(refusal(&many.join(",")), "65 sizes, and a run has at most 64");
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_never_gives_too_many(text in "[0-9:,KMG]*") {
            if let Ok(sizes) = parsed(&text) {
                prop_assert!((1..=MAX_SIZES).contains(&sizes.len()));
            }
        }
    }
}
