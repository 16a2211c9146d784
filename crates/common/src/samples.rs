//! What a measured round leaves behind: when how many messages had completed.
//!
//! The store is allocated before the round and never grows, whatever the round's length: when it is full, every
//! second mark is dropped and from then on only every second one kept, and so on. The first and the last
//! completion are always exact.

use std::time::Duration;

/// A moment of a round: nanoseconds since its start, and the messages completed by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Nanoseconds since the first post.
    pub at_ns: u64,
    /// Messages completed by then, over all queue pairs.
    pub completed: u64,
}

/// The marks of one round, bounded in number.
///
/// On cache lines of its own: several threads note their completions, each in one of these.
#[derive(Debug)]
#[repr(align(128))]
pub struct CompletionLog {
    marks: Vec<Mark>,
    last: Mark,
    /// Only every `stride`-th call of `record` leaves a mark.
    stride: u32,
    until_next: u32,
}

/// Marks kept in a round at most: 4096 of 16 bytes stay in the second-level cache, and bound the resolution of a
/// peak to a thousandth of the round.
const CAPACITY: usize = 4096;

impl CompletionLog {
    /// An empty log; allocates all that it will ever use.
    pub fn new() -> Self {
        Self {
            marks: Vec::with_capacity(CAPACITY),
            last: Mark { at_ns: 0, completed: 0 },
            stride: 1,
            until_next: 1,
        }
    }

    /// Forgets everything, for the next round.
    pub fn clear(&mut self) {
        self.marks.clear();
        self.last = Mark { at_ns: 0, completed: 0 };
        self.stride = 1;
        self.until_next = 1;
    }

    /// Notes that `completed` messages had completed `at_ns` after the first post. Never allocates.
    #[inline]
    pub fn record(&mut self, at_ns: u64, completed: u64) {
        debug_assert!(
            at_ns >= self.last.at_ns && completed >= self.last.completed,
            "time and count only grow"
        );
        self.last = Mark { at_ns, completed };
        self.until_next -= 1;
        if self.until_next == 0 {
            self.until_next = self.stride;
            if self.marks.len() == CAPACITY {
                self.thin();
            }
            self.marks.push(self.last);
        }
    }

    #[cold]
    fn thin(&mut self) {
        let mut index = 0;
        self.marks.retain(|_| {
            index += 1;
            index % 2 == 0
        });
        self.stride = self.stride.saturating_mul(2);
        self.until_next = self.stride;
    }

    /// The log of a round whose messages several threads completed, from the logs that they kept since they began
    /// together. Messages completed by a moment are the sum of what each thread had noted last by then.
    ///
    /// A thinned log has at least 2048 marks, so a thread's count at another's mark can be a 2048th of its messages
    /// behind: a rate over a tenth of the round is so uncertain by half a per cent.
    #[must_use]
    pub fn merged(logs: &[Self]) -> Self {
        let marks_of = |(thread, log): (usize, &'_ Self)| {
            let marks: Vec<(Mark, usize)> =
                log.marks.iter().chain(std::iter::once(&log.last)).map(|&mark| (mark, thread)).collect();
            marks
        };
        let mut all: Vec<(Mark, usize)> = logs.iter().enumerate().flat_map(marks_of).collect();
        all.sort_by_key(|(mark, _)| mark.at_ns);
        let mut counts = vec![0; logs.len()];
        let mut completed = 0;
        let marks: Vec<Mark> = all
            .into_iter()
            .map(|(mark, thread)| {
                completed += mark.completed - counts[thread];
                counts[thread] = mark.completed;
                Mark { at_ns: mark.at_ns, completed }
            })
            .collect();
        let last = marks.last().copied().unwrap_or(Mark { at_ns: 0, completed: 0 });
        Self { marks, last, stride: 1, until_next: 1 }
    }

    /// The end of the round: its last completion.
    pub fn last(&self) -> Mark {
        self.last
    }

    /// The time from the first post to the last completion.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.last.at_ns)
    }

    /// The highest message rate, in messages a second, over any stretch between two marks in which at least
    /// `window` messages completed; the rate of the whole round where that is shorter than `window`.
    ///
    /// perftest's peak is the best of all pairs of one post and one later completion, down to single messages,
    /// and so shows the burst in which a queue drains. A stretch has to be long enough that the queue's depth
    /// can't explain it: the caller passes a tenth of the round and at least twice what can be outstanding.
    pub fn peak_rate(&self, window: u64) -> f64 {
        let window = window.clamp(1, self.last.completed.max(1));
        let start = Mark { at_ns: 0, completed: 0 };
        let marks: Vec<Mark> = std::iter::once(start)
            .chain(self.marks.iter().copied())
            .chain(std::iter::once(self.last))
            .collect();
        // The tightest stretches need not cover the whole round, which may be faster than any of them.
        let mut best = rate_between(start, self.last);
        let mut from = 0;
        for to in &marks {
            while from + 1 < marks.len() && to.completed.saturating_sub(marks[from + 1].completed) >= window {
                from += 1;
            }
            if to.completed - marks[from].completed >= window {
                best = best.max(rate_between(marks[from], *to));
            }
        }
        best
    }
}

