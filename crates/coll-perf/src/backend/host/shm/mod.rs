//! `shm`: ranks that are threads of one process, with one address space. It is no network: it shows what the
//! processors and the memory of one machine can do, and the best that a transport between processes could reach there.
//!
//! Every byte is copied once, straight from the sender's buffer to the receiver's; what is reduced is read once and
//! written once (`steps`). The ranks tell each other of their progress by counters in memory (`world`).

mod small;
mod steps;
mod world;

pub use world::World;

use std::sync::Arc;

use linkproof_common::error::Result;

use super::memory::Memory;
use crate::backend::{Backend, Carrier, Placement, Side, Stretch};
use crate::collective::{Call, Kind, Shape};
use crate::group::Group;
use crate::measure::{IterationLog, iterate};
use small::{Small, fits};
use steps::{Doubling, Pull, Push, Reduction};
use world::Seat;

/// One rank's part in it.
pub struct Shm {
    seat: Seat,
    memory: Memory,
    shape: Option<Shape>,
    ready: Option<Ready>,
}

/// A collective made ready, each by its algorithm.
enum Ready {
    Pull(Pull),
    Push(Push),
    Reduction(Reduction),
    Doubling(Doubling),
    Small(Small),
}

/// Where a rank's buffers are in the address space that all share.
#[derive(Clone, Copy, Debug)]
struct Addresses {
    send: u64,
    recv: u64,
}

impl Shm {
    /// Rank `rank` of `world`.
    ///
    /// # Errors
    /// `memory` where there is none at all.
    pub fn join(world: &Arc<World>, rank: u32) -> Result<Self> {
        Ok(Self {
            seat: Seat::new(Arc::clone(world), rank),
            memory: Memory::new()?,
            shape: None,
            ready: None,
        })
    }

    /// Bytes of memory that [`Backend::reserve`] takes for a rank.
    pub fn needs(send_bytes: u64, recv_bytes: u64) -> u64 {
        Memory::needs(send_bytes, recv_bytes)
    }

    fn meet(&self, group: &mut dyn Group) -> Result<Vec<Addresses>> {
        let (send, recv) = (self.memory.send_address(), self.memory.recv_address());
        let mut own = send.to_le_bytes().to_vec();
        own.extend(recv.to_le_bytes());
        let all = group.all_gather(&own)?;
        let word = |blob: &[u8], at: usize| {
            blob.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
        };
        Ok(all.iter().map(|blob| Addresses { send: word(blob, 0), recv: word(blob, 8) }).collect())
    }

    fn choose(&self, call: &Call, shape: &Shape, all: &[Addresses]) -> (Ready, &'static str) {
        let restore = self.memory.is_shared() && call.collective.reduces;
        let input = restore.then(|| self.memory.input_address());
        if fits(call, shape) {
            return (Ready::Small(Small::new(&self.seat, call, shape, all, input)), "slots");
        }
        match call.collective.kind {
            Kind::Hypercube => (Ready::Doubling(Doubling::new(&self.seat, call, all)), "recursive doubling"),
            Kind::Gather => (Ready::Push(Push::new(&self.seat, call, all)), "direct push"),
            _ if call.collective.reduces => {
                (Ready::Reduction(Reduction::new(&self.seat, call, all, input)), "slices")
            }
            _ => (Ready::Pull(Pull::new(&self.seat, call, shape, all)), "direct pull"),
        }
    }
}

impl Backend for Shm {
    fn carrier(&self) -> Carrier {
        Carrier {
            backend: "host".to_owned(),
            transport: "shm".to_owned(),
            note: "threads of one process share their memory; this is no network".to_owned(),
        }
    }

    fn reserve(&mut self, send_bytes: u64, recv_bytes: u64) -> Result<()> {
        self.ready = None;
        self.memory.reserve(send_bytes, recv_bytes)?;
        self.seat.keep(self.memory.buffers());
        Ok(())
    }

    fn set_up(&mut self, group: &mut dyn Group, call: &Call, placement: Placement) -> Result<&'static str> {
        let shape = call.shape(self.seat.rank());
        self.memory.place(&shape, placement);
        let all = self.meet(group)?;
        let (ready, name) = self.choose(call, &shape, &all);
        (self.ready, self.shape) = (Some(ready), Some(shape));
        Ok(name)
    }

    fn write(&mut self, side: Side, offset: u64, bytes: &[u8]) {
        self.memory.write(side, offset, bytes);
    }

    fn read(&self, side: Side, offset: u64, bytes: &mut [u8]) {
        self.memory.read(side, offset, bytes);
    }

    fn perform(&mut self, stretch: &Stretch, log: &mut IterationLog) -> Result<()> {
        if let Some(shape) = self.shape.as_ref().filter(|_| self.memory.is_shared()) {
            self.memory.copy_input(shape.send_bytes);
        }
        // Nobody may begin to read while another rank's input is not in its place.
        self.seat.meet()?;
        match self.ready.as_mut() {
            Some(Ready::Pull(step)) => iterate(step, stretch, log),
            Some(Ready::Push(step)) => iterate(step, stretch, log),
            Some(Ready::Reduction(step)) => iterate(step, stretch, log),
            Some(Ready::Doubling(step)) => iterate(step, stretch, log),
            Some(Ready::Small(step)) => iterate(step, stretch, log),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
