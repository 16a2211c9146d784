//! The same message pattern over TCP: the baseline of every RDMA comparison.
//!
//! Each "queue pair" is a socket. A write sends the message's bytes from the source region; a thread of the target
//! ([`Receiver`]) receives them into the same slot of its sink region and answers with the number of messages that have
//! arrived in this round (eight bytes, little endian), once for every receive that completed any. A write is complete
//! when it is acknowledged so: as over RDMA, completion means that the data is in the target's memory.
#![allow(unsafe_code, reason = "the memory may change under the call, so it is passed as pointers")]

mod acks;
mod receive;

pub use acks::{AskAll, AskReady, Asked, FEW};
pub use receive::{Landing, Receiver, RoundOver};

use std::io::Read;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::staged::{Copied, Outbound};
use super::{Endpoint, PingPong, Signal};
use crate::error::{Error, ErrorKind, Result, show_io_error};
use crate::plan::{Regions, Slots};
use crate::watch::Stop;

/// The bytes of one acknowledgement.
const ACK: usize = 8;
/// How long a full window waits in the kernel for an acknowledgement before the loop looks around again.
const ACK_WAIT_MS: u8 = 10;
/// Acknowledgements that are taken at once.
const ACK_BATCH: usize = 64;

/// The sending end of one socket.
pub struct Lane<'a> {
    socket: &'a TcpStream,
    source: u64,
    acknowledged: u64,
    /// The bytes of an acknowledgement that has come in part, and how many they are.
    beginning: [u8; ACK],
    begun: usize,
}

/// How messages come from the source regions to the sockets.
pub trait Taken {
    /// Sends `len` bytes at `address` on the lane `qp` of `lanes`, or begins to.
    ///
    /// # Errors
    /// [`ErrorKind::PeerLost`], [`ErrorKind::Stalled`] where `stop` says so, and those of the memory.
    fn post(&mut self, lanes: &[Lane], qp: usize, address: u64, len: u64, stop: &Stop) -> Result<()>;

    /// Sends what has been begun and can be sent now.
    ///
    /// # Errors
    /// As for [`Taken::post`].
    fn go_on(&mut self, lanes: &[Lane], stop: &Stop) -> Result<()>;

    /// Waits for something that has been begun, and sends it; whether there was anything.
    ///
    /// # Errors
    /// As for [`Taken::post`].
    fn wait(&mut self, lanes: &[Lane], stop: &Stop) -> Result<bool>;
}

/// The regions are host memory, from which a message is sent at once.
pub struct InPlace;

impl Taken for InPlace {
    #[inline]
    fn post(&mut self, lanes: &[Lane], qp: usize, address: u64, len: u64, stop: &Stop) -> Result<()> {
        lanes[qp].send(address, len as usize, stop)
    }

    #[inline]
    fn go_on(&mut self, _: &[Lane], _: &Stop) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn wait(&mut self, _: &[Lane], _: &Stop) -> Result<bool> {
        Ok(false)
    }
}

/// The regions are a GPU's memory.
impl Taken for Outbound {
    fn post(&mut self, lanes: &[Lane], qp: usize, address: u64, len: u64, stop: &Stop) -> Result<()> {
        // SAFETY: whoever made the endpoint has given addresses of device memory, keeps it, and fills it between rounds only.
        unsafe { Self::post(self, qp, address, len, |copied| send(lanes, copied, stop)) }
    }

    fn go_on(&mut self, lanes: &[Lane], stop: &Stop) -> Result<()> {
        self.send_copied(|copied| send(lanes, copied, stop))
    }

    fn wait(&mut self, lanes: &[Lane], stop: &Stop) -> Result<bool> {
        self.send_oldest(|copied| send(lanes, copied, stop))
    }
}

fn send(lanes: &[Lane], copied: Copied, stop: &Stop) -> Result<()> {
    lanes[copied.qp].send(copied.address, copied.len, stop)
}

/// The initiator's sockets. `A` is how it learns which of them have acknowledgements, `T` where messages are taken from.
pub struct TcpEndpoint<'a, A, T> {
    lanes: Vec<Lane<'a>>,
    slots: Slots,
    stop: &'a Stop,
    acks: A,
    taken: T,
}

