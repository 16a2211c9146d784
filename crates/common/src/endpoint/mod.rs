//! The initiator's view of a connection: post a write, learn which writes are done.
//!
//! Two implementations, chosen before the run and never by a branch inside it: [`verbs`], RDMA writes over
//! reliable-connected queue pairs, and [`tcp`], the same message pattern over sockets.

pub mod flagged;
pub mod staged;
pub mod tcp;
pub mod verbs;

use crate::error::Result;

/// Whether a write shall report its completion, and for how many writes it then speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// No completion of its own.
    None,
    /// A completion that stands for this write and the unsignalled ones before it, this many in all.
    Covering(u32),
}

impl Signal {
    /// How many writes its completion stands for; 0 without one.
    #[inline(always)]
    pub fn covered(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Covering(writes) => writes,
        }
    }
}

/// Writes that are posted together: one for each slot in turn.
#[derive(Clone, Copy, Debug)]
pub struct List {
    /// The slot of the first.
    pub slot: u64,
    /// How many slots there are; after the last one comes the first.
    pub slots: u64,
    /// How many writes.
    pub writes: u32,
    /// That of the last write; the others have none.
    pub signal: Signal,
}

impl List {
    /// Its writes, each with its slot.
    pub fn each(self) -> impl Iterator<Item = (u64, Signal)> {
        (1..=self.writes).scan(self.slot, move |slot, number| {
            let this = *slot;
            *slot = if this + 1 == self.slots { 0 } else { this + 1 };
            Some((this, if number == self.writes { self.signal } else { Signal::None }))
        })
    }
}

/// A set of connections to one peer over which writes are posted.
pub trait Endpoint {
    /// Posts one write on connection `qp`, from and to slot `slot`.
    ///
    /// # Errors
    /// The transport's own failure, with its object.
    fn post_write(&mut self, qp: usize, slot: u64, signal: Signal) -> Result<()>;

    /// Posts several writes on connection `qp`, and hands them over at once where the transport can.
    ///
    /// # Errors
    /// As [`Endpoint::post_write`]; earlier writes of the list may have been posted.
    #[inline]
    fn post_list(&mut self, qp: usize, list: List) -> Result<()> {
        for (slot, signal) in list.each() {
            self.post_write(qp, slot, signal)?;
        }
        Ok(())
    }

    /// Collects what has completed, calling `done(qp, writes)` for each report. With none it returns at once, or
    /// waits a moment for one where the transport has to be asked through the kernel.
    ///
    /// # Errors
    /// A write that completed with an error, decoded.
    fn poll(&mut self, done: impl FnMut(usize, u32)) -> Result<()>;

    /// The same for a caller who has something else to do when nothing has completed.
    ///
    /// # Errors
    /// As [`Endpoint::poll`].
    #[inline]
    fn poll_at_once(&mut self, done: impl FnMut(usize, u32)) -> Result<()> {
        self.poll(done)
    }
}

/// A connection over which two ends write in turn. The receiver looks at its memory, not at completions: it sees a
/// message as soon as its last byte is there.
pub trait PingPong {
    /// Sends message number `sequence`, which counts from 1 in every stretch.
    ///
    /// # Errors
    /// The transport's own failure, with its object.
    fn send(&mut self, sequence: u64) -> Result<()>;

    /// Whether the peer's message number `sequence` has arrived; returns at once, or nearly.
    ///
    /// # Errors
    /// As [`PingPong::send`].
    fn arrived(&mut self, sequence: u64) -> Result<bool>;

    /// Tells the peer that message `sequence` has been looked at and that the next may come in its place.
    ///
    /// # Errors
    /// As [`PingPong::send`].
    fn release(&mut self, sequence: u64) -> Result<()>;

    /// Whether the peer has told that of this end's message `sequence`; returns at once, or nearly.
    ///
    /// # Errors
    /// As [`PingPong::send`].
    fn released(&mut self, sequence: u64) -> Result<bool>;
}
