//! The control channel over TCP: framing, deadlines, and how a lost peer is noticed.

use std::collections::VecDeque;
use std::io::{ErrorKind as IoKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{SockRef, TcpKeepalive};

use super::dial::dial;
use super::frame::{FrameLimit, frame, take_frame};
use super::hold::Hold;
use super::message::{PREAMBLE_LEN, PROTOCOL_VERSION, preamble, version_in_preamble};
use super::{Channel, Message, PeerProtocol, Waker};
use crate::error::{Error, ErrorKind, Result, show_io_error};
use crate::perftest::{self, PerftestChannel, Version};
use crate::plan::Role;

/// How long a client waits for the server's first words: it says them at once, whomever it serves.
const PREAMBLE_LIMIT: Duration = Duration::from_secs(10);
/// How long a frame may take to be taken by the peer.
const SEND_LIMIT: Duration = Duration::from_secs(10);
/// A host that is cut off is noticed after 3 + 6 × 2 s: the time that a live peer may be silent.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(3);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_TRIES: u32 = 6;
/// Bytes read at once; what a frame says of its length is never allocated before it has come.
const READ_PIECE: usize = 64 << 10;

/// A framed connection.
pub struct TcpChannel {
    socket: TcpStream,
    peer: String,
    inbox: Vec<u8>,
    early: VecDeque<Message>,
    limit: FrameLimit,
    /// When the peer last said something, if only a part of a frame.
    heard: Instant,
    hold: Option<Hold>,
    on_wait: Option<OnWait>,
    wake_read: UnixStream,
    wake_write: UnixStream,
    source: Option<IpAddr>,
}

/// What a client has found at the other end.
pub enum Greeted {
    /// A tool of ours.
    Linkproof(TcpChannel),
    /// perftest's.
    Perftest(PerftestChannel),
}

/// What a server has found at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guest {
    /// A tool of ours.
    Linkproof,
    /// perftest's, of that version.
    Perftest(Version),
}

#[cfg(test)]
impl Greeted {
    pub(crate) fn linkproof(self) -> Option<TcpChannel> {
        match self {
            Self::Linkproof(channel) => Some(channel),
            Self::Perftest(_) => None,
        }
    }
}

/// What to do once when the server says that others come first.
type OnWait = Box<dyn FnOnce(String) + Send>;

impl TcpChannel {
    /// Connects to `host` as a client, from the address `source` where one is named, and exchanges preambles.
    ///
    /// # Errors
    /// The peer kinds of [`ErrorKind`], each with the address.
    pub fn connect(host: &str, port: u16, source: Option<IpAddr>, protocol: PeerProtocol) -> Result<Greeted> {
        let socket = dial(host, port, source)?;
        let mut channel = Self { source, ..Self::new(socket, Role::Server, host)? };
        channel.send_bytes(&match protocol {
            PeerProtocol::Auto => perftest::announcement(),
            PeerProtocol::Linkproof => preamble(),
            PeerProtocol::Perftest => perftest::plain(),
        })?;
        channel.limit = FrameLimit::Run;
        let bytes = channel.read_preamble(PREAMBLE_LIMIT)?;
        match Version::decode(&bytes).filter(|_| protocol != PeerProtocol::Linkproof) {
            Some(version) => {
                version.check()?;
                Ok(Greeted::Perftest(PerftestChannel::new(channel, version, Role::Client)))
            }
            None if protocol == PeerProtocol::Perftest => Err(channel.stranger(&bytes)),
            None => channel.check_preamble(bytes).map(|()| Greeted::Linkproof(channel)),
        }
    }

    /// Takes a connection as a server, of which nothing is known yet.
    ///
    /// # Errors
    /// [`ErrorKind::PeerLost`] where it is gone already.
    pub fn accept(socket: TcpStream, from: SocketAddr) -> Result<Self> {
        Self::new(socket, Role::Client, &show_address(from))
    }

    /// The server's half of the preambles, without waiting: takes what has come of the client's, and answers it in the
    /// client's own way, unless `protocol` is linkproof's only. `None` until it is whole.
    ///
    /// # Errors
    /// [`ErrorKind::NotLinkproof`] and [`ErrorKind::PeerVersion`] above all.
    pub fn answer_preamble(&mut self, protocol: PeerProtocol) -> Result<Option<Guest>> {
        self.fill(Duration::ZERO)?;
        let Some(bytes) = self.take_preamble() else { return Ok(None) };
        let is_ours = perftest::linkproof_in(&bytes).is_some() || protocol == PeerProtocol::Linkproof;
        if let Some(version) = Version::decode(&bytes).filter(|_| !is_ours) {
            self.send_now(&perftest::plain())?;
            version.check()?;
            return Ok(Some(Guest::Perftest(version)));
        }
        // The answer goes out before the check: a client of another version learns from it which this one is.
        self.send_now(&preamble())?;
        self.check_preamble(bytes)?;
        Ok(Some(Guest::Linkproof))
    }

