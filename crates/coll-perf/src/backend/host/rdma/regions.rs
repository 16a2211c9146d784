//! The memory that large pieces lie in, registered.

use std::sync::Arc;

use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::memory::{Buffer, HostBuffer};
use linkproof_common::mr::{Access, MemoryRegion, Ordering, ProtectionDomain, Span};

use super::super::messages::Piece;
use super::limits::LESS;

/// The keys of a piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// What is registered now.
pub(super) struct Regions {
    held: Vec<(Arc<HostBuffer>, MemoryRegion<HostBuffer>)>,
    pd: Arc<ProtectionDomain>,
}

impl Regions {
    pub(super) fn new(pd: &Arc<ProtectionDomain>) -> Self {
        Self { held: Vec::new(), pd: Arc::clone(pd) }
    }

    /// Registers `memory`, and nothing else any more. The limit was asked before ([`super::limits`]).
    ///
    /// # Errors
    /// `registration`.
    pub(super) fn hold(&mut self, memory: &[Arc<HostBuffer>]) -> Result<()> {
        let is_same = |a: &Arc<HostBuffer>, b: &Arc<HostBuffer>| Arc::ptr_eq(a, b);
        self.held.retain(|(held, _)| memory.iter().any(|buffer| is_same(held, buffer)));
        for buffer in memory {
            if self.held.iter().any(|(held, _)| is_same(held, buffer)) {
                continue;
            }
            let span = Span { offset: 0, len: buffer.len() };
            // Relaxed: that a piece has come is known by the completion of its write, which comes behind all its bytes.
            let region =
                MemoryRegion::register(&self.pd, buffer, span, Access::RemoteWrite, Ordering::Relaxed)
                    .map_err(|error| error.hint(LESS))?;
            self.held.push((Arc::clone(buffer), region));
        }
        Ok(())
    }

    /// The keys of what `piece` lies in.
    ///
    /// # Errors
    /// `registration`: a defect of this program.
    pub(super) fn keys(&self, piece: Piece) -> Result<Keys> {
        let has = |buffer: &HostBuffer| {
            piece.address >= buffer.address()
                && piece.address + piece.bytes <= buffer.address() + buffer.len()
        };
        let found = self.held.iter().find(|(buffer, _)| has(buffer));
        found.map(|(_, region)| Keys { lkey: region.lkey(), rkey: region.rkey() }).ok_or_else(|| {
            Error::new(
                ErrorKind::Registration,
                format!("{} bytes to be sent are in no registered memory", piece.bytes),
            )
        })
    }
}
