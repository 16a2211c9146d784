//! The measured loop: keep every queue full, until so many writes are done or the round is told to finish.

use linkproof_common::clock::Clock;
use linkproof_common::endpoint::{Endpoint, Signal};
use linkproof_common::error::Result;
use linkproof_common::samples::CompletionLog;
use linkproof_common::watch::Stop;

/// The writes of one queue pair.
#[derive(Clone, Debug, Default)]
struct Lane {
    posted: u64,
    completed: u64,
    limit: u64,
    slot: u64,
    unsignalled: u32,
}

/// What a write depends on besides its lane; the same all the time.
#[derive(Clone, Copy, Debug)]
struct Rules {
    depth: u64,
    signal_every: u32,
    slots: u64,
}

impl Lane {
    /// Takes the next write: its slot, and whether it is signalled.
    #[inline(always)]
    fn next(&mut self, rules: Rules) -> (u64, Signal) {
        let slot = self.slot;
        let since = self.unsignalled + 1;
        let signalled = since == rules.signal_every || self.posted + 1 == self.limit;
        self.posted += 1;
        self.unsignalled = if signalled { 0 } else { since };
        self.slot = if slot + 1 == rules.slots { 0 } else { slot + 1 };
        (slot, if signalled { Signal::Covering(since) } else { Signal::None })
    }
}

/// How a queue is filled; chosen before the loop.
trait Fill {
    fn fill<E: Endpoint>(
        endpoint: &mut E,
        qp: usize,
        lane: &mut Lane,
        rules: Rules,
        post_list: u64,
    ) -> Result<()>;
}

/// One write at a time.
struct OneByOne;

/// A list as soon as there is room for it; at the end of a stretch it is as long as what is left.
struct InLists;

impl Fill for OneByOne {
    #[inline(always)]
    fn fill<E: Endpoint>(endpoint: &mut E, qp: usize, lane: &mut Lane, rules: Rules, _: u64) -> Result<()> {
        while lane.posted - lane.completed < rules.depth && lane.posted < lane.limit {
            let (slot, signal) = lane.next(rules);
            endpoint.post_write(qp, slot, signal)?;
        }
        Ok(())
    }
}

impl Fill for InLists {
    #[inline(always)]
    fn fill<E: Endpoint>(
        endpoint: &mut E,
        qp: usize,
        lane: &mut Lane,
        rules: Rules,
        post_list: u64,
    ) -> Result<()> {
        while lane.posted < lane.limit {
            let list = post_list.min(lane.limit - lane.posted);
            if lane.posted - lane.completed + list > rules.depth {
                break;
            }
            endpoint.post_list(qp, (0..list).map(|_| lane.next(rules)))?;
        }
        Ok(())
    }
}

/// All writes of a stretch: how many there may be, how many are posted and completed.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    lanes: Vec<Lane>,
    rules: Rules,
    post_list: u64,
    completed: u64,
    closed: bool,
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
    fn fill<E: Endpoint, F: Fill>(&mut self, endpoint: &mut E) -> Result<()> {
        for (qp, lane) in self.lanes.iter_mut().enumerate() {
            F::fill(endpoint, qp, lane, self.rules, self.post_list)?;
        }
        Ok(())
    }

    #[inline]
    fn retire(&mut self, qp: usize, writes: u32) {
        self.lanes[qp].completed += u64::from(writes);
        self.completed += u64::from(writes);
    }
}

/// Pumps `window` through `endpoint`, noting completions in `log` and their number in `stop`.
///
/// Returns when all is completed, or at once where `stop` says to abandon. The time runs from before the first
/// post; the log's last mark is the last completion.
///
/// # Errors
/// The first write that can't be posted or completes with an error.
pub(crate) fn pump<E: Endpoint, C: Clock>(
    endpoint: &mut E,
    window: &mut Window,
    clock: &C,
    stop: &Stop,
    log: &mut CompletionLog,
) -> Result<()> {
    if window.post_list == 1 {
        pump_by::<OneByOne, E, C>(endpoint, window, clock, stop, log)
    } else {
        pump_by::<InLists, E, C>(endpoint, window, clock, stop, log)
    }
}

