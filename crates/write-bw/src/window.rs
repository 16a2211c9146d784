//! The measured loop: keep every queue full, until so many writes are done or the round is told to finish.

use linkproof_common::clock::Clock;
use linkproof_common::endpoint::Endpoint;
use linkproof_common::error::Result;
use linkproof_common::samples::CompletionLog;
use linkproof_common::watch::Stop;

use crate::lane::{Fill, InLists, Lane, OneByOne, Rules};
use crate::pace::{Pace, TokenBucket, Unpaced};

/// All writes of a stretch: how many there may be, how many are posted and completed.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    lanes: Vec<Lane>,
    rules: Rules,
    post_list: u64,
    completed: u64,
    closed: bool,
    /// The queue pair whose turn it is, where they take turns.
    turn: usize,
}

impl Window {
    /// A window of `depth` writes on each of `qps` queue pairs, for `limit` writes each, through `slots` slots in
    /// turn, signalling every `signal_every`-th.
    pub(crate) fn new(qps: u32, depth: u32, signal_every: u32, slots: u64, limit: u64) -> Self {
        Self {
            lanes: vec![Lane { limit, ..Lane::default() }; qps as usize],
            rules: Rules { depth: depth.into(), signal_every, slots },
            post_list: 1,
            completed: 0,
            closed: false,
            turn: 0,
        }
    }

    /// The same window, filled in lists of `post_list` writes. The depth and the signal interval are whole numbers
    /// of lists: see [`linkproof_common::plan::Plan::check`].
    pub(crate) fn in_lists_of(self, post_list: u32) -> Self {
        Self { post_list: post_list.max(1).into(), ..self }
    }

    /// Writes completed over all queue pairs.
    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    /// Writes posted over all queue pairs.
    pub(crate) fn posted(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.posted).sum()
    }

    /// Writes completed on each queue pair.
    pub(crate) fn per_qp(&self) -> Vec<u64> {
        self.lanes.iter().map(|lane| lane.completed).collect()
    }

    fn is_done(&self) -> bool {
        self.lanes.iter().all(|lane| lane.completed >= lane.limit)
    }

    /// Nothing more is posted than a last signalled write for each queue with unsignalled ones in it, without
    /// which those would never be known to be complete.
    #[cold]
    fn close(&mut self) {
        for lane in &mut self.lanes {
            lane.limit = lane.limit.min(lane.posted + u64::from(lane.unsignalled > 0));
        }
        self.closed = true;
    }

    #[inline]
    pub(crate) fn fill<E: Endpoint, F: Fill>(&mut self, endpoint: &mut E) -> Result<()> {
        for (qp, lane) in self.lanes.iter_mut().enumerate() {
            F::fill(endpoint, qp, lane, self.rules, self.post_list)?;
        }
        Ok(())
    }

    /// Posts while `bucket` has tokens, one list on each queue pair in turn: the first would have them all otherwise,
    /// and the others none.
    #[inline]
    pub(crate) fn fill_in_turn<E: Endpoint, F: Fill>(
        &mut self,
        endpoint: &mut E,
        bucket: &mut TokenBucket,
    ) -> Result<()> {
        let mut without_room = 0;
        while without_room < self.lanes.len() {
            let lane = &mut self.lanes[self.turn];
            match F::next(lane, self.rules, self.post_list) {
                None => without_room += 1,
                Some(writes) if bucket.take(writes) => {
                    F::post(endpoint, self.turn, lane, self.rules, writes)?;
                    without_room = 0;
                }
                Some(_) => return Ok(()),
            }
            self.turn = if self.turn + 1 == self.lanes.len() { 0 } else { self.turn + 1 };
        }
        Ok(())
    }

    #[inline]
    fn retire(&mut self, qp: usize, writes: u32) {
        self.lanes[qp].completed += u64::from(writes);
        self.completed += u64::from(writes);
    }
}

/// Pumps `window` through `endpoint`, as fast as it goes or as `bucket` allows, noting completions in `log` and their
/// number in `stop`.
///
/// Returns when all is completed, or at once where `stop` says to abandon. The time runs from `begin_ns`, a moment of
/// `clock` just before the first post; the log's last mark is the last completion.
///
/// # Errors
/// The first write that can't be posted or completes with an error.
pub(crate) fn pump<E: Endpoint, C: Clock>(
    endpoint: &mut E,
    window: &mut Window,
    bucket: Option<TokenBucket>,
    begin_ns: u64,
    clock: &C,
    stop: &Stop,
    log: &mut CompletionLog,
) -> Result<()> {
    match (window.post_list, bucket) {
        (1, None) => pump_by::<OneByOne, _, E, C>(endpoint, window, Unpaced, begin_ns, clock, stop, log),
        (1, Some(bucket)) => {
            pump_by::<OneByOne, _, E, C>(endpoint, window, bucket, begin_ns, clock, stop, log)
        }
        (_, None) => pump_by::<InLists, _, E, C>(endpoint, window, Unpaced, begin_ns, clock, stop, log),
        (_, Some(bucket)) => {
            pump_by::<InLists, _, E, C>(endpoint, window, bucket, begin_ns, clock, stop, log)
        }
    }
}

fn pump_by<F: Fill, P: Pace, E: Endpoint, C: Clock>(
    endpoint: &mut E,
    window: &mut Window,
    mut pace: P,
    begin_ns: u64,
    clock: &C,
    stop: &Stop,
    log: &mut CompletionLog,
) -> Result<()> {
    pace.begin(begin_ns);
    while !window.is_done() {
        if stop.must_finish() && !window.closed {
            window.close();
        }
        if stop.must_abandon() {
            return Ok(());
        }
        pace.fill::<F, E, C>(window, endpoint, clock)?;
        let before = window.completed;
        pace.poll(endpoint, |qp, writes| window.retire(qp, writes))?;
        if window.completed != before {
            log.record(clock.now_ns() - begin_ns, window.completed);
            stop.note_completed(window.completed);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
