//! The loops of a stretch: one on the calling thread, or several, each on a thread of its own.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;

use super::Measure;
use crate::affinity::{self, Cores, ThreadCores};
use crate::contention::Observer;
use crate::endpoint::Endpoint;
use crate::error::{Error, ErrorKind, Result, show_io_error};
use crate::plan::Plan;
use crate::watch::{Stop, Stops};

/// The threads that post in a stretch: what stops each, where they run, and which queue pairs are whose.
#[derive(Clone, Copy)]
pub(super) struct Crew<'a> {
    pub(super) plan: &'a Plan,
    pub(super) stops: Stops<'a>,
    pub(super) cores: &'a ThreadCores,
    pub(super) observer: &'a Observer,
}

impl<'a> Crew<'a> {
    /// Runs each of `measures` over the endpoint that `endpoint` makes of its thread's number and queue pairs. Several
    /// run on threads of their own, which make their endpoints themselves, so that no two of them write to one cache
    /// line.
    ///
    /// # Errors
    /// The first that any of them has; the others are told to leave, and what they say then is of no interest.
    pub(super) fn run<E: Endpoint, M: Measure + Send>(
        self,
        measures: Vec<M>,
        endpoint: impl Fn(Share<'a>) -> Result<E> + Sync,
    ) -> Result<()> {
        let count = measures.len();
        let run = |thread: usize, measure: M| {
            let nobody = || Error::new(ErrorKind::Protocol, "a loop that nobody can stop");
            let stop = self.stops.get(thread).ok_or_else(nobody)?;
            let mut endpoint = endpoint(Share { thread, part: self.plan.part(thread), stop })?;
            self.observer.around(|| measure.run(&mut endpoint))
        };
        let mut measures = (0..).zip(measures);
        if count == 1 {
            return measures.try_for_each(|(thread, measure)| run(thread, measure));
        }
        let failure = FirstFailure(Mutex::new(None));
        std::thread::scope(|scope| {
            for (thread, measure) in measures {
                let (run, failure, own) = (&run, &failure, self.cores.for_thread(thread, count));
                let body = move || {
                    let alarm = Alarm(self.stops);
                    match settle(&own).and_then(|()| run(thread, measure)) {
                        Ok(()) => alarm.call_off(),
                        Err(error) => failure.note(error),
                    }
                };
                let named = std::thread::Builder::new().name(format!("post {thread}"));
                if let Err(error) = named.spawn_scoped(scope, body) {
                    failure.note(not_started(thread, count, &error));
                    self.stops.abandon();
                    break;
                }
            }
        });
        failure.into_result()
    }
}

/// Runs `body` beside `jobs`, each on a thread of its own that `observer` looks at; `end` tells them to leave when the body is
/// over, also where it panics.
///
/// # Errors
/// The first of a job, else the body's: a job's failure is what the body has suffered from.
pub(super) fn beside<J: FnOnce() -> Result<()> + Send, R>(
    jobs: impl Iterator<Item = J>,
    observer: &Observer,
    end: impl Fn(),
    body: impl FnOnce() -> Result<R>,
) -> Result<R> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = jobs.map(|job| scope.spawn(move || observer.around(job))).collect();
        let end = AtEnd(end);
        let result = body();
        drop(end);
        let join =
            |thread: ScopedJoinHandle<Result<()>>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        threads.into_iter().try_for_each(join).and(result)
    })
}

/// Calls it when it goes.
struct AtEnd<F: Fn()>(F);

impl<F: Fn()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// What one thread of a crew has for its own.
pub(super) struct Share<'a> {
    pub(super) thread: usize,
    pub(super) part: Range<usize>,
    pub(super) stop: &'a Stop,
}

fn not_started(thread: usize, count: usize, error: &std::io::Error) -> Error {
    let what = format!("cannot start posting thread {} of {count}: {}", thread + 1, show_io_error(error));
    Error::new(ErrorKind::DeviceLimit, what)
        .hint("fewer --threads, or a higher limit of processes (ulimit -u)")
}

/// Has the calling thread run on `cores`; on those of whoever started it where they are not known.
fn settle(cores: &Cores) -> Result<()> {
    if cores.is_empty() { Ok(()) } else { affinity::run_on(cores) }
}