fn rate_between(from: Mark, to: Mark) -> f64 {
    let (count, time) = (to.completed - from.completed, to.at_ns - from.at_ns);
    if time > 0 { count as f64 * 1e9 / time as f64 } else { 0.0 }
}

impl Default for CompletionLog {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn log(marks: &[(u64, u64)]) -> CompletionLog {
        let mut log = CompletionLog::new();
        for &(at_ns, completed) in marks {
            log.record(at_ns, completed);
        }
        log
    }

    #[test]
    fn a_steady_round_peaks_at_its_average() {
        let steady: Vec<_> = (1..=100).map(|i| (i * 1000, i * 10)).collect();
        let rate = log(&steady).peak_rate(100);
        assert!((rate - 1e7).abs() < 1.0, "{rate}");
    }

    #[test]
    fn a_fast_stretch_shows_as_the_peak() {
        // 10 messages a microsecond for 50 µs, then 20 for 50 µs.
        let marks: Vec<_> =
            (1..=100).map(|i| (i * 1000, if i <= 50 { i * 10 } else { 500 + (i - 50) * 20 })).collect();
        let rate = log(&marks).peak_rate(150);
        assert!((rate - 2e7).abs() < 1.0, "{rate}");
    }

    #[test]
    fn a_round_shorter_than_the_window_peaks_at_its_average() {
        assert_eq!(log(&[(1000, 5)]).peak_rate(100), 5e6);
        assert_eq!(CompletionLog::new().peak_rate(100), 0.0);
    }

    #[test]
    fn several_logs_are_merged_by_their_moments() {
        let merged =
            CompletionLog::merged(&[log(&[(100, 1), (300, 2)]), log(&[(200, 10), (250, 20), (400, 30)])]);
        let marks: Vec<(u64, u64)> = merged.marks.iter().map(|mark| (mark.at_ns, mark.completed)).collect();
        // The last of each log is there twice, which changes nothing.
        assert_eq!(marks, [(100, 1), (200, 11), (250, 21), (300, 22), (300, 22), (400, 32), (400, 32)]);
        assert_eq!(merged.last(), Mark { at_ns: 400, completed: 32 });
        assert_eq!(CompletionLog::merged(&[CompletionLog::new(), log(&[(5, 1)])]).last().completed, 1);
    }

    #[test]
    fn the_peak_of_merged_logs_is_that_of_the_whole() {
        // One thread completes in the first half of the round, the other in all of it.
        let first: Vec<_> = (1..=10_000).map(|i| (i * 100, i)).collect();
        let second: Vec<_> = (1..=20_000).map(|i| (i * 100 + 50, i)).collect();
        let merged = CompletionLog::merged(&[log(&first), log(&second)]);
        assert_eq!(merged.last(), Mark { at_ns: 2_000_050, completed: 30_000 });
        let rate = merged.peak_rate(3000);
        assert!((rate / 2e7 - 1.0).abs() < 0.005, "{rate}");
    }

    #[test]
    fn memory_is_bounded_and_the_end_exact() {
        let mut log = CompletionLog::new();
        let capacity = log.marks.capacity();
        for i in 1..=1_000_003_u64 {
            log.record(i * 7, i);
        }
        assert_eq!(log.marks.capacity(), capacity);
        assert_eq!(log.last(), Mark { at_ns: 7_000_021, completed: 1_000_003 });
        assert!(log.marks.len() > CAPACITY / 4);
        let rate = log.peak_rate(100_000);
        assert!((rate - 1e9 / 7.0).abs() < 1.0, "{rate}");
    }

    proptest! {
        #[test]
        fn the_peak_is_never_below_the_average(steps in prop::collection::vec((1_u64..5000, 1_u64..64), 1..300), window in 1_u64..2000) {
            let mut log = CompletionLog::new();
            let (mut at, mut done) = (0, 0);
            for (time, count) in steps {
                at += time;
                done += count;
                log.record(at, done);
            }
            let average = done as f64 * 1e9 / at as f64;
            prop_assert!(log.peak_rate(window) >= average * (1.0 - 1e-9));
        }
    }
}
