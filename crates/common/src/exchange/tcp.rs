//! The control channel over TCP: framing, deadlines, and how a lost peer is noticed.

use std::collections::VecDeque;
use std::io::{ErrorKind as IoKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{SockRef, TcpKeepalive};

use super::frame::{FrameLimit, frame, take_frame};
use super::hold::Hold;
use super::message::{PREAMBLE_LEN, PROTOCOL_VERSION, preamble, version_in_preamble};
use super::{Channel, Message, Waker, source};
use crate::error::{Error, ErrorKind, Result, show_io_error};
use crate::plan::Role;

/// How long a connection attempt may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
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
    /// When the last whole frame came.
    heard: Instant,
    hold: Option<Hold>,
    on_wait: Option<OnWait>,
    wake_read: UnixStream,
    wake_write: UnixStream,
    source: Option<IpAddr>,
}

/// What to do once when the server says that others come first.
type OnWait = Box<dyn FnOnce(String) + Send>;

impl TcpChannel {
    /// Connects to `host` as a client, from the address `source` where one is named, and exchanges preambles.
    ///
    /// # Errors
    /// The peer kinds of [`ErrorKind`], each with the address.
    pub fn connect(host: &str, port: u16, source: Option<IpAddr>) -> Result<Self> {
        let addresses = source::reachable(source, host, resolve(host, port)?)?;
        let socket = connect_any(host, &addresses, source)?;
        let mut channel = Self { source, ..Self::new(socket, Role::Server, host)? };
        channel.send_bytes(&preamble())?;
        channel.limit = FrameLimit::Run;
        channel.read_preamble(PREAMBLE_LIMIT)?;
        Ok(channel)
    }

    /// Takes a connection as a server, of which nothing is known yet.
    ///
    /// # Errors
    /// [`ErrorKind::PeerLost`] where it is gone already.
    pub fn accept(socket: TcpStream, from: SocketAddr) -> Result<Self> {
        Self::new(socket, Role::Client, &show_address(from))
    }

