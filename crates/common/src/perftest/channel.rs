//! A connection to a perftest: its messages, each with a deadline, and a [`Channel`] for the time in between, in which
//! perftest says nothing.

use std::time::{Duration, Instant};

use super::{FIELD_LEN, Key, MTU_LEN, NUMBER_LEN, Report, SHORT_KEY_LEN, Version};
use super::{decode_mtu, decode_number, encode_mtu, encode_number};
use crate::error::{Error, ErrorKind, Result};
use crate::exchange::hold::Hold;
use crate::exchange::tcp::TcpChannel;
use crate::exchange::{Channel, Message, Waker};
use crate::plan::Role;
use crate::watch::silence;

/// How long perftest may take to answer: it allocates and registers its memory in between, as our own ends do.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How often an end that is only written to looks whether the other one lives.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long perftest may take from its last message to its end: it works out its figures, and measures its processor's clock
/// for a part of a second.
const LEAVE_LIMIT: Duration = Duration::from_secs(10);
/// How long the last message of an end that has left may take to be seen here.
const LAST_MESSAGE: Duration = Duration::from_secs(1);
/// This machine's page and cache line as perftest's default has them. Both ends take the larger, and the page bounds by
/// how much the addresses of small messages differ.
const PAGE: u32 = 4096;
const CACHE_LINE: u32 = 64;

/// A connection to a perftest.
pub struct PerftestChannel {
    tcp: TcpChannel,
    version: Version,
    role: Role,
    /// What the ends meet by: this end's first key.
    first: Option<Key>,
    /// When the other end has left, where it may.
    left: Option<Instant>,
    leave: Leave,
}

/// How the other end of a latency test leaves, which is without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Not while this end measures.
    Never,
    /// After its last message, which this end may see later than its leave.
    AfterLastMessage,
    /// When its time is over, whatever this end waits for.
    AtItsTime,
}

impl PerftestChannel {
    /// Over a connection on which the versions have been exchanged, at `role`'s end.
    pub fn new(tcp: TcpChannel, version: Version, role: Role) -> Self {
        Self { tcp, version, role, first: None, left: None, leave: Leave::Never }
    }

    /// Limits how long the other end may hold this one, or lifts the limit.
    pub fn limit_hold(&mut self, hold: Option<Hold>) {
        self.tcp.limit_hold(hold);
    }

    /// From now on the other end may leave so.
    pub fn let_leave(&mut self, leave: Leave) {
        self.leave = leave;
    }

    fn may_leave(&self) -> bool {
        self.leave != Leave::Never
    }

    /// Waits until the other end has left. The queue pairs have to stay until then: it may still wait for an
    /// acknowledgement.
    ///
    /// # Errors
    /// [`ErrorKind::PeerTimeout`], [`ErrorKind::Interrupted`]; [`ErrorKind::Protocol`] where it says something.
    pub fn wait_for_leave(&mut self) -> Result<()> {
        if self.left.is_some() {
            return Ok(());
        }
        match self.tcp.gather(1, Instant::now() + LEAVE_LIMIT) {
            Err(error) if error.kind == ErrorKind::PeerLost => Ok(()),
            Err(error) => Err(self.in_step(error, "end")),
            Ok(()) => Err(self.nonsense(self.tcp.gathered(), "end")),
        }
    }

    /// What the other end announced.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Exchanges page sizes, cache lines and MTUs; gives the other end's MTU in bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`], [`ErrorKind::PeerTimeout`] and [`ErrorKind::PeerLost`], as all that follow.
    pub fn swap_system(&mut self, mtu_bytes: u32) -> Result<u32> {
        for (ours, what) in [(PAGE, "page size"), (CACHE_LINE, "cache line size")] {
            let theirs = self.swap::<NUMBER_LEN>(encode_number(ours), what)?;
            decode_number(theirs).ok_or_else(|| self.nonsense(&theirs, what))?;
        }
        let theirs = self.swap::<MTU_LEN>(encode_mtu(mtu_bytes), "MTU")?;
        decode_mtu(theirs).ok_or_else(|| self.nonsense(&theirs, "MTU"))
    }

