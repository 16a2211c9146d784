//! The out-of-band control channel: how the two ends of a run talk.
//!
//! [`Channel`] has two implementations: [`tcp::TcpChannel`], and an in-process [`pair`] for tests. Messages are
//! in [`message`]; `docs/wire-protocol.md` tells in which order they go.

pub mod dial;
pub mod frame;
pub mod hold;
pub mod message;
pub mod source;
pub mod tcp;

mod in_process;
mod protocol;

pub use in_process::{PairChannel, pair};
pub use message::Message;
pub use protocol::PeerProtocol;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result};

/// Lets another thread end a [`Channel::receive_within`] early.
pub struct Waker(Box<dyn Fn() + Send>);

impl Waker {
    fn new(wake: impl Fn() + Send + 'static) -> Self {
        Self(Box::new(wake))
    }

    /// The call in progress, or the next one, returns at once with no message.
    pub fn wake(&self) {
        (self.0)();
    }
}

/// A way to talk to the other end, message by message.
pub trait Channel {
    /// Sends a message.
    ///
    /// # Errors
    /// [`ErrorKind::PeerLost`] where the peer is gone or takes nothing.
    fn send(&mut self, message: &Message) -> Result<()>;

    /// The next message, or `None` if none comes within `wait` or a [`Waker`] ends it.
    ///
    /// # Errors
    /// [`ErrorKind::PeerLost`] where the peer is gone, [`ErrorKind::Protocol`] where it talks nonsense.
    fn receive_within(&mut self, wait: Duration) -> Result<Option<Message>>;

    /// Gives messages back that were received too early; they come again, in order, before any other.
    fn put_back(&mut self, messages: Vec<Message>);

    /// Takes what the peer says without looking at it, for `wait` or until a [`Waker`] ends it: a peer that sends
    /// then needs not wait for this end. Failures are left to whoever receives next.
    fn take_in(&mut self, wait: Duration);

    /// A waker for this channel.
    fn waker(&self) -> Waker;

    /// The other end in words, for messages: `the server b (10.0.0.2:18515)`.
    fn peer(&self) -> String;

    /// The server has said that it serves others first: whom, and how many wait before this end.
    fn told_to_wait(&mut self, serving: Option<&str>, ahead: u32) {
        let _ = (serving, ahead);
    }

    /// The next message but [`Message::Progress`], of which `progress` is told; a peer's [`Message::Abort`] is its
    /// error, marked as the peer's. An end that waits tells the other all the time that it lives.
    ///
    /// # Errors
    /// As [`Channel::receive_within`]; [`ErrorKind::PeerTimeout`] where the peer says nothing at all for `limit`;
    /// [`ErrorKind::Interrupted`] where the user asks to stop.
    fn expect_with(&mut self, limit: Duration, progress: &mut dyn FnMut(u64)) -> Result<Message> {
        let mut last_heard = Instant::now();
        let mut last_told = Instant::now();
        loop {
            if last_told.elapsed() > PROGRESS_EVERY {
                last_told = Instant::now();
                self.send(&Message::Progress { completed: 0 })?;
            }
            if crate::interrupt::requested() {
                return Err(interrupted());
            }
            let left = (last_heard + limit).saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(crate::watch::silence(limit));
            }
            match self.receive_within(left.min(LOOK_AROUND))? {
                // A wish to stop has no hold on an end that is only waiting, and an interval of the peer's that ended
                // after this end's part is in its outcome as well.
                None | Some(Message::Stop) => {}
                Some(Message::Interval { .. }) => last_heard = Instant::now(),
                Some(Message::Progress { completed }) => {
                    progress(completed);
                    last_heard = Instant::now();
                }
                Some(Message::Wait { serving, ahead }) => {
                    self.told_to_wait(serving.as_deref(), ahead);
                    last_heard = Instant::now();
                }
                Some(Message::Abort { error }) => return Err(error.from_peer(&self.peer())),
                Some(message) => return Ok(message),
            }
        }
    }

    /// The next message but progress.
    ///
    /// # Errors
    /// As [`Channel::expect_with`].
    fn expect_any(&mut self, limit: Duration) -> Result<Message> {
        self.expect_with(limit, &mut |_| {})
    }
}

/// How often an end tells the other that it lives, and in a stretch how far it is: four times in the silence that a
/// server with other clients puts up with, [`hold::HELD_SILENCE`].
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// How often a waiting end looks whether the user wants to stop.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// Does `work` of this end, telling the other all the time that it lives, and taking in what it says: filling,
/// registering and checking many gigabytes, or making thousands of queue pairs, takes longer than a peer may be silent
/// or wait to be read.
pub fn while_working<R>(channel: &mut (dyn Channel + Send), work: impl FnOnce() -> R) -> R {
    let waker = channel.waker();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| keep_alive(channel, &over));
        let _ends_it = Ending { over: &over, waker };
        work()
    })
}

fn keep_alive(channel: &mut dyn Channel, over: &AtomicBool) {
    let mut told = Instant::now();
    while !over.load(Ordering::Acquire) {
        channel.take_in(PROGRESS_EVERY.saturating_sub(told.elapsed()));
        if told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            // A peer that is gone is found by the next step, which has its story.
            let _ = channel.send(&Message::Progress { completed: 0 });
        }
    }
}

/// Ends [`keep_alive`], also where the work panics.
struct Ending<'a> {
    over: &'a AtomicBool,
    waker: Waker,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// What data connections begin with, so that those of another run are told apart.
pub fn random_token() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library's hash maps are keyed at random; a hash of nothing is as random as the key.
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// The failure that stands for the user's wish to stop.
pub fn interrupted() -> Error {
    Error::new(ErrorKind::Interrupted, "interrupted")
}

/// The peer said something that does not belong here.
pub fn out_of_order(expected: &str, got: &Message) -> Error {
    Error::new(
        ErrorKind::Protocol,
        format!("the peer sent \"{}\" where \"{expected}\" was expected", got.name()),
    )
    .hint("both ends should be of one version; this is a defect of one of them otherwise")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_works_says_that_it_lives_and_listens() {
        let (mut ours, mut theirs) = pair();
        theirs.send(&Message::Ready).unwrap();
        let result = while_working(&mut ours, || {
            for _ in 0..2 {
                let heard = theirs.receive_within(Duration::from_secs(20)).unwrap();
                assert_eq!(heard, Some(Message::Progress { completed: 0 }));
            }
            7
        });
        assert_eq!(result, 7);
        assert_eq!(ours.expect_any(Duration::from_secs(20)).unwrap(), Message::Ready);
    }
}
