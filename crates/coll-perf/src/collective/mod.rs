//! What each collective is: names, counts, byte counts, where each byte of a result comes from, and the factors that
//! make a bandwidth of a time. One record a file; everything else derives from them.
//!
//! Sizes, counts and factors are those of nccl-tests 2.19.6 (`GetCollByteCount` and `GetBw` of each of its programs),
//! so that a figure here and a figure there mean the same. `docs/collectives.md` derives them.

mod all_gather;
mod all_reduce;
mod alltoall;
mod alltoallv;
mod broadcast;
mod call;
mod gather;
mod hypercube;
mod reduce;
mod reduce_scatter;
mod scatter;
mod sendrecv;
mod shape;

pub use call::{Call, CallError};
pub use shape::{InPlace, Part, Shape, Source};

use serde::{Deserialize, Serialize};

/// Which collective it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Every rank gets the reduction of all ranks' buffers.
    AllReduce,
    /// Every rank gets every rank's block.
    AllGather,
    /// Every rank gets its block of the reduction.
    ReduceScatter,
    /// Every rank sends a block of its own to every rank.
    Alltoall,
    /// The same with blocks of different sizes.
    Alltoallv,
    /// Every rank gets the root's buffer.
    Broadcast,
    /// The root gets the reduction of all ranks' buffers.
    Reduce,
    /// The root gets every rank's block.
    Gather,
    /// Every rank gets its block of the root's buffer.
    Scatter,
    /// Every rank sends to the next one and receives from the one before.
    Sendrecv,
    /// An all_gather by recursive doubling, pair by pair.
    Hypercube,
}

/// How the size that was asked for becomes a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizing {
    /// The size is the buffer of every rank: count = size / element.
    Whole,
    /// The size is divided among the ranks: count = size / element / ranks, rounded down to whole 16 bytes.
    Blocks,
    /// The size is what a rank sends in all, divided unevenly; each block is rounded down to whole 16 bytes.
    Uneven,
}

/// What a bandwidth over the bus is, as a multiple of the bandwidth of the algorithm; n is the number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusFactor {
    /// 2(n−1)/n: every byte is reduced from and given to the others.
    TwiceOthers,
    /// (n−1)/n: a rank's own block does not travel.
    Others,
    /// 1.
    One,
}

/// What the bandwidth of the algorithm counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlgBytes {
    /// The size column.
    Size,
    /// The blocks of the other ranks only, count × element × (n−1): nccl-tests' hypercube.
    OthersBlocks,
}

/// A collective.
#[derive(Debug)]
pub struct Collective {
    /// Which.
    pub kind: Kind,
    /// Its name in the table, in JSON and on the command line.
    pub name: &'static str,
    /// Other spellings, without separators: `alltoall` stands for `all-to-all` and `all_to_all` too.
    pub spellings: &'static [&'static str],
    /// Whether elements are reduced; otherwise bytes are only moved.
    pub reduces: bool,
    /// Whether one rank is special.
    pub rooted: bool,
    /// Whether the number of ranks must be a power of two.
    pub power_of_two: bool,
    /// How a size becomes a count.
    pub sizing: Sizing,
    /// Bus bandwidth / algorithm bandwidth.
    pub bus_factor: BusFactor,
    /// What the algorithm bandwidth counts.
    pub alg_bytes: AlgBytes,
    /// The buffers of a rank, and where each byte of its result comes from.
    shape: fn(&Call, u32) -> Shape,
}

/// All of them, in the order of `--op all`.
pub static ALL: [&Collective; 11] = [
    &all_reduce::ALL_REDUCE,
    &all_gather::ALL_GATHER,
    &reduce_scatter::REDUCE_SCATTER,
    &alltoall::ALLTOALL,
    &alltoallv::ALLTOALLV,
    &broadcast::BROADCAST,
    &reduce::REDUCE,
    &gather::GATHER,
    &scatter::SCATTER,
    &sendrecv::SENDRECV,
    &hypercube::HYPERCUBE,
];

impl Collective {
    /// The collective that `word` means: its name, with any separators, and with nccl-tests' `_perf` behind it.
    pub fn named(word: &str) -> Option<&'static Self> {
        let squeezed: String = word.to_ascii_lowercase().chars().filter(|c| !"-_ ".contains(*c)).collect();
        let squeezed = squeezed.strip_suffix("perf").unwrap_or(&squeezed);
        ALL.into_iter().find(|collective| collective.spellings.contains(&squeezed))
    }

    /// The record of `kind`.
    pub fn of(kind: Kind) -> &'static Self {
        ALL.into_iter().find(|collective| collective.kind == kind).expect("every kind has a record")
    }
}

impl BusFactor {
    /// Its value for `n_ranks`; `None` for one rank, which has no bus.
    pub fn of(self, n_ranks: u32) -> Option<f64> {
        let n = f64::from(n_ranks);
        (n_ranks > 1).then(|| match self {
            Self::TwiceOthers => 2.0 * (n - 1.0) / n,
            Self::Others => (n - 1.0) / n,
            Self::One => 1.0,
        })
    }

    /// Its formula.
    pub fn formula(self) -> &'static str {
        match self {
            Self::TwiceOthers => "2(n-1)/n",
            Self::Others => "(n-1)/n",
            Self::One => "1",
        }
    }
}

#[cfg(test)]
mod tests;
