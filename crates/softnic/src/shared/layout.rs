//! The entries of a control segment.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// Tells a control segment from any other file.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"softnic\0");
/// Two processes with different layouts don't see each other.
pub(crate) const VERSION: u32 = 3;

/// The beginning of a segment.
#[repr(C, align(64))]
pub(crate) struct Header {
    /// [`MAGIC`], set when the rest can be read.
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    /// Marked by the kernel when the owner is gone.
    pub(crate) life: AtomicU32,
    /// The owner's descriptor of the file that its registered memory lives in; -1 where it has none.
    pub(crate) arena_fd: AtomicI32,
}

/// A queue pair as its peer sees it.
#[repr(C, align(64))]
pub(crate) struct QpEntry {
    /// What [`accepts`] composes; 0: nothing gets in.
    pub(crate) accepts: AtomicU64,
    /// The protection domain, as memory regions have it.
    pub(crate) pd: AtomicU32,
    /// Its access flags.
    pub(crate) access: AtomicU32,
    /// One of the `IBV_QPS_*` values.
    pub(crate) state: AtomicU32,
    pub(crate) path_mtu: AtomicU32,
    /// The first packet sequence number that it expects.
    pub(crate) rq_psn: AtomicU32,
    pub(crate) link: AtomicU32,
    pub(crate) lid: AtomicU32,
    pub(crate) dlid: AtomicU32,
    pub(crate) is_global: AtomicU32,
    /// The queue pair that it was connected to last.
    pub(crate) peer: AtomicU32,
    pub(crate) sgid: [AtomicU64; 2],
    pub(crate) dgid: [AtomicU64; 2],
    pub(crate) receives: Receives,
    /// Its completion queues.
    pub(crate) send_cq: AtomicU32,
    pub(crate) recv_cq: AtomicU32,
    /// Where its asynchronous events go.
    pub(crate) events: Doorbell,
    /// Tells this queue pair from others that had the entry before.
    pub(crate) generation: AtomicU32,
    /// What the peer found wrong on this end, as the fault is numbered; 0: nothing.
    pub(crate) fault: AtomicU32,
    /// What the peer writes for each message, in a cache line of its own.
    pub(crate) inbound: Inbound,
}

/// A queue pair's receives. The slots are a ring in the segment's heap.
#[repr(C)]
pub(crate) struct Receives {
    /// Where the ring begins in the segment.
    pub(crate) offset: AtomicU64,
    /// The number of slots, a power of two; 0: there are none.
    pub(crate) slots: AtomicU32,
    /// Pieces that each has room for.
    pub(crate) max_pieces: AtomicU32,
    /// How many have been posted, counted for ever.
    pub(crate) posted: AtomicU32,
    /// The code of the time that the peer waits where there is none.
    pub(crate) min_rnr_timer: AtomicU32,
}

/// The part of a queue pair's entry that the connected peer writes.
#[repr(C, align(64))]
pub(crate) struct Inbound {
    /// Not 0 while the peer reads or writes this process's memory on the queue pair's behalf.
    pub(crate) busy: AtomicU32,
    /// How many receives the peer has used, counted for ever.
    pub(crate) arrived: AtomicU32,
    /// Whether the peer has told that it got through before this end was ready to send.
    pub(crate) established: AtomicU32,
}

/// A receive: what its owner asks for, and what the peer made of it.
#[repr(C)]
pub(crate) struct ReceiveSlot {
    pub(crate) wr_id: AtomicU64,
    pub(crate) num_pieces: AtomicU32,
    /// An `IBV_WC_*` status.
    pub(crate) status: AtomicU32,
    /// An `IBV_WC_*` opcode.
    pub(crate) opcode: AtomicU32,
    pub(crate) byte_len: AtomicU32,
    /// In network byte order.
    pub(crate) imm: AtomicU32,
    pub(crate) wc_flags: AtomicU32,
}

