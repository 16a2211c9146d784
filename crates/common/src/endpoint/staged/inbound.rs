//! From the network to a GPU's memory.
#![allow(unsafe_code, reason = "memory of a GPU is an address")]

use std::collections::VecDeque;
use std::sync::Arc;

use super::{PIECE, STAGES, Stage};
use crate::cuda::{GpuContext, Stream};
use crate::error::Result;

/// Pieces that are received from one place before another has its turn.
const PIECES_IN_TURN: usize = 64;

/// Takes bytes for device memory: while some are copied there, the next are received.
pub struct Inbound {
    stream: Stream,
    stages: Vec<Stage>,
}

/// Where bytes come from, and where they go.
pub trait Arrivals {
    /// Receives up to `room` bytes to `to`, without waiting.
    fn receive(&mut self, to: *mut u8, room: usize) -> Received;

    /// Where the next of the bytes that have been received go, of which `left` are not placed yet: a device address, and
    /// how many of them go there.
    fn place(&mut self, left: usize) -> (u64, usize);

    /// A word for all that is placed, which [`Arrivals::landed`] is told.
    fn placed(&self) -> u64;

    /// All that was placed before `placed` is in the GPU's memory.
    fn landed(&mut self, placed: u64);
}

/// What came of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes.
    Bytes(usize),
    /// Nothing at the moment.
    Nothing,
    /// Nothing, and nothing more will come.
    End,
}

impl Stage {
    /// Receives until it is full, or nothing more comes at the moment: how many bytes, and what was received last. To begin a copy
    /// costs as much as to receive 40 KiB, and a socket that is emptied as it fills gives some 150 KB at a time.
    fn fill(&self, arrivals: &mut impl Arrivals) -> (usize, Received) {
        let mut count = 0;
        loop {
            match arrivals.receive(self.memory.pointer().wrapping_add(count), PIECE - count) {
                Received::Bytes(more) if count + more < PIECE => count += more,
                Received::Bytes(more) => return (count + more, Received::Bytes(more)),
                nothing => return (count, nothing),
            }
        }
    }
}

impl Inbound {
    /// With the GPU's context made the calling thread's; another that uses it calls [`Inbound::bind`].
    ///
    /// # Errors
    /// The driver's.
    pub fn new(context: &Arc<GpuContext>) -> Result<Self> {
        context.bind()?;
        Ok(Self { stream: Stream::new(context)?, stages: Stage::several(context, STAGES)? })
    }

    /// Makes the GPU's context that of the calling thread, which then uses this.
    ///
    /// # Errors
    /// The driver's.
    pub fn bind(&self) -> Result<()> {
        self.stream.context().bind()
    }

    /// Receives as long as something comes, or it is another's turn; all of it is in the GPU's memory when this returns.
    /// Whether more may come.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// What is placed is device memory of the context.
    pub unsafe fn take(&self, arrivals: &mut impl Arrivals) -> Result<bool> {
        let mut under_way = VecDeque::with_capacity(self.stages.len());
        for number in 0..PIECES_IN_TURN {
            if under_way.len() == self.stages.len() {
                self.wait_for_one(&mut under_way, arrivals)?;
            }
            let stage = self.stage(number);
            let (count, end) = stage.fill(arrivals);
            if count > 0 {
                // SAFETY: the caller vouches for what is placed; the stage's copy before has been waited for.
                unsafe { self.copy(stage, count, arrivals)? };
                under_way.push_back((number, arrivals.placed()));
                self.tell_of_those_done(&mut under_way, arrivals)?;
            }
            match end {
                Received::Bytes(_) => {}
                // While that is copied more may come.
                Received::Nothing if count > 0 => {}
                Received::Nothing if under_way.is_empty() => return Ok(true),
                Received::Nothing => self.wait_for_all(&mut under_way, arrivals)?,
                Received::End => {
                    self.wait_for_all(&mut under_way, arrivals)?;
                    return Ok(false);
                }
            }
        }
        self.wait_for_all(&mut under_way, arrivals)?;
        Ok(true)
    }

    /// Begins to copy the `count` bytes of `stage` to where they go.
    ///
    /// # Safety
    /// As for [`Inbound::take`]; nobody else uses the stage.
    unsafe fn copy(&self, stage: &Stage, count: usize, arrivals: &mut impl Arrivals) -> Result<()> {
        let mut at = 0;
        while at < count {
            let (address, len) = arrivals.place(count - at);
            // SAFETY: the caller vouches for the device memory; the bytes lie in the stage.
            unsafe { self.stream.copy_to_device(address, stage.memory.pointer().wrapping_add(at), len)? };
            at += len;
        }
        stage.done.record(&self.stream)
    }

    /// The stage of piece `number`.
    fn stage(&self, number: usize) -> &Stage {
        &self.stages[number % self.stages.len()]
    }

    fn wait_for_one(&self, under_way: &mut UnderWay, arrivals: &mut impl Arrivals) -> Result<()> {
        if let Some((number, placed)) = under_way.pop_front() {
            self.stage(number).done.wait()?;
            arrivals.landed(placed);
        }
        Ok(())
    }

    fn wait_for_all(&self, under_way: &mut UnderWay, arrivals: &mut impl Arrivals) -> Result<()> {
        while !under_way.is_empty() {
            self.wait_for_one(under_way, arrivals)?;
        }
        Ok(())
    }

    fn tell_of_those_done(&self, under_way: &mut UnderWay, arrivals: &mut impl Arrivals) -> Result<()> {
        while let Some(&(number, placed)) = under_way.front() {
            if !self.stage(number).done.has_come()? {
                break;
            }
            under_way.pop_front();
            arrivals.landed(placed);
        }
        Ok(())
    }
}

/// Pieces that are being copied, the oldest first: their number, and what was placed with them.
type UnderWay = VecDeque<(usize, u64)>;
