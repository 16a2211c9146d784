//! What is beside GPU memory in a run: flags that processors look at, and host memory that stands for the GPU's where the
//! adapter can't reach that.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{RdmaSession, Turn, releases};
use crate::contention::Observer;
use crate::endpoint::flagged::FlaggedPingPong;
pub(super) use crate::endpoint::staged::COUNT;
use crate::endpoint::staged::{Counts, Mirrored, SourceCopies, StagedPingPong, StagedTarget, StagedWrites};
use crate::endpoint::verbs::{Classic, Extended, Fetched, Inline, Posting, VerbsPingPong};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{Buffer, GpuMemory, GpuPath};
use crate::plan::{BufferLayout, Plan, Regions, Slots, flags_of};
use crate::session::threads::{Crew, Share, beside};
use crate::session::{Measure, MeasureInTurn};

impl RdmaSession {
    /// Whether the bytes of either end go through host memory.
    pub(super) fn is_staged(&self) -> bool {
        self.mirrored().is_some() || self.peer_path == Some(GpuPath::Staged)
    }

    /// This end's GPU memory, where host memory stands for it.
    fn mirrored(&self) -> Option<&GpuMemory> {
        let staged = self.memory.path() == Some(GpuPath::Staged);
        self.memory.buffer().gpu().filter(|_| staged)
    }

    /// That memory and what stands for it, from their beginning.
    fn mirror_of(&self, gpu: &GpuMemory) -> Mirrored {
        Mirrored { device: gpu.address(), host: self.memory.address() }
    }

    /// This end's flags of `part`.
    fn flags(&self, part: Range<usize>) -> impl Iterator<Item = Regions> {
        let base = self.memory.flags().map_or(0, |flags| flags.buffer().address());
        part.map(move |qp| flags_of(base, qp))
    }

    /// Runs `measures` over writes that are staged here, or at the peer, or at both.
    pub(super) fn measure_staged<M: Measure + Send>(
        &self,
        slots: Slots,
        crew: Crew,
        layout: BufferLayout,
        measures: Vec<M>,
    ) -> Result<()> {
        if self.is_extended() {
            self.measure_staged_by::<Extended<Fetched>, Extended<Inline>, M>(slots, crew, layout, measures)
        } else {
            self.measure_staged_by::<Classic<Fetched>, Classic<Inline>, M>(slots, crew, layout, measures)
        }
    }

    fn measure_staged_by<W: Posting, C: Posting, M: Measure + Send>(
        &self,
        slots: Slots,
        crew: Crew,
        layout: BufferLayout,
        measures: Vec<M>,
    ) -> Result<()> {
        self.check_counts()?;
        crew.run(measures, |Share { thread, part, .. }| {
            let writes = self.endpoint_of::<W>(&self.paths, slots, 1, thread, part.clone());
            let source = self.mirrored().map(|gpu| {
                let region = |qp: usize| self.mirror_of(gpu).behind(layout.source(qp as u32));
                SourceCopies::new(gpu.context(), part.clone().map(region).collect(), slots)
            });
            let counted = self.peer_path == Some(GpuPath::Staged);
            let counts = counted.then(|| {
                let counts =
                    self.endpoint_of::<C>(&self.flag_paths, Slots::of(COUNT), 1, thread, part.clone());
                Counts::new(counts, self.flags(part.clone()))
            });
            Ok(StagedWrites::new(writes, source.transpose()?, counts))
        })
    }

    /// A count has to go inline: later, it would tell of messages that are still to come.
    fn check_counts(&self) -> Result<()> {
        if self.inline_bytes >= COUNT {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::DeviceLimit,
            format!("{} has no inline data, which staged writes are counted by", self.device.name),
        )
        .hint("--cuda-path dmabuf or peermem, or --transport tcp"))
    }

    /// Runs `body` while what arrives is copied to the GPU, where host memory stands for its memory.
    pub(in crate::session) fn as_target<R>(
        &self,
        slots: Slots,
        plan: &Plan,
        layout: BufferLayout,
        observer: &Observer,
        body: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let Some(gpu) = self.mirrored() else { return body() };
        self.check_counts()?;
        let ground = TargetGround { session: self, gpu, slots, layout };
        let (ground, over) = (&ground, &AtomicBool::new(false));
        let job = |part| {
            move || {
                if self.is_extended() {
                    ground.serve::<Extended<Inline>>(part, over)
                } else {
                    ground.serve::<Classic<Inline>>(part, over)
                }
            }
        };
        let jobs = plan.parts().enumerate().map(job);
        beside(jobs, observer, || over.store(true, Ordering::Relaxed), body)
    }

    /// Runs `measure` over messages that flags tell of.
    pub(super) fn measure_flagged<M: MeasureInTurn>(
        &self,
        turn: Turn,
        layout: BufferLayout,
        measure: M,
    ) -> Result<()> {
        match (self.is_extended(), self.inline_bytes > 0) {
            (true, false) => self.flagged::<Extended<Fetched>, Extended<Fetched>, M>(turn, layout, measure),
            (true, true) => self.flagged::<Extended<Fetched>, Extended<Inline>, M>(turn, layout, measure),
            (false, false) => self.flagged::<Classic<Fetched>, Classic<Fetched>, M>(turn, layout, measure),
            (false, true) => self.flagged::<Classic<Fetched>, Classic<Inline>, M>(turn, layout, measure),
        }
    }

    fn flagged<W: Posting, F: Posting, M: MeasureInTurn>(
        &self,
        turn: Turn,
        layout: BufferLayout,
        measure: M,
    ) -> Result<()> {
        let Turn { regions, signal_every, slots } = turn;
        let flag = Slots::of(1);
        let released = releases(&self.flag_paths, regions);
        let flags = VerbsPingPong::<F>::new(
            self.endpoint(flag, &self.flag_paths),
            self.endpoint(flag, &released),
            regions,
            flag.size,
            signal_every,
        );
        let mut path = FlaggedPingPong::new(self.endpoint::<W>(slots, &self.paths), flags);
        match self.mirrored() {
            None => measure.run(&mut path),
            Some(gpu) => {
                let [device, host] = [gpu.address(), self.memory.address()].map(|base| layout.regions(base));
                measure.run(&mut StagedPingPong::new(gpu.context(), path, device, host, slots.size)?)
            }
        }
    }
}

/// What the threads have in common that copy what arrives.
struct TargetGround<'a> {
    session: &'a RdmaSession,
    gpu: &'a GpuMemory,
    slots: Slots,
    layout: BufferLayout,
}

impl TargetGround<'_> {
    /// Copies what arrives over the queue pairs of one thread until `over`.
    fn serve<C: Posting>(&self, (thread, part): (usize, Range<usize>), over: &AtomicBool) -> Result<()> {
        let Self { session, gpu, slots, layout } = self;
        let count = Slots::of(COUNT);
        let acks = session.endpoint_of::<C>(&session.flag_paths, count, 1, thread, part.clone());
        let sinks = part.clone().map(|qp| session.mirror_of(gpu).behind(layout.sink(qp as u32)));
        StagedTarget::new(gpu.context(), acks, session.flags(part), sinks, *slots)?.round(over)
    }
}
