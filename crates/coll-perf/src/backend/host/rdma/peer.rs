//! The connection to one other rank: its queue pair, what is on its way, and who may go on.
//!
//! Every message is an RDMA write with immediate data, and takes a receive that the other end has posted. None is ever
//! missing, since each end knows how many messages the other can have on its way: a piece has a slot, a large piece an
//! advert, and free slots are told of by the half of them.
#![allow(unsafe_code, reason = "the data path is libibverbs")]

use linkproof_common::error::{Error, ErrorKind, Result, show_errno};
use linkproof_common::qp::{Depth, Qpn, QueuePair};
use rdma_sys as sys;

use super::super::messages::Piece;
use super::control::{ADVERT_BYTES, ADVERTS, Advert, Control, Lane, SLOT_BYTES, SLOTS};
use super::message::{Kind, Message, Ticket};

/// Requests that are posted and not known to be complete, at most. With one in [`SIGNAL_EVERY`] and those of large pieces
/// signalled, there is always one whose completion makes room.
const SENDS: u32 = 64;
const SIGNAL_EVERY: u32 = 16;
/// Messages that can come before the completion of the first was polled: pieces, adverts, ends of what was advertised, and
/// words of free slots.
const RECEIVES: u32 = (SLOTS + 2 * ADVERTS) as u32 + CREDITS_UNDER_WAY;
/// Two are told of by the half of the slots each; one more may be a late one.
const CREDITS_UNDER_WAY: u32 = 4;
/// Free slots that are told of by a message of their own.
const TELL_AT: u32 = (SLOTS / 2) as u32;

/// The room of a queue pair, and completions that it may have in the queue.
pub(super) const DEPTH: Depth = Depth { sends: SENDS, receives: RECEIVES };
pub(super) const COMPLETIONS: u32 = SENDS + RECEIVES;

/// Where a rank's control memory is, seen from another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote {
    pub(super) address: u64,
    pub(super) rkey: u32,
    pub(super) qpn: Qpn,
}

