//! What the immediate data of a write says.

/// What a write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A small piece, in the next slot.
    Piece,
    /// Where a large piece is wanted.
    Advert,
    /// The last of a large piece.
    Done,
    /// Nothing but the number of slots that are free again.
    Credit,
}

/// The immediate data of a write: what it is, and how many slots are free again that were not before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) credits: u32,
}

const KIND_SHIFT: u32 = 30;

impl Message {
    pub(super) fn encode(self) -> u32 {
        let kind = match self.kind {
            Kind::Piece => 0,
            Kind::Advert => 1,
            Kind::Done => 2,
            Kind::Credit => 3,
        };
        kind << KIND_SHIFT | self.credits
    }

    pub(super) fn decode(data: u32) -> Self {
        let kind = match data >> KIND_SHIFT {
            0 => Kind::Piece,
            1 => Kind::Advert,
            2 => Kind::Done,
            _ => Kind::Credit,
        };
        Self { kind, credits: data & ((1 << KIND_SHIFT) - 1) }
    }
}

/// Which rank's connection a completion is of, and which of its requests: both in one work request id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) peer: u32,
    pub(super) number: u64,
}

/// A rank posts fewer than 2⁴⁰ requests to another: weeks of the fastest adapter.
const NUMBER_BITS: u32 = 40;

impl Ticket {
    pub(super) fn encode(self) -> u64 {
        u64::from(self.peer) << NUMBER_BITS | self.number & ((1 << NUMBER_BITS) - 1)
    }

    pub(super) fn decode(wr_id: u64) -> Self {
        Self { peer: (wr_id >> NUMBER_BITS) as u32, number: wr_id & ((1 << NUMBER_BITS) - 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_tickets_come_back() {
        for kind in [Kind::Piece, Kind::Advert, Kind::Done, Kind::Credit] {
            let message = Message { kind, credits: 7 };
            assert_eq!(Message::decode(message.encode()), message);
        }
        let ticket = Ticket { peer: 65_535, number: (1 << NUMBER_BITS) - 1 };
        assert_eq!(Ticket::decode(ticket.encode()), ticket);
    }
}