    /// The server's half of the preambles, without waiting: takes what has come of the client's, and answers it.
    /// False until it is whole.
    ///
    /// # Errors
    /// [`ErrorKind::NotLinkproof`] and [`ErrorKind::PeerVersion`] above all.
    pub fn answer_preamble(&mut self) -> Result<bool> {
        self.fill(Duration::ZERO)?;
        let Some(bytes) = self.take_preamble() else { return Ok(false) };
        // The answer goes out before the check: a client of another version learns from it which this one is.
        self.send_now(&preamble())?;
        self.check_preamble(bytes)?;
        Ok(true)
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

    /// When the last message came; at first, when the connection was made.
    pub fn heard(&self) -> Instant {
        self.heard
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

    fn read_preamble(&mut self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(bytes) = self.take_preamble() {
                return self.check_preamble(bytes);
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
        match version_in_preamble(&bytes) {
            Some(PROTOCOL_VERSION) => Ok(()),
            Some(version) => Err(Error::new(
                ErrorKind::PeerVersion,
                format!("{} speaks version {version} of the control protocol, this end version {PROTOCOL_VERSION}", self.peer),
            )
            .hint("install the same release on both ends")),
            None => Err(Error::new(
                ErrorKind::NotLinkproof,
                format!("{} is no linkproof tool", self.peer),
            )
            .fact("it said", show_bytes(&bytes))
            .hint("see which program uses that port; perftest's tools can't be measured against yet")),
        }
    }

    fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let deadline = Instant::now() + SEND_LIMIT;
        let mut sent = 0;
        while sent < bytes.len() {
            match self.socket.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == IoKind::Interrupted => {}
                Err(error) if error.kind() == IoKind::WouldBlock && Instant::now() < deadline => {
                    let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)];
                    let _ = poll(&mut fds, poll_timeout(super::LOOK_AROUND));
                }
                Err(error) => return Err(lost(&self.peer, &error)),
            }
        }
        Ok(())
    }

    /// Waits for bytes and takes some into the inbox; returns at once when woken.
    fn fill(&mut self, wait: Duration) -> Result<()> {
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
        let mut piece = vec![0; READ_PIECE];
        match self.socket.read(&mut piece) {
            Ok(0) => Err(closed(&self.peer)),
            Ok(count) => {
                self.inbox.extend_from_slice(&piece[..count]);
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
        match self.hold.as_ref().and_then(|hold| hold.over(self.heard, &self.peer)) {
            Some(too_long) => Err(too_long),
            None => Ok(message),
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

fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>> {
    let failed = |words: String| {
        Error::new(ErrorKind::Resolve, format!("cannot find the address of {host}: {words}"))
            .hint("give the server's IP address, or see that its name resolves: getent hosts")
    };
    let addresses: Vec<_> =
        (host, port).to_socket_addrs().map_err(|error| failed(error.to_string()))?.collect();
    if addresses.is_empty() { Err(failed("the name has no address".to_owned())) } else { Ok(addresses) }
}

fn connect_any(host: &str, addresses: &[SocketAddr], source: Option<IpAddr>) -> Result<TcpStream> {
    let mut failure = None;
    for address in addresses {
        match source::connect(source, *address, CONNECT_LIMIT) {
            Ok(socket) => return Ok(socket),
            Err(error) => failure = Some(connect_error(host, *address, &error)),
        }
    }
    Err(failure.unwrap_or_else(|| Error::new(ErrorKind::Resolve, format!("{host} has no address"))))
}

fn connect_error(host: &str, address: SocketAddr, error: &std::io::Error) -> Error {
    let target =
        if host == address.ip().to_string() { address.to_string() } else { format!("{host} ({address})") };
    match error.kind() {
        IoKind::ConnectionRefused => Error::new(
            ErrorKind::Refused,
            format!("nothing listens at {target}: connect: {}", show_io_error(error)),
        )
        .hint("start the server there first: the same command without the host name"),
        IoKind::TimedOut => Error::new(
            ErrorKind::Unreachable,
            format!("cannot reach {target}: no answer within {} s", CONNECT_LIMIT.as_secs()),
        )
        .hint(format!("see that the host is up and no firewall drops TCP port {}", address.port())),
        _ => Error::new(
            ErrorKind::Unreachable,
            format!("cannot reach {target}: connect: {}", show_io_error(error)),
        )
        .hint(format!("see that this host has a route to it: ip route get {}", address.ip())),
    }
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
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A channel on the accepting side, and the raw socket of whoever connected.
    fn accepted(first: &[u8]) -> (Result<TcpChannel>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stranger.write_all(first).unwrap();
        let (socket, from) = listener.accept().unwrap();
        let mut channel = TcpChannel::accept(socket, from).unwrap();
        channel.fill(Duration::from_secs(5)).unwrap();
        (channel.answer_preamble().map(|_| channel), stranger)
    }

    fn receive(channel: &mut TcpChannel) -> Result<Message> {
        channel.expect_any(Duration::from_secs(5))
    }

    #[test]
    fn a_stranger_is_shown_with_its_words() {
        let error = accepted(b"GET / HTTP/1.1\r\nHost: x\r\n").0.err().unwrap();
        assert_eq!(error.kind, ErrorKind::NotLinkproof);
        assert_eq!(error.facts[0].value, r#""GET / HTTP/1.1\r\n""#);
    }

    #[test]
    fn another_version_is_told_ours() {
        let (channel, mut client) = accepted(b"linkproof/9\0\0\0\0\0");
        let error = channel.err().unwrap();
        assert_eq!(error.kind, ErrorKind::PeerVersion);
        assert!(
            error.what.ends_with("speaks version 9 of the control protocol, this end version 1"),
            "{}",
            error.what
        );
        let mut answer = [0; PREAMBLE_LEN];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, preamble());
    }

    #[test]
    fn frames_come_whole_however_they_are_cut() {
        let (channel, mut client) = accepted(&preamble());
        let mut channel = channel.unwrap();
        let payload = br#"{"message":"ready"}"#;
        let mut bytes = (payload.len() as u32).to_be_bytes().to_vec();
        bytes.extend(payload);
        for byte in bytes.repeat(2) {
            client.write_all(&[byte]).unwrap();
        }
        assert_eq!(receive(&mut channel).unwrap(), Message::Ready);
        assert_eq!(receive(&mut channel).unwrap(), Message::Ready);
    }

    #[test]
    fn a_frame_of_four_gigabytes_is_refused_before_it_is_read() {
        let (channel, mut client) = accepted(&preamble());
        client.write_all(&u32::MAX.to_be_bytes()).unwrap();
        let mut channel = channel.unwrap();
        assert_eq!(receive(&mut channel).unwrap_err().kind, ErrorKind::Protocol);
        assert!(channel.inbox.capacity() <= 2 * READ_PIECE);
    }

    #[test]
    fn a_frame_of_nonsense_is_refused() {
        let (channel, mut client) = accepted(&preamble());
        client.write_all(b"\0\0\0\x02{]").unwrap();
        let error = receive(&mut channel.unwrap()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Protocol);
    }

    #[test]
    fn a_peer_that_goes_is_noticed() {
        let (channel, client) = accepted(&preamble());
        drop(client);
        assert_eq!(receive(&mut channel.unwrap()).unwrap_err().kind, ErrorKind::PeerLost);
    }

    #[test]
    fn a_silent_peer_runs_into_the_limit() {
        let (channel, _client) = accepted(&preamble());
        let error = channel.unwrap().expect_any(Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::PeerTimeout);
    }

    #[test]
    fn a_waker_ends_the_wait() {
        let (channel, _client) = accepted(&preamble());
        let mut channel = channel.unwrap();
        channel.waker().wake();
        let begin = Instant::now();
        assert_eq!(channel.receive_within(Duration::from_secs(20)).unwrap(), None);
        assert!(begin.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn nothing_listening_is_refused_with_a_next_step() {
        // A port that was just free: bound and released.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let error = TcpChannel::connect("127.0.0.1", port, None).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Refused);
        assert!(error.hint.unwrap().contains("start the server"));
    }
}
