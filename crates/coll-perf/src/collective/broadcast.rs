//! broadcast: every rank gets the root's buffer.

use super::{AlgBytes, BusFactor, Call, Collective, InPlace, Kind, Part, Shape, Sizing};

pub(super) static BROADCAST: Collective = Collective {
    kind: Kind::Broadcast,
    name: "broadcast",
    spellings: &["broadcast", "bcast"],
    reduces: false,
    rooted: true,
    power_of_two: false,
    sizing: Sizing::Whole,
    bus_factor: BusFactor::One,
    alg_bytes: AlgBytes::Size,
    shape,
};

/// Every rank has both buffers, as in nccl-tests; only the root's send buffer is read.
fn shape(call: &Call, _rank: u32) -> Shape {
    let bytes = call.count_bytes();
    Shape {
        send_bytes: bytes,
        recv_bytes: bytes,
        parts: vec![Part::copied(0, bytes, call.root_or_first(), 0)],
        in_place: Some(InPlace::SAME),
    }
}
