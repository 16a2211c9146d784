//! `rdma`: a reliable connection between every two ranks, over any RDMA device.
//!
//! Small pieces are written into slots that the receiver has set aside, and copied out of them: they need nobody's leave.
//! For a large one the receiver says where it wants it, and the sender's adapter writes it there, from where it lies: no
//! processor touches it. Which way a piece goes both ends tell by its length.
//!
//! That a message has come is told by a completion (RDMA write with immediate data), so that nothing hangs on the order in
//! which an adapter's bytes reach memory.
#![allow(unsafe_code, reason = "the data path is libibverbs")]

mod control;
mod limits;
mod mesh;
mod message;
mod peer;
mod queue;
mod regions;

use std::sync::Arc;
use std::time::{Duration, Instant};

use linkproof_common::cq::{CompletionQueue, CompletionStatus};
use linkproof_common::device::{DeviceWish, Library};
use linkproof_common::endpoint::verbs::DeviceLabel;
use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::memory::HostBuffer;
use linkproof_common::units::show_duration;
use rdma_sys as sys;

pub use self::limits::{check_device, check_pinned, pinned_bytes};

use self::control::{Advert, Control, SLOT_BYTES};
use self::message::{Message, Ticket};
use self::peer::Peer;
use self::regions::Regions;
use super::messages::{Exchange, Messages, Piece};
use crate::backend::Carrier;
use crate::group::{Alarm, Group};
use crate::plan::Plan;
use crate::report::RankPort;

/// How long a rank looks without a pause, where it has a processor of its own: the way through an adapter takes microseconds.
const SPIN: Duration = Duration::from_micros(50);
/// How long it looks whenever nobody else wants its processor: the other rank may be waiting for that.
const YIELD: Duration = Duration::from_millis(10);
/// How often it looks afterwards: who waits for so long does not wait for an adapter.
const PAUSE: Duration = Duration::from_micros(50);
/// Completions taken at a time.
const POLL_BATCH: usize = 32;

/// Which port a user asks for.
#[derive(Clone, Debug, Default)]
pub struct PortWish {
    /// Whose devices.
    pub library: Library,
    /// The device's name; absent: the first with an ACTIVE port.
    pub name: Option<String>,
    /// The port's number; absent: the first that is ACTIVE.
    pub port_num: Option<u8>,
    /// The GID's index; absent: chosen by what it is.
    pub gid_index: Option<u32>,
}

impl PortWish {
    /// The same, borrowed.
    pub fn wish(&self) -> DeviceWish<'_> {
        DeviceWish {
            library: self.library,
            name: self.name.as_deref(),
            port_num: self.port_num,
            gid_index: self.gid_index,
        }
    }
}

/// Connections to all other ranks. Fields are dropped in this order: queue pairs before the memory that they reach.
pub(crate) struct Rdma {
    rank: u32,
    /// By rank; none to itself.
    peers: Vec<Option<Peer>>,
    cq: Arc<CompletionQueue>,
    regions: Regions,
    control: Control,
    port: RankPort,
    device: DeviceLabel,
    alarm: Alarm,
    limit: Duration,
    /// How long this rank looks without a pause.
    spin: Duration,
    /// What is under way, kept for its room.
    flows: Vec<Flow>,
    completions: Box<[sys::ibv_wc; POLL_BATCH]>,
}

/// A piece on its way.
#[derive(Clone, Copy)]
struct Flow {
    piece: Piece,
    is_out: bool,
    state: State,
}

/// How far a piece has come. A small one is done at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Begun,
    /// A large one goes out: so many bytes are posted, the last with this number.
    Posted {
        advert: Advert,
        bytes: u64,
        number: u64,
    },
    /// A large one was asked for, with this number.
    Asked(u64),
    Done,
}

/// What the ranks of a process share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here {
    /// How many they are.
    pub(crate) ranks: u32,
    /// Processors that the process may use.
    pub(crate) processors: u32,
}

