//! Patterns with known answers: what `--validate` sends and how the target checks what arrived.
//!
//! Every byte depends on the direction, the queue pair, the round and its offset, so that data of another round,
//! another queue pair or another place can't pass for the right data. Before a round the target fills its memory
//! with the complement of what it expects: a write that never arrived differs in every byte.
//!
//! Checking asks more of the transport than measuring does: a completion must mean that the data is in the
//! target's memory. For RC writes it means that the responder has acknowledged it; the control message that
//! follows the round orders the check after it.

use serde::{Deserialize, Serialize};

/// Which stream of bytes a pattern belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    seed: u64,
}

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The client is the initiator.
    ClientToServer,
    /// The server is the initiator.
    ServerToClient,
}

impl Direction {
    /// The other way.
    pub fn reversed(self) -> Self {
        match self {
            Self::ClientToServer => Self::ServerToClient,
            Self::ServerToClient => Self::ClientToServer,
        }
    }

    /// In words: `client to server`.
    pub fn words(self) -> &'static str {
        match self {
            Self::ClientToServer => "client to server",
            Self::ServerToClient => "server to client",
        }
    }
}

/// The outcome of checking: how much was compared and the first thing that was wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Bytes compared.
    pub checked_bytes: u64,
    /// Bytes that were not as expected.
    pub wrong_bytes: u64,
    /// The first of them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_wrong: Option<WrongByte>,
}

/// A byte that was not as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongByte {
    /// The queue pair it came over.
    pub qp: u32,
    /// Which message of the round it was in, from 1; absent where what the round left behind was looked at.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<u64>,
    /// Its offset in the memory that the queue pair writes to.
    pub offset: u64,
    /// What the pattern has there.
    pub expected: u8,
    /// What was found.
    pub found: u8,
}

impl Checked {
    /// The outcome for a single byte.
    pub fn byte(qp: u32, offset: u64, expected: u8, found: u8) -> Self {
        let first_wrong =
            (expected != found).then_some(WrongByte { qp, message: None, offset, expected, found });
        Self { checked_bytes: 1, wrong_bytes: first_wrong.is_some().into(), first_wrong }
    }

    /// The outcome, of a part of message number `message`.
    pub fn in_message(self, message: u64) -> Self {
        let first_wrong = self.first_wrong.map(|wrong| WrongByte { message: Some(message), ..wrong });
        Self { first_wrong, ..self }
    }

    /// Adds the outcome of another stretch of memory.
    pub fn merge(&mut self, other: Self) {
        self.checked_bytes += other.checked_bytes;
        self.wrong_bytes += other.wrong_bytes;
        self.first_wrong = self.first_wrong.or(other.first_wrong);
    }
}

impl Pattern {
    /// The pattern of one queue pair in one round of one point (`point` counts the message sizes of a run).
    pub fn new(direction: Direction, qp: u32, point: u32, round: u32) -> Self {
        let direction = match direction {
            Direction::ClientToServer => 0x11_u64,
            Direction::ServerToClient => 0x22,
        };
        Self { seed: mix(direction << 56 ^ u64::from(qp) << 32 ^ u64::from(point) << 20 ^ u64::from(round)) }
    }