    /// Sets how long the peer's frames may be from now on.
    pub fn allow_frames(&mut self, limit: FrameLimit) {
        self.limit = limit;
    }

    /// Sets or lifts the limit on how long the peer may hold this end.
    pub fn limit_hold(&mut self, hold: Option<Hold>) {
        self.hold = hold;
    }

    /// Does `tell` once if the server says that others come first; it gets that in words.
    pub fn when_told_to_wait(&mut self, tell: impl FnOnce(String) + Send + 'static) {
        self.on_wait = Some(Box::new(tell));
    }

    /// When the peer last said something; at first, when the connection was made.
    pub fn heard(&self) -> Instant {
        self.heard
    }

    /// Counts as a word of the peer's what shows in another way that it lives.
    pub(crate) fn note_life(&mut self) {
        self.heard = Instant::now();
    }

    /// Whether the peer has said nothing at all that was not taken yet.
    pub fn is_silent(&self) -> bool {
        self.inbox.is_empty()
    }

    /// Sends without waiting, for whoever has others to attend to: a peer that does not even take a short message
    /// is given up.
    ///
    /// # Errors
    /// [`ErrorKind::PeerLost`].
    pub fn say(&mut self, message: &Message) -> Result<()> {
        self.send_now(&frame(message)?)
    }

    /// Has the kernel take up to `bytes` at once, as far as it lets itself be asked: what is said has to fit whole.
    pub fn make_room(&mut self, bytes: usize) {
        // Where it refuses, a message that is too long is given up as any other.
        let _ = socket2::SockRef::from(&self.socket).set_send_buffer_size(bytes);
    }

    fn send_now(&mut self, bytes: &[u8]) -> Result<()> {
        match self.socket.write(bytes) {
            Ok(count) if count == bytes.len() => Ok(()),
            Ok(_) => Err(lost(&self.peer, &IoKind::WouldBlock.into())),
            Err(error) => Err(lost(&self.peer, &error)),
        }
    }

    fn new(socket: TcpStream, peer: Role, name: &str) -> Result<Self> {
        let set_up = || -> std::io::Result<(UnixStream, UnixStream)> {
            let keepalive = TcpKeepalive::new()
                .with_time(KEEPALIVE_IDLE)
                .with_interval(KEEPALIVE_INTERVAL)
                .with_retries(KEEPALIVE_TRIES);
            SockRef::from(&socket).set_tcp_keepalive(&keepalive)?;
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
            let (read, write) = UnixStream::pair()?;
            read.set_nonblocking(true)?;
            write.set_nonblocking(true)?;
            Ok((read, write))
        };
        let peer = format!("the {} {name}", peer.name());
        let (wake_read, wake_write) = set_up().map_err(|error| lost(&peer, &error))?;
        Ok(Self {
            socket,
            peer,
            inbox: Vec::new(),
            early: VecDeque::new(),
            limit: FrameLimit::Greeting,
            heard: Instant::now(),
            hold: None,
            on_wait: None,
            wake_read,
            wake_write,
            source: None,
        })
    }

