//! The buffers of one rank in one call, and where each byte of its result comes from.

/// What a rank sends from, receives into, and ends up with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of the send buffer; 0 where the rank sends nothing.
    pub send_bytes: u64,
    /// Bytes of the receive buffer; 0 where the rank receives nothing.
    pub recv_bytes: u64,
    /// The receive buffer, part by part. What no part covers is not the collective's to write.
    pub parts: Vec<Part>,
    /// How the two buffers share memory when the call is in place; `None` where that has no meaning.
    pub in_place: Option<InPlace>,
}

/// A stretch of a receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it begins, in bytes.
    pub at: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Where it comes from.
    pub source: Source,
}

/// Where a part of a result comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A rank's send buffer, from an offset in bytes.
    Rank {
        /// The rank.
        rank: u32,
        /// Where in its send buffer.
        offset: u64,
    },
    /// The reduction of all ranks' send buffers from the same offset in bytes.
    Reduction {
        /// Where in each send buffer.
        offset: u64,
    },
}

/// One buffer for both directions: where in it the send and the receive buffer begin, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// Where the send buffer begins.
    pub send_at: u64,
    /// Where the receive buffer begins.
    pub recv_at: u64,
}

impl InPlace {
    /// Both begin where the buffer does.
    pub const SAME: Self = Self { send_at: 0, recv_at: 0 };
}

impl Part {
    /// `bytes` from `offset` of `rank`'s send buffer, to `at`.
    pub(super) fn copied(at: u64, bytes: u64, rank: u32, offset: u64) -> Self {
        Self { at, bytes, source: Source::Rank { rank, offset } }
    }

    /// The reduction of `bytes` from `offset`, to the begin of the receive buffer.
    pub(super) fn reduced(bytes: u64, offset: u64) -> Self {
        Self { at: 0, bytes, source: Source::Reduction { offset } }
    }
}
