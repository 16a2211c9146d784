//! The connection to one other rank: what is on its way, and who may go on.
//!
//! Every message is an RDMA write with immediate data, and takes a receive that the other end has posted. None is ever
//! missing, since each end knows how many messages the other can have on its way: a piece has a slot, a large piece an
//! advert, and free slots are told of by the half of them.
#![allow(unsafe_code, reason = "pieces of memory by address")]

use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::qp::Qpn;
use rdma_sys as sys;

use super::super::messages::Piece;
use super::control::{ADVERT_BYTES, ADVERTS, Advert, Control, Lane, SLOT_BYTES, SLOTS};
use super::message::{Kind, Message};
use super::queue::{Queue, Request};

/// Free slots that are told of by a message of their own.
const TELL_AT: u32 = (SLOTS / 2) as u32;

/// Where a rank's control memory is, seen from another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote {
    pub(super) address: u64,
    pub(super) rkey: u32,
    pub(super) qpn: Qpn,
}

/// The connection to another rank.
pub(super) struct Peer {
    pub(super) queue: Queue,
    pub(super) remote: Remote,
    /// The largest write.
    largest: u64,
    /// Pieces sent by slot, and slots that are free there.
    sent: u64,
    credits: u32,
    /// Pieces that have come, their lengths, those that were taken, and slots that the other rank does not know to be free.
    arrived: u64,
    lengths: [u32; SLOTS as usize],
    taken: u64,
    owed: u32,
    /// Large pieces that this rank has asked for, and that have come.
    advertised: u64,
    finished: u64,
    /// Large pieces that the other rank has asked for, and that were begun.
    asked: u64,
    begun: u64,
}

impl Peer {
    pub(super) fn new(queue: Queue, largest: u64) -> Self {
        Self {
            queue,
            remote: Remote { address: 0, rkey: 0, qpn: Qpn(0) },
            largest,
            sent: 0,
            credits: SLOTS as u32,
            arrived: 0,
            lengths: [0; SLOTS as usize],
            taken: 0,
            owed: 0,
            advertised: 0,
            finished: 0,
            asked: 0,
            begun: 0,
        }
    }

    /// Sends a small piece, if it can; true then.
    ///
    /// # Safety
    /// The piece is initialised memory that nothing else writes to meanwhile.
    pub(super) unsafe fn send_piece(&mut self, control: &Control, piece: Piece) -> Result<bool> {
        if self.credits == 0 || !self.queue.has_room() {
            return Ok(false);
        }
        let flags = self.queue.inline_flag(piece.bytes);
        let mut local = piece.address;
        if flags == 0 {
            local = control.address() + Lane(self.queue.rank).slot_out(self.sent);
            // SAFETY: the piece as the caller says; the slot is this rank's own, free, and as long as any small piece.
            unsafe {
                std::ptr::copy_nonoverlapping(at(piece.address).cast_const(), at(local), piece.bytes as usize)
            };
        }
        let remote = self.remote.address + Lane(self.queue.own).slot_in(self.sent);
        let rkey = self.remote.rkey;
        self.say(
            Request { local, lkey: control.lkey(), bytes: piece.bytes, remote, rkey, flags },
            Kind::Piece,
        )?;
        self.sent += 1;
        self.credits -= 1;
        Ok(true)
    }

    /// Takes a small piece out of its slot, if it has come; true then.
    ///
    /// # Errors
    /// `protocol` where what has come is of another length.
    ///
    /// # Safety
    /// The piece is memory that nothing else uses meanwhile.
    pub(super) unsafe fn take_piece(&mut self, control: &Control, piece: Piece) -> Result<bool> {
        // What is taken must be told of, or the other rank may wait for ever.
        if self.taken == self.arrived || (self.owed + 1 >= TELL_AT && !self.queue.has_room()) {
            return Ok(false);
        }
        let length = self.lengths[(self.taken % SLOTS) as usize];
        if u64::from(length) != piece.bytes {
            return Err(self.of_another_length(u64::from(length), piece.bytes));
        }
        let slot = control.address() + Lane(self.queue.rank).slot_in(self.taken);
        // SAFETY: the piece as the caller says; the completion of the write said that the slot's bytes are there, and the
        // other rank writes there again only when it knows the slot to be free.
        unsafe {
            std::ptr::copy_nonoverlapping(at(slot).cast_const(), at(piece.address), piece.bytes as usize)
        };
        self.taken += 1;
        self.owed += 1;
        if self.owed >= TELL_AT {
            self.tell_credits()?;
        }
        Ok(true)
    }

