//! The target's side over TCP: threads that receive a round's messages and acknowledge them.
//!
//! As many threads as this process may run at once, or as there are sockets if those are fewer; each waits in the
//! kernel for any of its own. A thread for each socket would with a thousand of them spend its time in being woken.

use std::io::Write;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::ACK;
use crate::endpoint::staged::{Arrivals, Inbound, Received};
use crate::error::{Error, ErrorKind, Result, show_errno};
use crate::plan::Slots;

/// Messages that one receive may complete: with more, small messages gain nothing.
const RECEIVE_BATCH: usize = 64;
/// Sockets that are heard of at once.
const EVENTS: usize = 64;
/// What the end of a round is called among the sockets.
const ROUND_OVER: u64 = u64::MAX;

/// The sockets that one thread receives on, each with the address of its sink region, which whoever has them keeps
/// alive for as long as [`Receiver::round`] runs.
pub struct Receiver<'a> {
    sockets: &'a [TcpStream],
    sinks: Vec<u64>,
    landing: Landing,
    epoll: Epoll,
    // Registered with epoll, so it has to stay as long.
    _over: &'a RoundOver,
}

/// What the sink regions are.
pub enum Landing {
    /// Host memory, into which the kernel puts the bytes.
    Host,
    /// Memory of a GPU, which copies them there; a message is acknowledged when all of it is there.
    Gpu(Inbound),
}

/// Tells the receivers that their round is over.
pub struct RoundOver(EventFd);

impl RoundOver {
    /// For the rounds of a session.
    ///
    /// # Errors
    /// [`ErrorKind::OpenFiles`] with the errno.
    pub fn new() -> Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC);
        event.map(Self).map_err(|errno| no_descriptor("eventfd", errno))
    }

    /// The round is over: all receivers return.
    pub fn announce(&self) {
        // It can only fail where it stands announced already.
        let _ = self.0.write(1);
    }

    /// A new round begins.
    pub fn retract(&self) {
        // Nothing to read means that nothing was announced.
        let _ = self.0.read();
    }
}

pub(super) fn no_descriptor(call: &str, errno: nix::Error) -> Error {
    Error::new(ErrorKind::OpenFiles, format!("cannot wait for sockets: {call}: {}", show_errno(errno as i32)))
}

