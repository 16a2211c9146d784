//! alltoall: every rank sends a block of its own to every rank, itself included.

use super::{AlgBytes, BusFactor, Call, Collective, Kind, Part, Shape, Sizing};

pub(super) static ALLTOALL: Collective = Collective {
    kind: Kind::Alltoall,
    name: "alltoall",
    spellings: &["alltoall"],
    reduces: false,
    rooted: false,
    power_of_two: false,
    sizing: Sizing::Blocks,
    // A rank's block for itself does not travel.
    bus_factor: BusFactor::Others,
    alg_bytes: AlgBytes::Size,
    shape,
};

fn shape(call: &Call, rank: u32) -> Shape {
    let block = call.count_bytes();
    let whole = block * u64::from(call.n_ranks);
    let part = |from: u32| Part::copied(u64::from(from) * block, block, from, u64::from(rank) * block);
    Shape {
        send_bytes: whole,
        recv_bytes: whole,
        parts: (0..call.n_ranks).map(part).collect(),
        // What one rank writes is what another has yet to send: without a copy it is undefined.
        in_place: None,
    }
}