    /// Posts `request` as a message of `kind`, which also tells of the slots that are free; its number.
    #[inline]
    fn say(&mut self, request: Request, kind: Kind) -> Result<u64> {
        let number = self.queue.post(request, Some(Message { kind, credits: self.owed }))?;
        self.owed = 0;
        Ok(number)
    }

    fn tell_credits(&mut self) -> Result<()> {
        // No byte is written; the address is one that may be.
        let (remote, rkey) = (self.remote.address, self.remote.rkey);
        self.say(Request { local: 0, lkey: 0, bytes: 0, remote, rkey, flags: 0 }, Kind::Credit).map(drop)
    }

    /// Asks for a large piece to be written to `address`, if it can; its number then.
    pub(super) fn advertise(&mut self, control: &Control, piece: Piece, rkey: u32) -> Result<Option<u64>> {
        if self.advertised - self.finished == ADVERTS || !self.queue.has_room() {
            return Ok(None);
        }
        let advert = Advert { address: piece.address, bytes: piece.bytes, rkey };
        let local = control.put_advert(self.queue.rank, self.advertised, advert);
        let remote = self.remote.address + Lane(self.queue.own).advert_in(self.advertised);
        let (lkey, rkey, flags) = (control.lkey(), self.remote.rkey, self.queue.inline_flag(ADVERT_BYTES));
        self.say(Request { local, lkey, bytes: ADVERT_BYTES, remote, rkey, flags }, Kind::Advert)?;
        self.advertised += 1;
        Ok(Some(self.advertised))
    }

    /// Whether the large piece that was asked for with this number has come.
    #[inline]
    pub(super) fn has_finished(&self, number: u64) -> bool {
        self.finished >= number
    }

    /// Where the other rank wants `piece`, if it has said so.
    ///
    /// # Errors
    /// `protocol` where it expects another length.
    pub(super) fn wanted(&mut self, control: &Control, piece: Piece) -> Result<Option<Advert>> {
        if self.begun == self.asked {
            return Ok(None);
        }
        let advert = control.advert(self.queue.rank, self.begun);
        if advert.bytes != piece.bytes {
            return Err(self.of_another_length(advert.bytes, piece.bytes));
        }
        self.begun += 1;
        Ok(Some(advert))
    }

    /// Writes what is left of `piece` behind its first `done` bytes, as far as there is room: how much is written then, and the
    /// number of the last request.
    pub(super) fn write_large(
        &mut self,
        piece: Piece,
        lkey: u32,
        advert: Advert,
        mut done: u64,
    ) -> Result<(u64, u64)> {
        let mut number = 0;
        while done < piece.bytes && self.queue.has_room() {
            let bytes = (piece.bytes - done).min(self.largest);
            let (local, remote, rkey) = (piece.address + done, advert.address + done, advert.rkey);
            let flags = sys::IBV_SEND_SIGNALED;
            let request = Request { local, lkey, bytes, remote, rkey, flags };
            done += bytes;
            number = match done == piece.bytes {
                true => self.say(request, Kind::Done)?,
                false => self.queue.post(request, None)?,
            };
        }
        Ok((done, number))
    }

    /// A message has come, of `bytes`.
    ///
    /// # Errors
    /// `protocol` where there can't be one of its kind; `completion`.
    #[inline]
    pub(super) fn hear(&mut self, message: Message, bytes: u32) -> Result<()> {
        self.queue.post_receive()?;
        self.credits += message.credits;
        match message.kind {
            Kind::Piece => {
                self.lengths[(self.arrived % SLOTS) as usize] = bytes;
                self.arrived += 1;
            }
            Kind::Advert => self.asked += 1,
            Kind::Done => self.finished += 1,
            Kind::Credit => {}
        }
        let in_slots = self.arrived - self.taken;
        let sound = u64::from(self.credits) <= SLOTS
            && in_slots <= SLOTS
            && self.finished <= self.advertised
            && self.asked - self.begun <= ADVERTS
            && (message.kind != Kind::Piece || u64::from(bytes) <= SLOT_BYTES);
        if sound { Ok(()) } else { Err(self.unsound(message)) }
    }

    #[cold]
    fn unsound(&self, message: Message) -> Error {
        let what =
            format!("rank {} sent {message:?} to rank {} out of turn", self.queue.rank, self.queue.own);
        Error::new(ErrorKind::Protocol, what)
    }

    #[cold]
    fn of_another_length(&self, there: u64, here: u64) -> Error {
        let (own, rank) = (self.queue.own, self.queue.rank);
        Error::new(
            ErrorKind::Protocol,
            format!("ranks {own} and {rank} don't agree about a piece: {here} bytes here, {there} there"),
        )
    }
}

/// Memory by its address.
fn at(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}