impl<'a> Receiver<'a> {
    /// A receiver on `sockets`, which do not block, into the regions at `sinks`, which are `landing`'s.
    ///
    /// # Errors
    /// [`ErrorKind::OpenFiles`] with the errno.
    pub fn new(
        sockets: &'a [TcpStream],
        sinks: Vec<u64>,
        landing: Landing,
        over: &'a RoundOver,
    ) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|errno| no_descriptor("epoll_create", errno))?;
        let add = |fd: &dyn AsFd, data| epoll.add(fd.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, data));
        (0..)
            .zip(sockets)
            .try_for_each(|(index, socket)| add(socket, index))
            .and_then(|()| add(&over.0, ROUND_OVER))
            .map_err(|errno| no_descriptor("epoll_ctl", errno))?;
        Ok(Self { sockets, sinks, landing, epoll, _over: over })
    }

    /// Receives a round's messages, in `slots` of each region, and acknowledges them, until the round is over. The
    /// control channel tells the story of a peer that is gone.
    ///
    /// # Errors
    /// Those of the GPU that has the sinks. The peer then loses its connections.
    pub fn round(&self, slots: Slots) -> Result<()> {
        if let Landing::Gpu(inbound) = &self.landing {
            inbound.bind()?;
        }
        let begin = |&sink| Progress { slots, sink, messages: 0, offset: 0, ack: Ack::default() };
        let mut lanes: Vec<Progress> = self.sinks.iter().map(begin).collect();
        let mut events = [EpollEvent::empty(); EVENTS];
        loop {
            let ready = self.epoll.wait(&mut events, EpollTimeout::NONE).unwrap_or(0);
            for event in &events[..ready] {
                // A round is over once every message is acknowledged, or abandoned: what still comes is of no interest.
                if event.data() == ROUND_OVER {
                    return Ok(());
                }
                self.attend(event.data(), &mut lanes).inspect_err(|_| self.hang_up())?;
            }
        }
    }

    /// Without this the peer would wait for acknowledgements that will not come.
    fn hang_up(&self) {
        for socket in self.sockets {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    fn attend(&self, index: u64, lanes: &mut [Progress]) -> Result<()> {
        let index = index as usize;
        let (Some(socket), Some(lane)) = (self.sockets.get(index), lanes.get_mut(index)) else {
            return Ok(());
        };
        let waited = lane.ack.is_under_way();
        let Some(waits) = lane.advance_over(socket, &self.landing)? else {
            // Gone for good; it would be ready for ever.
            let _ = self.epoll.delete(socket);
            return Ok(());
        };
        if waits != waited {
            let writing = if waits { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
            let mut wish = EpollEvent::new(EpollFlags::EPOLLIN | writing, index as u64);
            let _ = self.epoll.modify(socket, &mut wish);
        }
        Ok(())
    }
}

/// How far one socket is in a round.
struct Progress {
    slots: Slots,
    sink: u64,
    messages: u64,
    offset: u64,
    ack: Ack,
}

impl Progress {
    /// Receives what has come and acknowledges it as far as the peer takes it. Whether an acknowledgement still has to
    /// go out; `None` where the connection is over.
    ///
    /// # Errors
    /// The GPU's.
    fn advance_over(&mut self, socket: &TcpStream, landing: &Landing) -> Result<Option<bool>> {
        match landing {
            Landing::Host => {
                let received = self.receive(socket);
                Ok(received.and_then(|()| self.ack.send(socket, self.messages)))
            }
            Landing::Gpu(inbound) => {
                // One may be left over from an earlier turn.
                let told = self.ack.messages;
                let waits = self.ack.send(socket, told);
                let mut staged = Staged { progress: self, socket, waits };
                // SAFETY: the sink region is device memory, and a message ends within its slot.
                let may_go_on = unsafe { inbound.take(&mut staged)? };
                Ok(staged.waits.filter(|_| may_go_on))
            }
        }
    }

    fn receive(&mut self, socket: &TcpStream) -> Option<()> {
        let mut pieces = self.pieces();
        // SAFETY: the pieces lie in this socket's sink region, which the caller keeps alive; nobody holds a
        // reference into it, and another socket has another region.
        let count = unsafe { libc::readv(socket.as_raw_fd(), pieces.as_mut_ptr(), RECEIVE_BATCH as i32) };
        match u64::try_from(count) {
            Ok(0) => None,
            Ok(count) => {
                self.advance(count);
                Some(())
            }
            Err(_) => may_go_on(&std::io::Error::last_os_error()).then_some(()),
        }
    }

    /// The rest of the message in progress and the slots of those that follow.
    fn pieces(&self) -> [libc::iovec; RECEIVE_BATCH] {
        std::array::from_fn(|index| {
            let slot = (self.messages + index as u64) % self.slots.count;
            let offset = if index == 0 { self.offset } else { 0 };
            libc::iovec {
                iov_base: (self.sink + self.slots.offset(slot) + offset) as *mut libc::c_void,
                iov_len: (self.slots.size - offset) as usize,
            }
        })
    }

    fn advance(&mut self, bytes: u64) {
        let total = self.offset + bytes;
        self.messages += total / self.slots.size;
        self.offset = total % self.slots.size;
    }
}

/// One socket's messages, received for a GPU's memory, and acknowledged when they are there.
struct Staged<'a> {
    progress: &'a mut Progress,
    socket: &'a TcpStream,
    /// As [`Ack::send`] gave it last.
    waits: Option<bool>,
}

impl Arrivals for Staged<'_> {
    fn receive(&mut self, to: *mut u8, room: usize) -> Received {
        // SAFETY: `to` has that much room, and is nobody else's during the call.
        let count = unsafe { libc::recv(self.socket.as_raw_fd(), to.cast(), room, 0) };
        match usize::try_from(count) {
            Ok(0) => Received::End,
            Ok(count) => Received::Bytes(count),
            Err(_) if may_go_on(&std::io::Error::last_os_error()) => Received::Nothing,
            Err(_) => Received::End,
        }
    }

    fn place(&mut self, left: usize) -> (u64, usize) {
        let Progress { slots, sink, messages, offset, .. } = *self.progress;
        let at = sink + slots.offset(messages % slots.count) + offset;
        let len = (slots.size - offset).min(left as u64);
        self.progress.advance(len);
        (at, len as usize)
    }

    fn placed(&self) -> u64 {
        self.progress.messages
    }

    fn landed(&mut self, placed: u64) {
        self.waits = self.waits.and_then(|_| self.progress.ack.send(self.socket, placed));
    }
}

