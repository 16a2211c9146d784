//! Memory through which two ranks tell each other things, and small pieces go.
//!
//! Each rank has the same for each other rank, at the same place, so that an address there follows from where a rank's memory
//! begins:
//!
//! ```text
//! slots in  | slots out | adverts in | adverts out
//! ```
//!
//! What is written to "in" comes from the other rank's "out". A slot is written to again when the other rank has said that it
//! is free: what an adapter may still repeat of it then is dropped as a repetition.

use std::sync::Arc;

use linkproof_common::error::Result;
use linkproof_common::memory::{Buffer, HostBuffer};
use linkproof_common::mr::{Access, MemoryRegion, Ordering, ProtectionDomain, Span};

use super::super::memory::whole_pages;

/// Pieces of up to so many bytes go by way of slots: two copies of them cost less than the message that a receiver would
/// have to send first.
pub(super) const SLOT_BYTES: u64 = 8 << 10;
/// Slots in each direction between two ranks: pieces that may be on their way before the receiver asks for them. A power of two.
pub(super) const SLOTS: u64 = 8;
/// Large pieces that a rank may have asked another for at a time. A power of two.
pub(super) const ADVERTS: u64 = 4;
/// Bytes of one, in a line of its own.
const ADVERT_STRIDE: u64 = 64;

const OUT: u64 = SLOTS * SLOT_BYTES;
const ADVERTS_IN: u64 = 2 * OUT;
const ADVERTS_OUT: u64 = ADVERTS_IN + ADVERTS * ADVERT_STRIDE;
/// Whole pages for each other rank.
const STRIDE: u64 = (ADVERTS_OUT + ADVERTS * ADVERT_STRIDE).next_multiple_of(4096);

/// Where a piece is to be written: what its receiver tells its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Advert {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) rkey: u32,
}

/// Bytes of an advert.
pub(super) const ADVERT_BYTES: u64 = 20;

impl Advert {
    fn encode(self) -> [u8; ADVERT_BYTES as usize] {
        let mut bytes = [0; ADVERT_BYTES as usize];
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.bytes.to_be_bytes());
        bytes[16..].copy_from_slice(&self.rkey.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8; ADVERT_BYTES as usize]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(word)
        };
        let [.., a, b, c, d] = *bytes;
        Self { address: word(0), bytes: word(8), rkey: u32::from_be_bytes([a, b, c, d]) }
    }
}

/// One rank's.
pub(super) struct Control {
    region: MemoryRegion<HostBuffer>,
    buffer: Arc<HostBuffer>,
}

impl Control {
    /// The bytes that a rank of `n_ranks` needs.
    pub(super) fn bytes(n_ranks: u32) -> u64 {
        STRIDE * u64::from(n_ranks)
    }

    /// For a rank of `n_ranks`.
    ///
    /// # Errors
    /// `memory` and `registration`.
    pub(super) fn new(pd: &Arc<ProtectionDomain>, n_ranks: u32) -> Result<Self> {
        let buffer = whole_pages(Self::bytes(n_ranks))?;
        let span = Span { offset: 0, len: buffer.len() };
        let region = MemoryRegion::register(pd, &buffer, span, Access::RemoteWrite, Ordering::Relaxed)?;
        Ok(Self { region, buffer })
    }

    pub(super) fn address(&self) -> u64 {
        self.buffer.address()
    }

    pub(super) fn lkey(&self) -> u32 {
        self.region.lkey()
    }

    pub(super) fn rkey(&self) -> u32 {
        self.region.rkey()
    }

    /// Writes the `number`-th advert to `peer`, and says where.
    pub(super) fn put_advert(&self, peer: u32, number: u64, advert: Advert) -> u64 {
        let at = Lane(peer).advert_out(number);
        self.buffer.write_at(at, &advert.encode());
        self.address() + at
    }

    /// The `number`-th advert of `peer`.
    pub(super) fn advert(&self, peer: u32, number: u64) -> Advert {
        let mut bytes = [0; ADVERT_BYTES as usize];
        self.buffer.read_at(Lane(peer).advert_in(number), &mut bytes);
        Advert::decode(&bytes)
    }
}

/// What is between a rank and one other: offsets in the memory of either.
#[derive(Clone, Copy)]
pub(super) struct Lane(pub(super) u32);

impl Lane {
    fn begin(self) -> u64 {
        u64::from(self.0) * STRIDE
    }

    pub(super) fn slot_in(self, number: u64) -> u64 {
        self.begin() + number % SLOTS * SLOT_BYTES
    }

    pub(super) fn slot_out(self, number: u64) -> u64 {
        self.begin() + OUT + number % SLOTS * SLOT_BYTES
    }

    pub(super) fn advert_in(self, number: u64) -> u64 {
        self.begin() + ADVERTS_IN + number % ADVERTS * ADVERT_STRIDE
    }

    fn advert_out(self, number: u64) -> u64 {
        self.begin() + ADVERTS_OUT + number % ADVERTS * ADVERT_STRIDE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advert_comes_back() {
        let advert = Advert { address: 0x7f12_3456_789a_bcde, bytes: 5 << 32, rkey: 0xfedc_ba98 };
        assert_eq!(Advert::decode(&advert.encode()), advert);
    }

    #[test]
    fn nothing_overlaps() {
        let mut places: Vec<(u64, u64)> = (0..3)
            .map(Lane)
            .flat_map(|lane| {
                let slots = (0..SLOTS).flat_map(move |it| [lane.slot_in(it), lane.slot_out(it)]);
                let adverts = (0..ADVERTS).flat_map(move |it| [lane.advert_in(it), lane.advert_out(it)]);
                slots.map(|at| (at, SLOT_BYTES)).chain(adverts.map(|at| (at, ADVERT_STRIDE)))
            })
            .collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        let (at, bytes) = places[places.len() - 1];
        assert!(at + bytes <= Control::bytes(3));
    }
}
