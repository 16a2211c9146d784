//! From a GPU's memory to the network.
#![allow(unsafe_code, reason = "memory of a GPU is an address")]

use std::collections::VecDeque;
use std::sync::Arc;

use super::{PIECE, STAGES, Stage};
use crate::cuda::{GpuContext, Stream};
use crate::error::Result;
use crate::memory::Buffer;

/// Messages on their way out, in pieces: while one is sent, those after it are copied, also of messages that were posted
/// later.
pub struct Outbound {
    stream: Stream,
    stages: Vec<Stage>,
    /// The number of the next piece; it has the stage of that number, in turn.
    next: usize,
    under_way: VecDeque<Piece>,
}

struct Piece {
    number: usize,
    len: usize,
    qp: usize,
}

/// Bytes in host memory that are to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    /// On which connection.
    pub qp: usize,
    /// Where they are.
    pub address: u64,
    /// How many there are.
    pub len: usize,
}

impl Outbound {
    /// For the calling thread, on which it makes the GPU's context current.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(context: &Arc<GpuContext>) -> Result<Self> {
        context.bind()?;
        let stages = Stage::several(context, STAGES)?;
        Ok(Self {
            stream: Stream::new(context)?,
            stages,
            next: 0,
            under_way: VecDeque::with_capacity(STAGES),
        })
    }

    /// Begins to copy the `len` bytes at `address`, which go out on connection `qp`; `send` sends pieces of this and earlier
    /// messages, in order, for whose stages others wait.
    ///
    /// # Errors
    /// The driver's, and those of `send`.
    ///
    /// # Safety
    /// The bytes are device memory of the context, and stay as they are until they are sent.
    pub unsafe fn post(
        &mut self,
        qp: usize,
        address: u64,
        len: u64,
        mut send: impl FnMut(Copied) -> Result<()>,
    ) -> Result<()> {
        let mut at = 0;
        while at < len {
            if self.under_way.len() == self.stages.len() {
                self.send_oldest(&mut send)?;
            }
            let piece = (len - at).min(PIECE as u64) as usize;
            let stage = self.stage(self.next);
            // SAFETY: the caller vouches for the device memory; the piece that had the stage before was sent.
            unsafe { self.stream.copy_to_host(stage.memory.pointer(), address + at, piece)? };
            stage.done.record(&self.stream)?;
            self.under_way.push_back(Piece { number: self.next, len: piece, qp });
            self.next += 1;
            at += piece as u64;
        }
        self.send_copied(send)
    }

    /// Sends the pieces whose copies are done, without waiting for others.
    ///
    /// # Errors
    /// As for [`Outbound::post`].
    pub fn send_copied(&mut self, mut send: impl FnMut(Copied) -> Result<()>) -> Result<()> {
        while let Some(piece) = self.under_way.front() {
            if !self.stage(piece.number).done.has_come()? {
                break;
            }
            let copied = self.copied(piece);
            self.under_way.pop_front();
            send(copied)?;
        }
        Ok(())
    }

    /// Waits for the oldest piece and sends it; whether there was one.
    ///
    /// # Errors
    /// As for [`Outbound::post`].
    pub fn send_oldest(&mut self, mut send: impl FnMut(Copied) -> Result<()>) -> Result<bool> {
        let Some(piece) = self.under_way.pop_front() else { return Ok(false) };
        self.stage(piece.number).done.wait()?;
        send(self.copied(&piece))?;
        Ok(true)
    }

    /// The stage of piece `number`.
    fn stage(&self, number: usize) -> &Stage {
        &self.stages[number % self.stages.len()]
    }

    /// Where a piece is when its copy is done.
    fn copied(&self, piece: &Piece) -> Copied {
        let address = self.stage(piece.number).memory.address();
        Copied { qp: piece.qp, address, len: piece.len }
    }
}
