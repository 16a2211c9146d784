//! alltoallv: alltoall with blocks of different sizes, by a matrix or weighted by distance ([`crate::traffic`]).

use super::{AlgBytes, BusFactor, Call, Collective, Kind, Part, Shape, Sizing};

pub(super) static ALLTOALLV: Collective = Collective {
    kind: Kind::Alltoallv,
    name: "alltoallv",
    spellings: &["alltoallv"],
    reduces: false,
    rooted: false,
    power_of_two: false,
    sizing: Sizing::Uneven,
    // nccl-tests' factor, whatever the matrix has on its diagonal.
    bus_factor: BusFactor::Others,
    alg_bytes: AlgBytes::Size,
    shape,
};

/// Blocks lie one after another in both buffers, in the order of the ranks; empty ones take no room.
fn shape(call: &Call, rank: u32) -> Shape {
    let traffic = call.traffic.as_ref().expect("an alltoallv has its traffic");
    let mut parts = Vec::new();
    let mut at = 0;
    for from in 0..call.n_ranks {
        let bytes = traffic.bytes(from, rank);
        if bytes > 0 {
            parts.push(Part::copied(at, bytes, from, traffic.offset(from, rank)));
        }
        at += bytes;
    }
    Shape { send_bytes: traffic.sent_by(rank), recv_bytes: at, parts, in_place: None }
}