/// Has all loops leave when it goes, unless called off: after a failure, and also where a loop panics, which its
/// scope passes on only when all threads have ended.
struct Alarm<'a>(Stops<'a>);

impl Alarm<'_> {
    fn call_off(self) {
        std::mem::forget(self);
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// One failure tends to bring others with it; the first is the cause.
struct FirstFailure(Mutex<Option<Error>>);

impl FirstFailure {
    fn note(&self, error: Error) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    fn into_result(self) -> Result<()> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Signal;
    use crate::host::HostFiles;
    use crate::plan::tests::plan;
    use std::collections::HashSet;
    use std::thread::ThreadId;
    use std::time::{Duration, Instant};

    struct Numbered(usize);

    impl Endpoint for Numbered {
        fn post_write(&mut self, _: usize, _: u64, _: Signal) -> Result<()> {
            Ok(())
        }

        fn poll(&mut self, _: impl FnMut(usize, u32)) -> Result<()> {
            match self.0 {
                2 => Err(Error::new(ErrorKind::Completion, "on queue pair 2")),
                _ => Ok(()),
            }
        }
    }

    /// Polls until its endpoint fails or it is told to leave.
    struct Poller<'a>(&'a Stop, &'a Mutex<HashSet<ThreadId>>);

    impl Measure for Poller<'_> {
        fn run<E: Endpoint>(self, endpoint: &mut E) -> Result<()> {
            self.1.lock().unwrap().insert(std::thread::current().id());
            let deadline = Instant::now() + Duration::from_secs(20);
            while !self.0.must_abandon() {
                endpoint.poll(|_, _| ())?;
                assert!(Instant::now() < deadline, "nobody stopped it");
                std::thread::yield_now();
            }
            Ok(())
        }
    }

    fn run(count: usize, endpoint: impl Fn(Share) -> Result<Numbered> + Sync) -> (Result<()>, usize) {
        let stops: Vec<Stop> = (0..count).map(|_| Stop::new()).collect();
        let threads = Mutex::new(HashSet::new());
        let pollers = stops.iter().map(|stop| Poller(stop, &threads)).collect();
        let plan = Plan { qps: 8, threads: count as u32, ..plan() };
        let observer = Observer::new(Cores::default(), HostFiles::this_machine());
        observer.begin_round();
        let (stops, cores) = (Stops::from(&stops[..]), &ThreadCores::default());
        let crew = Crew { plan: &plan, stops, cores, observer: &observer };
        let result = crew.run(pollers, endpoint);
        assert!(observer.total().is_some_and(|total| total.thread_time_ns > 0), "every loop is observed");
        (result, threads.into_inner().unwrap().len())
    }

    #[test]
    fn the_failure_of_one_ends_all_and_is_the_one_reported() {
        let (result, threads) = run(4, |share| Ok(Numbered(share.thread)));
        assert_eq!(result.unwrap_err().what, "on queue pair 2");
        assert_eq!(threads, 4);
    }

    #[test]
    fn each_makes_its_endpoint_of_its_own_queue_pairs() {
        let parts = Mutex::new(Vec::new());
        let _ = run(4, |share| {
            parts.lock().unwrap().push(share.part);
            Ok(Numbered(2))
        });
        let mut parts = parts.into_inner().unwrap();
        parts.sort_by_key(|part| part.start);
        assert_eq!(parts, [0..2, 2..4, 4..6, 6..8]);
    }

    #[test]
    fn an_endpoint_that_cannot_be_made_ends_all() {
        let (result, _) = run(4, |share| match share.thread {
            3 => Err(Error::new(ErrorKind::PeerLost, "the socket is gone")),
            _ => Ok(Numbered(0)),
        });
        assert_eq!(result.unwrap_err().kind, ErrorKind::PeerLost);
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_panic_in_one_ends_all() {
        let _ = run(3, |share| if share.thread == 1 { panic!("as asked") } else { Ok(Numbered(0)) });
    }

    #[test]
    fn a_single_loop_stays_on_the_calling_thread() {
        let here = std::thread::current().id();
        let (result, _) = run(1, |_| {
            assert_eq!(std::thread::current().id(), here);
            Ok(Numbered(2))
        });
        assert_eq!(result.unwrap_err().what, "on queue pair 2");
    }
}
