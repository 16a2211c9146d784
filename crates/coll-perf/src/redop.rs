//! What a reduction does with the ranks' elements.

use serde::{Deserialize, Serialize};

/// A reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RedOp {
    /// Their sum; integers wrap.
    Sum,
    /// Their product; integers wrap.
    Prod,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// Their sum divided by the number of ranks; integers are rounded towards zero.
    Avg,
}

impl RedOp {
    /// All of them, in nccl-tests' order.
    pub const ALL: &'static [RedOp] = &[Self::Sum, Self::Prod, Self::Max, Self::Min, Self::Avg];

    /// Its name on the command line, in the table and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Max => "max",
            Self::Min => "min",
            Self::Avg => "avg",
        }
    }

    /// The reduction that `word` means.
    pub fn named(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        Self::ALL.iter().copied().find(|op| op.name() == word)
    }
}
