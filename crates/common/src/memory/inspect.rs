//! Looking at each message as it arrives, in one place, again and again.

use std::sync::atomic::{Ordering, fence};

use super::{Buffer, PIECE};
use crate::error::Result;
use crate::validate::{Checked, Pattern};

/// Compares every message that arrives in one place with its pattern, and spoils it before the next: a byte that does
/// not come is then as wrong as one that comes wrong.
pub struct Inspector<'a, B> {
    buffer: &'a B,
    place: u64,
    size: u64,
    pattern: Pattern,
    piece: Vec<u8>,
    checked: Checked,
    last: LastByte,
}

/// What the last byte of a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastByte {
    /// The message's number, modulo 256: the byte by which its arrival is seen.
    Number,
    /// As the pattern has it: the arrival is seen elsewhere.
    Pattern,
}

impl<'a, B: Buffer> Inspector<'a, B> {
    /// For messages of `size` bytes at `place` in `buffer`. Allocates all that it will ever use.
    pub fn new(buffer: &'a B, place: u64, size: u64, pattern: Pattern, last: LastByte) -> Self {
        let piece = vec![0; PIECE.min(size as usize)];
        Self { buffer, place, size, pattern, piece, checked: Checked::default(), last }
    }

    /// Looks at message number `sequence`, which has just been seen to be there.
    ///
    /// # Errors
    /// Those of the memory.
    pub fn look(&mut self, sequence: u64) -> Result<()> {
        // The last byte was seen by a plain reading, and a processor may have read the others before it.
        fence(Ordering::Acquire);
        let patterned = match self.last {
            LastByte::Number => self.size - 1,
            LastByte::Pattern => self.size,
        };
        let mut offset = 0;
        while offset < patterned {
            let bytes = &mut self.piece[..(patterned - offset).min(PIECE as u64) as usize];
            self.buffer.read_at(self.place + offset, bytes)?;
            self.checked.merge(self.pattern.check(0, offset, bytes).in_message(sequence));
            self.pattern.poison(offset, bytes);
            self.buffer.write_at(self.place + offset, bytes)?;
            offset += bytes.len() as u64;
        }
        if self.last == LastByte::Number {
            let mut number = [0];
            self.buffer.read_at(self.place + patterned, &mut number)?;
            let number = Checked::byte(0, patterned, sequence as u8, number[0]);
            self.checked.merge(number.in_message(sequence));
        }
        Ok(())
    }

    /// What was found so far.
    pub fn checked(&self) -> Checked {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{HostBuffer, MemoryKind};
    use crate::validate::{Direction, WrongByte};

    const PLACE: u64 = 4096;

    fn pattern() -> Pattern {
        Pattern::new(Direction::ServerToClient, 0, 1, 2)
    }

    /// What a good peer writes.
    fn message(size: usize, sequence: u64) -> Vec<u8> {
        let mut bytes = vec![0; size];
        pattern().fill(0, &mut bytes);
        bytes[size - 1] = sequence as u8;
        bytes
    }

    #[test]
    fn messages_as_sent_are_right_whatever_their_size_and_number() {
        for size in [1, 2, 9, 4096, 16 * 1024 + 1, 40_000] {
            let buffer = HostBuffer::new(PLACE + size as u64, MemoryKind::Host).unwrap();
            let mut inspector = Inspector::new(&buffer, PLACE, size as u64, pattern(), LastByte::Number);
            for sequence in 255..258 {
                buffer.write_at(PLACE, &message(size, sequence));
                inspector.look(sequence).unwrap();
            }
            assert_eq!(inspector.checked(), Checked { checked_bytes: 3 * size as u64, ..Checked::default() });
        }
    }

    #[test]
    fn each_wrong_byte_is_found_with_the_message_that_it_was_in() {
        let buffer = HostBuffer::new(PLACE + 100, MemoryKind::Host).unwrap();
        for wrong in [0, 50, 98, 99] {
            let mut inspector = Inspector::new(&buffer, PLACE, 100, pattern(), LastByte::Number);
            for sequence in 1..=3 {
                let mut bytes = message(100, sequence);
                bytes[wrong] ^= if sequence == 2 { 1 } else { 0 };
                buffer.write_at(PLACE, &bytes);
                inspector.look(sequence).unwrap();
            }
            let right = message(100, 2)[wrong];
            let byte = WrongByte {
                qp: 0,
                message: Some(2),
                offset: wrong as u64,
                expected: right,
                found: right ^ 1,
            };
            assert_eq!(
                inspector.checked(),
                Checked { checked_bytes: 300, wrong_bytes: 1, first_wrong: Some(byte) }
            );
        }
    }

    #[test]
    fn bytes_that_did_not_come_with_the_last_one_are_wrong_though_an_earlier_message_had_them() {
        let buffer = HostBuffer::new(PLACE + 64, MemoryKind::Host).unwrap();
        let mut inspector = Inspector::new(&buffer, PLACE, 64, pattern(), LastByte::Number);
        buffer.write_at(PLACE, &message(64, 1));
        inspector.look(1).unwrap();
        buffer.write_at(PLACE + 32, &message(64, 2)[32..]);
        inspector.look(2).unwrap();
        assert_eq!(inspector.checked().wrong_bytes, 32);
    }
}