    /// This end's address.
    ///
    /// # Errors
    /// [`ErrorKind::PeerLost`] where the socket has none any more.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.socket.local_addr().map_err(|error| lost(&self.peer, &error))
    }

    /// The address that this end's connections shall come from, where the user named one.
    pub fn source(&self) -> Option<IpAddr> {
        self.source
    }

    /// The other end's address.
    ///
    /// # Errors
    /// As [`Self::local_addr`].
    pub fn peer_addr(&self) -> Result<SocketAddr> {
        self.socket.peer_addr().map_err(|error| lost(&self.peer, &error))
    }

    fn read_preamble(&mut self, limit: Duration) -> Result<[u8; PREAMBLE_LEN]> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(bytes) = self.take_preamble() {
                return Ok(bytes);
            }
            if crate::interrupt::requested() {
                return Err(super::interrupted());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.no_preamble(limit));
            }
            self.fill(left.min(super::LOOK_AROUND))?;
        }
    }

    fn take_preamble(&mut self) -> Option<[u8; PREAMBLE_LEN]> {
        let bytes = self.inbox.first_chunk::<PREAMBLE_LEN>().copied()?;
        self.inbox.drain(..PREAMBLE_LEN);
        Some(bytes)
    }

    fn no_preamble(&self, limit: Duration) -> Error {
        Error::new(
            ErrorKind::PeerTimeout,
            format!("{} took the connection but said nothing for {} s", self.peer, limit.as_secs()),
        )
        .hint("see which program listens there, and whether it is stopped: a server answers at once")
    }

    fn check_preamble(&self, bytes: [u8; PREAMBLE_LEN]) -> Result<()> {
        match version_in_preamble(&bytes).or_else(|| perftest::linkproof_in(&bytes)) {
            Some(PROTOCOL_VERSION) => Ok(()),
            Some(version) => Err(Error::new(
                ErrorKind::PeerVersion,
                format!("{} speaks version {version} of the control protocol, this end version {PROTOCOL_VERSION}", self.peer),
            )
            .hint("install the same release on both ends")),
            None => Err(self.stranger(&bytes)),
        }
    }

    fn stranger(&self, bytes: &[u8; PREAMBLE_LEN]) -> Error {
        let error = Error::new(ErrorKind::NotLinkproof, format!("{} is no linkproof tool", self.peer))
            .fact("it said", show_bytes(bytes));
        match (Version::decode(bytes), version_in_preamble(bytes)) {
            (Some(_), _) => error.hint("it is perftest: leave --peer-protocol out, or make it auto"),
            (_, Some(_)) => Error::new(ErrorKind::NotLinkproof, format!("{} is no perftest", self.peer))
                .fact("it said", show_bytes(bytes))
                .hint("it is one of these tools: leave --peer-protocol out, or make it auto"),
            _ => error.hint("see which program uses that port"),
        }
    }

    /// Waits until at least `len` bytes have come that nobody has taken, for whoever knows what they mean.
    ///
    /// # Errors
    /// [`ErrorKind::PeerTimeout`] at `deadline`, [`ErrorKind::PeerLost`], [`ErrorKind::Interrupted`].
    pub(crate) fn gather(&mut self, len: usize, deadline: Instant) -> Result<()> {
        let begun = Instant::now();
        while self.inbox.len() < len {
            if crate::interrupt::requested() {
                return Err(super::interrupted());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let waited = deadline.saturating_duration_since(begun).as_secs_f64().round();
                return Err(crate::watch::silence(Duration::from_secs(waited as u64)));
            }
            self.fill(left.min(super::LOOK_AROUND))?;
            if let Some(too_long) = self.held_too_long() {
                return Err(too_long);
            }
        }
        Ok(())
    }

    /// What has come and nobody has taken.
    pub(crate) fn gathered(&self) -> &[u8] {
        &self.inbox
    }

    /// Takes the first `len` bytes of it, or as many as there are.
    pub(crate) fn take_gathered(&mut self, len: usize) -> Vec<u8> {
        self.inbox.drain(..len.min(self.inbox.len())).collect()
    }

    /// Gathers for `wait`, or until a [`Waker`] ends it.
    ///
    /// # Errors
    /// [`ErrorKind::PeerLost`]; how long the peer holds this end is looked at as well.
    pub(crate) fn listen(&mut self, wait: Duration) -> Result<()> {
        if self.has_room() {
            self.fill(wait)?;
        } else {
            self.take_in(wait);
        }
        self.held_too_long().map_or(Ok(()), Err)
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let deadline = Instant::now() + SEND_LIMIT;
        let mut sent = 0;
        while sent < bytes.len() {
            match self.socket.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == IoKind::Interrupted => {}
                Err(error) if error.kind() == IoKind::WouldBlock && Instant::now() < deadline => {
                    self.wait_to_send()?;
                }
                Err(error) => return Err(lost(&self.peer, &error)),
            }
        }
        Ok(())
    }

    /// Waits for the peer to take more, and takes what it says meanwhile: two ends that send long frames at the same
    /// time would else wait for each other.
    fn wait_to_send(&mut self) -> Result<()> {
        if let Some(too_long) = self.held_too_long() {
            return Err(too_long);
        }
        let reading = if self.has_room() { PollFlags::POLLIN } else { PollFlags::empty() };
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT | reading)];
        let _ = poll(&mut fds, poll_timeout(super::LOOK_AROUND));
        let readable = fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN));
        if readable { self.read_some() } else { Ok(()) }
    }

    /// Whether the inbox takes more unread: a frame as long as it may be.
    fn has_room(&self) -> bool {
        self.inbox.len() < 4 + self.limit.bytes()
    }

    /// Whether the peer has held this end for too long; what waits next says so.
    pub(crate) fn is_held_too_long(&self) -> bool {
        self.held_too_long().is_some()
    }

    fn held_too_long(&self) -> Option<Error> {
        self.hold.as_ref().and_then(|hold| hold.over(self.heard, &self.peer))
    }

    /// Waits for bytes and takes some into the inbox; returns at once when woken, and when the peer has been silent too
    /// long.
    fn fill(&mut self, wait: Duration) -> Result<()> {
        let held = self.hold.as_ref().and_then(|hold| hold.silence_left(self.heard));
        let wait = held.map_or(wait, |left| wait.min(left + Duration::from_millis(1)));
        let mut fds = [
            PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.wake_read.as_fd(), PollFlags::POLLIN),
        ];
        if poll(&mut fds, poll_timeout(wait)).is_err() {
            // A signal; the caller looks whether it was the user's.
            return Ok(());
        }
        let mut wakes = [0; 64];
        let _ = self.wake_read.read(&mut wakes);
        self.read_some()
    }

    /// Takes bytes into the inbox, if some have come.
    fn read_some(&mut self) -> Result<()> {
        let mut piece = vec![0; READ_PIECE];
        match self.socket.read(&mut piece) {
            Ok(0) => Err(closed(&self.peer)),
            Ok(count) => {
                self.inbox.extend_from_slice(&piece[..count]);
                self.heard = Instant::now();
                Ok(())
            }
            Err(error) if matches!(error.kind(), IoKind::WouldBlock | IoKind::Interrupted) => Ok(()),
            Err(error) => Err(lost(&self.peer, &error)),
        }
    }

    /// The first message in the inbox, if it is whole.
    fn take_message(&mut self) -> Result<Option<Message>> {
        let message = take_frame(&mut self.inbox, self.limit).map_err(|what| self.nonsense(what))?;
        if message.is_some() {
            self.heard = Instant::now();
        }
        // A long frame's memory is not kept for the short ones that follow.
        if self.inbox.is_empty() && self.inbox.capacity() > 2 * READ_PIECE {
            self.inbox = Vec::new();
        }
        Ok(message)
    }

    fn nonsense(&self, what: String) -> Error {
        Error::new(ErrorKind::Protocol, format!("{} sent {what}", self.peer))
    }
}

