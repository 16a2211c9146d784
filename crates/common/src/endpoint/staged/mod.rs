//! The bounce between a GPU and a network that can't reach its memory: pinned host memory, which the GPU copies to and
//! from while the network has other pieces.

mod inbound;
mod outbound;
mod ping_pong;
mod target;
mod writes;

pub use inbound::{Arrivals, Inbound, Received};
pub use outbound::{Copied, Outbound};
pub use ping_pong::StagedPingPong;
pub use target::StagedTarget;
pub use writes::{COUNT, Counts, SourceCopies, StagedWrites};

use std::sync::Arc;

use crate::cuda::{Event, GpuContext, PinnedBuffer};
use crate::error::Result;

/// Bytes that are copied at a time. To begin a copy and to see its end costs the thread some 6 µs, in which a fast socket
/// carries 40 KiB: between two processes over an H200, pieces of 64 KiB gave 0.6 of host memory's bandwidth, 128 KiB 0.7, and
/// from 256 KiB to 2 MiB the difference was within the noise, this one ahead.
pub const PIECE: usize = 512 * 1024;

/// Pieces that may be copied at a time. Two would do if a copy began at once; where several processes share a GPU it takes
/// turns among them, and a copy was seen to take 77 µs, in which a socket carries two pieces.
const STAGES: usize = 8;

/// A region of a GPU's memory, and of the host memory that stands for it.
#[derive(Clone, Copy, Debug)]
pub struct Mirrored {
    /// On the device.
    pub device: u64,
    /// On the host.
    pub host: u64,
}

impl Mirrored {
    /// What lies `offset` bytes into both.
    pub fn behind(self, offset: u64) -> Self {
        Self { device: self.device + offset, host: self.host + offset }
    }
}

/// A piece of pinned memory, and when the GPU is done with it.
struct Stage {
    memory: PinnedBuffer,
    done: Event,
}

impl Stage {
    fn several(context: &Arc<GpuContext>, count: usize) -> Result<Vec<Self>> {
        let stage =
            |_| Ok(Self { memory: PinnedBuffer::new(context, PIECE)?, done: Event::untimed(context)? });
        (0..count).map(stage).collect()
    }
}
