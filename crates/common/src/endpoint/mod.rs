//! The initiator's view of a connection: post a write, learn which writes are done.
//!
//! Two implementations, chosen before the run and never by a branch inside it: [`verbs`], RDMA writes over
//! reliable-connected queue pairs, and [`tcp`], the same message pattern over sockets.

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

/// A set of connections to one peer over which writes are posted.
pub trait Endpoint {
    /// Posts one write on connection `qp`, from and to slot `slot`.
    ///
    /// # Errors
    /// The transport's own failure, with its object.
    fn post_write(&mut self, qp: usize, slot: u64, signal: Signal) -> Result<()>;

    /// Posts several writes on connection `qp`, each from and to its slot, and hands them over at once where the
    /// transport can.
    ///
    /// # Errors
    /// As [`Endpoint::post_write`]; earlier writes of the list may have been posted.
    #[inline]
    fn post_list(&mut self, qp: usize, writes: impl Iterator<Item = (u64, Signal)>) -> Result<()> {
        for (slot, signal) in writes {
            self.post_write(qp, slot, signal)?;
        }
        Ok(())
    }

    /// Collects what has completed, calling `done(qp, writes)` for each report; returns at once, also with none.
    ///
    /// # Errors
    /// A write that completed with an error, decoded.
    fn poll(&mut self, done: impl FnMut(usize, u32)) -> Result<()>;
}
