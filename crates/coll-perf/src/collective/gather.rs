//! gather: the root gets every rank's block.

use super::all_gather::gathered;
use super::{AlgBytes, BusFactor, Call, Collective, Kind, Shape, Sizing};

pub(super) static GATHER: Collective = Collective {
    kind: Kind::Gather,
    name: "gather",
    spellings: &["gather"],
    reduces: false,
    rooted: true,
    power_of_two: false,
    sizing: Sizing::Blocks,
    bus_factor: BusFactor::Others,
    alg_bytes: AlgBytes::Size,
    shape,
};

/// The buffers of an all_gather; the ranks other than the root receive nothing into theirs.
fn shape(call: &Call, rank: u32) -> Shape {
    let everywhere = gathered(call, rank);
    if rank == call.root_or_first() { everywhere } else { Shape { parts: Vec::new(), ..everywhere } }
}
