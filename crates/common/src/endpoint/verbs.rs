//! RDMA writes over reliable-connected queue pairs.
#![allow(unsafe_code, reason = "the data path is libibverbs")]

mod lists;
mod posting;

pub use posting::{Classic, Extended, Fetched, Inline, Posting, Source};

use std::marker::PhantomData;
use std::sync::Arc;

use rdma_sys as sys;

use self::posting::{Lane, Write};
use super::{Endpoint, List, PingPong, Signal};
use crate::cq::{CompletionQueue, CompletionStatus};
use crate::error::{Error, ErrorKind, Result, show_errno};
use crate::gid::OtherPair;
use crate::plan::{Regions, Slots};
use crate::qp::{Qpn, QueuePair};

/// Completions taken in one poll. More than the four signals that one queue pair can have outstanding, so that a
/// few queue pairs are served by one call; 64 of 48 bytes stay in the first-level cache.
const POLL_BATCH: usize = 64;

/// The device behind an endpoint, for messages.
#[derive(Clone, Debug)]
pub struct DeviceLabel {
    /// Its name.
    pub name: String,
    /// Which emulation it is, if it is one.
    pub software: Option<String>,
    /// GIDs of another family that it could use with the peer, as far as that is known.
    pub other: Option<OtherPair>,
}

/// A queue pair and the memory on both ends that its writes go between.
#[derive(Clone, Copy, Debug)]
pub struct WritePath {
    /// Where the source region begins here.
    pub local_addr: u64,
    /// Where the sink region begins at the peer.
    pub remote_addr: u64,
    /// This end's key.
    pub lkey: u32,
    /// The peer's key.
    pub rkey: u32,
    /// The peer's queue pair, for messages.
    pub peer_qpn: Qpn,
}

impl WritePath {
    /// The path of writes that begin so many bytes behind the start of both regions.
    pub fn behind(self, offset: u64) -> Self {
        Self { local_addr: self.local_addr + offset, remote_addr: self.remote_addr + offset, ..self }
    }
}

/// Queue pairs in RTS, one completion queue, and the posting that the provider has.
pub struct VerbsEndpoint<P> {
    lanes: Vec<Lane>,
    stride: u64,
    completions: Box<[sys::ibv_wc; POLL_BATCH]>,
    cq: Arc<CompletionQueue>,
    device: DeviceLabel,
    posting: PhantomData<P>,
}

impl<P: Posting> VerbsEndpoint<P> {
    /// An endpoint for messages of one size, posted in lists of up to `post_list`. The queue pairs stay with the caller,
    /// who keeps them, and the memory, until the endpoint is gone. Meanwhile they, and `cq`, to which they report, are
    /// this thread's.
    pub fn new(
        device: &DeviceLabel,
        cq: &Arc<CompletionQueue>,
        qps: &[QueuePair],
        paths: &[WritePath],
        slots: Slots,
        post_list: u32,
    ) -> Self {
        let lane = |(qp, &path)| Lane::new(qp, path, slots, post_list, P::FLAGS);
        Self {
            lanes: qps.iter().enumerate().zip(paths).map(lane).collect(),
            stride: slots.stride,
            completions: Box::new([sys::ibv_wc::default(); POLL_BATCH]),
            cq: Arc::clone(cq),
            device: device.clone(),
            posting: PhantomData,
        }
    }

    #[cold]
    fn post_failed(&self, qp: usize, errno: i32) -> Error {
        Error::new(
            ErrorKind::Completion,
            format!("cannot post a write on {}: {}", self.name_of(qp), show_errno(errno)),
        )
    }

