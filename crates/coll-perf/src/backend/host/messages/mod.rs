//! Collectives by messages: for ranks that don't share memory.
//!
//! A call is a program of stages, made when it is set up. In a stage a rank sends and receives pieces of memory, all at
//! the same time ([`Exchange`]), and then does something with what has come: copies and reductions in its own memory.
//! What carries the pieces is another matter ([`super::tcp`], [`super::rdma`]).
#![allow(unsafe_code, reason = "pieces of a rank's own buffers by address")]

mod program;

use std::sync::Arc;

use linkproof_common::error::Result;
use linkproof_common::memory::HostBuffer;

use super::copy::{Stores, copy};
use super::fold::{Fold, Job, Scratch};
use super::memory::Memory;
use crate::backend::{Backend, Carrier, Placement, Side, Stretch};
use crate::collective::{Call, Shape};
use crate::group::Group;
use crate::measure::{IterationLog, Step, iterate};
use crate::plan::{Point, largest_buffers};
use crate::report::RankPort;

/// A piece of this rank's memory on its way to or from another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The other rank.
    pub(crate) peer: u32,
    /// Where it begins in this rank's memory.
    pub(crate) address: u64,
    /// How long it is; not 0.
    pub(crate) bytes: u64,
}

/// What carries pieces.
pub(crate) trait Exchange {
    /// What it is, in words.
    fn carrier(&self) -> Carrier;

    /// This rank.
    fn rank(&self) -> u32;

    /// How many there are.
    fn n_ranks(&self) -> u32;

    /// The RDMA port that it goes through, if it does.
    fn port(&self) -> Option<RankPort> {
        None
    }

    /// Gets ready for pieces that lie in `memory`, and in none else but for small ones; what it was told before is not
    /// used any more. Nothing is under way meanwhile, on no rank.
    ///
    /// # Errors
    /// Those of an adapter that is to reach it.
    fn hold(&mut self, _memory: &[Arc<HostBuffer>]) -> Result<()> {
        Ok(())
    }

    /// Sends and receives, all at once; returns when all is done. Between two ranks pieces go in the order of the lists,
    /// which the other end has alike.
    ///
    /// # Errors
    /// A rank that is gone or does not go on.
    ///
    /// # Safety
    /// All pieces lie in memory of this process that nothing else touches meanwhile; received ones don't overlap others.
    unsafe fn exchange(&mut self, sends: &[Piece], recvs: &[Piece]) -> Result<()>;
}

/// What a rank does with its own memory.
#[derive(Debug)]
enum Local {
    Copy { from: u64, to: u64, bytes: u64 },
    Reduce { job: Job, begin: usize, bytes: usize },
}

/// A step of a call.
#[derive(Debug, Default)]
struct Stage {
    sends: Vec<Piece>,
    recvs: Vec<Piece>,
    then: Vec<Local>,
}

/// One rank's part in it.
pub(crate) struct Messages<X> {
    exchange: X,
    memory: Memory,
    ready: Option<Program>,
}

/// A call made ready.
struct Program {
    stages: Vec<Stage>,
    fold: Option<Fold>,
    /// What was received to be reduced; the stages have its addresses.
    scratch: Option<Arc<HostBuffer>>,
    /// In place: what puts the input back.
    restore: Option<Local>,
    shape: Shape,
}

/// The bytes of all memory that pieces lie in, for a rank that goes through `points`.
pub(crate) fn needs(points: &[Point], rank: u32) -> u64 {
    let (send, recv) = largest_buffers(points, rank);
    let scratch = points.iter().map(|point| program::scratch_bytes(&point.call, rank)).max();
    Memory::needs(send, recv) + scratch.unwrap_or(0)
}

impl<X: Exchange> Messages<X> {
    /// Over `exchange`.
    ///
    /// # Errors
    /// `memory` where there is none at all.
    pub(crate) fn over(exchange: X) -> Result<Self> {
        Ok(Self { exchange, memory: Memory::new()?, ready: None })
    }
}

impl<X: Exchange> Backend for Messages<X> {
    fn carrier(&self) -> Carrier {
        self.exchange.carrier()
    }

