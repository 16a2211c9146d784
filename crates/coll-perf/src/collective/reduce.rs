//! reduce: the root gets the reduction of all ranks' buffers.

use super::{AlgBytes, BusFactor, Call, Collective, InPlace, Kind, Part, Shape, Sizing};

pub(super) static REDUCE: Collective = Collective {
    kind: Kind::Reduce,
    name: "reduce",
    spellings: &["reduce"],
    reduces: true,
    rooted: true,
    power_of_two: false,
    sizing: Sizing::Whole,
    bus_factor: BusFactor::One,
    alg_bytes: AlgBytes::Size,
    shape,
};

fn shape(call: &Call, rank: u32) -> Shape {
    let bytes = call.count_bytes();
    let is_root = rank == call.root_or_first();
    Shape {
        send_bytes: bytes,
        recv_bytes: bytes,
        parts: if is_root { vec![Part::reduced(bytes, 0)] } else { Vec::new() },
        in_place: Some(InPlace::SAME),
    }
}
