//! Comparing what arrived with what should have.

use serde::{Deserialize, Serialize};

use crate::collective::{Part, Source};
use crate::dtype::DataType;
use crate::element::show_element;

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Elements compared.
    pub checked_elements: u64,
    /// Elements of those that were not as they should be.
    pub wrong_elements: u64,
    /// The first of them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_wrong: Option<WrongElement>,
}

/// An element that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongElement {
    /// The rank whose receive buffer it is in.
    pub rank: u32,
    /// Where in the receive buffer, in bytes.
    pub offset_bytes: u64,
    /// The rank that it should have come from; absent where it is a reduction of all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub from_rank: Option<u32>,
    /// What it should be: the value and its bits.
    pub expected: String,
    /// What it is.
    pub found: String,
}

impl Checked {
    /// Puts `later`, found behind this, to it.
    pub fn merge(&mut self, later: Self) {
        self.checked_elements += later.checked_elements;
        self.wrong_elements += later.wrong_elements;
        if self.first_wrong.is_none() {
            self.first_wrong = later.first_wrong;
        }
    }
}

/// Compares `found` with `expected`: the bytes of `part` from `offset` in it.
pub(super) fn compare(dtype: DataType, part: &Part, offset: u64, expected: &[u8], found: &[u8]) -> Checked {
    let size = dtype.bytes() as usize;
    let checked_elements = (found.len() / size) as u64;
    if expected == found {
        return Checked { checked_elements, wrong_elements: 0, first_wrong: None };
    }
    let pairs = expected.chunks_exact(size).zip(found.chunks_exact(size)).enumerate();
    let mut wrong = pairs.filter(|(_, (expected, found))| expected != found);
    let first_wrong = wrong.next().map(|(index, (expected, found))| WrongElement {
        rank: 0,
        offset_bytes: part.at + offset + (index * size) as u64,
        from_rank: match part.source {
            Source::Rank { rank, .. } => Some(rank),
            Source::Reduction { .. } => None,
        },
        expected: show_element(dtype, expected),
        found: show_element(dtype, found),
    });
    let wrong_elements = u64::from(first_wrong.is_some()) + wrong.count() as u64;
    Checked { checked_elements, wrong_elements, first_wrong }
}
