//! What write-bw does in a stretch: keeps its queues full of writes.

use linkproof_common::clock::{ClockUse, MonotonicClock};
use linkproof_common::conduct::{Performed, Stage, Tool};
use linkproof_common::endpoint::Endpoint;
use linkproof_common::error::Result;
use linkproof_common::plan::{Plan, Slots};
use linkproof_common::report::Round;
use linkproof_common::samples::CompletionLog;
use linkproof_common::session::Measure;
use linkproof_common::watch::{Stop, Until, Watched};

use crate::gate::Gate;
use crate::pace::TokenBucket;
use crate::window::{Window, pump};

/// The tool; holds what is allocated once for all rounds.
#[derive(Default)]
pub(crate) struct WriteBw {
    /// One for each posting thread.
    logs: Vec<CompletionLog>,
}

/// The loop of one posting thread over whichever endpoint the session has.
struct Pump<'a> {
    work: Work<'a>,
    clock: MonotonicClock,
    gate: &'a Gate,
    stop: &'a Stop,
    log: &'a mut CompletionLog,
    done: &'a mut Option<Window>,
}

/// What a posting thread has to do in a stretch.
#[derive(Clone, Copy)]
struct Work<'a> {
    plan: &'a Plan,
    slots: Slots,
    /// Writes on each queue pair at most.
    limit: u64,
    /// Queue pairs.
    qps: u32,
}

impl Measure for Pump<'_> {
    fn run<E: Endpoint>(self, endpoint: &mut E) -> Result<()> {
        // Made here, so that it is in this thread's own memory.
        let window = self.done.insert(self.work.window());
        let Some(begin_ns) = self.gate.pass(&self.clock, self.stop) else { return Ok(()) };
        pump(endpoint, window, self.work.bucket(), begin_ns, &self.clock, self.stop, self.log)
    }
}

impl Work<'_> {
    fn window(self) -> Window {
        let Self { plan, slots, limit, qps } = self;
        Window::new(qps, plan.tx_depth, plan.signal_every(slots.size), slots.count, limit)
            .in_lists_of(plan.post_list)
    }

    /// What holds the writes back, where the plan has a limit: each thread has the share of its queue pairs, and room
    /// for a list at least.
    fn bucket(self) -> Option<TokenBucket> {
        let (plan, limit) = (self.plan, self.plan.rate_limit?);
        let per_sec =
            limit.rate.messages_per_sec(self.slots.size) * f64::from(self.qps) / f64::from(plan.qps);
        let burst = (u64::from(limit.burst_messages) * u64::from(self.qps)).div_ceil(plan.qps.into()) as u32;
        Some(TokenBucket::new(per_sec, burst.max(plan.post_list)))
    }
}

impl Tool for WriteBw {
    const NAME: &'static str = "write-bw";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn perform(&mut self, stage: &mut Stage) -> Result<Performed> {
        let plan = stage.plan();
        let (limit, until) = match (stage.stretch.round, plan.round_duration()) {
            (Some(_), Some(duration)) => (u64::MAX, Until::Time(duration)),
            (Some(_), None) => (plan.round_iterations().unwrap_or(u64::MAX), Until::Done),
            (None, _) => (plan.warmup_iterations, Until::Done),
        };
        let mut done: Vec<Option<Window>> = vec![None; plan.threads as usize];
        let watched = self.pump_all(stage, limit, until, &mut done);
        let counts = Counts::of(&done);
        let watched = watched.map_err(|failure| failure.fact("got so far", counts.progress(stage)))?;
        // Who stops a run that has no other end has not cut it short.
        let cut_short = (watched.interrupted || watched.stopped_by_peer) && !plan.is_until_stopped();
        let whole = limit != u64::MAX && counts.completed == limit.saturating_mul(plan.qps.into());
        Ok(Performed {
            per_qp: counts.per_qp,
            inspected: None,
            interrupted: watched.interrupted,
            round: stage.stretch.round.map(|number| Round {
                intervals: watched.intervals,
                ..self.round(stage, number, cut_short && !whole)
            }),
        })
    }

    fn clock(&self) -> Option<ClockUse> {
        Some(ClockUse::monotonic("one reading for a batch of completions"))
    }
}

impl WriteBw {
    /// Has each thread pump its part, and leaves in `done` how far each came.
    fn pump_all(
        &mut self,
        stage: &mut Stage,
        limit: u64,
        until: Until,
        done: &mut [Option<Window>],
    ) -> Result<Watched> {
        let (plan, slots) = (stage.plan(), stage.slots);
        self.logs.resize_with(done.len(), CompletionLog::new);
        self.logs.iter_mut().for_each(CompletionLog::clear);
        let stops: Vec<Stop> = done.iter().map(|_| Stop::new()).collect();
        let (clock, gate) = (MonotonicClock::start(), Gate::new(plan.threads));
        let own = plan.parts().zip(&stops).zip(&mut self.logs).zip(done);
        let pumps = own
            .map(|(((part, stop), log), done)| {
                let work = Work { plan, slots, limit, qps: part.len() as u32 };
                Pump { work, clock, gate: &gate, stop, log, done }
            })
            .collect();
        stage.watch(until, &stops, pumps)
    }

    fn round(&self, stage: &Stage, number: u32, partial: bool) -> Round {
        match self.logs.as_slice() {
            [log] => round(stage, number, partial, log),
            logs => round(stage, number, partial, &CompletionLog::merged(logs)),
        }
    }
}

fn round(stage: &Stage, number: u32, partial: bool, log: &CompletionLog) -> Round {
    let plan = stage.plan();
    let messages = log.last().completed;
    // A stretch that the depth of the queues alone can't fill, and a tenth of the round: see docs/measuring.md.
    let window = (messages / 10).max(2 * u64::from(plan.tx_depth) * u64::from(plan.qps));
    Round {
        size_bytes: stage.slots.size,
        round: number,
        direction: stage.session.role().writes(),
        messages,
        elapsed_ns: log.last().at_ns,
        peak_messages_per_sec: Some(log.peak_rate(window)),
        latency: None,
        intervals: None,
        partial,
        checked: None,
        answers_checked: None,
    }
}

/// How far all threads of a stretch came.
struct Counts {
    posted: u64,
    completed: u64,
    per_qp: Vec<u64>,
}

impl Counts {
    fn of(done: &[Option<Window>]) -> Self {
        // A thread that could not begin has posted nothing.
        let windows = || done.iter().flatten();
        Self {
            posted: windows().map(Window::posted).sum(),
            completed: windows().map(Window::completed).sum(),
            per_qp: windows().flat_map(Window::per_qp).collect(),
        }
    }

    /// For a stretch that failed.
    fn progress(&self, stage: &Stage) -> String {
        let Self { posted, completed, .. } = self;
        format!(
            "{}: {posted} writes posted, {completed} completed, {} outstanding; nothing after them is counted",
            stage.describe(),
            posted - completed
        )
    }
}