    /// Exchanges the keys of a queue pair; also how the ends wait for each other.
    ///
    /// # Errors
    /// As above; [`ErrorKind::GidFamily`] where one end uses GIDs and the other does not.
    pub fn swap_key(&mut self, ours: &Key) -> Result<Key> {
        let swapped = match self.role {
            Role::Client => self.say_key(ours).and_then(|()| self.hear_key()),
            Role::Server => self.hear_key().and_then(|theirs| self.say_key(ours).map(|()| theirs)),
        };
        let theirs = swapped.map_err(|error| with_addressing(error, ours))?;
        if theirs.gid.is_some() == ours.gid.is_some() {
            Ok(theirs)
        } else {
            Err(self.gid_on_one_end(&theirs))
        }
    }

    /// The server's half of a meeting of which the client's has been heard.
    ///
    /// # Errors
    /// [`ErrorKind::PeerLost`].
    pub fn answer_meeting(&mut self) -> Result<()> {
        self.first.map_or(Ok(()), |first| self.say_key(&first))
    }

    /// Waits until the other end is as far as this one: both tell their first key again.
    ///
    /// # Errors
    /// As above.
    pub fn meet(&mut self) -> Result<()> {
        let nothing_told = || Error::new(ErrorKind::Protocol, "a meeting before the keys were exchanged");
        let first = self.first.ok_or_else(nothing_told)?;
        self.swap_key(&first).map(|_| ())
    }

    /// Exchanges reports.
    ///
    /// # Errors
    /// As above.
    pub fn swap_report(&mut self, ours: &Report) -> Result<Report> {
        let mut theirs = ours.encode();
        for field in &mut theirs {
            *field = self.swap::<FIELD_LEN>(*field, "report")?;
        }
        Ok(Report::decode(theirs))
    }

    /// One message of `N` bytes each way: the client speaks first.
    fn swap<const N: usize>(&mut self, ours: [u8; N], what: &str) -> Result<[u8; N]> {
        if self.role == Role::Client {
            self.send_bytes(&ours)?;
        }
        let bytes = self.receive(N, what)?;
        let theirs = <[u8; N]>::try_from(bytes).map_err(|bytes| self.nonsense(&bytes, what))?;
        if self.role == Role::Server {
            self.send_bytes(&ours)?;
        }
        Ok(theirs)
    }

    /// Tells a key.
    ///
    /// # Errors
    /// [`ErrorKind::PeerLost`].
    pub fn say_key(&mut self, ours: &Key) -> Result<()> {
        self.first.get_or_insert(*ours);
        self.send_bytes(&ours.encode())
    }

    /// The other end's next key, however long it takes, as long as `lives` says that the end lives; that is asked five times
    /// a second.
    ///
    /// # Errors
    /// As [`Self::swap_key`]; [`ErrorKind::PeerTimeout`] where there has been no sign of life for `limit`.
    pub fn hear_key_while(&mut self, limit: Duration, mut lives: impl FnMut() -> bool) -> Result<Key> {
        let mut seen = Instant::now();
        loop {
            match self.tcp.gather(SHORT_KEY_LEN, Instant::now() + LOOK_EVERY) {
                Ok(()) => return self.hear_key(),
                Err(error) if error.kind != ErrorKind::PeerTimeout || self.tcp.is_held_too_long() => {
                    return Err(self.in_step(error, "end"));
                }
                Err(_) if lives() => {
                    seen = Instant::now();
                    self.tcp.note_life();
                }
                Err(_) if seen.elapsed() > limit => return Err(self.in_step(silence(limit), "end")),
                Err(_) => {}
            }
        }
    }

