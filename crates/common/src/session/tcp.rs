//! Bringing up data sockets: the server listens on a port of the kernel's choosing, the client connects one
//! socket for each "queue pair" and direction, and each says first whose it is.

mod arrivals;

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;

use socket2::{Domain, Socket, Type};

use self::arrivals::Arrivals;
use super::threads::{Crew, Share, beside};
use super::{Measure, MeasureInTurn, STEP_LIMIT, swap_ends};
use crate::addresses::host_addresses;
use crate::contention::Observer;
use crate::cuda::PinnedBuffer;
use crate::endpoint::staged::{Inbound, Outbound, StagedPingPong};
use crate::endpoint::tcp::{
    AskAll, AskReady, Asked, FEW, InPlace, Landing, Receiver, RoundOver, Taken, TcpEndpoint, TcpPingPong,
};
use crate::error::{Error, ErrorKind, Result, show_io_error};
use crate::exchange::message::EndInfo;
use crate::exchange::tcp::{TcpChannel, show_address};
use crate::exchange::{interrupted, random_token, source, while_working};
use crate::host::HostFiles;
use crate::memory::{Buffer, EndBuffer, EndMemory, GpuMemory, GpuPath, GpuUse};
use crate::plan::{BufferLayout, Plan, Role, Slots};
use crate::report::{Link, TcpEnd};
use crate::validate::Direction;
use crate::watch::Stop;

/// The data sockets of one end, by queue pair.
pub(super) struct TcpSession {
    outgoing: Vec<TcpStream>,
    incoming: Vec<TcpStream>,
    over: RoundOver,
    buffer: EndBuffer,
}

/// What a data connection says first: a token, which direction it carries, and for which queue pair.
const GREETING: usize = 16;

/// Connects the data sockets.
pub(super) fn bring_up(
    channel: &mut TcpChannel,
    plan: &Plan,
    buffer: EndBuffer,
    role: Role,
    files: &HostFiles,
) -> Result<(TcpSession, Link, EndMemory)> {
    let ours_memory = EndMemory::of(&buffer, staged(&buffer));
    let listener = (role == Role::Server).then(|| listen(channel, plan)).transpose()?;
    let ours = this_end(channel.local_addr()?, files);
    let info = EndInfo::Tcp {
        end: ours.clone(),
        data_port: listener.as_ref().map(|(_, port)| *port),
        token: random_token(),
        memory: ours_memory,
    };
    let EndInfo::Tcp { end: theirs, data_port, token, memory } = swap_ends(channel, &info)? else {
        return Err(Error::new(ErrorKind::Protocol, "the peer brought up RDMA where TCP was agreed on"));
    };
    let sockets = match (&listener, &info, data_port) {
        (Some((listener, _)), EndInfo::Tcp { token, .. }, _) => {
            Arrivals::new(listener, *token, plan).take_all(channel)?
        }
        (None, _, Some(port)) => {
            // Not made anew from the IP address: a link-local one has a scope besides.
            let mut server = channel.peer_addr()?;
            server.set_port(port);
            let source = channel.source();
            while_working(channel, || connect(server, source, token, plan))?
        }
        _ => return Err(Error::new(ErrorKind::Protocol, "the server offered no port for data connections")),
    };
    let session = TcpSession::new(sockets, plan, role, buffer)?;
    let (client, server) = match role {
        Role::Client => (ours, theirs),
        Role::Server => (theirs, ours),
    };
    Ok((session, Link::Tcp { client, server }, memory))
}

/// How a socket comes to a GPU's memory.
pub(super) fn staged(buffer: &EndBuffer) -> Option<GpuUse> {
    buffer.gpu().map(|memory| GpuUse::of(memory.gpu(), GpuPath::Staged, Vec::new()))
}

