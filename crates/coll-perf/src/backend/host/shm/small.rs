//! Small messages: every rank puts what it sends into a slot that all can read, says so, and takes what it needs out
//! of the others' slots. One wait a call instead of two: nobody waits for the readers of its own buffer, since a slot is
//! written again only two calls later, and a rank that has come to call c + 1 has finished reading those of call c.
#![allow(unsafe_code, reason = "slots are reached by address")]

use linkproof_common::error::Result;

use super::super::copy::{Stores, copy};
use super::super::fold::{Fold, Job, Scratch, fold_of};
use super::Addresses;
use super::steps::{Move, kept_input, moves, pointer, pointer_mut, put_back};
use super::world::Seat;
use crate::collective::{Call, Kind, Shape, Source};
use crate::measure::Step;

/// The largest message that goes into a slot. Measured on an EPYC 9005 with 2 ranks, pipelined: one wait instead of two
/// saves a fifth up to 512 B, and from 2 KiB on the second copy costs more than that.
const SLOT: usize = 512;
/// What a rank reads at most out of all slots: every rank reads every rank's, so that the work of a reduction grows
/// with the square of their number.
const READ_AT_MOST: u64 = 16 << 10;

/// Slots for two calls, alternating, of all ranks.
pub(super) struct Slots {
    memory: Vec<Slot>,
    n_ranks: usize,
}

#[repr(align(128))]
struct Slot(std::cell::UnsafeCell<[u8; SLOT]>);

// SAFETY: a slot is written by its rank before it arrives and read by others after, by way of raw pointers.
unsafe impl Sync for Slot {}

impl Slots {
    pub(super) fn new(n_ranks: u32) -> Self {
        let empty = || Slot(std::cell::UnsafeCell::new([0; SLOT]));
        let n_ranks = n_ranks as usize;
        Self { memory: std::iter::repeat_with(empty).take(2 * n_ranks).collect(), n_ranks }
    }

    fn of(&self, rank: usize, parity: usize) -> *mut u8 {
        self.memory[parity * self.n_ranks + rank].0.get().cast()
    }
}

/// Whether the call goes by slots. One rank of a gather or a broadcast would run ahead, and write a slot again before
/// it was read: only collectives in which every rank waits for every other can do without a second wait.
pub(super) fn fits(call: &Call, shape: &Shape) -> bool {
    let all_wait_for_all = matches!(
        call.collective.kind,
        Kind::AllReduce | Kind::AllGather | Kind::ReduceScatter | Kind::Alltoall
    );
    let small = shape.send_bytes as usize <= SLOT;
    all_wait_for_all && small && shape.send_bytes * u64::from(call.n_ranks) <= READ_AT_MOST
}

/// A small call.
pub(super) struct Small {
    seat: Seat,
    others: Vec<u32>,
    own: *const u8,
    bytes: usize,
    /// For even and for odd calls.
    take: [Take; 2],
    scratch: Box<Scratch>,
    input: Option<Move>,
}

/// How the result is taken out of the slots.
enum Take {
    Moves(Vec<Move>),
    Fold { fold: Fold, job: Job, begin: usize, bytes: usize },
}

impl Small {
    pub(super) fn new(
        seat: &Seat,
        call: &Call,
        shape: &Shape,
        all: &[Addresses],
        input: Option<u64>,
    ) -> Self {
        let own = all[seat.rank() as usize];
        let bytes = shape.send_bytes as usize;
        let take = |parity: usize| {
            let slot = |rank: u32| seat.slots().of(rank as usize, parity).cast_const();
            match call.redop {
                None => Take::Moves(moves(seat, shape, own.recv, slot)),
                Some(redop) => {
                    let part = shape.parts[0];
                    let Source::Reduction { offset } = part.source else { unreachable!("it is reduced") };
                    let output = pointer_mut(own.recv).wrapping_sub(offset as usize);
                    let inputs = (0..seat.n_ranks()).map(slot).collect();
                    let job = Job { inputs, outputs: vec![output], stores: Stores::Cached };
                    let fold = fold_of(call.dtype, redop);
                    Take::Fold { fold, job, begin: offset as usize, bytes: part.bytes as usize }
                }
            }
        };
        Self {
            seat: seat.clone(),
            others: seat.others(),
            own: pointer(own.send),
            bytes,
            take: [take(0), take(1)],
            scratch: Scratch::new(),
            input: input.map(|input| kept_input(seat, input, own.send, bytes)),
        }
    }
}

impl Step for Small {
    fn restore(&mut self) {
        put_back(self.input);
    }

    fn align(&mut self) -> Result<()> {
        self.seat.meet()
    }

    #[inline(always)]
    fn call(&mut self) -> Result<()> {
        let parity = (self.seat.calls() + 1) as usize % 2;
        let slot = self.seat.slots().of(self.seat.rank() as usize, parity);
        // SAFETY: the slot is this rank's and long enough. Its readers of two calls ago have come to the call after
        // that, which this rank has waited for.
        unsafe { copy(slot, self.own, self.bytes, Stores::Cached) };
        let number = self.seat.arrive();
        self.others.iter().try_for_each(|rank| self.seat.wait_arrived(*rank, number))?;
        match &self.take[parity] {
            Take::Moves(moves) => moves.iter().for_each(|one| {
                // SAFETY: all slots of this call are complete and stay so until all ranks have come to the next; the
                // receive buffer is this rank's.
                unsafe { copy(one.to, one.from, one.bytes, Stores::Cached) }
            }),
            // SAFETY: as above; slots begin at lines, and counts are whole elements.
            Take::Fold { fold, job, begin, bytes } => unsafe { fold(job, &mut self.scratch, *begin, *bytes) },
        }
        Ok(())
    }
}
