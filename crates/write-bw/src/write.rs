//! What write-bw does in a stretch: keeps its queues full of writes.

use linkproof_common::clock::MonotonicClock;
use linkproof_common::conduct::{Performed, Stage, Tool};
use linkproof_common::endpoint::Endpoint;
use linkproof_common::error::Result;
use linkproof_common::plan::Plan;
use linkproof_common::report::Round;
use linkproof_common::samples::CompletionLog;
use linkproof_common::session::Measure;
use linkproof_common::watch::{Stop, Until};

use crate::pace::TokenBucket;
use crate::window::{Window, pump};

/// The tool; holds what is allocated once for all rounds.
#[derive(Default)]
pub(crate) struct WriteBw {
    log: CompletionLog,
}

/// The loop over whichever endpoint the session has.
struct Pump<'a> {
    window: &'a mut Window,
    bucket: Option<TokenBucket>,
    stop: &'a Stop,
    log: &'a mut CompletionLog,
}

impl Measure for Pump<'_> {
    fn run<E: Endpoint>(self, endpoint: &mut E) -> Result<()> {
        pump(endpoint, self.window, self.bucket, &MonotonicClock::start(), self.stop, self.log)
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
        let slots = stage.slots;
        let stop = Stop::new();
        let mut window =
            Window::new(plan.qps, plan.tx_depth, plan.signal_every(slots.size), slots.count, limit)
                .in_lists_of(plan.post_list);
        self.log.clear();
        let pump =
            Pump { window: &mut window, bucket: bucket(plan, slots.size), stop: &stop, log: &mut self.log };
        let watched = stage
            .watch(until, &stop, pump)
            .map_err(|failure| failure.fact("got so far", progress(stage, &window)))?;
        let cut_short = watched.interrupted || watched.stopped_by_peer;
        let whole = limit != u64::MAX && window.completed() == limit.saturating_mul(plan.qps.into());
        Ok(Performed {
            per_qp: window.per_qp(),
            inspected: None,
            interrupted: watched.interrupted,
            round: stage.stretch.round.map(|number| Round {
                intervals: watched.intervals,
                ..self.round(stage, number, cut_short && !whole)
            }),
        })
    }
}

impl WriteBw {
    fn round(&self, stage: &Stage, number: u32, partial: bool) -> Round {
        let plan = stage.plan();
        let messages = self.log.last().completed;
        // A stretch that the depth of the queues alone can't fill, and a tenth of the round: see docs/measuring.md.
        let window = (messages / 10).max(2 * u64::from(plan.tx_depth) * u64::from(plan.qps));
        Round {
            size_bytes: stage.slots.size,
            round: number,
            direction: stage.session.role().writes(),
            messages,
            elapsed_ns: self.log.last().at_ns,
            peak_messages_per_sec: Some(self.log.peak_rate(window)),
            latency: None,
            intervals: None,
            partial,
            checked: None,
            answers_checked: None,
        }
    }
}

/// What holds the writes back, where the plan has a limit.
fn bucket(plan: &Plan, size: u64) -> Option<TokenBucket> {
    let limit = plan.rate_limit?;
    Some(TokenBucket::new(limit.rate.messages_per_sec(size), limit.burst_messages))
}

/// How far a stretch got that failed.
fn progress(stage: &Stage, window: &Window) -> String {
    let (posted, completed) = (window.posted(), window.completed());
    format!(
        "{}: {posted} writes posted, {completed} completed, {} outstanding; nothing after them is counted",
        stage.describe(),
        posted - completed
    )
}