fn listen(channel: &TcpChannel, plan: &Plan) -> Result<(TcpListener, u16)> {
    // On the address that the client has reached: the data takes the same path as the control channel.
    let mut address = channel.local_addr()?;
    address.set_port(0);
    let listening = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.bind(&address.into())?;
        // As many as may come before this end looks; with fewer a client would wait a second for each that is dropped.
        socket.listen(plan.sockets() as i32)?;
        socket.set_nonblocking(true)?;
        let listener = TcpListener::from(socket);
        let port = listener.local_addr()?.port();
        Ok((listener, port))
    };
    listening().map_err(|error: std::io::Error| {
        Error::new(
            ErrorKind::Listen,
            format!("cannot listen for data connections on {}: {}", address.ip(), show_io_error(&error)),
        )
    })
}

fn this_end(address: SocketAddr, files: &HostFiles) -> TcpEnd {
    let netdev = interface_of(address);
    let rate = netdev.as_ref().and_then(|netdev| interface_mbit_per_sec(netdev, files));
    TcpEnd { address: show_address(address), netdev, rate_gbit_per_sec: rate.map(|mbit| mbit as f64 / 1e3) }
}

/// The speed of an interface that has one: virtual ones (virtio, veth) state a number that nothing holds them to.
fn interface_mbit_per_sec(netdev: &str, files: &HostFiles) -> Option<u64> {
    let folder = format!("/sys/class/net/{netdev}");
    let bus = files.link_name(&format!("{folder}/device/subsystem"));
    let on_a_bus = bus.is_some_and(|bus| bus != "virtio");
    // Bonds and VLANs sit on other interfaces and take their speed from them.
    let on_others = files.names(&folder).iter().any(|name| name.starts_with("lower_"));
    // Without a speed the file can't be read, or holds -1.
    files.number(&format!("{folder}/speed")).filter(|&mbit| mbit > 0 && (on_a_bus || on_others))
}

fn interface_of(address: SocketAddr) -> Option<String> {
    let ip = address.ip().to_canonical();
    host_addresses().into_iter().find(|present| present.ip == ip).map(|present| present.interface)
}

fn greeting(token: u64, direction: Direction, qp: u32) -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    bytes[..8].copy_from_slice(&token.to_be_bytes());
    bytes[8..12].copy_from_slice(&(direction as u32).to_be_bytes());
    bytes[12..].copy_from_slice(&qp.to_be_bytes());
    bytes
}

fn failed(what: &str, address: SocketAddr, error: &std::io::Error) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!("cannot {what} {}: {}", show_address(address), show_io_error(error)),
    )
    .hint("see that no firewall drops TCP ports other than the control channel's between the hosts")
}

