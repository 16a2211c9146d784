//! all_reduce: every rank gets the reduction of all ranks' buffers.

use super::{AlgBytes, BusFactor, Call, Collective, InPlace, Kind, Part, Shape, Sizing};

pub(super) static ALL_REDUCE: Collective = Collective {
    kind: Kind::AllReduce,
    name: "all_reduce",
    spellings: &["allreduce"],
    reduces: true,
    rooted: false,
    power_of_two: false,
    sizing: Sizing::Whole,
    // n−1 of n parts of each element come in to be reduced, and the n−1 other ranks get the result.
    bus_factor: BusFactor::TwiceOthers,
    alg_bytes: AlgBytes::Size,
    shape,
};

fn shape(call: &Call, _rank: u32) -> Shape {
    let bytes = call.count_bytes();
    Shape {
        send_bytes: bytes,
        recv_bytes: bytes,
        parts: vec![Part::reduced(bytes, 0)],
        in_place: Some(InPlace::SAME),
    }
}
