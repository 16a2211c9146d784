//! The two buffers of a rank in host memory.

use std::sync::Arc;

use linkproof_common::error::Result;
use linkproof_common::memory::{Buffer, HostBuffer, MemoryKind};

use crate::backend::{Placement, Side};
use crate::collective::{InPlace, Shape};

/// Bytes between the begin of the send buffer's page and of the receive buffer's: buffers that begin at the same place
/// of a page make stores and later loads look alike to the processor, which compares 12 bits of an address first.
const SKEW: u64 = 1024;

/// A base page, or one of several that make one.
const PAGE: u64 = 4096;

/// The input is copied by way of pieces of this size, which stay in the first-level cache.
const PIECE: usize = 16 << 10;

/// Memory of one rank, and where in it the buffers of the call are.
pub(crate) struct Memory {
    buffers: Arc<Buffers>,
    place: Place,
}

/// The memory itself.
pub(crate) struct Buffers {
    send: Arc<HostBuffer>,
    recv: Arc<HostBuffer>,
}

/// Where the two buffers of a call are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Apart,
    Shared(InPlace),
}

/// `bytes` or a little more, so that no page is registered with an adapter in part.
///
/// # Errors
/// As [`HostBuffer::new`].
pub(crate) fn whole_pages(bytes: u64) -> Result<Arc<HostBuffer>> {
    HostBuffer::new(bytes.max(1).next_multiple_of(PAGE), MemoryKind::Host).map(Arc::new)
}

impl Memory {
    /// Nothing yet.
    ///
    /// # Errors
    /// As [`HostBuffer::new`].
    pub(crate) fn new() -> Result<Self> {
        Self::of(1, 1)
    }

    fn of(send_bytes: u64, recv_bytes: u64) -> Result<Self> {
        let buffers =
            Buffers { send: whole_pages(send_bytes)?, recv: whole_pages(recv_bytes.max(send_bytes) + SKEW)? };
        Ok(Self { buffers: Arc::new(buffers), place: Place::Apart })
    }

    /// Makes room. A receive buffer is as long as the send buffer, since it is the shared one in place.
    ///
    /// # Errors
    /// As [`HostBuffer::new`].
    pub(crate) fn reserve(&mut self, send_bytes: u64, recv_bytes: u64) -> Result<()> {
        *self = Self::of(send_bytes.max(1), recv_bytes)?;
        Ok(())
    }

    /// The memory, for whoever has to keep it longer than this rank does.
    pub(crate) fn buffers(&self) -> Arc<Buffers> {
        Arc::clone(&self.buffers)
    }

    /// All of it, for an adapter that is to reach it.
    pub(crate) fn regions(&self) -> Vec<Arc<HostBuffer>> {
        vec![Arc::clone(&self.buffers.send), Arc::clone(&self.buffers.recv)]
    }

    /// The bytes that [`Memory::reserve`] takes.
    pub(crate) fn needs(send_bytes: u64, recv_bytes: u64) -> u64 {
        send_bytes.next_multiple_of(PAGE) + (send_bytes.max(recv_bytes) + SKEW).next_multiple_of(PAGE)
    }

    /// Places the buffers of a call. Panics where they don't fit: the run has reserved for the largest.
    pub(crate) fn place(&mut self, shape: &Shape, placement: Placement) {
        let shared = shape.in_place.filter(|_| placement == Placement::InPlace);
        self.place = shared.map_or(Place::Apart, Place::Shared);
        let end = |at: u64, bytes: u64| SKEW + at + bytes;
        let (send_end, recv_end) = match self.place {
            Place::Apart => (0, end(0, shape.recv_bytes)),
            Place::Shared(at) => (end(at.send_at, shape.send_bytes), end(at.recv_at, shape.recv_bytes)),
        };
        assert!(
            shape.send_bytes <= self.buffers.send.len() && send_end.max(recv_end) <= self.buffers.recv.len()
        );
    }

    /// The address of what the call sends.
    pub(crate) fn send_address(&self) -> u64 {
        match self.place {
            Place::Apart => self.buffers.send.address(),
            Place::Shared(at) => self.buffers.recv.address() + SKEW + at.send_at,
        }
    }

    /// The address of what it receives.
    pub(crate) fn recv_address(&self) -> u64 {
        self.buffers.recv.address() + self.recv_begin()
    }

    /// The address of the input, which in place is kept aside.
    pub(crate) fn input_address(&self) -> u64 {
        self.buffers.send.address()
    }

    /// Whether both buffers share memory.
    pub(crate) fn is_shared(&self) -> bool {
        self.place != Place::Apart
    }

    pub(crate) fn write(&self, side: Side, offset: u64, bytes: &[u8]) {
        match side {
            Side::Send => self.buffers.send.write_at(offset, bytes),
            Side::Recv => self.buffers.recv.write_at(self.recv_begin() + offset, bytes),
        }
    }

    pub(crate) fn read(&self, side: Side, offset: u64, bytes: &mut [u8]) {
        match side {
            Side::Send => self.buffers.send.read_at(offset, bytes),
            Side::Recv => self.buffers.recv.read_at(self.recv_begin() + offset, bytes),
        }
    }

    /// Copies the first `bytes` of the input that was kept aside to where the call sends from.
    pub(crate) fn copy_input(&self, bytes: u64) {
        let Place::Shared(at) = self.place else { return };
        let mut piece = vec![0; PIECE];
        for offset in (0..bytes).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min((bytes - offset) as usize)];
            self.buffers.send.read_at(offset, piece);
            self.buffers.recv.write_at(SKEW + at.send_at + offset, piece);
        }
    }

    fn recv_begin(&self) -> u64 {
        match self.place {
            Place::Apart => SKEW,
            Place::Shared(at) => SKEW + at.recv_at,
        }
    }
}