/// One rank's backend over RDMA; `alarm` is the group's.
///
/// # Errors
/// No such port, ranks that can't be reached; those of the group.
pub(crate) fn backend(
    group: &mut dyn Group,
    alarm: Alarm,
    wish: &PortWish,
    here: Here,
    plan: &Plan,
) -> Result<Messages<Rdma>> {
    Messages::over(mesh::connect(group, alarm, wish, here, plan)?)
}

impl Exchange for Rdma {
    fn carrier(&self) -> Carrier {
        Carrier {
            backend: "host".to_owned(),
            transport: "rdma".to_owned(),
            note: "a reliable connection between every two ranks".to_owned(),
        }
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn n_ranks(&self) -> u32 {
        self.peers.len() as u32
    }

    fn port(&self) -> Option<RankPort> {
        Some(self.port.clone())
    }

    fn hold(&mut self, memory: &[Arc<HostBuffer>]) -> Result<()> {
        self.regions.hold(memory)
    }

    unsafe fn exchange(&mut self, sends: &[Piece], recvs: &[Piece]) -> Result<()> {
        let mut flows = std::mem::take(&mut self.flows);
        flows.clear();
        let begun = |is_out| move |piece: &Piece| Flow { piece: *piece, is_out, state: State::Begun };
        // What is asked for first comes first.
        flows.extend(recvs.iter().map(begun(false)));
        flows.extend(sends.iter().map(begun(true)));
        // SAFETY: as the caller says.
        let result = unsafe { self.carry(&mut flows) };
        self.flows = flows;
        result
    }
}

impl Rdma {
    /// Between two ranks pieces of a kind go in order: each pass takes them in the order of the lists, and what an earlier one
    /// lacks comes only between passes, so that a later one lacks it as well.
    ///
    /// # Safety
    /// As [`Exchange::exchange`].
    unsafe fn carry(&mut self, flows: &mut [Flow]) -> Result<()> {
        let mut idle_since = None;
        let mut left = flows.len();
        loop {
            let mut moved = false;
            for flow in flows.iter_mut().filter(|flow| flow.state != State::Done) {
                // SAFETY: as the caller says.
                let next = unsafe { self.advance(flow) }?;
                moved |= next != flow.state;
                left -= usize::from(next == State::Done);
                flow.state = next;
            }
            if left == 0 {
                return Ok(());
            }
            if self.poll()? || moved {
                idle_since = None;
            } else {
                self.wait(flows, *idle_since.get_or_insert_with(Instant::now))?;
            }
        }
    }

    /// The state of `flow` after what can be done now.
    ///
    /// # Safety
    /// As [`Exchange::exchange`].
    unsafe fn advance(&mut self, flow: &Flow) -> Result<State> {
        let piece = flow.piece;
        let Some(peer) = &mut self.peers[piece.peer as usize] else { return Ok(State::Done) };
        let done_if = |done: bool, otherwise: State| if done { State::Done } else { otherwise };
        let is_small = piece.bytes <= SLOT_BYTES;
        Ok(match flow.state {
            State::Begun if is_small && flow.is_out => {
                // SAFETY: as the caller says.
                done_if(unsafe { peer.send_piece(&self.control, piece) }?, State::Begun)
            }
            State::Begun if is_small => {
                // SAFETY: as the caller says.
                done_if(unsafe { peer.take_piece(&self.control, piece) }?, State::Begun)
            }
            State::Begun if flow.is_out => match peer.wanted(&self.control, piece)? {
                Some(advert) => self.write_on(piece, advert, 0)?,
                None => State::Begun,
            },
            State::Begun => {
                let rkey = self.regions.keys(piece)?.rkey;
                peer.advertise(&self.control, piece, rkey)?.map_or(State::Begun, State::Asked)
            }
            State::Posted { advert, bytes, .. } if bytes < piece.bytes => {
                self.write_on(piece, advert, bytes)?
            }
            State::Posted { number, .. } => done_if(peer.queue.is_complete(number), flow.state),
            State::Asked(number) => done_if(peer.has_finished(number), flow.state),
            State::Done => State::Done,
        })
    }

