//! reduce_scatter: every rank gets its block of the reduction.

use super::{AlgBytes, BusFactor, Call, Collective, InPlace, Kind, Part, Shape, Sizing};

pub(super) static REDUCE_SCATTER: Collective = Collective {
    kind: Kind::ReduceScatter,
    name: "reduce_scatter",
    spellings: &["reducescatter"],
    reduces: true,
    rooted: false,
    power_of_two: false,
    sizing: Sizing::Blocks,
    bus_factor: BusFactor::Others,
    alg_bytes: AlgBytes::Size,
    shape,
};

fn shape(call: &Call, rank: u32) -> Shape {
    let block = call.count_bytes();
    let own = u64::from(rank) * block;
    Shape {
        send_bytes: block * u64::from(call.n_ranks),
        recv_bytes: block,
        parts: vec![Part::reduced(block, own)],
        in_place: Some(InPlace { send_at: 0, recv_at: own }),
    }
}
