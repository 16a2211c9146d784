//! A device with what facts begin with: objects in their usual form, and two queue pairs that are connected.

use std::fmt;
use std::net::Ipv6Addr;
use std::ops::Range;
use std::rc::Rc;

use rdma_sys as sys;

use super::memory::ALL_ACCESS;
use super::{
    Change, Channel, Completion, Connection, Cq, Device, Pages, Pd, Qp, QpShape, Receive, Refused, Region,
    Remote, Request, Sge, Terms,
};
use crate::fact::{Obstacle, Outcome};
use crate::shown::{Errno, State};

/// The port of all facts: every device has it.
const PORT: u8 = 1;
/// More completions than any fact leaves in a queue, where it is not about that.
const CQ_ENTRIES: i32 = 128;
/// The length of a usual region: several packets of the smallest path MTU and of the largest.
const REGION: usize = 16384;

/// How a port is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Address {
    pub(crate) lid: u16,
    /// Index and GID; `None` where the port is reached by its LID.
    pub(crate) gid: Option<(u8, Ipv6Addr)>,
}

/// An open device, ready for facts.
pub(crate) struct Bench {
    device: Rc<Device>,
    port: sys::ibv_port_attr,
    address: Address,
}

impl Bench {
    /// Opens the device called `name`.
    pub(crate) fn open(name: &str) -> Result<Self, Obstacle> {
        let device = Device::open(name)?;
        let port =
            device.port(PORT).map_err(|errno| Obstacle(format!("ibv_query_port of port {PORT}: {errno}")))?;
        if port.state != sys::IBV_PORT_ACTIVE {
            return Err(Obstacle(format!("port {PORT} of {name} is not ACTIVE")));
        }
        let address = Address { lid: port.lid, gid: usable_gid(&device, &port) };
        if address.gid.is_none() && u32::from(port.link_layer) == sys::IBV_LINK_LAYER_ETHERNET {
            return Err(Obstacle(format!("port {PORT} of {name} has no GID")));
        }
        Ok(Self { device, port, address })
    }

    pub(crate) fn device(&self) -> &Rc<Device> {
        &self.device
    }

    /// The number of the port that the facts use.
    pub(crate) fn port_num(&self) -> u8 {
        PORT
    }

    /// That port's attributes.
    pub(crate) fn port(&self) -> &sys::ibv_port_attr {
        &self.port
    }

    /// How that port is reached.
    pub(crate) fn address(&self) -> Address {
        self.address
    }

    pub(crate) fn pd(&self) -> Result<Rc<Pd>, Refused> {
        Pd::new(&self.device)
    }

    pub(crate) fn channel(&self) -> Result<Rc<Channel>, Obstacle> {
        Channel::new(&self.device)
    }

    /// A completion queue of the usual size.
    pub(crate) fn cq(&self) -> Result<Rc<Cq>, Refused> {
        self.cq_of(CQ_ENTRIES)
    }

    /// A completion queue of at least `entries`.
    pub(crate) fn cq_of(&self, entries: i32) -> Result<Rc<Cq>, Refused> {
        Cq::new(&self.device, entries, 0, None, 0)
    }

    /// A completion queue that tells `channel`, on completion vector `vector`, with the user's `context`.
    pub(crate) fn cq_with(
        &self,
        channel: Option<&Rc<Channel>>,
        context: usize,
        vector: i32,
    ) -> Result<Rc<Cq>, Refused> {
        Cq::new(&self.device, CQ_ENTRIES, context, channel, vector)
    }

    /// A region of the usual length, open to everything.
    pub(crate) fn region(&self, pd: &Rc<Pd>) -> Result<Region, Obstacle> {
        let pages = Pages::new(REGION)?;
        Ok(Region::new(pd, &pages, 0..REGION, ALL_ACCESS)?)
    }

    /// A queue pair in RESET, with a domain and a completion queue of its own.
    pub(crate) fn lone_qp(&self) -> Result<Qp, Refused> {
        self.lone_qp_of(&QpShape::default())
    }