/// The acknowledgement that is on its way, or was the last.
#[derive(Default)]
struct Ack {
    messages: u64,
    bytes: [u8; ACK],
    left: usize,
}

impl Ack {
    fn is_under_way(&self) -> bool {
        self.left > 0
    }

    /// Sends what is left of this one, and then that `messages` have arrived, without waiting: one that the peer does
    /// not take now goes out later and stands for what has come meanwhile. Whether some of it is left; `None` where the
    /// connection is over.
    fn send(&mut self, mut socket: &TcpStream, messages: u64) -> Option<bool> {
        loop {
            if self.left == 0 {
                if self.messages == messages {
                    return Some(false);
                }
                *self = Self { messages, bytes: messages.to_le_bytes(), left: ACK };
            }
            match socket.write(&self.bytes[ACK - self.left..]) {
                Ok(count) => self.left -= count,
                Err(error) => return may_go_on(&error).then_some(true),
            }
        }
    }
}

fn may_go_on(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Buffer, HostBuffer, MemoryKind};
    use std::io::Read;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let theirs = listener.accept().unwrap().0;
        ours.set_nonblocking(true).unwrap();
        (ours, theirs)
    }

    #[test]
    fn a_receive_that_ends_inside_a_message_goes_on_there() {
        let ack = Ack::default();
        let mut progress = Progress { slots: Slots::of(100), sink: 0, messages: 0, offset: 0, ack };
        progress.advance(50);
        assert_eq!((progress.messages, progress.offset), (0, 50));
        progress.advance(170);
        assert_eq!((progress.messages, progress.offset), (2, 20));
        let pieces = progress.pieces();
        assert_eq!((pieces[0].iov_base as u64, pieces[0].iov_len), (2 * 128 + 20, 80));
        assert_eq!((pieces[1].iov_base as u64, pieces[1].iov_len), (3 * 128, 100));
    }

    #[test]
    fn one_thread_receives_on_many_sockets_until_the_round_is_over() {
        const SOCKETS: usize = 150;
        let buffer = HostBuffer::new(SOCKETS as u64 * 4096, MemoryKind::Host).unwrap();
        let (ours, mut theirs): (Vec<_>, Vec<_>) = (0..SOCKETS).map(|_| pair()).unzip();
        let sinks: Vec<u64> = (0..SOCKETS as u64).map(|index| buffer.address() + index * 4096).collect();
        let over = RoundOver::new().unwrap();
        for round in 1..3_u8 {
            over.retract();
            std::thread::scope(|scope| {
                let receiver = Receiver::new(&ours, sinks.clone(), Landing::Host, &over).unwrap();
                scope.spawn(move || receiver.round(Slots::of(8)));
                for socket in &mut theirs {
                    socket.write_all(&[round; 24]).unwrap();
                }
                for socket in &mut theirs {
                    let mut ack = [0; ACK];
                    while u64::from_le_bytes(ack) < 3 {
                        socket.read_exact(&mut ack).unwrap();
                    }
                    assert_eq!(u64::from_le_bytes(ack), 3, "a round counts from nothing");
                }
                over.announce();
            });
            let mut last = [0; 8];
            buffer.read_at((SOCKETS as u64 - 1) * 4096 + 128, &mut last);
            assert_eq!(last, [round; 8]);
        }
    }

    #[test]
    fn a_peer_that_takes_no_acknowledgements_holds_nobody_and_gets_the_last() {
        let (ours, mut theirs) = pair();
        let mut ack = Ack::default();
        let mut messages = 0;
        // Until the sockets between the two are full.
        while ack.send(&ours, messages + 1) == Some(false) {
            messages += 1;
        }
        assert!(ack.is_under_way());
        let newest = messages + 10;
        let mut last = [0; ACK];
        while u64::from_le_bytes(last) < newest {
            assert!(ack.send(&ours, newest).is_some());
            theirs.read_exact(&mut last).unwrap();
        }
        assert_eq!(ack.send(&ours, newest), Some(false));
    }

    #[test]
    fn a_connection_that_ends_is_let_go_of() {
        let (ours, theirs) = pair();
        drop(theirs);
        let mut progress =
            Progress { slots: Slots::of(8), sink: 0, messages: 0, offset: 0, ack: Ack::default() };
        assert_eq!(progress.advance_over(&ours, &Landing::Host).unwrap(), None);
    }
}
