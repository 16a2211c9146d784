//! The measured loops, in the turn of a rank's stream.
#![allow(unsafe_code, reason = "calls on device memory")]

use std::time::{Duration, Instant};

use linkproof_common::cuda::{Event, Graph};
use linkproof_common::error::Result;

use super::comm::Buffers;
use super::{Memory, Nccl, Ready, Reserved, ras};
use crate::backend::{Pacing, Stretch};
use crate::measure::{IterationLog, dawdle, now_ns};

impl Nccl {
    /// Each iteration between two events; and, where nothing has to happen between them, as many again without, since
    /// events keep one collective's begin from the end of the one before: that costs 3 to 9 us a call (two H200, NVLink).
    pub(super) fn iterate(
        &self,
        ready: &Reserved<'_>,
        stretch: &Stretch,
        log: &mut IterationLog,
    ) -> Result<()> {
        if self.choice.graph_launches > 0 {
            self.connect(ready)?;
        }
        self.marked(ready, stretch, log)?;
        if stretch.pacing == Pacing::Pipelined && stretch.delay.is_none() {
            log.batch_ns = Some(self.batch(ready, stretch)?);
        }
        Ok(())
    }

    fn marked(&self, ready: &Reserved<'_>, stretch: &Stretch, log: &mut IterationLog) -> Result<()> {
        let n = stretch.iterations as usize;
        let events = |_| Ok((Event::new(&self.context)?, Event::new(&self.context)?));
        let marks: Vec<(Event, Event)> = (0..n).map(events).collect::<Result<_>>()?;
        let one = self.recorded(ready, 1, stretch.calls)?;
        let (zero, zero_ns, uncertainty_ns) = self.moment_on_both_clocks()?;
        log.uncertainty_ns = uncertainty_ns;
        self.come_together(ready)?;
        for (start, stop) in &marks {
            if stretch.pacing == Pacing::Aligned {
                self.come_together(ready)?;
            }
            if let Some(delay) = stretch.delay {
                self.wait()?;
                dawdle(delay);
            }
            start.record(&self.stream)?;
            self.begin(one.as_ref(), ready, 1, stretch.calls)?;
            stop.record(&self.stream)?;
        }
        self.wait()?;
        for (index, (start, stop)) in marks.iter().enumerate() {
            log.note(index, zero_ns + start.ns_since(&zero)?, zero_ns + stop.ns_since(&zero)?);
        }
        Ok(())
    }

    /// An event, when it was by the host's clock, and how wrong that may be: the closest of some attempts, each known to
    /// within the time from putting it into an idle stream to seeing it done, some microseconds. Arrivals at different GPUs are compared by it.
    fn moment_on_both_clocks(&self) -> Result<(Event, u64, u64)> {
        const ATTEMPTS: u32 = 8;
        self.wait()?;
        let attempt = || {
            let (event, before) = (Event::new(&self.context)?, now_ns());
            event.record(&self.stream)?;
            while !self.stream.is_done()? {
                std::hint::spin_loop();
            }
            let half_way = (now_ns() - before) / 2;
            Ok((event, before + half_way, half_way))
        };
        let mut closest = attempt()?;
        for _ in 1..ATTEMPTS {
            let next = attempt()?;
            if next.2 < closest.2 {
                closest = next;
            }
        }
        Ok(closest)
    }

    /// Nanoseconds from the begin of the first call to the end of the last, by the GPU's clock.
    fn batch(&self, ready: &Reserved<'_>, stretch: &Stretch) -> Result<u64> {
        let (start, stop) = (Event::new(&self.context)?, Event::new(&self.context)?);
        let all = self.recorded(ready, stretch.iterations, stretch.calls)?;
        let launches = if all.is_some() { self.choice.graph_launches } else { 1 };
        self.come_together(ready)?;
        start.record(&self.stream)?;
        for _ in 0..launches {
            self.begin(all.as_ref(), ready, stretch.iterations, stretch.calls)?;
        }
        stop.record(&self.stream)?;
        self.wait()?;
        Ok(stop.ns_since(&start)? / u64::from(launches))
    }

    /// Puts iterations into the stream, as they were recorded or call by call.
    fn begin(
        &self,
        recorded: Option<&Graph>,
        ready: &Reserved<'_>,
        iterations: u32,
        calls: u32,
    ) -> Result<()> {
        match recorded {
            Some(graph) => graph.launch(&self.stream),
            None => (0..iterations).try_for_each(|_| self.enqueue(ready, calls)),
        }
    }

    /// The first call of a kind makes connections, and some of what that takes can't be recorded: ranks of one process let
    /// their GPUs reach each other.
    fn connect(&self, ready: &Reserved<'_>) -> Result<()> {
        self.come_together(ready)?;
        self.enqueue(ready, 1)?;
        self.wait()
    }

    /// Iterations as a graph, brought to the GPU; `None` where no graph is asked for.
    fn recorded(&self, ready: &Reserved<'_>, iterations: u32, calls: u32) -> Result<Option<Graph>> {
        if self.choice.graph_launches == 0 {
            return Ok(None);
        }
        let graph = self.stream.capture(|| self.begin(None, ready, iterations, calls))?;
        graph.upload(&self.stream)?;
        Ok(Some(graph))
    }

    fn enqueue(&self, ready: &Reserved<'_>, calls: u32) -> Result<()> {
        for _ in 0..calls {
            // SAFETY: the buffers were reserved for this rank's shape of the call, and only this stream uses them.
            unsafe { self.comm.enqueue(&ready.ready.call, self.rank, ready.buffers, &self.stream) }?;
        }
        Ok(())
    }

    /// The input is where the call takes it from, and all ranks' streams have met. The host does not wait for that: ranks
    /// would come back from it tens of microseconds apart, and what they put into their streams then would begin so.
    fn come_together(&self, ready: &Reserved<'_>) -> Result<()> {
        self.copy_input(ready.memory, ready.ready)?;
        self.meet(ready.memory, ready.ready)
    }

    /// In place: the input that was kept aside goes to where the call sends from.
    fn copy_input(&self, memory: &Memory, ready: &Ready) -> Result<()> {
        let Some(at) = ready.shared else { return Ok(()) };
        if ready.shape.send_bytes == 0 {
            return Ok(());
        }
        let driver = self.context.driver();
        // SAFETY: both ranges lie in buffers of this rank, and the copy takes its turn in the stream.
        let result = unsafe {
            (driver.table().cuMemcpyDtoDAsync_v2)(
                memory.recv.address() + at.send_at,
                memory.send.address(),
                ready.shape.send_bytes as usize,
                self.stream.raw(),
            )
        };
        driver.check(result, "cuMemcpyDtoDAsync")
    }

    /// All ranks' streams meet, in the stream's turn.
    fn meet(&self, memory: &Memory, ready: &Ready) -> Result<()> {
        let (send, half) = (memory.meeting.address(), memory.meeting.len() / 2);
        let at = Buffers { send, recv: send + half };
        // SAFETY: both halves have room for the meeting, and only this stream uses them.
        unsafe { self.comm.enqueue(&ready.meeting, self.rank, at, &self.stream) }
    }

    fn wait(&self) -> Result<()> {
        let mut looked = Instant::now();
        self.stream
            .wait(self.limit, || {
                // The library is asked now and then: the question takes a lock.
                if looked.elapsed() > Duration::from_millis(50) {
                    looked = Instant::now();
                    self.comm.ensure_well()?;
                    self.alarm.check()?;
                }
                Ok(())
            })
            .map_err(|error| ras::asked_about(error.fact("rank", self.rank).fact("gpu", self.gpu.describe())))
    }
}