    /// The same in another shape.
    pub(crate) fn lone_qp_of(&self, shape: &QpShape) -> Result<Qp, Refused> {
        let cq = self.cq()?;
        Qp::new(&self.pd()?, &cq, &cq, shape)
    }

    /// A connection of this port with itself, to the queue pair `dest_qpn`.
    pub(crate) fn connection(&self, dest_qpn: u32, terms: Terms) -> Connection {
        Connection {
            port_num: PORT,
            local: self.address,
            peer: self.address,
            dest_qpn,
            path_mtu: self.port.active_mtu,
            sq_psn: 0x12_3456,
            rq_psn: 0x12_3456,
            terms,
        }
    }

    /// What a queue pair in `from` answers to a change. Its connection, which the change may draw from, is one to
    /// itself.
    pub(crate) fn attempt(
        &self,
        from: State,
        change: impl FnOnce(&Connection) -> Change,
    ) -> Result<Answer, Obstacle> {
        let qp = self.lone_qp()?;
        let to = self.connection(qp.qpn(), Terms::default());
        qp.take_to(from, &to)?;
        let errno = qp.modify(change(&to));
        Ok(Answer { errno, state: qp.state()? })
    }

    /// Two ends of the usual shape, in RTS, connected to each other.
    pub(crate) fn pair(&self) -> Result<Pair, Obstacle> {
        self.pair_of(&Shape::default())
    }

    /// The same in another shape.
    pub(crate) fn pair_of(&self, shape: &Shape) -> Result<Pair, Obstacle> {
        let pair = self.unconnected_pair(shape)?;
        pair.connect(self, shape.terms)?;
        Ok(pair)
    }

    /// Two ends in RESET.
    pub(crate) fn unconnected_pair(&self, shape: &Shape) -> Result<Pair, Obstacle> {
        Ok(Pair { initiator: self.end(shape)?, target: self.end(shape)? })
    }

    /// Two ends of which the target doesn't answer, while the initiator goes on trying.
    pub(crate) fn unanswered_pair(&self) -> Result<Pair, Obstacle> {
        let pair = self.unconnected_pair(&Shape::default())?;
        let to = self.connection(pair.target.qp.qpn(), Terms::default());
        pair.initiator.qp.take_to(State::RTS, &to)?;
        Ok(pair)
    }

    /// One end, in RESET.
    pub(crate) fn end(&self, shape: &Shape) -> Result<End, Obstacle> {
        self.end_on(self.cq_of(shape.cq_entries)?, shape)
    }

    /// One end of the usual shape, in RESET, whose completion queue tells `channel` and has the user's `context`.
    pub(crate) fn end_with(&self, channel: &Rc<Channel>, context: usize) -> Result<End, Obstacle> {
        self.end_on(self.cq_with(Some(channel), context, 0)?, &Shape::default())
    }

    fn end_on(&self, cq: Rc<Cq>, shape: &Shape) -> Result<End, Obstacle> {
        let pd = self.pd()?;
        let region = self.region(&pd)?;
        let qp = match shape.operations {
            None => Qp::new(&pd, &cq, &cq, &shape.qp)?,
            Some(ops) => Qp::with_operations(&pd, &cq, &cq, &shape.qp, ops)?,
        };
        Ok(End { qp, region, cq, pd })
    }
}

/// What a change was answered, and the state then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    errno: Errno,
    state: State,
}

impl Answer {
    pub(crate) fn done(state: State) -> Self {
        Self { errno: Errno::DONE, state }
    }

    /// Refused as invalid, in `state` as before.
    pub(crate) fn invalid(state: State) -> Self {
        Self::refused(Errno::EINVAL, state)
    }

    pub(crate) fn refused(errno: Errno, state: State) -> Self {
        Self { errno, state }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, now in {}", self.errno, self.state)
    }
}

/// How ends are made and connected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) qp: QpShape,
    /// The operations of extended posting; `None`: an ordinary queue pair.
    pub(crate) operations: Option<u64>,
    pub(crate) cq_entries: i32,
    pub(crate) terms: Terms,
}

