//! The target's side of RDMA writes into host memory that stands for a GPU's.
#![allow(unsafe_code, reason = "memory that the peer's adapter writes to is reached through pointers")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use super::Mirrored;
use crate::cuda::{GpuContext, Stream};
use crate::endpoint::{Endpoint, Signal};
use crate::error::Result;
use crate::plan::{Regions, Slots};

/// Looks at the counts that the peer writes behind its messages, has the GPU copy those that have come, and says so.
pub struct StagedTarget<C> {
    acks: C,
    lanes: Vec<Lane>,
    stream: Stream,
    slots: Slots,
}

/// One queue pair's.
struct Lane {
    incoming: *const u64,
    outgoing: *mut u64,
    sink: Mirrored,
    landed: u64,
    told: u64,
}

// SAFETY: the pointers lead to flags that the session keeps, and that only the thread that has this reads and writes, besides
// adapters.
unsafe impl Send for Lane {}

/// Passes in which nothing has come after which the processor is given away: on one host the peer may need it.
const LOOKS_BEFORE_YIELD: u32 = 1000;

impl<C: Endpoint> StagedTarget<C> {
    /// `acks` writes counts, inline, on the queue pairs that the messages come over; `flags` are this end's and `sinks` where
    /// the messages lie, one of each a queue pair, which the caller keeps alive longer than this.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(
        context: &Arc<GpuContext>,
        acks: C,
        flags: impl Iterator<Item = Regions>,
        sinks: impl Iterator<Item = Mirrored>,
        slots: Slots,
    ) -> Result<Self> {
        context.bind()?;
        let lane = |(flags, sink): (Regions, Mirrored)| Lane {
            incoming: flags.sink as *const u64,
            outgoing: flags.source as *mut u64,
            sink,
            landed: 0,
            told: 0,
        };
        Ok(Self { acks, lanes: flags.zip(sinks).map(lane).collect(), stream: Stream::new(context)?, slots })
    }

    /// Does so until `over`.
    ///
    /// # Errors
    /// The driver's, and those of the queue pairs.
    pub fn round(&mut self, over: &AtomicBool) -> Result<()> {
        self.stream.context().bind()?;
        let mut looks = 0_u32;
        while !over.load(Ordering::Relaxed) {
            if self.copy_what_came()? {
                looks = 0;
                self.stream.synchronize()?;
                self.tell()?;
                continue;
            }
            looks += 1;
            if looks.is_multiple_of(LOOKS_BEFORE_YIELD) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Begins to copy every message that was counted since; whether there was any.
    fn copy_what_came(&mut self) -> Result<bool> {
        let mut any = false;
        for lane in &mut self.lanes {
            // SAFETY: the flag is this end's; the peer's adapter writes it, a whole aligned word.
            let count = unsafe { lane.incoming.read_volatile() };
            // The messages were written before their count.
            fence(Ordering::Acquire);
            any |= lane.landed < count;
            while lane.landed < count {
                let offset = self.slots.offset(lane.landed % self.slots.count);
                let Mirrored { device, host } = lane.sink.behind(offset);
                // SAFETY: the slot lies in both regions, which the caller of `new` keeps.
                unsafe {
                    self.stream.copy_to_device(device, host as *const u8, self.slots.size as usize)?;
                }
                lane.landed += 1;
            }
        }
        Ok(any)
    }

    fn tell(&mut self) -> Result<()> {
        for (qp, lane) in self.lanes.iter_mut().enumerate() {
            if lane.told < lane.landed {
                lane.told = lane.landed;
                // SAFETY: the flag is this end's, and only `self` writes to it; inline, it has been read when the call returns.
                unsafe { lane.outgoing.write_volatile(lane.told) };
                self.acks.post_write(qp, 0, Signal::Covering(1))?;
            }
        }
        // Frees the queue, and tells of failures.
        self.acks.poll(|_, _| ())
    }
}
