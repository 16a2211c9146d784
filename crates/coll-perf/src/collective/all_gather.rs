//! all_gather: every rank gets every rank's block.

use super::{AlgBytes, BusFactor, Call, Collective, InPlace, Kind, Part, Shape, Sizing};

pub(super) static ALL_GATHER: Collective = Collective {
    kind: Kind::AllGather,
    name: "all_gather",
    spellings: &["allgather"],
    reduces: false,
    rooted: false,
    power_of_two: false,
    sizing: Sizing::Blocks,
    bus_factor: BusFactor::Others,
    alg_bytes: AlgBytes::Size,
    shape: gathered,
};

/// Every rank's block, in the order of the ranks; the rank's own stands at its place when it is in place.
pub(super) fn gathered(call: &Call, rank: u32) -> Shape {
    let block = call.count_bytes();
    let part = |from: u32| Part::copied(u64::from(from) * block, block, from, 0);
    Shape {
        send_bytes: block,
        recv_bytes: block * u64::from(call.n_ranks),
        parts: (0..call.n_ranks).map(part).collect(),
        in_place: Some(InPlace { send_at: u64::from(rank) * block, recv_at: 0 }),
    }
}
