//! A group of threads of one process.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::units::show_duration;

use super::{Alarm, Group};

/// What the threads share.
struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
    alarm: Alarm,
    limit: Duration,
}

/// One gathering after another: blobs come in until all are there, then go out until all have taken theirs.
struct State {
    blobs: Vec<Option<Vec<u8>>>,
    gathered: Option<Arc<Vec<Vec<u8>>>>,
    taken: u32,
}

/// One thread's end.
pub struct InProcess {
    rank: u32,
    meeting: Arc<Meeting>,
}

/// The ends of a group of `n_ranks` threads. Waiting longer than `limit` for another rank is a failure.
pub fn group(n_ranks: u32, limit: Duration) -> Vec<InProcess> {
    let state = State { blobs: vec![None; n_ranks as usize], gathered: None, taken: 0 };
    let meeting = Arc::new(Meeting {
        state: Mutex::new(state),
        changed: Condvar::new(),
        alarm: Alarm::default(),
        limit,
    });
    (0..n_ranks).map(|rank| InProcess { rank, meeting: Arc::clone(&meeting) }).collect()
}

impl InProcess {
    /// The alarm of the group.
    pub fn alarm(&self) -> Alarm {
        self.meeting.alarm.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.meeting.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `ready` gives something.
    fn wait<'a, T>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        ready: impl Fn(&State) -> Option<T>,
    ) -> Result<(T, MutexGuard<'a, State>)> {
        let deadline = Instant::now() + self.meeting.limit;
        loop {
            self.meeting.alarm.check()?;
            if let Some(thing) = ready(&state) {
                return Ok((thing, state));
            }
            if Instant::now() >= deadline {
                return Err(self.nobody_came(&state));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let waited = self.meeting.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn nobody_came(&self, state: &State) -> Error {
        let missing = state.blobs.iter().enumerate().filter(|(_, blob)| blob.is_none());
        let missing: Vec<String> = missing.map(|(rank, _)| rank.to_string()).collect();
        let limit = show_duration(self.meeting.limit);
        Error::new(
            ErrorKind::PeerTimeout,
            format!("rank {} has waited {limit} for the others to meet", self.rank),
        )
        .fact("missing", format!("rank {}", missing.join(", ")))
        .hint("a longer limit is set with --timeout")
    }
}

impl Group for InProcess {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn n_ranks(&self) -> u32 {
        self.lock().blobs.len() as u32
    }

    fn all_gather(&mut self, blob: &[u8]) -> Result<Vec<Vec<u8>>> {
        let rank = self.rank as usize;
        // A fast rank may come to the next gathering before a slow one has left this.
        let (_, mut state) = self.wait(self.lock(), |state| {
            (state.gathered.is_none() && state.blobs[rank].is_none()).then_some(())
        })?;
        state.blobs[rank] = Some(blob.to_vec());
        if state.blobs.iter().all(Option::is_some) {
            let blobs = state.blobs.iter_mut().map(|blob| blob.take().unwrap_or_default());
            state.gathered = Some(Arc::new(blobs.collect()));
            self.meeting.changed.notify_all();
        }
        let (gathered, mut state) = self.wait(state, |state| state.gathered.clone())?;
        state.taken += 1;
        if state.taken as usize == state.blobs.len() {
            state.taken = 0;
            state.gathered = None;
            self.meeting.changed.notify_all();
        }
        drop(state);
        Ok(Arc::unwrap_or_clone(gathered))
    }

    fn abort(&mut self, error: &Error) {
        // Under the lock: a rank that has just looked, and is about to wait, must not miss it.
        let _state = self.lock();
        self.meeting.alarm.raise(error);
        self.meeting.changed.notify_all();
    }
}

impl Drop for InProcess {
    /// A rank that leaves in a panic would be waited for.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let what = format!("rank {} ended in a defect of this program", self.rank);
            self.abort(
                &Error::new(ErrorKind::PeerLost, what).hint("its words are above; please report them"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each<T: Send>(n_ranks: u32, work: impl Fn(InProcess) -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let ends = group(n_ranks, Duration::from_secs(20));
            let threads: Vec<_> = ends.into_iter().map(|end| scope.spawn(|| work(end))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn everybody_gets_everybodys_blob_again_and_again() {
        let all = each(5, |mut end| {
            let once = |end: &mut InProcess, turn: u8| end.all_gather(&[end.rank() as u8, turn]).unwrap();
            (0..50).map(|turn| once(&mut end, turn)).collect::<Vec<_>>()
        });
        for gathered in all {
            for (turn, blobs) in gathered.iter().enumerate() {
                assert_eq!(*blobs, (0..5).map(|rank| vec![rank, turn as u8]).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn only_rank_0_gathers_and_any_is_any() {
        let gathered = each(3, |mut end| {
            let some = end.gather(b"x").unwrap().is_some();
            let rank = end.rank();
            assert!(end.any(rank == 2).unwrap() && !end.any(false).unwrap());
            end.barrier().unwrap();
            (rank, some)
        });
        assert_eq!(gathered, [(0, true), (1, false), (2, false)]);
    }

    #[test]
    fn a_failure_of_one_is_the_end_for_all_with_its_words() {
        let failed = each(3, |mut end| {
            if end.rank() == 1 {
                end.abort(&Error::new(ErrorKind::Memory, "rank 1 has no memory"));
            }
            let alarm = end.alarm();
            (end.barrier().unwrap_err().what, alarm.is_raised())
        });
        assert!(failed.iter().all(|(what, raised)| what == "rank 1 has no memory" && *raised));
    }

    #[test]
    fn a_rank_that_never_comes_is_named() {
        let mut ends = group(3, Duration::from_millis(10));
        let error = ends[0].barrier().unwrap_err();
        assert_eq!(error.kind, ErrorKind::PeerTimeout);
        assert_eq!(error.facts[0].value, "rank 1, 2");
    }

    #[test]
    fn a_rank_that_panics_does_not_leave_the_others_waiting() {
        let mut ends = group(2, Duration::from_secs(20));
        let other = ends.pop().unwrap();
        let panicked = std::thread::spawn(move || {
            let _end = other;
            panic!("as the test wants it");
        });
        assert!(ends[0].barrier().unwrap_err().what.contains("rank 1 ended in a defect"));
        assert!(panicked.join().is_err());
    }
}
