//! Writing in turn between the memories of GPUs, each message by way of host memory: copy, wire, copy.
#![allow(unsafe_code, reason = "memory of a GPU is an address")]

use std::sync::Arc;

use crate::cuda::{GpuContext, Stream};
use crate::endpoint::PingPong;
use crate::error::Result;
use crate::plan::Regions;

/// A ping-pong over host memory, with a GPU's memory behind it.
///
/// A message is copied as a whole before it is sent and after it has arrived: what one message costs, and nothing overlaps.
pub struct StagedPingPong<P> {
    inner: P,
    stream: Stream,
    device: Regions,
    host: Regions,
    size: usize,
}

impl<P: PingPong> StagedPingPong<P> {
    /// Messages of `size` bytes between `device`'s regions, over `inner`, which has those of `host`. The caller keeps all
    /// four alive longer than this.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(
        context: &Arc<GpuContext>,
        inner: P,
        device: Regions,
        host: Regions,
        size: u64,
    ) -> Result<Self> {
        context.bind()?;
        Ok(Self { inner, stream: Stream::new(context)?, device, host, size: size as usize })
    }
}

impl<P: PingPong> PingPong for StagedPingPong<P> {
    fn send(&mut self, sequence: u64) -> Result<()> {
        // SAFETY: both are regions of a message's size, which the caller keeps; the message before, which the peer has
        // answered, is not read any more.
        unsafe { self.stream.copy_to_host(self.host.source as *mut u8, self.device.source, self.size)? };
        self.stream.synchronize()?;
        self.inner.send(sequence)
    }

    fn arrived(&mut self, sequence: u64) -> Result<bool> {
        if !self.inner.arrived(sequence)? {
            return Ok(false);
        }
        // SAFETY: as above; the peer writes the next message only after this end's answer.
        unsafe { self.stream.copy_to_device(self.device.sink, self.host.sink as *const u8, self.size)? };
        self.stream.synchronize()?;
        Ok(true)
    }

    fn release(&mut self, sequence: u64) -> Result<()> {
        self.inner.release(sequence)
    }

    fn released(&mut self, sequence: u64) -> Result<bool> {
        self.inner.released(sequence)
    }
}