impl Channel for TcpChannel {
    fn send(&mut self, message: &Message) -> Result<()> {
        // One write, so that the frame leaves in one piece.
        self.send_bytes(&frame(message)?)
    }

    fn receive_within(&mut self, wait: Duration) -> Result<Option<Message>> {
        if let Some(message) = self.early.pop_front() {
            return Ok(Some(message));
        }
        if let Some(message) = self.take_message()? {
            return Ok(Some(message));
        }
        self.fill(wait)?;
        let message = self.take_message()?;
        match self.held_too_long() {
            Some(too_long) => Err(too_long),
            None => Ok(message),
        }
    }

    fn take_in(&mut self, wait: Duration) {
        let taken = if self.has_room() { self.fill(wait) } else { Err(closed(&self.peer)) };
        if taken.is_err() {
            // Not without a pause; whoever receives next finds the same.
            let _ = poll(&mut [PollFd::new(self.wake_read.as_fd(), PollFlags::POLLIN)], poll_timeout(wait));
        }
    }

    fn put_back(&mut self, messages: Vec<Message>) {
        self.early.extend(messages);
    }

    fn waker(&self) -> Waker {
        match self.wake_write.try_clone() {
            Ok(write) => Waker::new(move || {
                // A full pipe is a wake that is already on its way.
                let _ = (&write).write(&[1]);
            }),
            // Without one the reader wakes at its next tick.
            Err(_) => Waker::new(|| {}),
        }
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }

    fn told_to_wait(&mut self, serving: Option<&str>, ahead: u32) {
        let Some(tell) = self.on_wait.take() else { return };
        let serving = serving.map_or(String::new(), |whom| format!(" serves {whom}"));
        let waiting = match ahead {
            0 => String::new(),
            1 => ", one more client comes first".to_owned(),
            more => format!(", {more} more clients come first"),
        };
        tell(format!("waiting for this client's turn: {}{serving}{waiting}", self.peer));
    }
}

impl AsFd for TcpChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// An address as people read it: an IPv4 client of a dual-stack server is shown as IPv4.
pub fn show_address(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

fn poll_timeout(wait: Duration) -> PollTimeout {
    // Rounded up: a wait of 0.5 ms that polls for 0 ms would spin.
    let ms = wait.as_micros().div_ceil(1000);
    PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)
}

fn lost(peer: &str, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::PeerLost, format!("lost {peer}: {}", show_io_error(error)))
        .hint("see on that host whether the process was killed or the host is down")
}

fn closed(peer: &str) -> Error {
    Error::new(ErrorKind::PeerLost, format!("{peer} closed the connection before the run was over"))
        .hint("see on that host why: its own stderr tells, unless it was killed")
}

/// The first bytes of a stranger, printable.
fn show_bytes(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

#[cfg(test)]
mod tests;