fn pump_by<F: Fill, E: Endpoint, C: Clock>(
    endpoint: &mut E,
    window: &mut Window,
    clock: &C,
    stop: &Stop,
    log: &mut CompletionLog,
) -> Result<()> {
    let begin = clock.now_ns();
    while !window.is_done() {
        if stop.must_finish() && !window.closed {
            window.close();
        }
        if stop.must_abandon() {
            return Ok(());
        }
        window.fill::<E, F>(endpoint)?;
        let before = window.completed;
        endpoint.poll(|qp, writes| window.retire(qp, writes))?;
        if window.completed != before {
            log.record(clock.now_ns() - begin, window.completed);
            stop.note_completed(window.completed);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkproof_common::error::{Error, ErrorKind};
    use std::cell::Cell;

    /// Completes signalled writes one poll later; every nanosecond is a poll.
    #[derive(Default)]
    struct Fake {
        outstanding: u64,
        most_outstanding: u64,
        slots: Vec<u64>,
        signals: Vec<(usize, u32)>,
        posted: u64,
        fail_after: Option<u64>,
    }

    impl Endpoint for Fake {
        fn post_write(&mut self, qp: usize, slot: u64, signal: Signal) -> Result<()> {
            self.posted += 1;
            self.outstanding += 1;
            self.most_outstanding = self.most_outstanding.max(self.outstanding);
            self.slots.push(slot);
            if let Signal::Covering(writes) = signal {
                self.signals.push((qp, writes));
            }
            Ok(())
        }

        fn poll(&mut self, mut done: impl FnMut(usize, u32)) -> Result<()> {
            if self.fail_after.is_some_and(|limit| self.posted >= limit) {
                return Err(Error::new(ErrorKind::Completion, "as asked"));
            }
            for (qp, writes) in self.signals.drain(..) {
                self.outstanding -= u64::from(writes);
                done(qp, writes);
            }
            Ok(())
        }
    }

    struct Ticks(Cell<u64>);

    impl Clock for Ticks {
        fn now_ns(&self) -> u64 {
            self.0.set(self.0.get() + 1);
            self.0.get()
        }
    }

    fn pumped(window: &mut Window, endpoint: &mut Fake, stop: &Stop) -> (Result<()>, CompletionLog) {
        let mut log = CompletionLog::new();
        let result = pump(endpoint, window, &Ticks(Cell::new(0)), stop, &mut log);
        (result, log)
    }

    #[test]
    fn every_write_completes_and_the_queue_is_never_overfull() {
        for (qps, depth, limit) in [(1, 128, 5000), (3, 7, 100), (2, 1, 5), (1, 128, 1), (4, 16, 16)] {
            let mut window = Window::new(qps, depth, (depth / 4).max(1), 8, limit);
            let mut endpoint = Fake::default();
            let (result, log) = pumped(&mut window, &mut endpoint, &Stop::new());
            assert!(result.is_ok());
            assert_eq!(window.completed(), u64::from(qps) * limit);
            assert_eq!(window.per_qp(), vec![limit; qps as usize]);
            assert!(endpoint.most_outstanding <= u64::from(qps * depth));
            assert_eq!(log.last().completed, window.completed());
        }
    }

    #[test]
    fn lists_are_posted_whole_but_for_the_last() {
        #[derive(Default)]
        struct Lists(Fake, Vec<usize>);
        impl Endpoint for Lists {
            fn post_write(&mut self, _: usize, _: u64, _: Signal) -> Result<()> {
                panic!("a write outside a list")
            }
            fn post_list(&mut self, qp: usize, writes: impl Iterator<Item = (u64, Signal)>) -> Result<()> {
                let writes: Vec<_> = writes.collect();
                self.1.push(writes.len());
                writes.into_iter().try_for_each(|(slot, signal)| self.0.post_write(qp, slot, signal))
            }
            fn poll(&mut self, done: impl FnMut(usize, u32)) -> Result<()> {
                self.0.poll(done)
            }
        }
        for (depth, every, list, limit) in [(16, 4, 4, 30), (8, 8, 8, 100), (128, 32, 2, 5), (6, 6, 3, 7)] {
            let mut window = Window::new(2, depth, every, 3, limit).in_lists_of(list);
            let mut endpoint = Lists::default();
            let log = &mut CompletionLog::new();
            pump(&mut endpoint, &mut window, &Ticks(Cell::new(0)), &Stop::new(), log).unwrap();
            assert_eq!(window.per_qp(), [limit, limit]);
            assert!(endpoint.0.most_outstanding <= u64::from(2 * depth));
            let short = endpoint.1.iter().filter(|&&length| length != list as usize).count();
            assert!(short <= 2, "one for each queue pair: {:?}", endpoint.1);
        }
    }

    #[test]
    fn slots_are_used_in_turn() {
        let mut endpoint = Fake::default();
        let _ = pumped(&mut Window::new(1, 4, 1, 3, 7), &mut endpoint, &Stop::new());
        assert_eq!(endpoint.slots, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn a_round_told_to_finish_completes_what_is_outstanding() {
        struct Stopping<'a>(Fake, &'a Stop);
        impl Endpoint for Stopping<'_> {
            fn post_write(&mut self, qp: usize, slot: u64, signal: Signal) -> Result<()> {
                self.0.post_write(qp, slot, signal)
            }
            fn poll(&mut self, done: impl FnMut(usize, u32)) -> Result<()> {
                if self.0.posted > 1000 {
                    self.1.finish();
                }
                self.0.poll(done)
            }
        }
        let stop = Stop::new();
        let mut endpoint = Stopping(Fake::default(), &stop);
        let mut window = Window::new(2, 10, 4, 1, u64::MAX);
        pump(&mut endpoint, &mut window, &Ticks(Cell::new(0)), &stop, &mut CompletionLog::new()).unwrap();
        assert_eq!(window.completed(), window.posted());
        assert!(window.completed() >= 1000);
    }

    #[test]
    fn a_failed_completion_ends_the_loop_with_the_counts_kept() {
        let mut window = Window::new(1, 8, 2, 1, 1000);
        let mut endpoint = Fake { fail_after: Some(100), ..Fake::default() };
        let (result, _) = pumped(&mut window, &mut endpoint, &Stop::new());
        assert_eq!(result.unwrap_err().kind, ErrorKind::Completion);
        assert!(window.posted() >= 100 && window.completed() < window.posted());
    }
}
