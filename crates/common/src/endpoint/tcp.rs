//! The same message pattern over TCP: the baseline of every RDMA comparison.
//!
//! Each "queue pair" is a socket. A write sends the message's bytes from the source region; the target's thread
//! receives them into the same slot of its sink region and answers with the number of messages that have arrived
//! in this round (eight bytes, little endian), once for every receive that completed any. A write is complete when
//! it is acknowledged so: as over RDMA, completion means that the data is in the target's memory.
#![allow(unsafe_code, reason = "the memory may change under the call, so it is passed as pointers")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Endpoint, PingPong, Signal};
use crate::error::{Error, ErrorKind, Result, show_io_error};
use crate::plan::{Regions, Slots};
use crate::watch::Stop;

/// The bytes of one acknowledgement.
const ACK: usize = 8;
/// How long a full window waits in the kernel for an acknowledgement before the loop looks around again.
const ACK_WAIT_MS: u8 = 10;
/// Messages that one receive may complete: with more, small messages gain nothing.
const RECEIVE_BATCH: usize = 64;
/// How soon a receiver notices that its round is over.
const ROUND_END_POLL_MS: u8 = 5;
/// How long the peer may leave an acknowledgement in its socket before the receiver gives up.
const ACK_SEND_DEADLINE: Duration = Duration::from_secs(10);

/// The sending end of one socket.
struct Lane {
    socket: TcpStream,
    source: u64,
    acknowledged: u64,
    partial: Vec<u8>,
}

/// The initiator's sockets.
pub struct TcpEndpoint<'a> {
    lanes: Vec<Lane>,
    slots: Slots,
    stop: &'a Stop,
}

impl<'a> TcpEndpoint<'a> {
    /// An endpoint for messages of one size; `sources` are the addresses of the source regions, one a socket,
    /// which the caller keeps alive longer than the endpoint.
    ///
    /// # Errors
    /// [`ErrorKind::PeerLost`] where a socket can't be used any more.
    pub fn new(sockets: &[TcpStream], sources: &[u64], slots: Slots, stop: &'a Stop) -> Result<Self> {
        let lane = |(socket, &source): (&TcpStream, &u64)| {
            let socket = socket.try_clone()?;
            socket.set_nonblocking(true)?;
            Ok(Lane { socket, source, acknowledged: 0, partial: Vec::with_capacity(ACK) })
        };
        let lanes = sockets.iter().zip(sources).map(lane).collect::<std::io::Result<_>>();
        Ok(Self { lanes: lanes.map_err(|error| lost(&error))?, slots, stop })
    }

    #[cold]
    fn wait_for_ack(&self) {
        let mut fds: Vec<PollFd> =
            self.lanes.iter().map(|lane| PollFd::new(lane.socket.as_fd(), PollFlags::POLLIN)).collect();
        // Whatever comes of it, the next pass looks at every socket.
        let _ = poll(&mut fds, PollTimeout::from(ACK_WAIT_MS));
    }
}

impl Lane {
    fn send(&self, mut address: u64, mut left: usize, stop: &Stop) -> Result<()> {
        while left > 0 {
            // SAFETY: `left` bytes at `address` lie in the source region, which outlives the endpoint; the kernel
            // only reads them.
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
        let mut bytes = [0; RECEIVE_BATCH * ACK];
        match self.socket.read(&mut bytes) {
            Ok(0) => Err(Error::new(ErrorKind::PeerLost, "the peer closed a data connection")),
            Ok(count) => {
                self.partial.extend_from_slice(&bytes[..count]);
                Ok(self.take_acks())
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(lost(&error)),
        }
    }

    fn take_acks(&mut self) -> u64 {
        let whole = self.partial.len() / ACK * ACK;
        let last = self.partial[..whole].last_chunk::<ACK>().map(|bytes| u64::from_le_bytes(*bytes));
        self.partial.drain(..whole);
        let total = last.unwrap_or(self.acknowledged);
        let more = total.saturating_sub(self.acknowledged);
        self.acknowledged = total;
        more
    }
}

impl Endpoint for TcpEndpoint<'_> {
    #[inline]
    fn post_write(&mut self, qp: usize, slot: u64, _signal: Signal) -> Result<()> {
        let lane = &self.lanes[qp];
        lane.send(lane.source + self.slots.offset(slot), self.slots.size as usize, self.stop)
    }

    #[inline]
    fn poll(&mut self, mut done: impl FnMut(usize, u32)) -> Result<()> {
        let mut any = false;
        self.poll_at_once(|index, writes| {
            any = true;
            done(index, writes);
        })?;
        if !any {
            // The loop polls when its window is full: there is nothing to do until an acknowledgement arrives,
            // and on one host spinning would take the processor from the receiver.
            self.wait_for_ack();
        }
        Ok(())
    }

    #[inline]
    fn poll_at_once(&mut self, mut done: impl FnMut(usize, u32)) -> Result<()> {
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let more = lane.receive_acks()?;
            if more > 0 {
                done(index, u32::try_from(more).unwrap_or(u32::MAX));
            }
        }
        Ok(())
    }
}

