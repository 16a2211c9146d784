//! From the network to a GPU's memory.
#![allow(unsafe_code, reason = "memory of a GPU is an address")]

use std::sync::Arc;

use super::PIECE;
use crate::cuda::{GpuContext, PinnedBuffer, Stream};
use crate::error::Result;

/// Pieces that may be on their way to the GPU at a time. Waiting for all of them at once, a receiver waits once for 2 MiB.
const STAGES: usize = 8;

/// Takes bytes for device memory: while some are copied there, the next are received.
pub struct Inbound {
    stream: Stream,
    stages: Vec<PinnedBuffer>,
}

impl Inbound {
    /// With the GPU's context made the calling thread's; another that uses it calls [`Inbound::bind`].
    ///
    /// # Errors
    /// The driver's.
    pub fn new(context: &Arc<GpuContext>) -> Result<Self> {
        context.bind()?;
        let stages = (0..STAGES).map(|_| PinnedBuffer::new(context, PIECE)).collect::<Result<_>>()?;
        Ok(Self { stream: Stream::new(context)?, stages })
    }

    /// Makes the GPU's context that of the calling thread, which then uses this.
    ///
    /// # Errors
    /// The driver's.
    pub fn bind(&self) -> Result<()> {
        self.stream.context().bind()
    }

    /// Has `receive` fill pieces of host memory, each a pointer and a length, as long as it gives how many bytes it has put
    /// there and there is room. `place` then says where they go: it is told how many of a piece are left, and gives the
    /// device address and the length of the first of them. All are there when this returns. `None` of `receive` ends it.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// What `place` gives is device memory of the context, and no longer than what it is told.
    pub unsafe fn take(
        &self,
        mut receive: impl FnMut(*mut u8, usize) -> Option<usize>,
        mut place: impl FnMut(usize) -> (u64, usize),
    ) -> Result<()> {
        for stage in &self.stages {
            let Some(received) = receive(stage.pointer(), PIECE) else { break };
            let mut at = 0;
            while at < received {
                let (address, len) = place(received - at);
                // SAFETY: the caller vouches for the device memory; the bytes lie in the stage, which is not received into
                // again before the wait below.
                unsafe { self.stream.copy_to_device(address, stage.pointer().wrapping_add(at), len)? };
                at += len;
            }
        }
        self.stream.synchronize()
    }
}