impl<'a, A: Asked<'a>, T: Taken> TcpEndpoint<'a, A, T> {
    /// An endpoint on `sockets`, which do not block, for messages of one size; `sources` are the addresses of the source
    /// regions, one a socket, which the caller keeps alive longer than the endpoint, and `taken` can send from.
    ///
    /// # Errors
    /// [`ErrorKind::OpenFiles`] where the kernel can't be asked for all of them at once.
    pub fn new(
        sockets: &'a [TcpStream],
        sources: &[u64],
        slots: Slots,
        stop: &'a Stop,
        taken: T,
    ) -> Result<Self> {
        let lanes = sockets.iter().zip(sources).map(|(socket, &source)| Lane::new(socket, source)).collect();
        Ok(Self { lanes, slots, stop, acks: A::new(sockets)?, taken })
    }
}

impl<'a> Lane<'a> {
    fn new(socket: &'a TcpStream, source: u64) -> Self {
        Self { socket, source, acknowledged: 0, beginning: [0; ACK], begun: 0 }
    }

    fn send(&self, mut address: u64, mut left: usize, stop: &Stop) -> Result<()> {
        while left > 0 {
            // SAFETY: `left` bytes at `address` lie in the source region or a stage, which outlive the call; the kernel only
            // reads them.
            let sent = unsafe {
                libc::send(self.socket.as_raw_fd(), address as *const libc::c_void, left, libc::MSG_NOSIGNAL)
            };
            match usize::try_from(sent) {
                Ok(sent) => {
                    address += sent as u64;
                    left -= sent;
                }
                Err(_) => self.wait_for_room(&std::io::Error::last_os_error(), stop)?,
            }
        }
        Ok(())
    }

    #[cold]
    fn wait_for_room(&self, error: &std::io::Error, stop: &Stop) -> Result<()> {
        if !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) {
            return Err(lost(error));
        }
        if stop.must_abandon() {
            return Err(Error::new(ErrorKind::Stalled, "the peer stopped taking data"));
        }
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)];
        let _ = poll(&mut fds, PollTimeout::from(ACK_WAIT_MS));
        Ok(())
    }

    /// How many more messages the peer has acknowledged.
    fn receive_acks(&mut self) -> Result<u64> {
        let mut bytes = [0; ACK_BATCH * ACK];
        bytes[..self.begun].copy_from_slice(&self.beginning[..self.begun]);
        match self.socket.read(&mut bytes[self.begun..]) {
            Ok(0) => Err(Error::new(ErrorKind::PeerLost, "the peer closed a data connection")),
            Ok(count) => Ok(self.take_acks(&bytes[..self.begun + count])),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(lost(&error)),
        }
    }

    /// Takes the last that is whole, and keeps the beginning of the next.
    fn take_acks(&mut self, bytes: &[u8]) -> u64 {
        let (whole, rest) = bytes.as_chunks::<ACK>();
        self.begun = rest.len();
        self.beginning[..self.begun].copy_from_slice(rest);
        let total = whole.last().map_or(self.acknowledged, |last| u64::from_le_bytes(*last));
        let more = total.saturating_sub(self.acknowledged);
        self.acknowledged = total;
        more
    }
}

impl<'a, A: Asked<'a>, T: Taken> Endpoint for TcpEndpoint<'a, A, T> {
    #[inline]
    fn post_write(&mut self, qp: usize, slot: u64, _signal: Signal) -> Result<()> {
        let address = self.lanes[qp].source + self.slots.offset(slot);
        self.taken.post(&self.lanes, qp, address, self.slots.size, self.stop)
    }

    #[inline]
    fn poll(&mut self, mut done: impl FnMut(usize, u32)) -> Result<()> {
        let mut any = false;
        self.poll_at_once(|index, writes| {
            any = true;
            done(index, writes);
        })?;
        if !any && !self.taken.wait(&self.lanes, self.stop)? {
            // The loop polls when its window is full: there is nothing to do until an acknowledgement arrives,
            // and on one host spinning would take the processor from the receiver.
            self.acks.wait();
        }
        Ok(())
    }

    #[inline]
    fn poll_at_once(&mut self, mut done: impl FnMut(usize, u32)) -> Result<()> {
        self.taken.go_on(&self.lanes, self.stop)?;
        let lanes = &mut self.lanes;
        self.acks.each_to_read(|index| {
            let more = lanes[index].receive_acks()?;
            if more > 0 {
                done(index, u32::try_from(more).unwrap_or(u32::MAX));
            }
            Ok(())
        })
    }
}

