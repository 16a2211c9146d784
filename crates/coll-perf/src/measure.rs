//! The measured loop, and what it leaves behind.

use std::time::{Duration, Instant};

use linkproof_common::error::Result;
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};

use crate::backend::{Pacing, Stretch};

/// When each iteration of a stretch began and ended on one rank, in nanoseconds of its monotonic clock: that of the
/// machine, so that ranks of one machine can be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IterationLog {
    /// When the rank came to the collective.
    pub starts_ns: Vec<u64>,
    /// When it had its result.
    pub stops_ns: Vec<u64>,
    /// How long as many iterations took with no clock read between them, where that was measured as well: where reading
    /// it costs time, as a GPU's events do.
    pub batch_ns: Option<u64>,
    /// By how much the times may be wrong together, where they were taken by another clock than the machine's.
    pub uncertainty_ns: u64,
}

impl IterationLog {
    /// Room for `iterations`, all of it touched, so that no page fault falls into a measurement.
    pub fn with_room_for(iterations: u32) -> Self {
        let zeros = || vec![0; iterations as usize];
        Self { starts_ns: zeros(), stops_ns: zeros(), batch_ns: None, uncertainty_ns: 0 }
    }

    /// Notes iteration `index`.
    #[inline]
    pub fn note(&mut self, index: usize, start_ns: u64, stop_ns: u64) {
        self.starts_ns[index] = start_ns;
        self.stops_ns[index] = stop_ns;
    }
}

/// The machine's monotonic clock. A reading takes some 20 ns.
#[inline]
pub fn now_ns() -> u64 {
    // CLOCK_MONOTONIC can't fail; were it missing, nothing could be measured and the times say so.
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    now.as_nanos() as u64
}

/// How often the scheduler has taken the processor from the calling thread to give it to another; 0 where the kernel does
/// not say.
pub fn preemptions() -> u64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.involuntary_context_switches() as u64)
}

/// A collective of a backend that ends when the call returns, ready to be called.
pub trait Step {
    /// Puts the input back where the last call has overwritten it; outside the time.
    fn restore(&mut self) {}

    /// Returns when all ranks have met; outside the time.
    ///
    /// # Errors
    /// As [`crate::backend::Backend::perform`].
    fn align(&mut self) -> Result<()>;

    /// Calls it once.
    ///
    /// # Errors
    /// As [`crate::backend::Backend::perform`].
    fn call(&mut self) -> Result<()>;
}

/// Performs `stretch`. What the options ask for is decided here, before the loop.
///
/// # Errors
/// As [`crate::backend::Backend::perform`].
pub fn iterate<S: Step>(step: &mut S, stretch: &Stretch, log: &mut IterationLog) -> Result<()> {
    match (stretch.pacing, stretch.delay) {
        (Pacing::Pipelined, None) => repeat(step, stretch, log, |_| Ok(()), || {}),
        (Pacing::Aligned, None) => repeat(step, stretch, log, meet, || {}),
        (Pacing::Pipelined, Some(delay)) => repeat(step, stretch, log, |_| Ok(()), || dawdle(delay)),
        (Pacing::Aligned, Some(delay)) => repeat(step, stretch, log, meet, || dawdle(delay)),
    }
}

#[inline(always)]
fn repeat<S: Step>(
    step: &mut S,
    stretch: &Stretch,
    log: &mut IterationLog,
    before: impl Fn(&mut S) -> Result<()>,
    delay: impl Fn(),
) -> Result<()> {
    for index in 0..stretch.iterations as usize {
        before(step)?;
        delay();
        let start = now_ns();
        for _ in 0..stretch.calls {
            step.call()?;
        }
        log.note(index, start, now_ns());
    }
    Ok(())
}

#[inline(always)]
fn meet<S: Step>(step: &mut S) -> Result<()> {
    step.restore();
    step.align()
}

/// Spends `delay` as a rank does that has more to compute.
pub(crate) fn dawdle(delay: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < delay {
        std::hint::spin_loop();
    }
}
