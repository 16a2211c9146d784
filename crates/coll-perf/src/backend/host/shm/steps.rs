//! The algorithms of `shm`, for messages that are worth a walk to another rank's buffer.
//!
//! They have one form: come to the call and say so, wait for those whose buffers are needed, do one's part, say that
//! it is done, wait for those who use one's own buffers. Two waits a call, whatever the number of ranks; and only for
//! those that matter, so that the leaves of a broadcast don't wait for each other.
#![allow(unsafe_code, reason = "other ranks' buffers are reached by address")]

use linkproof_common::error::Result;

use super::super::copy::{Stores, copy, fence};
use super::super::fold::{Fold, Job, Scratch, fold_of};
use super::Addresses;
use super::world::Seat;
use crate::collective::{Call, Kind, Shape, Source};
use crate::measure::Step;

/// Slices that ranks reduce begin and end at lines, so that no two ranks write one.
const LINE: u64 = 64;

/// Past the caches where nothing of the result would stay in them: where all ranks' send and receive buffers together
/// are larger. Measured on an EPYC 9005 with 32 MiB of third-level cache, 2 ranks: up to buffers of 32 MiB in all
/// streaming takes 1.5 to 3 times as long, from 64 MiB on it saves a fifth of an alltoall and a twentieth of an
/// all_reduce.
fn stores_for(seat: &Seat, call: &Call) -> Stores {
    let buffers = |rank| {
        let shape = call.shape(rank);
        shape.send_bytes + shape.recv_bytes
    };
    let all: u64 = (0..call.n_ranks).map(buffers).sum();
    if all > seat.cache_bytes() { Stores::Streaming } else { Stores::Cached }
}

/// One copy from a rank's send buffer.
#[derive(Clone, Copy)]
pub(super) struct Move {
    pub(super) from_rank: u32,
    pub(super) from: *const u8,
    pub(super) to: *mut u8,
    pub(super) bytes: usize,
}

/// The copies that make up a rank's result: its own block first, since that needs no wait, then from the next rank
/// on, so that no two ranks read the same one at the same time.
pub(super) fn moves(seat: &Seat, shape: &Shape, recv: u64, begin_of: impl Fn(u32) -> *const u8) -> Vec<Move> {
    let copied = shape.parts.iter().filter_map(|part| match part.source {
        Source::Rank { rank, offset } => Some(Move {
            from_rank: rank,
            from: begin_of(rank).wrapping_add(offset as usize),
            to: pointer_mut(recv).wrapping_add(part.at as usize),
            bytes: part.bytes as usize,
        }),
        Source::Reduction { .. } => None,
    });
    let mut moves: Vec<Move> = copied.filter(|one| one.from != one.to.cast_const()).collect();
    moves.sort_by_key(|one| (one.from_rank + seat.n_ranks() - seat.rank()) % seat.n_ranks());
    moves
}

/// The address that another rank has told of, or one's own.
pub(super) fn pointer(address: u64) -> *const u8 {
    std::ptr::with_exposed_provenance(address as usize)
}