    /// A large piece of which so many bytes are posted, and now more.
    fn write_on(&mut self, piece: Piece, advert: Advert, bytes: u64) -> Result<State> {
        let lkey = self.regions.keys(piece)?.lkey;
        let Some(peer) = &mut self.peers[piece.peer as usize] else { return Ok(State::Done) };
        let (bytes, number) = peer.write_large(piece, lkey, advert, bytes)?;
        Ok(State::Posted { advert, bytes, number })
    }

    /// Takes in what has been completed; false where that is nothing.
    #[inline]
    fn poll(&mut self) -> Result<bool> {
        // SAFETY: the completion queue is alive, and polled by this thread only. At most POLL_BATCH completions are written.
        let count =
            unsafe { sys::ibv_poll_cq(self.cq.raw(), POLL_BATCH as i32, self.completions.as_mut_ptr()) };
        if count < 0 {
            let what =
                format!("cannot poll the completion queue on {}: ibv_poll_cq: {count}", self.device.name);
            return Err(Error::new(ErrorKind::Completion, what));
        }
        for completion in &self.completions[..count as usize] {
            let ticket = Ticket::decode(completion.wr_id);
            let peer = self.peers.get_mut(ticket.peer as usize).and_then(Option::as_mut);
            let Some(peer) = peer.filter(|_| completion.status == sys::IBV_WC_SUCCESS) else {
                return Err(self.failed(completion, ticket.peer));
            };
            if completion.opcode & sys::IBV_WC_RECV == 0 {
                peer.queue.complete(ticket);
                continue;
            }
            // SAFETY: every message is a write with immediate data, whose completion has it.
            let data = u32::from_be(unsafe { completion.__bindgen_anon_1.imm_data });
            peer.hear(Message::decode(data), completion.byte_len)?;
        }
        Ok(count > 0)
    }

    #[cold]
    fn failed(&self, completion: &sys::ibv_wc, rank: u32) -> Error {
        let status = CompletionStatus(completion.status);
        let own = self.rank;
        let qps = self.peers.get(rank as usize).and_then(Option::as_ref).map_or(String::new(), |peer| {
            format!(", on QP {} of {} to peer QP {}", peer.queue.qp.qpn(), self.device.name, peer.remote.qpn)
        });
        let what = format!(
            "the connection of rank {own} to rank {rank} failed: {}, vendor 0x{:x}{qps}",
            status.name(),
            completion.vendor_err
        );
        let error = Error::new(ErrorKind::Completion, what).fact("meaning", status.meaning());
        match status.hint(self.device.software.as_deref(), None) {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }

    #[cold]
    fn wait(&self, flows: &[Flow], since: Instant) -> Result<()> {
        let idle = since.elapsed();
        if idle < self.spin {
            std::hint::spin_loop();
            return Ok(());
        }
        self.alarm.check()?;
        if idle > self.limit {
            return Err(self.stalled(flows));
        }
        if idle < YIELD {
            std::thread::yield_now();
        } else {
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn stalled(&self, flows: &[Flow]) -> Error {
        let under_way = flows.iter().filter(|flow| flow.state != State::Done);
        let mut peers: Vec<u32> = under_way.map(|flow| flow.piece.peer).collect();
        peers.sort_unstable();
        peers.dedup();
        let peers: Vec<String> = peers.iter().map(ToString::to_string).collect();
        let what = format!("rank {} moved nothing for {}", self.rank, show_duration(self.limit));
        Error::new(ErrorKind::Stalled, what)
            .fact("waiting for", format!("rank {}", peers.join(", ")))
            .hint("a longer limit is set with --timeout")
    }
}