    /// The eight bytes at `8 * index`.
    #[inline]
    fn word(self, index: u64) -> [u8; 8] {
        // An odd multiplier makes the words of one pattern all different; the high bits are the well-mixed ones.
        let value = (self.seed ^ index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (value ^ value >> 32).to_le_bytes()
    }

    /// The byte at `offset`.
    pub fn byte(self, offset: u64) -> u8 {
        self.word(offset / 8)[(offset % 8) as usize]
    }

    /// Fills `memory`, whose first byte has the pattern's offset `offset` (a multiple of 8).
    pub fn fill(self, offset: u64, memory: &mut [u8]) {
        self.write(offset, memory, |word| word);
    }

    /// Fills `memory` with the complement of the pattern: every byte differs from the right one.
    pub fn poison(self, offset: u64, memory: &mut [u8]) {
        self.write(offset, memory, |word| word.map(|byte| !byte));
    }

    fn write(self, offset: u64, memory: &mut [u8], change: impl Fn([u8; 8]) -> [u8; 8]) {
        debug_assert!(offset.is_multiple_of(8), "slots and pieces begin at whole words");
        for (index, chunk) in (offset / 8..).zip(memory.chunks_mut(8)) {
            chunk.copy_from_slice(&change(self.word(index))[..chunk.len()]);
        }
    }

    /// Compares `found`, whose first byte has the pattern's offset `offset`; `qp` goes into the outcome.
    pub fn check(self, qp: u32, offset: u64, found: &[u8]) -> Checked {
        let mut checked = Checked { checked_bytes: found.len() as u64, ..Checked::default() };
        let mut at = 0;
        while at < found.len() {
            let place = offset + at as u64;
            let in_word = (place % 8) as usize;
            let length = (8 - in_word).min(found.len() - at);
            let expected = &self.word(place / 8)[in_word..in_word + length];
            if found[at..at + length] != *expected {
                self.note_wrong(&mut checked, qp, place, expected, &found[at..at + length]);
            }
            at += length;
        }
        checked
    }

    #[cold]
    fn note_wrong(self, checked: &mut Checked, qp: u32, offset: u64, expected: &[u8], found: &[u8]) {
        for (index, (&expected, &found)) in expected.iter().zip(found).enumerate() {
            if expected != found {
                checked.wrong_bytes += 1;
                checked.first_wrong.get_or_insert(WrongByte {
                    qp,
                    message: None,
                    offset: offset + index as u64,
                    expected,
                    found,
                });
            }
        }
    }
}

/// The finaliser of the SplitMix64 generator: spreads a small difference over all bits.
fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PATTERN: fn(u32, u32, u32) -> Pattern =
        |qp, point, round| Pattern::new(Direction::ClientToServer, qp, point, round);

    #[test]
    fn the_right_data_passes() {
        let mut memory = vec![0; 1003];
        PATTERN(1, 0, 2).fill(0, &mut memory);
        assert_eq!(
            PATTERN(1, 0, 2).check(1, 0, &memory),
            Checked { checked_bytes: 1003, ..Checked::default() }
        );
        assert_eq!(PATTERN(1, 0, 2).check(1, 5, &memory[5..77]).wrong_bytes, 0);
    }

    #[test]
    fn data_of_another_qp_point_round_or_direction_fails() {
        let mut memory = vec![0; 64];
        PATTERN(1, 1, 1).fill(0, &mut memory);
        for other in [
            PATTERN(2, 1, 1),
            PATTERN(1, 2, 1),
            PATTERN(1, 1, 2),
            Pattern::new(Direction::ServerToClient, 1, 1, 1),
        ] {
            assert!(other.check(1, 0, &memory).wrong_bytes > 32);
        }
    }

    #[test]
    fn poisoned_memory_is_wrong_in_every_byte() {
        let mut memory = vec![0; 101];
        PATTERN(0, 0, 0).poison(0, &mut memory);
        assert_eq!(PATTERN(0, 0, 0).check(0, 0, &memory).wrong_bytes, 101);
    }

    #[test]
    fn the_same_bytes_at_another_offset_fail() {
        let mut memory = vec![0; 256];
        PATTERN(0, 0, 0).fill(0, &mut memory);
        memory.rotate_left(8);
        assert!(PATTERN(0, 0, 0).check(0, 0, &memory).wrong_bytes > 200);
    }

    proptest! {
        #[test]
        fn any_single_changed_byte_is_found(length in 1_usize..300, at in 0_usize..300, flip in 1_u8..=255) {
            let at = at % length;
            let pattern = PATTERN(3, 1, 7);
            let mut memory = vec![0; length];
            pattern.fill(0, &mut memory);
            memory[at] ^= flip;
            let checked = pattern.check(3, 0, &memory);
            prop_assert_eq!(checked.wrong_bytes, 1);
            let expected = pattern.byte(at as u64);
            prop_assert_eq!(checked.first_wrong, Some(WrongByte { qp: 3, message: None, offset: at as u64, expected, found: expected ^ flip }));
        }
    }
}
