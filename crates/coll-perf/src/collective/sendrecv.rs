//! sendrecv: every rank sends its buffer to the next rank and receives the one before's, all at once, in a ring.

use super::{AlgBytes, BusFactor, Call, Collective, Kind, Part, Shape, Sizing};

pub(super) static SENDRECV: Collective = Collective {
    kind: Kind::Sendrecv,
    name: "sendrecv",
    spellings: &["sendrecv"],
    reduces: false,
    rooted: false,
    power_of_two: false,
    sizing: Sizing::Whole,
    // One direction is counted: what a rank sends, or what it receives, not both.
    bus_factor: BusFactor::One,
    alg_bytes: AlgBytes::Size,
    shape,
};

fn shape(call: &Call, rank: u32) -> Shape {
    let bytes = call.count_bytes();
    let before = (rank + call.n_ranks - 1) % call.n_ranks;
    Shape {
        send_bytes: bytes,
        recv_bytes: bytes,
        parts: vec![Part::copied(0, bytes, before, 0)],
        // What arrives would replace what is yet to be sent.
        in_place: None,
    }
}