/// The connection of rank `own` to rank `rank`.
pub(super) struct Peer {
    pub(super) own: u32,
    pub(super) rank: u32,
    pub(super) qp: QueuePair,
    pub(super) remote: Remote,
    /// The largest write.
    pub(super) largest: u64,
    posted: u64,
    completed: u64,
    unsignalled: u32,
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

/// A request to be posted.
struct Request {
    local: u64,
    lkey: u32,
    bytes: u64,
    remote: u64,
    rkey: u32,
    flags: u32,
}

impl Peer {
    pub(super) fn new(own: u32, rank: u32, qp: QueuePair, largest: u64) -> Self {
        Self {
            own,
            rank,
            qp,
            remote: Remote { address: 0, rkey: 0, qpn: Qpn(0) },
            largest,
            posted: 0,
            completed: 0,
            unsignalled: 0,
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

    /// Posts all receives; in INIT or later.
    ///
    /// # Errors
    /// `completion`, with the errno.
    pub(super) fn post_receives(&mut self) -> Result<()> {
        (0..RECEIVES).try_for_each(|_| self.post_receive())
    }

    fn post_receive(&mut self) -> Result<()> {
        let wr_id = Ticket { peer: self.rank, number: 0 }.encode();
        let mut wr = sys::ibv_recv_wr { wr_id, ..Default::default() };
        let mut bad = std::ptr::null_mut();
        // SAFETY: the queue pair is alive; the request names no memory, and is copied by the call.
        match unsafe { sys::ibv_post_recv(self.qp.raw(), &mut wr, &mut bad) } {
            0 => Ok(()),
            errno => Err(self.refused("a receive", errno)),
        }
    }

    #[cold]
    fn refused(&self, what: &str, errno: i32) -> Error {
        let what = format!(
            "rank {} cannot post {what} to rank {} on QP {}: {}",
            self.own,
            self.rank,
            self.qp.qpn(),
            show_errno(errno)
        );
        Error::new(ErrorKind::Completion, what)
    }

    /// Whether one more request can be posted.
    #[inline]
    fn has_room(&self) -> bool {
        self.posted - self.completed < u64::from(SENDS)
    }

    /// Posts `request`, with `kind` and the slots that are free as its immediate data unless it is in the middle of a piece.
    #[inline]
    fn post(&mut self, request: Request, kind: Option<Kind>) -> Result<()> {
        let mut sge = sys::ibv_sge { addr: request.local, length: request.bytes as u32, lkey: request.lkey };
        self.unsignalled += 1;
        let wanted = request.flags & sys::IBV_SEND_SIGNALED != 0 || self.unsignalled == SIGNAL_EVERY;
        let signalled = if wanted { sys::IBV_SEND_SIGNALED } else { 0 };
        let mut wr = sys::ibv_send_wr {
            wr_id: Ticket { peer: self.rank, number: self.posted + 1 }.encode(),
            sg_list: &mut sge,
            num_sge: i32::from(request.bytes > 0),
            opcode: sys::IBV_WR_RDMA_WRITE,
            send_flags: request.flags | signalled,
            wr: sys::ibv_send_wr__bindgen_ty_2 {
                rdma: sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
                    remote_addr: request.remote,
                    rkey: request.rkey,
                },
            },
            ..Default::default()
        };
        if let Some(kind) = kind {
            let message = Message { kind, credits: self.owed };
            wr.opcode = sys::IBV_WR_RDMA_WRITE_WITH_IMM;
            wr.__bindgen_anon_1 = sys::ibv_send_wr__bindgen_ty_1 { imm_data: message.encode().to_be() };
        }
        let mut bad = std::ptr::null_mut();
        // SAFETY: the queue pair is in RTS and has room; the request and its piece are copied by the call. The memory that
        // they name is registered and kept until the end of the exchange at least, and inline data is copied.
        match unsafe { sys::ibv_post_send(self.qp.raw(), &mut wr, &mut bad) } {
            0 => {}
            errno => return Err(self.refused("a write", errno)),
        }
        self.posted += 1;
        self.unsignalled = if wanted { 0 } else { self.unsignalled };
        self.owed = if kind.is_some() { 0 } else { self.owed };
        Ok(())
    }

    /// Flags of a write of `bytes`.
    #[inline]
    fn inline_flag(&self, bytes: u64) -> u32 {
        if bytes <= u64::from(self.qp.inline_bytes()) { sys::IBV_SEND_INLINE } else { 0 }
    }

    /// Sends a small piece, if it can; true then.
    ///
    /// # Safety
    /// The piece is initialised memory that nothing else writes to meanwhile.
    pub(super) unsafe fn send_piece(&mut self, control: &Control, piece: Piece) -> Result<bool> {
        if self.credits == 0 || !self.has_room() {
            return Ok(false);
        }
        let flags = self.inline_flag(piece.bytes);
        let mut local = piece.address;
        if flags == 0 {
            local = control.address() + Lane(self.rank).slot_out(self.sent);
            // SAFETY: the piece as the caller says; the slot is this rank's own, free, and as long as any small piece.
            unsafe {
                std::ptr::copy_nonoverlapping(at(piece.address).cast_const(), at(local), piece.bytes as usize)
            };
        }
        let remote = self.remote.address + Lane(self.own).slot_in(self.sent);
        let rkey = self.remote.rkey;
        self.post(
            Request { local, lkey: control.lkey(), bytes: piece.bytes, remote, rkey, flags },
            Some(Kind::Piece),
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
        if self.taken == self.arrived || (self.owed + 1 >= TELL_AT && !self.has_room()) {
            return Ok(false);
        }
        let length = self.lengths[(self.taken % SLOTS) as usize];
        if u64::from(length) != piece.bytes {
            return Err(self.of_another_length(u64::from(length), piece.bytes));
        }
        let slot = control.address() + Lane(self.rank).slot_in(self.taken);
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

    fn tell_credits(&mut self) -> Result<()> {
        // No byte is written; the address is one that may be.
        let (remote, rkey) = (self.remote.address, self.remote.rkey);
        self.post(Request { local: 0, lkey: 0, bytes: 0, remote, rkey, flags: 0 }, Some(Kind::Credit))
    }

    /// Asks for a large piece to be written to `address`, if it can; its number then.
    pub(super) fn advertise(&mut self, control: &Control, piece: Piece, rkey: u32) -> Result<Option<u64>> {
        if self.advertised - self.finished == ADVERTS || !self.has_room() {
            return Ok(None);
        }
        let advert = Advert { address: piece.address, bytes: piece.bytes, rkey };
        let local = control.put_advert(self.rank, self.advertised, advert);
        let remote = self.remote.address + Lane(self.own).advert_in(self.advertised);
        let (lkey, rkey, flags) = (control.lkey(), self.remote.rkey, self.inline_flag(ADVERT_BYTES));
        self.post(Request { local, lkey, bytes: ADVERT_BYTES, remote, rkey, flags }, Some(Kind::Advert))?;
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
        let advert = control.advert(self.rank, self.begun);
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
        while done < piece.bytes && self.has_room() {
            let bytes = (piece.bytes - done).min(self.largest);
            let kind = (done + bytes == piece.bytes).then_some(Kind::Done);
            let (local, remote, rkey) = (piece.address + done, advert.address + done, advert.rkey);
            let flags = sys::IBV_SEND_SIGNALED;
            self.post(Request { local, lkey, bytes, remote, rkey, flags }, kind)?;
            done += bytes;
        }
        Ok((done, self.posted))
    }

    /// Whether the request with this number is complete, and its memory free.
    #[inline]
    pub(super) fn is_complete(&self, number: u64) -> bool {
        self.completed >= number
    }

    /// The request with this number, and all before it, are complete.
    #[inline]
    pub(super) fn complete(&mut self, ticket: Ticket) {
        self.completed = ticket.number;
    }

    /// A message has come, of `bytes`.
    ///
    /// # Errors
    /// `protocol` where there can't be one of its kind; `completion`.
    #[inline]
    pub(super) fn hear(&mut self, message: Message, bytes: u32) -> Result<()> {
        self.post_receive()?;
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
        let what = format!("rank {} sent {message:?} to rank {} out of turn", self.rank, self.own);
        Error::new(ErrorKind::Protocol, what)
    }

    #[cold]
    fn of_another_length(&self, there: u64, here: u64) -> Error {
        let (own, rank) = (self.own, self.rank);
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
