//! From a GPU's memory to the network.
#![allow(unsafe_code, reason = "memory of a GPU is an address")]

use std::sync::Arc;

use super::PIECE;
use crate::cuda::{Event, GpuContext, PinnedBuffer, Stream};
use crate::error::Result;

/// Gives out the bytes of device memory piece by piece: while one is sent, the next is copied.
pub struct Outbound {
    stream: Stream,
    stages: [Stage; 2],
}

impl Outbound {
    /// For the calling thread, on which it makes the GPU's context current.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(context: &Arc<GpuContext>) -> Result<Self> {
        context.bind()?;
        let stages = [Stage::new(context)?, Stage::new(context)?];
        Ok(Self { stream: Stream::new(context)?, stages })
    }

    /// Calls `send` with the host address and the length of each piece of the `len` bytes at `address`, in order. A piece is
    /// there until `send` returns.
    ///
    /// # Errors
    /// The driver's, and those of `send`.
    ///
    /// # Safety
    /// The bytes are device memory of the context.
    pub unsafe fn each_piece(
        &self,
        address: u64,
        len: u64,
        mut send: impl FnMut(u64, usize) -> Result<()>,
    ) -> Result<()> {
        let piece = |number: u64| {
            let begin = number * PIECE as u64;
            (begin < len).then(|| (address + begin, (len - begin).min(PIECE as u64) as usize))
        };
        // SAFETY: the caller vouches for the memory, and a stage is copied to only after its piece before was sent.
        let copy = |number: u64| unsafe { self.copy(number, piece(number)) };
        let mut under_way = copy(0)?;
        for number in 0.. {
            let Some(len) = under_way else { return Ok(()) };
            under_way = copy(number + 1)?;
            let stage = self.stage(number);
            stage.done.wait()?;
            send(stage.memory.pointer().addr() as u64, len)?;
        }
        Ok(())
    }

    fn stage(&self, number: u64) -> &Stage {
        &self.stages[(number % 2) as usize]
    }

    /// Begins to copy piece `number`, if there is such a piece; gives its length.
    ///
    /// # Safety
    /// As for [`Outbound::each_piece`]; nobody uses the piece's stage.
    unsafe fn copy(&self, number: u64, piece: Option<(u64, usize)>) -> Result<Option<usize>> {
        let Some((address, len)) = piece else { return Ok(None) };
        let stage = self.stage(number);
        // SAFETY: the caller vouches for the device memory; the stage has as many bytes.
        unsafe { self.stream.copy_to_host(stage.memory.pointer(), address, len)? };
        stage.done.record(&self.stream)?;
        Ok(Some(len))
    }
}

/// A piece of pinned memory, and when the GPU is done with it.
struct Stage {
    memory: PinnedBuffer,
    done: Event,
}

impl Stage {
    fn new(context: &Arc<GpuContext>) -> Result<Self> {
        Ok(Self { memory: PinnedBuffer::new(context, PIECE)?, done: Event::untimed(context)? })
    }
}