impl Default for Shape {
    fn default() -> Self {
        Self { qp: QpShape::default(), operations: None, cq_entries: CQ_ENTRIES, terms: Terms::default() }
    }
}

impl Shape {
    /// The usual one on other terms.
    pub(crate) fn on(terms: Terms) -> Self {
        Self { terms, ..Self::default() }
    }

    /// The usual one with another queue pair.
    pub(crate) fn of(qp: QpShape) -> Self {
        Self { qp, ..Self::default() }
    }
}

/// One end of a connection. Fields are dropped from the first on.
pub(crate) struct End {
    pub(crate) qp: Qp,
    pub(crate) region: Region,
    /// The completion queue of both directions.
    pub(crate) cq: Rc<Cq>,
    pub(crate) pd: Rc<Pd>,
}

impl End {
    /// A piece of its memory.
    pub(crate) fn sge(&self, part: Range<usize>) -> Sge {
        self.region.sge(part)
    }

    /// A place in its memory, for the peer.
    pub(crate) fn remote(&self, offset: usize) -> Remote {
        self.region.remote(offset)
    }

    /// Posts a receive for a piece of its memory.
    pub(crate) fn receive(&self, id: u64, part: Range<usize>) -> Outcome {
        self.qp.must_receive(&[Receive::new(id, &[self.sge(part)])])
    }

    /// Its next completion.
    pub(crate) fn one(&self) -> Result<Completion, Obstacle> {
        self.cq.one()
    }
}

/// Two ends.
pub(crate) struct Pair {
    pub(crate) initiator: End,
    pub(crate) target: End,
}

impl Pair {
    /// Takes both from RESET to RTS.
    pub(crate) fn connect(&self, bench: &Bench, terms: Terms) -> Outcome {
        let (there, here) = (self.target.qp.qpn(), self.initiator.qp.qpn());
        self.target.qp.take_to(State::RTS, &bench.connection(here, terms))?;
        self.initiator.qp.take_to(State::RTS, &bench.connection(there, terms))
    }

    /// A write of a piece of the initiator's memory to the same place in the target's.
    pub(crate) fn write(&self, id: u64, part: Range<usize>) -> Request {
        Request::write(id, &[self.initiator.sge(part.clone())], self.target.remote(part.start))
    }

    /// A send of a piece of the initiator's memory.
    pub(crate) fn send(&self, id: u64, part: Range<usize>) -> Request {
        Request::send(id, &[self.initiator.sge(part)])
    }

    /// Posts one request and gives the next completion.
    pub(crate) fn run(&self, request: Request) -> Result<Completion, Obstacle> {
        self.initiator.qp.must_post(&[request])?;
        self.initiator.one()
    }

    /// Takes both back to RESET and connects them again.
    pub(crate) fn reconnect(&self, bench: &Bench) -> Outcome {
        self.initiator.qp.must(Change::to(State::RESET))?;
        self.target.qp.must(Change::to(State::RESET))?;
        self.connect(bench, Terms::default())
    }
}

/// The entry that a peer on the same port reaches: a routable address rather than a link-local one, RoCE v2 rather
/// than older types. On InfiniBand none: by LID.
fn usable_gid(device: &Device, port: &sys::ibv_port_attr) -> Option<(u8, Ipv6Addr)> {
    if u32::from(port.link_layer) != sys::IBV_LINK_LAYER_ETHERNET {
        return None;
    }
    let entries = (0..port.gid_tbl_len.min(256) as u32)
        .filter_map(|index| device.gid_entry(u32::from(PORT), index, 0).ok())
        .filter(|entry| !entry.gid.is_unspecified());
    let rank = |gid_type: u32, gid: &Ipv6Addr| {
        (gid_type == sys::IBV_GID_TYPE_ROCE_V2, gid.to_ipv4_mapped().is_some(), !gid.is_unicast_link_local())
    };
    let best = entries.reduce(|best, entry| {
        let better = rank(entry.gid_type, &entry.gid) > rank(best.gid_type, &best.gid);
        if better { entry } else { best }
    });
    best.map(|entry| (entry.index as u8, entry.gid))
}
