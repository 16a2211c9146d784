//! How rounds end, told from outside.

use super::*;
use std::sync::Mutex;

use crate::exchange::{PairChannel, Waker, pair};

fn wait_until(stop: &Stop, condition: impl Fn(&Stop) -> bool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition(stop) {
        assert!(Instant::now() < deadline, "the watcher did nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[test]
fn the_end_of_the_time_lets_the_loop_finish() {
    let (mut ours, _theirs) = pair();
    let stop = Stop::new();
    let begin = Instant::now();
    let (result, watched) = watched(&mut ours, Until::Time(Duration::from_millis(50)), &stop, None, || {
        wait_until(&stop, Stop::must_finish)
    });
    assert!(result.is_ok() && watched.failure.is_none());
    assert!(begin.elapsed() >= Duration::from_millis(50));
    assert!(!stop.must_abandon());
}

#[test]
fn a_peer_that_leaves_at_its_time_ends_the_round_and_is_no_failure() {
    let (mut ours, mut theirs) = pair();
    theirs.send(&Message::Goodbye).unwrap();
    let stop = Stop::new();
    let (result, watched) =
        watched(&mut ours, Until::PeersLeave(Duration::from_secs(20)), &stop, None, || {
            wait_until(&stop, Stop::must_abandon)
        });
    assert!(result.is_ok() && watched.failure.is_none() && !watched.interrupted);
}

#[test]
fn a_peer_that_stays_beyond_its_time_is_told() {
    let (mut ours, _theirs) = pair();
    let stop = Stop::new();
    let (_, watched) = watched(&mut ours, Until::PeersLeave(Duration::from_millis(50)), &stop, None, || {
        wait_until(&stop, Stop::must_abandon)
    });
    let failure = watched.failure.unwrap();
    assert_eq!(failure.kind, ErrorKind::PerftestPeer);
    assert!(failure.hint.unwrap().contains("-D"));
}

#[test]
fn several_loops_are_watched_as_one() {
    let (mut ours, _theirs) = pair();
    let stops: Vec<Stop> = (0..3).map(|_| Stop::new()).collect();
    let until = Until::Time(Duration::from_millis(50));
    let (result, watched) = watched(&mut ours, until, &stops[..], None, || {
        stops.iter().zip(1..).for_each(|(stop, completed)| stop.note_completed(completed));
        stops.iter().try_for_each(|stop| wait_until(stop, Stop::must_finish))
    });
    assert!(result.is_ok() && watched.failure.is_none());
    assert_eq!(Stops::from(&stops[..]).completed(), 1 + 2 + 3);
    let lines: Vec<usize> = stops.iter().map(|stop| std::ptr::from_ref(stop).addr() / 128).collect();
    assert!(lines.windows(2).all(|pair| pair[0] != pair[1]), "two counts share a cache line: {lines:?}");
}

#[test]
fn a_vanished_peer_ends_the_round() {
    let (mut ours, theirs) = pair();
    drop(theirs);
    let stop = Stop::new();
    let (_, watched) = watched(&mut ours, Until::Done, &stop, None, || wait_until(&stop, Stop::must_abandon));
    assert_eq!(watched.failure.unwrap().kind, ErrorKind::PeerLost);
}

#[test]
fn the_peers_failure_ends_the_round_and_is_marked() {
    let (mut ours, mut theirs) = pair();
    theirs.send(&Message::Progress { completed: 7 }).unwrap();
    theirs.send(&Message::Abort { error: Error::new(ErrorKind::Memlock, "too little") }).unwrap();
    let stop = Stop::new();
    let (_, watched) = watched(&mut ours, Until::Done, &stop, None, || wait_until(&stop, Stop::must_abandon));
    assert_eq!(watched.peer_completed, 7);
    let failure = watched.failure.unwrap();
    assert!(failure.what.contains("could not go on: too little"), "{}", failure.what);
}

#[test]
fn the_peers_wish_to_stop_lets_the_loop_finish() {
    let (mut ours, mut theirs) = pair();
    theirs.send(&Message::Stop).unwrap();
    let stop = Stop::new();
    let (result, watched) =
        watched(&mut ours, Until::Done, &stop, None, || wait_until(&stop, Stop::must_finish));
    assert!(result.is_ok() && watched.stopped_by_peer && !watched.interrupted);
}

#[test]
fn what_belongs_to_the_next_step_is_put_back() {
    let (mut ours, mut theirs) = pair();
    theirs.send(&Message::Ready).unwrap();
    let stop = Stop::new();
    let (_, watched) = watched(&mut ours, Until::Time(Duration::from_millis(60)), &stop, None, || {
        wait_until(&stop, Stop::must_finish)
    });
    assert!(watched.failure.is_none());
    assert_eq!(ours.receive_within(Duration::from_secs(1)).unwrap(), Some(Message::Ready));
}

/// Notes how long each wait may be.
struct Noting<'a>(PairChannel, &'a Mutex<Vec<Duration>>);

impl Channel for Noting<'_> {
    fn send(&mut self, message: &Message) -> Result<()> {
        self.0.send(message)
    }

    fn receive_within(&mut self, wait: Duration) -> Result<Option<Message>> {
        self.1.lock().unwrap().push(wait);
        self.0.receive_within(wait)
    }

    fn put_back(&mut self, messages: Vec<Message>) {
        self.0.put_back(messages);
    }

    fn take_in(&mut self, wait: Duration) {
        self.0.take_in(wait);
    }

    fn waker(&self) -> Waker {
        self.0.waker()
    }

    fn peer(&self) -> String {
        self.0.peer()
    }
}

#[test]
fn a_watcher_sleeps_until_there_is_something_to_do() {
    let (ours, _theirs) = pair();
    let waits = Mutex::new(Vec::new());
    let stop = Stop::new();
    let until = Until::Time(PROGRESS_EVERY * 3 / 2);
    let (result, _) =
        watched(&mut Noting(ours, &waits), until, &stop, None, || wait_until(&stop, Stop::must_finish));
    assert!(result.is_ok());
    let waits = waits.into_inner().unwrap();
    // For the progress, for the end of the time, and for the end of the loop; a clock that wakes early makes it more.
    assert!(waits.len() <= 6 && waits[0] > PROGRESS_EVERY * 9 / 10, "{waits:?}");
}