    #[cold]
    fn completion_failed(&self, completion: &sys::ibv_wc) -> Error {
        let status = CompletionStatus(completion.status);
        let (qp, _) = unpack(completion.wr_id);
        let error = Error::new(
            ErrorKind::Completion,
            format!(
                "a write did not complete: {}, vendor 0x{:x}, on {}",
                status.name(),
                completion.vendor_err,
                self.name_of(qp)
            ),
        )
        .fact("meaning", status.meaning());
        match status.hint(self.device.software.as_deref(), self.device.other.as_ref()) {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }

    fn name_of(&self, qp: usize) -> String {
        let Some(lane) = self.lanes.get(qp) else { return format!("an unknown QP of {}", self.device.name) };
        // SAFETY: the caller of `new` keeps the queue pair as long as the endpoint.
        let qpn = Qpn(unsafe { (*lane.qp).qp_num });
        format!("QP {qpn} of {} to peer QP {}", self.device.name, lane.path.peer_qpn)
    }
}

/// The queue pair's index and the number of writes that a completion stands for, in one work request id.
fn pack(qp: usize, covered: u32) -> u64 {
    (qp as u64) << 32 | u64::from(covered)
}

fn unpack(wr_id: u64) -> (usize, u32) {
    ((wr_id >> 32) as usize, wr_id as u32)
}

#[inline(always)]
fn write(path: WritePath, stride: u64, qp: usize, slot: u64, signal: Signal) -> Write {
    let offset = slot * stride;
    Write {
        local_addr: path.local_addr + offset,
        remote_addr: path.remote_addr + offset,
        wr_id: pack(qp, signal.covered()),
        signal,
    }
}

impl<P: Posting> Endpoint for VerbsEndpoint<P> {
    #[inline]
    fn post_write(&mut self, qp: usize, slot: u64, signal: Signal) -> Result<()> {
        let lane = &mut self.lanes[qp];
        let write = write(lane.path, self.stride, qp, slot, signal);
        // SAFETY: the lane's queue pair and memory are kept by whoever made the endpoint, and only `self` posts.
        match unsafe { P::post(lane, write) } {
            0 => Ok(()),
            errno => Err(self.post_failed(qp, errno)),
        }
    }

    #[inline]
    fn post_list(&mut self, qp: usize, list: List) -> Result<()> {
        let lane = &mut self.lanes[qp];
        let (path, stride) = (lane.path, self.stride);
        let wr_id = pack(qp, list.signal.covered());
        let write = |slot, signal| write(path, stride, qp, slot, signal);
        // SAFETY: as above.
        match unsafe { lane.post_list(list, wr_id, write) } {
            0 => Ok(()),
            errno => Err(self.post_failed(qp, errno)),
        }
    }

    #[inline]
    fn poll(&mut self, mut done: impl FnMut(usize, u32)) -> Result<()> {
        // SAFETY: the completion queue is alive, and polled by this thread only: each has one of its own. At most
        // POLL_BATCH completions are written.
        let count =
            unsafe { sys::ibv_poll_cq(self.cq.raw(), POLL_BATCH as i32, self.completions.as_mut_ptr()) };
        if count < 0 {
            return Err(poll_failed(&self.device.name, count));
        }
        for completion in &self.completions[..count as usize] {
            if completion.status != sys::IBV_WC_SUCCESS {
                return Err(self.completion_failed(completion));
            }
            let (qp, covered) = unpack(completion.wr_id);
            done(qp, covered);
        }
        Ok(())
    }
}

#[cold]
fn poll_failed(device: &str, code: i32) -> Error {
    Error::new(
        ErrorKind::Completion,
        format!("cannot poll the completion queue on {device}: ibv_poll_cq: {code}"),
    )
}

/// One queue pair, written over in turn with the peer.
///
/// The last byte of each message is its number, modulo 256. The receiver polls that byte, so the bytes have to land in
/// order: the memory is registered without relaxed ordering, with which an adapter may write the last byte first and
/// the latency would be that of a message that is not there yet.
///
/// Completions of one's own writes say nothing that the answer has not said already, unless they failed. They are
/// reaped in the shadow of a write that has just been posted, not between an arrival and the next post.
pub struct VerbsPingPong<P> {
    messages: Marked<P>,
    releases: Marked<P>,
    signal_every: u32,
    unsignalled: u32,
    looks: u32,
}

/// Writes of one kind, and the byte that tells them apart: the last of each.
struct Marked<P> {
    writes: VerbsEndpoint<P>,
    outgoing: *mut u8,
    incoming: *const u8,
}

/// Looks in vain at the last byte after which the completion queue is asked whether the write has failed: some 10 µs,
/// so that it is not asked in a round trip that is worth measuring.
const LOOKS_BEFORE_DOUBT: u32 = 1 << 14;

impl<P: Posting> VerbsPingPong<P> {
    /// Over one queue pair, between `regions`, which the caller keeps alive longer than this: `messages` of `size` bytes
    /// from their start, `releases` of one byte at their place. Every `signal_every`-th write is signalled.
    pub fn new(
        messages: VerbsEndpoint<P>,
        releases: VerbsEndpoint<P>,
        regions: Regions,
        size: u64,
        signal_every: u32,
    ) -> Self {
        let marked = |writes, last| Marked {
            writes,
            outgoing: (regions.source + last) as *mut u8,
            incoming: (regions.sink + last) as *const u8,
        };
        let (messages, releases) = (marked(messages, size - 1), marked(releases, regions.release));
        // The first write of a stretch is signalled: the one before may have left unsignalled writes, and an adapter frees
        // their places in the queue only with a completion that stands for them. Stretches may be shorter than the interval.
        Self { messages, releases, signal_every, unsignalled: signal_every - 1, looks: 0 }
    }