/// The same, to write to.
pub(super) fn pointer_mut(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Every rank copies what it is to get out of the others' send buffers.
pub(super) struct Pull {
    seat: Seat,
    moves: Vec<Move>,
    /// Who copies out of this rank's.
    readers: Vec<u32>,
    stores: Stores,
}

impl Pull {
    pub(super) fn new(seat: &Seat, call: &Call, shape: &Shape, all: &[Addresses]) -> Self {
        let own = all[seat.rank() as usize];
        let moves = moves(seat, shape, own.recv, |rank| pointer(all[rank as usize].send));
        let reads_here = |other: &u32| {
            let parts = call.shape(*other).parts;
            parts.iter().any(|part| matches!(part.source, Source::Rank { rank, .. } if rank == seat.rank()))
        };
        let readers = seat.others().into_iter().filter(reads_here).collect();
        Self { seat: seat.clone(), moves, readers, stores: stores_for(seat, call) }
    }
}

impl Step for Pull {
    fn align(&mut self) -> Result<()> {
        self.seat.meet()
    }

    #[inline(always)]
    fn call(&mut self) -> Result<()> {
        let number = self.seat.arrive();
        for one in &self.moves {
            self.seat.wait_arrived(one.from_rank, number)?;
            // SAFETY: the range lies in that rank's send buffer, which it does not touch between its arrival and this
            // rank's `finish`, and in this rank's receive buffer, which nobody else touches.
            unsafe { copy(one.to, one.from, one.bytes, self.stores) };
        }
        fence(self.stores);
        self.seat.finish(number);
        self.readers.iter().try_for_each(|reader| self.seat.wait_done(*reader, number))
    }
}

/// Every rank copies its block into the root's receive buffer: in a gather, where pulling would leave all the work to
/// the root.
pub(super) struct Push {
    seat: Seat,
    root: u32,
    /// The rank's block; none where it lies in its place already.
    block: Option<Move>,
    stores: Stores,
}

impl Push {
    pub(super) fn new(seat: &Seat, call: &Call, all: &[Addresses]) -> Self {
        let root = call.root.unwrap_or(0);
        let shape = call.shape(root);
        let from_rank = seat.rank();
        let from = pointer(all[from_rank as usize].send);
        let here = |source: &Source| matches!(source, Source::Rank { rank, .. } if *rank == from_rank);
        let part = shape.parts.iter().find(|part| here(&part.source));
        let to = |at: u64| pointer_mut(all[root as usize].recv).wrapping_add(at as usize);
        let block = part.map(|part| Move { from_rank, from, to: to(part.at), bytes: part.bytes as usize });
        let block = block.filter(|block| block.from != block.to.cast_const());
        Self { seat: seat.clone(), root, block, stores: stores_for(seat, call) }
    }
}

impl Step for Push {
    fn align(&mut self) -> Result<()> {
        self.seat.meet()
    }

    #[inline(always)]
    fn call(&mut self) -> Result<()> {
        let number = self.seat.arrive();
        if let Some(block) = &self.block {
            self.seat.wait_arrived(self.root, number)?;
            // SAFETY: the range lies in this rank's send buffer and in its own part of the root's receive buffer,
            // which the root does not touch between its arrival and this rank's `finish`.
            unsafe { copy(block.to, block.from, block.bytes, self.stores) };
        }
        fence(self.stores);
        self.seat.finish(number);
        if self.seat.rank() == self.root {
            (0..self.seat.n_ranks()).try_for_each(|rank| self.seat.wait_done(rank, number))?;
        }
        Ok(())
    }
}

/// Every rank reduces one slice of all buffers and stores it wherever it belongs: with all_reduce in every rank's
/// receive buffer, which is a reduce-scatter and an all-gather in one pass.
pub(super) struct Reduction {
    seat: Seat,
    others: Vec<u32>,
    job: Job,
    fold: Fold,
    scratch: Box<Scratch>,
    begin: usize,
    bytes: usize,
    input: Option<Move>,
}

impl Reduction {
    pub(super) fn new(seat: &Seat, call: &Call, all: &[Addresses], input: Option<u64>) -> Self {
        let own = all[seat.rank() as usize];
        let (begin, bytes, outputs) = match call.collective.kind {
            Kind::ReduceScatter => {
                let begin = u64::from(seat.rank()) * call.count_bytes();
                // The fold counts from the begin of the inputs; the block lies at the begin of the output.
                (begin, call.count_bytes(), vec![pointer_mut(own.recv).wrapping_sub(begin as usize)])
            }
            Kind::Reduce => {
                let (begin, bytes) = slice(seat, call);
                (begin, bytes, vec![pointer_mut(all[call.root.unwrap_or(0) as usize].recv)])
            }
            _ => {
                let (begin, bytes) = slice(seat, call);
                (begin, bytes, all.iter().map(|rank| pointer_mut(rank.recv)).collect())
            }
        };
        let send_bytes = call.shape(seat.rank()).send_bytes as usize;
        let job = Job {
            inputs: all.iter().map(|rank| pointer(rank.send)).collect(),
            outputs,
            stores: stores_for(seat, call),
        };
        Self {
            seat: seat.clone(),
            others: seat.others(),
            job,
            fold: fold_of(call.dtype, call.redop.expect("a reduction has its operation")),
            scratch: Scratch::new(),
            begin: begin as usize,
            bytes: bytes as usize,
            input: input.map(|input| kept_input(seat, input, own.send, send_bytes)),
        }
    }
}

/// The copy that puts an input back which was kept aside.
pub(super) fn kept_input(seat: &Seat, input: u64, send: u64, bytes: usize) -> Move {
    Move { from_rank: seat.rank(), from: pointer(input), to: pointer_mut(send), bytes }
}

/// Puts an input back.
pub(super) fn put_back(input: Option<Move>) {
    if let Some(input) = input {
        // SAFETY: both are buffers of this rank, of this length; the others don't read it before the next meeting.
        unsafe { copy(input.to, input.from, input.bytes, Stores::Cached) };
    }
}

/// A rank's share of the buffer: whole lines, as equal as they can be.
fn slice(seat: &Seat, call: &Call) -> (u64, u64) {
    let (n, rank, bytes) = (u64::from(seat.n_ranks()), u64::from(seat.rank()), call.count_bytes());
    let edge = |rank: u64| if rank == n { bytes } else { bytes / LINE * rank / n * LINE };
    (edge(rank), edge(rank + 1) - edge(rank))
}

impl Step for Reduction {
    fn restore(&mut self) {
        put_back(self.input);
    }

    fn align(&mut self) -> Result<()> {
        self.seat.meet()
    }

    #[inline(always)]
    fn call(&mut self) -> Result<()> {
        let number = self.seat.arrive();
        self.others.iter().try_for_each(|rank| self.seat.wait_arrived(*rank, number))?;
        // SAFETY: all ranks have come, and touch neither their send nor their receive buffers until all have
        // finished; within them, this slice is this rank's alone. Slices begin at lines, and buffers too.
        unsafe { (self.fold)(&self.job, &mut self.scratch, self.begin, self.bytes) };
        fence(self.job.stores);
        self.seat.finish(number);
        self.others.iter().try_for_each(|rank| self.seat.wait_done(*rank, number))
    }
}

/// Recursive doubling: in step k a rank takes from the one whose number differs in bit k all that it has by then.
pub(super) struct Doubling {
    seat: Seat,
    own: Option<Move>,
    /// A step each.
    steps: Vec<Move>,
    stores: Stores,
    done: u64,
}

impl Doubling {
    pub(super) fn new(seat: &Seat, call: &Call, all: &[Addresses]) -> Self {
        let (rank, block) = (seat.rank(), call.count_bytes() as usize);
        let address = all[rank as usize];
        let at = |base: u64, rank: u32| pointer_mut(base).wrapping_add(rank as usize * block);
        let own =
            Move { from_rank: rank, from: pointer(address.send), to: at(address.recv, rank), bytes: block };
        let step = |bit: u32| {
            let partner = rank ^ (1 << bit);
            // What the partner has is aligned to a whole number of what both have.
            let first = partner >> bit << bit;
            Move {
                from_rank: partner,
                from: at(all[partner as usize].recv, first).cast_const(),
                to: at(address.recv, first),
                bytes: block << bit,
            }
        };
        Self {
            seat: seat.clone(),
            own: Some(own).filter(|own| own.from != own.to.cast_const()),
            steps: (0..seat.n_ranks().trailing_zeros()).map(step).collect(),
            stores: stores_for(seat, call),
            done: 0,
        }
    }

    fn advance(&mut self) {
        self.done += 1;
        self.seat.step(self.done);
    }
}

impl Step for Doubling {
    fn align(&mut self) -> Result<()> {
        self.seat.meet()
    }

    #[inline(always)]
    fn call(&mut self) -> Result<()> {
        let number = self.seat.arrive();
        if let Some(own) = &self.own {
            // SAFETY: both ranges are this rank's; all who read its receive buffer in the call before have finished.
            unsafe { copy(own.to, own.from, own.bytes, Stores::Cached) };
        }
        self.advance();
        for index in 0..self.steps.len() {
            let step = self.steps[index];
            self.seat.wait_steps(step.from_rank, self.done)?;
            // SAFETY: the partner has done as many steps as this rank, so that the range is complete, and does not
            // write it again before all who read it have finished. The other range is this rank's.
            unsafe { copy(step.to, step.from, step.bytes, self.stores) };
            fence(self.stores);
            self.advance();
        }
        self.seat.finish(number);
        self.steps.iter().try_for_each(|step| self.seat.wait_done(step.from_rank, number))
    }
}
