//! A socket between every two ranks: each listens, tells the others where, and connects to those before it.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use linkproof_common::error::{Error, ErrorKind, Result, show_io_error};
use linkproof_common::exchange::random_token;
use linkproof_common::open_files;
use linkproof_common::units::show_duration;

use super::{Addresses, Sockets};
use crate::group::{Alarm, Group};

/// What a connection says first: the run's token, and who calls.
const GREETING: usize = 12;
/// A rank sends its greeting with its connection.
const GREETING_LIMIT: Duration = Duration::from_secs(3);
/// How often a rank that waits for others looks around.
const LOOK_AROUND: Duration = Duration::from_millis(2);

/// The way out where a process may not have a socket to each other rank.
const FEWER: &str =
    "each rank has a socket to each other: raise the hard limit of open files, or start fewer ranks";

/// Where a rank listens.
struct Place {
    /// Its address as rank 0 sees it; rank 0 is seen by each otherwise.
    ip: Option<IpAddr>,
    port: u16,
    token: u64,
}

/// Connects this rank to all others.
///
/// # Errors
/// [`ErrorKind::Listen`], [`ErrorKind::Unreachable`], [`ErrorKind::PeerTimeout`], each naming the ranks; those of the group.
pub(super) fn connect(
    group: &mut dyn Group,
    alarm: Alarm,
    addresses: Addresses,
    limit: Duration,
) -> Result<Sockets> {
    let deadline = Instant::now() + limit;
    open_files::make_room(group.n_ranks()).map_err(|error| error.hint(FEWER))?;
    let (listener, port) = listen()?;
    let own = Place { ip: addresses.own, port, token: random_token() };
    let places: Vec<Place> =
        group.all_gather(&own.encode())?.iter().filter_map(|blob| Place::decode(blob)).collect();
    let (rank, n_ranks) = (group.rank(), group.n_ranks());
    if places.len() != n_ranks as usize {
        return Err(Error::new(ErrorKind::Protocol, "a rank said nothing of where it listens"));
    }
    let token = places[0].token;
    let mut sockets: Vec<Option<TcpStream>> = (0..n_ranks).map(|_| None).collect();
    for peer in 0..rank {
        let place = &places[peer as usize];
        let ip = place.ip.or(addresses.root).unwrap_or(IpAddr::from([127, 0, 0, 1]));
        sockets[peer as usize] = Some(call(rank, peer, SocketAddr::new(ip, place.port), token, deadline)?);
    }
    accept_all(rank as usize, &alarm, &listener, token, &mut sockets, (deadline, limit))?;
    group.barrier()?;
    Ok(Sockets { rank, sockets, alarm, limit, flows: Vec::new() })
}

impl Place {
    fn encode(&self) -> Vec<u8> {
        let ip = self.ip.map_or_else(String::new, |ip| ip.to_string());
        format!("{} {} {ip}", self.token, self.port).into_bytes()
    }

    fn decode(blob: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(blob).ok()?;
        let mut words = text.split(' ');
        let (token, port, ip) = (words.next()?, words.next()?, words.next()?);
        let ip = if ip.is_empty() { None } else { Some(ip.parse().ok()?) };
        Some(Self { ip, port: port.parse().ok()?, token: token.parse().ok()? })
    }
}

fn listen() -> Result<(TcpListener, u16)> {
    let open = |ip: IpAddr| -> std::io::Result<(TcpListener, u16)> {
        let listener = TcpListener::bind((ip, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        Ok((listener, port))
    };
    // Both families where there are both: the kernel's default for an IPv6 socket.
    open(IpAddr::from([0_u16; 8])).or_else(|_| open(IpAddr::from([0_u8; 4]))).map_err(|error| {
        Error::new(
            ErrorKind::Listen,
            format!("cannot listen for data connections: {}", show_io_error(&error)),
        )
    })
}

fn call(rank: u32, peer: u32, address: SocketAddr, token: u64, deadline: Instant) -> Result<TcpStream> {
    let connect = || {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let mut socket = TcpStream::connect_timeout(&address, left)?;
        let mut greeting = [0; GREETING];
        greeting[..8].copy_from_slice(&token.to_be_bytes());
        greeting[8..].copy_from_slice(&rank.to_be_bytes());
        socket.write_all(&greeting)?;
        ready(socket)
    };
    connect().map_err(|error: std::io::Error| {
        Error::new(
            ErrorKind::Unreachable,
            format!("rank {rank} cannot connect to rank {peer} at {address}: {}", show_io_error(&error)),
        )
        .hint(
            "see that the hosts reach each other on this network, and that no firewall drops other TCP ports",
        )
    })
}

fn ready(socket: TcpStream) -> std::io::Result<TcpStream> {
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn accept_all(
    rank: usize,
    alarm: &Alarm,
    listener: &TcpListener,
    token: u64,
    sockets: &mut [Option<TcpStream>],
    (deadline, limit): (Instant, Duration),
) -> Result<()> {
    let missing = |sockets: &[Option<TcpStream>]| -> Vec<usize> {
        (rank + 1..sockets.len()).filter(|peer| sockets[*peer].is_none()).collect()
    };
    while !missing(sockets).is_empty() {
        // The barrier that follows has the story.
        if alarm.is_raised() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let names: Vec<String> = missing(sockets).iter().map(ToString::to_string).collect();
            let what = format!("rank {rank} got no data connection within {}", show_duration(limit));
            return Err(Error::new(ErrorKind::PeerTimeout, what)
                .fact("missing", format!("rank {}", names.join(", "))));
        }
        match listener.accept() {
            Ok((socket, _)) => {
                if let Some((peer, socket)) = greeted(socket, token)
                    && let Some(place @ None) = sockets.get_mut(peer)
                {
                    *place = Some(socket);
                }
            }
            Err(_) => std::thread::sleep(LOOK_AROUND),
        }
    }
    Ok(())
}

/// Who calls; nobody of this run's is sent away.
fn greeted(mut socket: TcpStream, token: u64) -> Option<(usize, TcpStream)> {
    let mut greeting = [0; GREETING];
    socket.set_nonblocking(false).ok()?;
    socket.set_read_timeout(Some(GREETING_LIMIT)).ok()?;
    socket.read_exact(&mut greeting).ok()?;
    let (said, peer) = greeting.split_first_chunk::<8>()?;
    let peer = u32::from_be_bytes(peer.try_into().ok()?);
    if u64::from_be_bytes(*said) != token {
        return None;
    }
    Some((peer as usize, ready(socket).ok()?))
}
