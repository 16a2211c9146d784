//! What processes show each other: one *control segment* of each process, a memfd that peers map.
//!
//! Everything in it is atomic: its owner and its peers read and write it at the same time, and whoever maps it may
//! have written nonsense, so that an index read from it is checked before it is used. Nobody ever waits for a lock
//! that lies in it: a process can be killed at any instruction.

mod heap;
mod layout;
mod segment;

pub(crate) use heap::Heap;
pub(crate) use layout::{CqEntry, Doorbell, GpuEntry, MrEntry, QpEntry, ReceivePiece, ReceiveSlot, accepts};
pub(crate) use segment::Segment;

/// Queue pairs of a process: the low bits of a queue pair number tell which.
pub(crate) const QP_INDEX_BITS: u32 = 15;
/// Processes of a fabric: the high bits of the 24 of a queue pair number tell whose.
pub(crate) const SLOT_BITS: u32 = 24 - QP_INDEX_BITS;
pub(crate) const MAX_QPS: u32 = 1 << QP_INDEX_BITS;
/// Memory regions of a process: half the bits of a key tell which, the others are new for each.
pub(crate) const MAX_MRS: u32 = 1 << 16;
/// Completion queues of a process. As many as adapters have.
pub(crate) const MAX_CQS: u32 = 1 << 14;

/// A queue pair's number.
pub(crate) fn qpn(slot: u32, index: u32) -> u32 {
    slot << QP_INDEX_BITS | index
}

/// The process and the index in a queue pair's number.
pub(crate) fn slot_and_index(qpn: u32) -> (u32, u32) {
    ((qpn >> QP_INDEX_BITS) & ((1 << SLOT_BITS) - 1), qpn & (MAX_QPS - 1))
}