/// A piece of memory of a receive; follows its slot.
#[repr(C)]
pub(crate) struct ReceivePiece {
    pub(crate) addr: AtomicU64,
    pub(crate) length: AtomicU32,
    pub(crate) lkey: AtomicU32,
}

/// A pipe of the segment's owner, which wakes whoever reads it.
#[repr(C)]
pub(crate) struct Doorbell {
    /// The inode of the pipe: a descriptor's number may be another file's by the time that it is opened.
    pub(crate) inode: AtomicU64,
    /// The owner's descriptor of its writing end; -1: there is none.
    pub(crate) fd: AtomicI32,
}

/// A memory region as the peers of its protection domain's queue pairs see it.
#[repr(C, align(64))]
pub(crate) struct MrEntry {
    /// The key that opens it, 0 where there is none. The other fields are set before and changed after.
    pub(crate) key: AtomicU32,
    pub(crate) access: AtomicU32,
    pub(crate) pd: AtomicU32,
    _reserved: u32,
    /// The address that work requests call its beginning.
    pub(crate) start: AtomicU64,
    pub(crate) len: AtomicU64,
    /// Where it begins in the owner's memory.
    pub(crate) address: AtomicU64,
    /// The part that lies in the owner's arena, as addresses of the owner's memory; empty: none.
    pub(crate) shared_from: AtomicU64,
    pub(crate) shared_to: AtomicU64,
}

/// Where a memory region is that is on a GPU; belongs to the [`MrEntry`] of the same index.
#[repr(C, align(64))]
pub(crate) struct GpuEntry {
    /// The CUDA driver's IPC handle of the allocation, eight bytes to a word; all zeros: it can't be shared.
    pub(crate) handle: [AtomicU64; 8],
    /// Which GPU it is.
    pub(crate) uuid: [AtomicU64; 2],
    /// How far from the allocation's beginning the region begins.
    pub(crate) offset: AtomicU64,
    /// The GPU's number in the owner.
    pub(crate) ordinal: AtomicU32,
}

/// A completion queue as peers see it.
#[repr(C, align(64))]
pub(crate) struct CqEntry {
    /// Bits of work for the owner's next poll, see [`crate::cq::attention`].
    pub(crate) attention: AtomicU32,
    /// Which completions ring the doorbell: one of [`crate::cq::armed`].
    pub(crate) armed: AtomicU32,
    /// Tells this queue from others that had the entry before.
    pub(crate) generation: AtomicU32,
    /// The channel that it was made with.
    pub(crate) channel: Doorbell,
}

const _: () =
    assert!(size_of::<QpEntry>() == 256 && size_of::<MrEntry>() == 64 && size_of::<CqEntry>() == 64);
const _: () = assert!(size_of::<GpuEntry>() == 128);
const _: () = assert!(size_of::<ReceiveSlot>() == 32 && size_of::<ReceivePiece>() == 16);

/// The word by which a queue pair says from whom it takes packets.
///
/// A peer that has looked at the whole entry keeps the word, and looks again when the word has changed: one load and
/// comparison for each message.
pub(crate) mod accepts {
    const OPEN: u64 = 1 << 24;

    /// From queue pair `peer`, in the `connection`-th connection, with the entry changed `revision` times.
    pub(crate) fn word(peer: u32, connection: u16, revision: u16) -> u64 {
        u64::from(revision) << 48 | u64::from(connection) << 32 | OPEN | u64::from(peer & 0xff_ffff)
    }

    /// The queue pair that may send; `None` where none may.
    pub(crate) fn peer(word: u64) -> Option<u32> {
        (word & OPEN != 0).then_some(word as u32 & 0xff_ffff)
    }

    /// Which connection it is.
    pub(crate) fn connection(word: u64) -> u16 {
        (word >> 32) as u16
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_word_keeps_its_parts_and_0_is_closed() {
            let word = word(0xabcdef, 7, u16::MAX);
            assert_eq!((peer(word), connection(word)), (Some(0xabcdef), 7));
            assert_eq!(peer(0), None);
        }
    }
}