/// Two sockets, over which messages go in turn. An arrived message is its own acknowledgement.
pub struct TcpPingPong<'a> {
    outgoing: Lane<'a>,
    incoming: &'a TcpStream,
    regions: Regions,
    slots: Slots,
    received: u64,
    stop: &'a Stop,
    looks: u32,
}

/// Looks in vain at a socket before the end sleeps in the kernel until something comes: some 50 µs, longer than a
/// round trip through a loopback or a fast network, shorter than anyone waits for a host that shares its processors.
const LOOKS_BEFORE_SLEEP: u32 = 100;

impl<'a> TcpPingPong<'a> {
    /// Over the two sockets of one "queue pair", outgoing and incoming, which do not block, between `regions`, which the
    /// caller keeps alive longer than this.
    pub fn new(
        sockets: (&'a TcpStream, &'a TcpStream),
        regions: Regions,
        slots: Slots,
        stop: &'a Stop,
    ) -> Self {
        let outgoing = Lane::new(sockets.0, regions.source);
        Self { outgoing, incoming: sockets.1, regions, slots, received: 0, stop, looks: 0 }
    }

    #[cold]
    fn nothing_yet(&mut self, error: &std::io::Error) -> Result<()> {
        if !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) {
            return Err(lost(error));
        }
        self.looks += 1;
        if self.looks >= LOOKS_BEFORE_SLEEP {
            let mut fds = [PollFd::new(self.incoming.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut fds, PollTimeout::from(ACK_WAIT_MS));
        }
        Ok(())
    }

    /// Receives more of what comes next: `length` bytes to `to`. Whether they are all there.
    #[inline]
    fn receive(&mut self, to: u64, length: u64) -> Result<bool> {
        let left = (length - self.received) as usize;
        let to = (to + self.received) as *mut libc::c_void;
        // SAFETY: `left` bytes at `to` lie in the sink region, which the caller keeps and nobody has a reference into.
        let count = unsafe { libc::recv(self.incoming.as_raw_fd(), to, left, 0) };
        match u64::try_from(count) {
            Ok(0) => return Err(Error::new(ErrorKind::PeerLost, "the peer closed a data connection")),
            Ok(count) => self.received += count,
            Err(_) => self.nothing_yet(&std::io::Error::last_os_error())?,
        }
        let whole = self.received == length;
        if whole {
            (self.received, self.looks) = (0, 0);
        }
        Ok(whole)
    }
}

impl PingPong for TcpPingPong<'_> {
    fn send(&mut self, sequence: u64) -> Result<()> {
        let last = (self.regions.source + self.slots.size - 1) as *mut u8;
        // SAFETY: the byte lies in the source region, which the caller keeps; the kernel has copied the message before.
        unsafe { last.write_volatile(sequence as u8) };
        self.outgoing.send(self.regions.source, self.slots.size as usize, self.stop)
    }

    fn arrived(&mut self, _sequence: u64) -> Result<bool> {
        self.receive(self.regions.sink, self.slots.size)
    }

    /// One byte: the sockets keep the order.
    fn release(&mut self, _sequence: u64) -> Result<()> {
        self.outgoing.send(self.regions.source + self.regions.release, 1, self.stop)
    }

    fn released(&mut self, _sequence: u64) -> Result<bool> {
        self.receive(self.regions.sink + self.regions.release, 1)
    }
}

#[cold]
fn lost(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::PeerLost, format!("a data connection to the peer broke: {}", show_io_error(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn acknowledgements_that_come_in_pieces_count_once_whole() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut theirs = listener.accept().unwrap().0;
        let mut lane = Lane::new(&ours, 0);
        let bytes: Vec<u8> = [1_u64, 3, 7].iter().flat_map(|count| count.to_le_bytes()).collect();
        let mut told = Vec::new();
        for piece in bytes.chunks(5) {
            theirs.write_all(piece).unwrap();
            told.push(lane.receive_acks().unwrap());
        }
        assert_eq!(told, [0, 1, 0, 2, 4]);
        ours.set_nonblocking(true).unwrap();
        assert_eq!(lane.receive_acks().unwrap(), 0);
        drop(theirs);
        assert_eq!(lane.receive_acks().unwrap_err().kind, ErrorKind::PeerLost);
    }
}