    /// The other end's next key.
    ///
    /// # Errors
    /// As [`Self::swap_key`].
    pub fn hear_key(&mut self) -> Result<Key> {
        let what = "queue pair";
        let deadline = Instant::now() + ANSWER_LIMIT;
        self.tcp.gather(SHORT_KEY_LEN, deadline).map_err(|error| self.in_step(error, what))?;
        let len = Key::len_of(self.tcp.gathered()).unwrap_or(SHORT_KEY_LEN);
        self.tcp.gather(len, deadline).map_err(|error| self.in_step(error, what))?;
        let bytes = self.tcp.take_gathered(len);
        Key::decode(&bytes).ok_or_else(|| self.nonsense(&bytes, what))
    }

    fn receive(&mut self, len: usize, what: &str) -> Result<Vec<u8>> {
        let deadline = Instant::now() + ANSWER_LIMIT;
        self.tcp.gather(len, deadline).map_err(|error| self.in_step(error, what))?;
        Ok(self.tcp.take_gathered(len))
    }

    /// One write: perftest takes a message that comes in pieces for a broken one.
    fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.tcp.send_bytes(bytes)
    }

    /// The same failure with what was waited for. perftest has no message for its own failures: it leaves.
    fn in_step(&self, error: Error, what: &str) -> Error {
        let error = error.fact("expected", format!("perftest's {what}"));
        match error.kind {
            ErrorKind::PeerLost => {
                error.hint("perftest does not tell why it leaves: see its own output, and give both ends the same options")
            }
            ErrorKind::PeerTimeout => {
                error.hint("perftest waits in silence where the options differ: give both ends the same")
            }
            _ => error,
        }
    }

    fn nonsense(&self, bytes: &[u8], what: &str) -> Error {
        Error::new(
            ErrorKind::Protocol,
            format!("{} (perftest {}) sent no {what} where one was due", self.tcp.peer(), self.version),
        )
        .fact("it sent", format!("\"{}\"", bytes.escape_ascii()))
        .hint("give both ends the same options: an end with -a, -b or -q alone is in another step than the other")
    }

    fn gid_on_one_end(&self, theirs: &Key) -> Error {
        let (with, without) =
            if theirs.gid.is_some() { ("the other end", "this end") } else { ("this end", "the other end") };
        Error::new(ErrorKind::GidFamily, format!("{with} uses a GID and {without} addresses by LID"))
            .hint("give -x (--gid-index) on both ends or on neither")
    }
}

/// A perftest that reads a key of another length than it is sent leaves without a word.
fn with_addressing(error: Error, ours: &Key) -> Error {
    if error.kind != ErrorKind::PeerLost {
        return error;
    }
    let how = if ours.gid.is_some() { "by GID" } else { "by LID, without -x" };
    error.fact("this end", format!("addresses {how}"))
}

impl Channel for PerftestChannel {
    /// perftest hears nothing but its own messages: that this end lives, and why it does not go on, stays untold.
    fn send(&mut self, _message: &Message) -> Result<()> {
        Ok(())
    }

    /// While it measures perftest says nothing. That its connection stands is all that is known, and counts as a word.
    fn receive_within(&mut self, wait: Duration) -> Result<Option<Message>> {
        if let Some(left) = self.left {
            self.tcp.take_in(wait);
            return if left.elapsed() < LAST_MESSAGE {
                Ok(None)
            } else {
                self.tcp.listen(Duration::ZERO).map(|()| None)
            };
        }
        match self.tcp.listen(wait) {
            Err(error) if error.kind == ErrorKind::PeerLost && self.may_leave() => {
                self.left = Some(Instant::now());
                if self.leave == Leave::AtItsTime {
                    return Ok(Some(Message::Goodbye));
                }
            }
            listened => listened?,
        }
        if (self.role == Role::Client || self.may_leave()) && !self.tcp.gathered().is_empty() {
            return Err(self.nonsense(self.tcp.gathered(), "silence"));
        }
        Ok(Some(Message::Progress { completed: 0 }))
    }

    fn put_back(&mut self, messages: Vec<Message>) {
        self.tcp.put_back(messages);
    }

    fn take_in(&mut self, wait: Duration) {
        self.tcp.take_in(wait);
    }

    fn waker(&self) -> Waker {
        self.tcp.waker()
    }

    fn peer(&self) -> String {
        self.tcp.peer()
    }
}
