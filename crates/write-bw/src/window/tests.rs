use super::*;
use linkproof_common::endpoint::{List, Signal};
use linkproof_common::error::{Error, ErrorKind};
use std::cell::Cell;

/// Completes signalled writes one poll later; every nanosecond is a poll.
#[derive(Default)]
struct Fake {
    outstanding: u64,
    most_outstanding: u64,
    slots: Vec<u64>,
    qps: Vec<usize>,
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
        self.qps.push(qp);
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
    let result = pump(endpoint, window, None, 0, &Ticks(Cell::new(0)), stop, &mut log);
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
        fn post_list(&mut self, qp: usize, list: List) -> Result<()> {
            self.1.push(list.writes as usize);
            list.each().try_for_each(|(slot, signal)| self.0.post_write(qp, slot, signal))
        }
        fn poll(&mut self, done: impl FnMut(usize, u32)) -> Result<()> {
            self.0.poll(done)
        }
    }
    for (depth, every, list, limit) in [(16, 4, 4, 30), (8, 8, 8, 100), (128, 32, 2, 5), (6, 6, 3, 7)] {
        let mut window = Window::new(2, depth, every, 3, limit).in_lists_of(list);
        let mut endpoint = Lists::default();
        let log = &mut CompletionLog::new();
        pump(&mut endpoint, &mut window, None, 0, &Ticks(Cell::new(0)), &Stop::new(), log).unwrap();
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
    pump(&mut endpoint, &mut window, None, 0, &Ticks(Cell::new(0)), &stop, &mut CompletionLog::new())
        .unwrap();
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

/// A message every 100 ns, of which the clock of the tests shows at least one a turn.
fn limited(window: &mut Window, endpoint: &mut impl Endpoint, depth: u32) -> CompletionLog {
    let mut log = CompletionLog::new();
    let bucket = TokenBucket::new(1e7, depth);
    pump(endpoint, window, Some(bucket), 0, &Ticks(Cell::new(0)), &Stop::new(), &mut log).unwrap();
    log
}

#[test]
fn a_limited_round_takes_as_long_as_the_rate_makes_it_and_hardly_longer() {
    for (qps, depth, limit) in [(1, 128, 5000), (3, 7, 100), (2, 1, 50)] {
        let mut window = Window::new(qps, depth, (depth / 4).max(1), 8, limit);
        let mut endpoint = Fake::default();
        let log = limited(&mut window, &mut endpoint, 8);
        assert_eq!(window.per_qp(), vec![limit; qps as usize]);
        let due = u64::from(qps) * limit * 100;
        assert!((due..due + due / 50).contains(&log.last().at_ns), "{} of {due}", log.last().at_ns);
    }
}

#[test]
fn queue_pairs_take_turns_under_a_limit() {
    let mut endpoint = Fake::default();
    limited(&mut Window::new(3, 16, 1, 1, 3), &mut endpoint, 8);
    assert_eq!(endpoint.qps, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
}

#[test]
fn lists_wait_until_they_are_due_as_a_whole() {
    struct Counted(Fake, Vec<usize>);
    impl Endpoint for Counted {
        fn post_write(&mut self, qp: usize, slot: u64, signal: Signal) -> Result<()> {
            self.0.post_write(qp, slot, signal)
        }
        fn post_list(&mut self, qp: usize, list: List) -> Result<()> {
            self.1.push(list.writes as usize);
            list.each().try_for_each(|(slot, signal)| self.0.post_write(qp, slot, signal))
        }
        fn poll(&mut self, done: impl FnMut(usize, u32)) -> Result<()> {
            self.0.poll(done)
        }
    }
    let mut endpoint = Counted(Fake::default(), Vec::new());
    let mut window = Window::new(1, 16, 4, 1, 10).in_lists_of(4);
    let log = limited(&mut window, &mut endpoint, 4);
    assert_eq!(endpoint.1, [4, 4, 2]);
    assert!(log.last().at_ns >= 1000);
}

#[test]
fn a_limited_round_told_to_finish_ends_with_what_is_posted() {
    let stop = Stop::new();
    stop.finish();
    let mut window = Window::new(2, 16, 4, 1, u64::MAX);
    let bucket = Some(TokenBucket::new(1e7, 8));
    let log = &mut CompletionLog::new();
    pump(&mut Fake::default(), &mut window, bucket, 0, &Ticks(Cell::new(0)), &stop, log).unwrap();
    assert_eq!((window.posted(), window.completed()), (0, 0));
}