    /// Whether the next write is signalled.
    #[inline]
    fn signal(&mut self) -> Signal {
        let since = self.unsignalled + 1;
        let signalled = since == self.signal_every;
        self.unsignalled = if signalled { 0 } else { since };
        if signalled { Signal::Covering(since) } else { Signal::None }
    }

    /// Takes completions off the queue, whichever writes they are of: one in flight never overfills it.
    #[cold]
    fn reap(&mut self) -> Result<()> {
        self.messages.writes.poll(|_, _| ())
    }

    /// After a write: not its own completion, which is on its way, but that of the one signalled before.
    #[inline]
    fn reap_after(&mut self, signal: Signal) -> Result<()> {
        if signal == Signal::None { Ok(()) } else { self.reap() }
    }

    #[inline]
    fn look(&mut self, there: bool) -> Result<bool> {
        if there {
            self.looks = 0;
            return Ok(true);
        }
        self.looks += 1;
        if self.looks == LOOKS_BEFORE_DOUBT {
            self.looks = 0;
            self.reap()?;
        }
        Ok(false)
    }
}

impl<P: Posting> Marked<P> {
    #[inline]
    fn write(&mut self, sequence: u64, signal: Signal) -> Result<()> {
        // SAFETY: the byte lies in the source region, which the caller keeps. The adapter still reads it for the write
        // before only if it has to repeat that, and the peer, which has answered it, ignores repetitions.
        unsafe { self.outgoing.write_volatile(sequence as u8) };
        self.writes.post_write(0, 0, signal)
    }

    #[inline]
    fn is_there(&self, sequence: u64) -> bool {
        // SAFETY: the byte lies in the sink region, which the caller keeps; the peer's adapter writes it, so it is
        // read anew each time.
        unsafe { self.incoming.read_volatile() == sequence as u8 }
    }
}

impl<P: Posting> PingPong for VerbsPingPong<P> {
    #[inline]
    fn send(&mut self, sequence: u64) -> Result<()> {
        let signal = self.signal();
        self.messages.write(sequence, signal)?;
        self.reap_after(signal)
    }

    #[inline]
    fn arrived(&mut self, sequence: u64) -> Result<bool> {
        self.look(self.messages.is_there(sequence))
    }

    #[inline]
    fn release(&mut self, sequence: u64) -> Result<()> {
        let signal = self.signal();
        self.releases.write(sequence, signal)?;
        self.reap_after(signal)
    }

    #[inline]
    fn released(&mut self, sequence: u64) -> Result<bool> {
        self.look(self.releases.is_there(sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_request_id_keeps_queue_pair_and_count() {
        assert_eq!(unpack(pack(16383, 4096)), (16383, 4096));
        assert_eq!(unpack(pack(0, u32::MAX)), (0, u32::MAX));
    }
}
