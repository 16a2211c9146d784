//! Which sockets have acknowledgements: chosen before the loop, by how many sockets there are.

use std::net::TcpStream;
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::ACK_WAIT_MS;
use super::receive::no_descriptor;
use crate::error::Result;

/// A way to find the sockets that have something to read.
pub trait Asked<'a>: Sized {
    /// Of these.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::OpenFiles`] with the errno.
    fn new(sockets: &'a [TcpStream]) -> Result<Self>;

    /// Calls `read` with the index of each that may have something; returns at once.
    ///
    /// # Errors
    /// Those of `read`.
    fn each_to_read(&mut self, read: impl FnMut(usize) -> Result<()>) -> Result<()>;

    /// Sleeps until one of them has something, or a moment.
    fn wait(&mut self);
}

/// Reads from every one: for a few sockets that costs less than to ask first.
pub struct AskAll<'a> {
    fds: Vec<PollFd<'a>>,
}

/// Sockets for which it does. A read that finds nothing takes about as long as the question for those that have
/// something.
pub const FEW: usize = 4;

impl<'a> Asked<'a> for AskAll<'a> {
    fn new(sockets: &'a [TcpStream]) -> Result<Self> {
        let fd = |socket: &'a TcpStream| PollFd::new(socket.as_fd(), PollFlags::POLLIN);
        Ok(Self { fds: sockets.iter().map(fd).collect() })
    }

    #[inline]
    fn each_to_read(&mut self, read: impl FnMut(usize) -> Result<()>) -> Result<()> {
        (0..self.fds.len()).try_for_each(read)
    }

    #[cold]
    fn wait(&mut self) {
        // Whatever comes of it, the next pass looks at every socket.
        let _ = poll(&mut self.fds, PollTimeout::from(ACK_WAIT_MS));
    }
}

/// Sockets that are heard of at once.
const EVENTS: usize = 64;

/// Asks the kernel which have something: with a thousand sockets, of which a few have, reading from each would be a
/// thousand calls.
pub struct AskReady {
    epoll: Epoll,
    events: [EpollEvent; EVENTS],
}

impl<'a> Asked<'a> for AskReady {
    fn new(sockets: &'a [TcpStream]) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|errno| no_descriptor("epoll_create", errno))?;
        for (index, socket) in (0..).zip(sockets) {
            epoll
                .add(socket, EpollEvent::new(EpollFlags::EPOLLIN, index))
                .map_err(|errno| no_descriptor("epoll_ctl", errno))?;
        }
        Ok(Self { epoll, events: [EpollEvent::empty(); EVENTS] })
    }

    #[inline]
    fn each_to_read(&mut self, mut read: impl FnMut(usize) -> Result<()>) -> Result<()> {
        // Those that are left out are the first next time.
        let ready = self.epoll.wait(&mut self.events, EpollTimeout::ZERO).unwrap_or(0);
        self.events[..ready].iter().try_for_each(|event| read(event.data() as usize))
    }

    #[cold]
    fn wait(&mut self) {
        let _ = self.epoll.wait(&mut self.events[..1], EpollTimeout::from(ACK_WAIT_MS));
    }
}
