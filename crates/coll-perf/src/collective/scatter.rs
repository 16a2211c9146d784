//! scatter: every rank gets its block of the root's buffer.

use super::{AlgBytes, BusFactor, Call, Collective, InPlace, Kind, Part, Shape, Sizing};

pub(super) static SCATTER: Collective = Collective {
    kind: Kind::Scatter,
    name: "scatter",
    spellings: &["scatter"],
    reduces: false,
    rooted: true,
    power_of_two: false,
    sizing: Sizing::Blocks,
    bus_factor: BusFactor::Others,
    alg_bytes: AlgBytes::Size,
    shape,
};

/// Every rank has both buffers, as in nccl-tests; only the root's send buffer is read.
fn shape(call: &Call, rank: u32) -> Shape {
    let block = call.count_bytes();
    let own = u64::from(rank) * block;
    Shape {
        send_bytes: block * u64::from(call.n_ranks),
        recv_bytes: block,
        parts: vec![Part::copied(0, block, call.root_or_first(), own)],
        in_place: Some(InPlace { send_at: 0, recv_at: own }),
    }
}
