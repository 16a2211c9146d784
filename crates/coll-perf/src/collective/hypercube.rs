//! hypercube: an all_gather in log₂ n steps, in each of which a rank and the one whose number differs in one bit give
//! each other all that they have. nccl-tests has it to show pairwise exchanges; the number of ranks is a power of two.

use super::all_gather::gathered;
use super::{AlgBytes, BusFactor, Collective, Kind, Sizing};

pub(super) static HYPERCUBE: Collective = Collective {
    kind: Kind::Hypercube,
    name: "hypercube",
    spellings: &["hypercube"],
    reduces: false,
    rooted: false,
    power_of_two: true,
    sizing: Sizing::Blocks,
    // (n−1)/n is in the algorithm's bandwidth already, other than with all_gather.
    bus_factor: BusFactor::One,
    alg_bytes: AlgBytes::OthersBlocks,
    shape: gathered,
};