/// Two sockets, over which messages go in turn. An arrived message is its own acknowledgement.
pub struct TcpPingPong<'a> {
    outgoing: Lane,
    incoming: TcpStream,
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
    /// Over the two sockets of one "queue pair", between `regions`, which the caller keeps alive longer than this.
    ///
    /// # Errors
    /// [`ErrorKind::PeerLost`] where a socket can't be used any more.
    pub fn new(
        sockets: (&TcpStream, &TcpStream),
        regions: Regions,
        slots: Slots,
        stop: &'a Stop,
    ) -> Result<Self> {
        let clones = || {
            let (outgoing, incoming) = (sockets.0.try_clone()?, sockets.1.try_clone()?);
            outgoing.set_nonblocking(true)?;
            incoming.set_nonblocking(true)?;
            Ok((outgoing, incoming))
        };
        let (socket, incoming) = clones().map_err(|error: std::io::Error| lost(&error))?;
        let outgoing = Lane { socket, source: regions.source, acknowledged: 0, partial: Vec::new() };
        Ok(Self { outgoing, incoming, regions, slots, received: 0, stop, looks: 0 })
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

/// Receives one connection's messages of a round into the region at `sink` and acknowledges them, until
/// `round_over` is set or the connection ends. Returns how many messages arrived.
pub fn receive_round(socket: &TcpStream, sink: u64, slots: Slots, round_over: &AtomicBool) -> u64 {
    let mut progress = Progress { slots, sink, messages: 0, offset: 0 };
    // The sender's half of this socket may have made it non-blocking, and this loop polls anyway.
    if socket.set_nonblocking(true).is_err() {
        return 0;
    }
    loop {
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        let ready = poll(&mut fds, PollTimeout::from(ROUND_END_POLL_MS)).unwrap_or(0);
        // A round is over once every message is acknowledged, or abandoned: what still comes is of no interest.
        if round_over.load(Ordering::Acquire) {
            return progress.messages;
        }
        if ready == 0 {
            continue;
        }
        match progress.receive(socket) {
            Received::Messages if send_ack(socket, progress.messages, round_over).is_ok() => {}
            Received::Part => {}
            // The control channel tells the story of a peer that is gone.
            Received::Messages | Received::Nothing => return progress.messages,
        }
    }
}

struct Progress {
    slots: Slots,
    sink: u64,
    messages: u64,
    offset: u64,
}

enum Received {
    /// At least one message is whole.
    Messages,
    /// Bytes of a message, but not its last.
    Part,
    /// The connection is over.
    Nothing,
}

impl Progress {
    fn receive(&mut self, socket: &TcpStream) -> Received {
        let mut pieces = self.pieces();
        // SAFETY: the pieces lie in this socket's sink region, which the caller keeps alive; nobody holds a
        // reference into it, and another socket has another region.
        let count = unsafe { libc::readv(socket.as_raw_fd(), pieces.as_mut_ptr(), RECEIVE_BATCH as i32) };
        match usize::try_from(count) {
            Ok(0) => Received::Nothing,
            Ok(count) => self.advance(count as u64),
            Err(_) => match std::io::Error::last_os_error().kind() {
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted => Received::Part,
                _ => Received::Nothing,
            },
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

    fn advance(&mut self, bytes: u64) -> Received {
        let total = self.offset + bytes;
        self.messages += total / self.slots.size;
        self.offset = total % self.slots.size;
        if total >= self.slots.size { Received::Messages } else { Received::Part }
    }
}

fn send_ack(mut socket: &TcpStream, messages: u64, round_over: &AtomicBool) -> std::io::Result<()> {
    let bytes = messages.to_le_bytes();
    let deadline = Instant::now() + ACK_SEND_DEADLINE;
    let mut sent = 0;
    while sent < ACK {
        match socket.write(&bytes[sent..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                if round_over.load(Ordering::Acquire) {
                    return Err(error);
                }
                let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
                let _ = poll(&mut fds, PollTimeout::from(ACK_WAIT_MS));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_that_ends_inside_a_message_goes_on_there() {
        let mut progress = Progress { slots: Slots::of(100), sink: 0, messages: 0, offset: 0 };
        assert!(matches!(progress.advance(50), Received::Part));
        assert!(matches!(progress.advance(170), Received::Messages));
        assert_eq!((progress.messages, progress.offset), (2, 20));
        let pieces = progress.pieces();
        assert_eq!((pieces[0].iov_base as u64, pieces[0].iov_len), (2 * 128 + 20, 80));
        assert_eq!((pieces[1].iov_base as u64, pieces[1].iov_len), (3 * 128, 100));
    }
}
