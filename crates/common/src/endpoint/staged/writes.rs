//! RDMA writes from or into memory that stands for a GPU's: the host memory beside it, which is copied to and from it.
#![allow(unsafe_code, reason = "memory that the peer's adapter writes to is reached through pointers")]

use std::sync::Arc;

use super::Mirrored;
use crate::cuda::{GpuContext, Stream};
use crate::endpoint::{Endpoint, Signal};
use crate::error::Result;
use crate::plan::{Regions, Slots};

/// Bytes of a count.
pub const COUNT: u64 = 8;

/// Writes, each copied from the GPU before it is posted, or counted after it for the peer, who copies it, or both.
pub struct StagedWrites<W, C> {
    writes: W,
    source: Option<SourceCopies>,
    counts: Option<Counts<C>>,
}

impl<W: Endpoint, C: Endpoint> StagedWrites<W, C> {
    /// Over `writes`, from host memory. `source` where a GPU's memory stands behind it; `counts` where one stands behind the
    /// peer's: a write is then complete when the peer says that the GPU has it.
    pub fn new(writes: W, source: Option<SourceCopies>, counts: Option<Counts<C>>) -> Self {
        Self { writes, source, counts }
    }
}

impl<W: Endpoint, C: Endpoint> Endpoint for StagedWrites<W, C> {
    fn post_write(&mut self, qp: usize, slot: u64, signal: Signal) -> Result<()> {
        if let Some(source) = &self.source {
            source.copy(qp, slot)?;
        }
        match &mut self.counts {
            None => self.writes.post_write(qp, slot, signal),
            Some(counts) => {
                // The count's completion stands for both.
                self.writes.post_write(qp, slot, Signal::None)?;
                counts.post(qp, signal)
            }
        }
    }

    fn poll(&mut self, done: impl FnMut(usize, u32)) -> Result<()> {
        match &mut self.counts {
            None => self.writes.poll(done),
            Some(counts) => {
                // Completions free the queue, and tell of failures. All of them: what the peer says frees the window, and
                // the completion queue has to have room for what is then posted.
                let mut any = true;
                while any {
                    any = false;
                    self.writes.poll(|_, _| any = true)?;
                }
                counts.acknowledged(done);
                Ok(())
            }
        }
    }
}

/// Copies messages from a GPU's memory to the host memory that stands for it.
///
/// The adapter may still read the message before from the same place: as in a run over host memory, where every message of a
/// round has the same bytes, that changes nothing.
pub struct SourceCopies {
    stream: Stream,
    /// Each queue pair's source region.
    regions: Vec<Mirrored>,
    slots: Slots,
}

impl SourceCopies {
    /// Between `regions`, each queue pair's source region, which the caller keeps alive longer than this. For the calling
    /// thread.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(context: &Arc<GpuContext>, regions: Vec<Mirrored>, slots: Slots) -> Result<Self> {
        context.bind()?;
        Ok(Self { stream: Stream::new(context)?, regions, slots })
    }

    fn copy(&self, qp: usize, slot: u64) -> Result<()> {
        let Mirrored { device, host } = self.regions[qp].behind(self.slots.offset(slot));
        // SAFETY: the slot lies in both regions, which the caller of `new` keeps.
        unsafe {
            self.stream.copy_to_host(host as *mut u8, device, self.slots.size as usize)?;
        }
        self.stream.synchronize()
    }
}

/// How many writes there were on each queue pair, told to the peer, and how many of them it says are in its GPU's memory.
pub struct Counts<C> {
    counts: C,
    lanes: Vec<Counted>,
}

struct Counted {
    outgoing: *mut u64,
    incoming: *const u64,
    posted: u64,
    acknowledged: u64,
}

impl<C: Endpoint> Counts<C> {
    /// `counts` writes [`COUNT`] bytes, inline, on the same queue pairs as the messages; `flags` are this end's, one for each of
    /// them, which the caller keeps alive longer than this.
    pub fn new(counts: C, flags: impl Iterator<Item = Regions>) -> Self {
        let lane = |flags: Regions| Counted {
            outgoing: flags.source as *mut u64,
            incoming: flags.sink as *const u64,
            posted: 0,
            acknowledged: 0,
        };
        Self { counts, lanes: flags.map(lane).collect() }
    }

    fn post(&mut self, qp: usize, signal: Signal) -> Result<()> {
        let lane = &mut self.lanes[qp];
        lane.posted += 1;
        // SAFETY: the flag is this end's, and only `self` writes to it; inline, it has been read when the call returns.
        unsafe { lane.outgoing.write_volatile(lane.posted) };
        self.counts.post_write(qp, 0, signal)
    }

    fn acknowledged(&mut self, mut done: impl FnMut(usize, u32)) {
        for (qp, lane) in self.lanes.iter_mut().enumerate() {
            // SAFETY: the flag is this end's; the peer's adapter writes it, a whole aligned word.
            let total = unsafe { lane.incoming.read_volatile() };
            let more = total.saturating_sub(lane.acknowledged).min(lane.posted - lane.acknowledged);
            if more > 0 {
                lane.acknowledged += more;
                done(qp, more as u32);
            }
        }
    }
}