/// The client's half of opening the data connections; gives them by direction, then by queue pair.
fn connect(server: SocketAddr, source: Option<IpAddr>, token: u64, plan: &Plan) -> Result<Vec<TcpStream>> {
    let one = |direction, qp| {
        if crate::interrupt::requested() {
            return Err(interrupted());
        }
        let connected = || {
            let mut socket = source::connect(source, server, STEP_LIMIT)?;
            socket.set_nodelay(true)?;
            socket.write_all(&greeting(token, direction, qp))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        connected().map_err(|error| failed("open a data connection to", server, &error))
    };
    let of = |&direction: &Direction| (0..plan.qps).map(move |qp| one(direction, qp));
    plan.directions().iter().flat_map(of).collect()
}

impl TcpSession {
    /// From `sockets` by direction, then by queue pair.
    fn new(sockets: Vec<TcpStream>, plan: &Plan, role: Role, buffer: EndBuffer) -> Result<Self> {
        let (mut outgoing, mut incoming) = (Vec::new(), Vec::new());
        let mut sockets = sockets.into_iter();
        for &direction in plan.directions() {
            let lanes = if direction == role.writes() { &mut outgoing } else { &mut incoming };
            lanes.extend(sockets.by_ref().take(plan.qps as usize));
        }
        Ok(Self { outgoing, incoming, over: RoundOver::new()?, buffer })
    }

    pub(super) fn buffer(&self) -> &EndBuffer {
        &self.buffer
    }

    pub(super) fn measure<M: Measure + Send>(
        &self,
        slots: Slots,
        crew: Crew,
        layout: BufferLayout,
        measures: Vec<M>,
    ) -> Result<()> {
        let sources: Vec<u64> =
            (0..).map(|qp| self.buffer.address() + layout.source(qp)).take(self.outgoing.len()).collect();
        match (self.buffer.gpu(), few_each(crew.plan)) {
            (None, true) => self.measure_by::<AskAll, _, M>(slots, crew, &sources, measures, || Ok(InPlace)),
            (None, false) => {
                self.measure_by::<AskReady, _, M>(slots, crew, &sources, measures, || Ok(InPlace))
            }
            // Over PCIe each message comes in pieces anyway: which sockets have acknowledgements is asked for in one way.
            (Some(gpu), _) => {
                let outbound = || Outbound::new(gpu.context());
                self.measure_by::<AskReady, _, M>(slots, crew, &sources, measures, outbound)
            }
        }
    }

    fn measure_by<'a, A: Asked<'a>, T: Taken, M: Measure + Send>(
        &'a self,
        slots: Slots,
        crew: Crew<'a>,
        sources: &[u64],
        measures: Vec<M>,
        taken: impl Fn() -> Result<T> + Sync,
    ) -> Result<()> {
        crew.run(measures, |Share { part, stop, .. }| {
            TcpEndpoint::<A, T>::new(&self.outgoing[part.clone()], &sources[part], slots, stop, taken()?)
        })
    }

    pub(super) fn measure_in_turn<M: MeasureInTurn>(
        &self,
        slots: Slots,
        stop: &Stop,
        layout: BufferLayout,
        measure: M,
    ) -> Result<()> {
        let ([outgoing, ..], [incoming, ..]) = (self.outgoing.as_slice(), self.incoming.as_slice()) else {
            return Err(Error::new(ErrorKind::Protocol, "the ends of this plan do not write in turn"));
        };
        let sockets = (outgoing, incoming);
        let regions = layout.regions(self.buffer.address());
        match self.buffer.gpu() {
            None => measure.run(&mut TcpPingPong::new(sockets, regions, slots, stop)),
            Some(gpu) => {
                let mirror = PinnedBuffer::new(gpu.context(), gpu.len() as usize)?;
                mirror.clear();
                let host = layout.regions(mirror.address());
                let path = TcpPingPong::new(sockets, host, slots, stop);
                measure.run(&mut StagedPingPong::new(gpu.context(), path, regions, host, slots.size)?)
            }
        }
    }

    pub(super) fn as_target<R>(
        &self,
        slots: Slots,
        layout: BufferLayout,
        observer: &Observer,
        body: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        self.over.retract();
        let receivers = self.receivers(layout)?;
        let jobs = receivers.into_iter().map(|receiver| move || receiver.round(slots));
        // What an end could not put into its memory it has hung up on, which is all that the body knows.
        beside(jobs, observer, || self.over.announce(), body)
    }

    /// As many as can run at once, at most; each has its share of the sockets.
    fn receivers(&self, layout: BufferLayout) -> Result<Vec<Receiver<'_>>> {
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let each = self.incoming.len().div_ceil(threads).max(1);
        let sinks: Vec<u64> =
            (0..).map(|qp| self.buffer.address() + layout.sink(qp)).take(self.incoming.len()).collect();
        let shares = self.incoming.chunks(each).zip(sinks.chunks(each));
        shares
            .map(|(sockets, sinks)| Receiver::new(sockets, sinks.to_vec(), self.landing()?, &self.over))
            .collect()
    }

    fn landing(&self) -> Result<Landing> {
        let inbound = |gpu: &GpuMemory| Inbound::new(gpu.context()).map(Landing::Gpu);
        self.buffer.gpu().map_or(Ok(Landing::Host), inbound)
    }
}

/// Whether each thread has so few sockets that it reads from all.
fn few_each(plan: &Plan) -> bool {
    plan.parts().all(|part| part.len() <= FEW)
}
