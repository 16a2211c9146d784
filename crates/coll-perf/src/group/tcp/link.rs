//! A connection to another rank, and the thread that reads all of them.

use std::io::{ErrorKind as IoKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use linkproof_common::error::{Error, ErrorKind, Result, show_io_error};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use socket2::{SockRef, TcpKeepalive};

use super::board::Board;
use super::frame::{Abort, FRAME_LIMIT, Frame};
use crate::measure::now_ns;

/// How long a frame may take to be taken by the other end.
const SEND_LIMIT: Duration = Duration::from_secs(10);
/// A machine that is cut off is noticed after 1 + 3 × 1 s, so that the run ends everywhere within five.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(1), Duration::from_secs(1), 3);

/// One connection.
pub(super) struct Link {
    pub(super) socket: TcpStream,
    /// The rank at the other end, in words.
    pub(super) peer: String,
    /// What it has said behind its greeting.
    pub(super) early: Vec<u8>,
    sending: Mutex<()>,
}

impl Link {
    /// Over `socket`, which gets the options that it needs.
    pub(super) fn new(socket: TcpStream, peer: String) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let (time, interval, retries) = KEEPALIVE;
        let keepalive = TcpKeepalive::new().with_time(time).with_interval(interval).with_retries(retries);
        SockRef::from(&socket).set_tcp_keepalive(&keepalive)?;
        Ok(Self { socket, peer, early: Vec::new(), sending: Mutex::new(()) })
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// [`ErrorKind::PeerLost`].
    pub(super) fn send(&self, frame: &Frame) -> Result<()> {
        self.send_encoded(&frame.encode())
    }

    /// Sends a frame that is encoded, since many get the same.
    ///
    /// # Errors
    /// As [`Link::send`].
    pub(super) fn send_encoded(&self, frame: &[u8]) -> Result<()> {
        let _turn = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        send_all(&self.socket, frame).map_err(|error| {
            Error::new(ErrorKind::PeerLost, format!("{} takes nothing: {}", self.peer, show_io_error(&error)))
        })
    }
}

/// Writes all of `bytes`, waiting for room no longer than [`SEND_LIMIT`].
pub(super) fn send_all(mut socket: &TcpStream, mut bytes: &[u8]) -> std::io::Result<()> {
    let deadline = Instant::now() + SEND_LIMIT;
    while !bytes.is_empty() {
        match socket.write(bytes) {
            Ok(0) => return Err(IoKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == IoKind::Interrupted => {}
            Err(error) if error.kind() == IoKind::WouldBlock => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(IoKind::TimedOut.into());
                }
                wait_for(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)], left);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until something can be done with one of `fds`; an interruption is a return.
pub(super) fn wait_for(fds: &mut [PollFd], limit: Duration) {
    let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    let _ = poll(fds, limit);
}

/// What a read gave.
pub(super) enum Got {
    /// So many bytes more.
    Bytes,
    /// Nothing for now.
    Nothing,
    /// The end, with the reason if it is not the other end's wish.
    End(Option<String>),
}

/// Reads what there is, up to a piece.
pub(super) fn read_some(mut socket: &TcpStream, inbox: &mut Vec<u8>) -> Got {
    let mut piece = [0; 64 << 10];
    match socket.read(&mut piece) {
        Ok(0) => Got::End(None),
        Ok(count) => {
            inbox.extend_from_slice(&piece[..count]);
            Got::Bytes
        }
        Err(error) if matches!(error.kind(), IoKind::WouldBlock | IoKind::Interrupted) => Got::Nothing,
        Err(error) => Got::End(Some(show_io_error(&error))),
    }
}

/// Reads all links of a rank until it is done, answers what needs no rank, and tells the others of an end where it can.
pub(super) struct Reader {
    pub(super) links: Arc<Vec<Link>>,
    pub(super) board: Arc<Board>,
    /// Whether this is rank 0, through which all learn of an end.
    pub(super) is_root: bool,
    pub(super) wake: UnixStream,
}

/// The number that stands for the end of the rank's own part, among those of links.
const WAKE: u64 = u64::MAX;
/// As many links as are told of at once; the others come next.
const AT_ONCE: usize = 64;

impl Reader {
    pub(super) fn run(self) {
        let read = self.watch_all().and_then(|epoll| self.read_all(&epoll));
        if let Err(errno) = read {
            let what = format!("the ranks' connections can't be watched: {}", show_io_error(&errno.into()));
            self.board.fail(&Error::new(ErrorKind::OpenFiles, what));
        }
    }

    /// Not poll: rank 0 has a link to every rank, and asking for all of them whenever one has spoken is work that grows
    /// with the square of the ranks.
    fn watch_all(&self) -> nix::Result<Epoll> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (number, link) in self.links.iter().enumerate() {
            epoll.add(&link.socket, EpollEvent::new(EpollFlags::EPOLLIN, number as u64))?;
        }
        epoll.add(&self.wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        Ok(epoll)
    }

    fn read_all(&self, epoll: &Epoll) -> nix::Result<()> {
        let mut inboxes: Vec<Vec<u8>> = self.links.iter().map(|link| link.early.clone()).collect();
        for (link, inbox) in inboxes.iter_mut().enumerate() {
            if !self.take(link, inbox, None) {
                epoll.delete(&self.links[link].socket)?;
            }
        }
        let mut events = [EpollEvent::empty(); AT_ONCE];
        while !self.board.is_closed() {
            let count = match epoll.wait(&mut events, EpollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                ready => ready?,
            };
            for event in events[..count].iter().filter(|event| event.data() != WAKE) {
                let link = event.data() as usize;
                if !self.read(link, &mut inboxes[link]) {
                    epoll.delete(&self.links[link].socket)?;
                }
            }
        }
        Ok(())
    }

    /// Takes in what `link` says; false where it has nothing more to say.
    fn read(&self, link: usize, inbox: &mut Vec<u8>) -> bool {
        match read_some(&self.links[link].socket, inbox) {
            Got::Nothing => true,
            Got::Bytes => self.take(link, inbox, None),
            Got::End(why) => {
                self.take(link, inbox, Some(why.unwrap_or_else(|| "its connection closed".to_owned())))
            }
        }
    }

    /// Takes the frames in `inbox`, behind which came an `end` if there was one; false where `link` has nothing more to say.
    fn take(&self, link: usize, inbox: &mut Vec<u8>, end: Option<String>) -> bool {
        loop {
            match Frame::take(inbox, FRAME_LIMIT) {
                Ok(Some(Frame::Bye)) => {
                    self.board.leave(link);
                    return false;
                }
                Ok(Some(frame)) => self.dispatch(link, frame),
                Ok(None) => break,
                Err(words) => return self.lost(link, ErrorKind::Protocol, &format!("sent {words}")),
            }
        }
        end.is_none_or(|why| self.lost(link, ErrorKind::PeerLost, &format!("is gone: {why}")))
    }

    fn dispatch(&self, link: usize, frame: Frame) {
        match frame {
            // A failure to answer is found by the read that follows.
            Frame::Ping => drop(self.links[link].send(&Frame::Pong(now_ns()))),
            Frame::Abort(abort) => self.end(link, abort),
            frame => self.board.post(link, frame),
        }
    }

    fn lost(&self, link: usize, kind: ErrorKind, what: &str) -> bool {
        let error = Error::new(kind, format!("{} {what}", self.links[link].peer));
        self.end(link, Abort { by: None, error });
        false
    }

    fn end(&self, link: usize, abort: Abort) {
        let error = match &abort.by {
            Some(who) => abort.error.clone().from_peer(who),
            None => abort.error.clone(),
        };
        if self.board.fail(&error) && self.is_root {
            tell_all(&self.links, Some(link), &abort);
        }
    }
}

/// Tells everybody but `except`; who can't be told finds the connection closed.
pub(super) fn tell_all(links: &[Link], except: Option<usize>, abort: &Abort) {
    let frame = Frame::Abort(abort.clone()).encode();
    let others = links.iter().enumerate().filter(|(link, _)| Some(*link) != except);
    others.for_each(|(_, link)| drop(link.send_encoded(&frame)));
}