    fn port(&self) -> Option<RankPort> {
        self.exchange.port()
    }

    fn reserve(&mut self, send_bytes: u64, recv_bytes: u64) -> Result<()> {
        self.ready = None;
        self.exchange.hold(&[])?;
        self.memory.reserve(send_bytes, recv_bytes)?;
        self.exchange.hold(&self.memory.regions())
    }

    fn set_up(&mut self, _: &mut dyn Group, call: &Call, placement: Placement) -> Result<&'static str> {
        let rank = self.exchange.rank();
        self.memory.place(&call.shape(rank), placement);
        self.ready = None;
        let (program, name) = program::of(call, rank, &self.memory)?;
        let mut memory = self.memory.regions();
        memory.extend(program.scratch.clone());
        self.exchange.hold(&memory)?;
        self.ready = Some(program);
        Ok(name)
    }

    fn write(&mut self, side: Side, offset: u64, bytes: &[u8]) {
        self.memory.write(side, offset, bytes);
    }

    fn read(&self, side: Side, offset: u64, bytes: &mut [u8]) {
        self.memory.read(side, offset, bytes);
    }

    fn perform(&mut self, stretch: &Stretch, log: &mut IterationLog) -> Result<()> {
        let Some(program) = self.ready.as_ref().filter(|_| stretch.iterations > 0) else { return Ok(()) };
        if self.memory.is_shared() {
            self.memory.copy_input(program.shape.send_bytes);
        }
        meet(&mut self.exchange)?;
        let scratch = Scratch::new();
        iterate(&mut Running { exchange: &mut self.exchange, program, scratch }, stretch, log)
    }
}

/// A program over its exchange, call by call.
struct Running<'a, X> {
    exchange: &'a mut X,
    program: &'a Program,
    scratch: Box<Scratch>,
}

impl<X: Exchange> Step for Running<'_, X> {
    fn restore(&mut self) {
        if let Some(local) = &self.program.restore {
            run(local, None);
        }
    }

    fn align(&mut self) -> Result<()> {
        meet(self.exchange)
    }

    #[inline]
    fn call(&mut self) -> Result<()> {
        for stage in &self.program.stages {
            // SAFETY: the stages were made for the buffers of this backend, which it keeps; received pieces are parts of
            // the receive buffer and of the scratch memory that no other piece of the stage is in.
            unsafe { self.exchange.exchange(&stage.sends, &stage.recvs) }?;
            for local in &stage.then {
                run(local, self.program.fold.map(|fold| (fold, &mut *self.scratch)));
            }
        }
        Ok(())
    }
}

fn run(local: &Local, fold: Option<(Fold, &mut Scratch)>) {
    match local {
        Local::Copy { from, to, bytes } => {
            let (from, to) = (pointer(*from).cast_const(), pointer(*to));
            // SAFETY: both lie in this rank's buffers, nothing else runs, and they are made so that they don't overlap.
            unsafe { copy(to, from, *bytes as usize, Stores::Cached) };
        }
        Local::Reduce { job, begin, bytes } => {
            if let Some((fold, scratch)) = fold {
                // SAFETY: inputs and outputs are this rank's buffers and its scratch memory, at the begin of lines.
                unsafe { fold(job, scratch, *begin, *bytes) };
            }
        }
    }
}

fn pointer(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Returns when all ranks have come: each tells the one 1, 2, 4 … further on, and hears from those behind.
fn meet<X: Exchange>(exchange: &mut X) -> Result<()> {
    let (rank, n, mut distance) = (exchange.rank(), exchange.n_ranks(), 1);
    let (told, mut heard) = (0_u8, 0_u8);
    while distance < n {
        let piece =
            |peer, byte: *const u8| Piece { peer, address: byte.expose_provenance() as u64, bytes: 1 };
        let send = piece((rank + distance) % n, &raw const told);
        let recv = piece((rank + n - distance) % n, &raw mut heard);
        // SAFETY: two bytes of this function.
        unsafe { exchange.exchange(&[send], &[recv]) }?;
        distance *= 2;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
