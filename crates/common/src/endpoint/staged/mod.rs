//! The bounce between a GPU and a network that can't reach its memory: pinned host memory, which the GPU copies to and
//! from while the network has the piece before.

mod inbound;
mod outbound;
mod ping_pong;
mod target;
mod writes;

pub use inbound::Inbound;
pub use outbound::Outbound;
pub use ping_pong::StagedPingPong;
pub use target::{SinkRegions, StagedTarget};
pub use writes::{COUNT, Counts, SourceCopies, StagedWrites};

/// Bytes that are copied at a time. A copy takes some 5 µs to begin and, over a PCIe 5 slot, as long again for these: with
/// smaller pieces the beginning would count for more, with larger ones the first and the last, which overlap with nothing.
pub const PIECE: usize = 256 * 1024;
