//! How ranks come together: rank 0 listens until all are there, the others try until it listens.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use linkproof_common::addresses::host_addresses;
use linkproof_common::error::{Error, ErrorKind, Result, show_io_error};
use linkproof_common::exchange::dial::dial;
use linkproof_common::exchange::interrupted;
use linkproof_common::units::show_duration;
use linkproof_common::{interrupt, open_files};
use nix::poll::{PollFd, PollFlags};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use super::frame::{Abort, Frame, GREETING_LIMIT, PREAMBLE};
use super::hello::Hello;
use super::link::{Got, Link, read_some, send_all, tell_all, wait_for};
use crate::launch::Launch;

/// How often a waiting rank looks whether the user wants to stop.
const LOOK_AROUND: Duration = Duration::from_millis(100);
/// The first and the longest pause between two tries to reach rank 0.
const RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));
/// How long rank 0 tells those who come that there is no run: longer than the longest pause between two tries.
const LINGER: Duration = Duration::from_secs(1);
/// Ranks that connect at the same time wait in the kernel until they are taken.
const BACKLOG: i32 = 4096;
/// Ranks named in a message; the rest is counted.
const MOST_NAMED: usize = 16;

/// A connection that has not said yet whose it is.
struct Stranger {
    socket: TcpStream,
    inbox: Vec<u8>,
}

/// Rank 0's part: everybody else, by rank.
///
/// # Errors
/// [`ErrorKind::Listen`]; [`ErrorKind::PeerTimeout`] with the ranks that are missing; what doesn't fit ([`Hello`]), which
/// all are told.
pub(super) fn gather_all(launch: &Launch, own: &Hello, limit: Duration) -> Result<Vec<Link>> {
    make_room_for(launch.n_ranks)?;
    let listener = listen(launch)?;
    let mut arrived: Vec<Option<(Hello, Link)>> = (1..launch.n_ranks).map(|_| None).collect();
    let mut strangers = Vec::new();
    let gathered = receive_all(&listener, own, &mut arrived, &mut strangers, (Instant::now() + limit, limit));
    let links: Vec<Link> = arrived.into_iter().flatten().map(|(_, link)| link).collect();
    if let Err(error) = &gathered {
        let abort = Abort { by: None, error: error.clone() };
        tell_all(&links, None, &abort);
        // The one that was refused knows, too.
        let ignorant = (launch.n_ranks as usize).saturating_sub(2 + links.len());
        if error.kind != ErrorKind::PeerTimeout && ignorant > 0 {
            tell_those_who_come(&listener, strangers, &Frame::Abort(abort).encode(), ignorant);
        }
    }
    gathered.map(|()| links)
}

/// Tells whoever comes within [`LINGER`] why there is no run, until `count` know: a rank between two tries would wait for
/// its own time limit otherwise.
fn tell_those_who_come(listener: &TcpListener, mut strangers: Vec<Stranger>, frame: &[u8], count: usize) {
    let deadline = Instant::now() + LINGER;
    // Kept until the end: a connection that closes with something unread takes back what was sent.
    let mut told = Vec::new();
    while told.len() < count && Instant::now() < deadline {
        wait_for_any(listener, &strangers);
        take_in(listener, &mut strangers);
        for mut stranger in std::mem::take(&mut strangers) {
            match read_some(&stranger.socket, &mut stranger.inbox) {
                Got::End(_) => {}
                _ if stranger.inbox.len() < PREAMBLE.len() => strangers.push(stranger),
                _ if !stranger.inbox.starts_with(PREAMBLE) => {}
                _ if send_all(&stranger.socket, frame).is_ok() => told.push(stranger),
                _ => {}
            }
        }
    }
}

/// A connection a rank; by default a process may have 1024 files.
fn make_room_for(n_ranks: u32) -> Result<()> {
    open_files::make_room(n_ranks).map_err(|error| {
        error.hint(
            "rank 0 has a connection to each other rank: raise the hard limit of open files on its host",
        )
    })
}

fn receive_all(
    listener: &TcpListener,
    own: &Hello,
    arrived: &mut [Option<(Hello, Link)>],
    strangers: &mut Vec<Stranger>,
    (deadline, limit): (Instant, Duration),
) -> Result<()> {
    while arrived.iter().any(Option::is_none) {
        if interrupt::requested() {
            return Err(interrupted());
        }
        if Instant::now() >= deadline {
            return Err(missing(arrived, limit));
        }
        wait_for_any(listener, strangers);
        take_in(listener, strangers);
        let mut waiting = std::mem::take(strangers).into_iter();
        while let Some(stranger) = waiting.next() {
            match listen_to(stranger, own, arrived) {
                Ok(still) => strangers.extend(still),
                Err(error) => {
                    strangers.extend(waiting);
                    return Err(error);
                }
            }
        }
    }
    let welcome = Frame::Welcome(own.name());
    arrived.iter().flatten().try_for_each(|(_, link)| link.send(&welcome))
}

fn wait_for_any(listener: &TcpListener, strangers: &[Stranger]) {
    let sockets = strangers.iter().map(|stranger| stranger.socket.as_fd()).chain([listener.as_fd()]);
    let mut fds: Vec<PollFd> = sockets.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    wait_for(&mut fds, LOOK_AROUND);
}

fn take_in(listener: &TcpListener, strangers: &mut Vec<Stranger>) {
    while let Ok((socket, _)) = listener.accept() {
        if socket.set_nonblocking(true).is_ok() {
            strangers.push(Stranger { socket, inbox: Vec::new() });
        }
    }
}

/// Takes in what `stranger` says. Gives it back as long as it has not said who it is; who is no rank is sent away.
fn listen_to(
    mut stranger: Stranger,
    own: &Hello,
    arrived: &mut [Option<(Hello, Link)>],
) -> Result<Option<Stranger>> {
    if let Got::End(_) = read_some(&stranger.socket, &mut stranger.inbox) {
        return Ok(None);
    }
    let known = stranger.inbox.len().min(PREAMBLE.len());
    if stranger.inbox[..known] != PREAMBLE[..known] {
        return Ok(None);
    }
    if known < PREAMBLE.len() {
        return Ok(Some(stranger));
    }
    let mut rest = stranger.inbox[PREAMBLE.len()..].to_vec();
    let hello = match Frame::take(&mut rest, GREETING_LIMIT) {
        Ok(None) => return Ok(Some(stranger)),
        Ok(Some(Frame::Hello(bytes))) => serde_json::from_slice::<Hello>(&bytes).ok(),
        _ => None,
    };
    let Some(hello) = hello else { return Ok(None) };
    let Ok(link) = Link::new(stranger.socket, hello.name()) else { return Ok(None) };
    admit(own, hello, link, arrived).map(|()| None)
}

fn admit(own: &Hello, mut hello: Hello, link: Link, arrived: &mut [Option<(Hello, Link)>]) -> Result<()> {
    let place = (hello.rank as usize).checked_sub(1).filter(|place| *place < arrived.len());
    let same_rank = place.and_then(|place| arrived[place].as_ref()).map(|(hello, _)| hello);
    if let Some(error) = own.refusal(&hello, same_rank) {
        let _ = link.send(&Frame::Abort(Abort { by: None, error: error.clone() }));
        return Err(error);
    }
    // It has been compared: of many ranks it would be the most of what rank 0 holds.
    hello.plan = Value::Null;
    if let Some(place) = place {
        arrived[place] = Some((hello, link));
    }
    Ok(())
}

fn missing(arrived: &[Option<(Hello, Link)>], limit: Duration) -> Error {
    let missing: Vec<usize> =
        (1..).zip(arrived).filter(|(_, it)| it.is_none()).map(|(rank, _)| rank).collect();
    let named: Vec<String> = missing.iter().take(MOST_NAMED).map(ToString::to_string).collect();
    let more = missing.len().saturating_sub(MOST_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Error::new(
        ErrorKind::PeerTimeout,
        format!(
            "{} of {} ranks {} not come within {}",
            missing.len(),
            arrived.len() + 1,
            if missing.len() == 1 { "has" } else { "have" },
            show_duration(limit)
        ),
    )
    .fact("missing", format!("rank {}{more}", named.join(", ")))
    .hint("see that they were started, reach this host, and meet at the same port; --timeout sets how long to wait")
}

/// On all addresses of both families, so that it matters to nobody by which one this host is known.
fn listen(launch: &Launch) -> Result<TcpListener> {
    let open = |domain: Domain, address: SocketAddr| -> std::io::Result<TcpListener> {
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        if domain == Domain::IPV6 {
            socket.set_only_v6(false)?;
        }
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    let port = launch.port;
    open(Domain::IPV6, SocketAddr::from(([0_u16; 8], port)))
        .or_else(|_| open(Domain::IPV4, SocketAddr::from(([0_u8; 4], port))))
        .map_err(|error| {
            Error::new(
                ErrorKind::Listen,
                format!("rank 0 cannot listen on TCP port {port}, where the ranks are to meet: {}", show_io_error(&error)),
            )
            .hint("another run may meet there: choose another port for all ranks, with MASTER_PORT or --rendezvous HOST:PORT")
        })
}

/// The part of every other rank: rank 0.
///
/// # Errors
/// [`ErrorKind::Unreachable`] where it does not come, [`ErrorKind::Resolve`]; and what rank 0 says.
pub(super) fn join(launch: &Launch, own: &Hello, limit: Duration) -> Result<Link> {
    let deadline = Instant::now() + limit;
    let socket = reach(launch, deadline, limit)?;
    let peer = format!("rank 0 at {}:{}", launch.host, launch.port);
    let failed = |error: std::io::Error| {
        Error::new(ErrorKind::PeerLost, format!("{peer} is gone: {}", show_io_error(&error)))
    };
    let link = Link::new(socket, peer.clone()).map_err(failed)?;
    let hello = Frame::Hello(serde_json::to_vec(own).unwrap_or_default()).encode();
    send_all(&link.socket, PREAMBLE).and_then(|()| send_all(&link.socket, &hello)).map_err(failed)?;
    await_welcome(link, deadline + LOOK_AROUND * 20)
}

fn reach(launch: &Launch, deadline: Instant, limit: Duration) -> Result<TcpStream> {
    let mut pause = RETRY.0;
    loop {
        let error = match dial(&launch.host, launch.port, None) {
            Ok(socket) => return Ok(socket),
            Err(error) => error,
        };
        if interrupt::requested() {
            return Err(interrupted());
        }
        if error.kind == ErrorKind::Resolve || Instant::now() + pause >= deadline {
            return Err(never_there(launch, &error, limit));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(RETRY.1);
    }
}

fn never_there(launch: &Launch, last: &Error, limit: Duration) -> Error {
    let Launch { rank, host, port, .. } = launch;
    let what = format!("rank {rank} found no rank 0 at {host}:{port} within {}", show_duration(limit));
    let here = host_addresses().iter().any(|address| address.ip.to_string() == *host);
    let hint = if here {
        "see that rank 0 was started, on this host"
    } else {
        "see that rank 0 was started, on that host, and that no firewall drops the port"
    };
    Error::new(last.kind, what).fact("last try", &last.what).hint(hint)
}

/// Rank 0 waits for all, and then says so. It has a deadline of its own, and better words for it: it comes first.
fn await_welcome(mut link: Link, deadline: Instant) -> Result<Link> {
    let mut inbox = Vec::new();
    loop {
        match Frame::take(&mut inbox, GREETING_LIMIT) {
            Ok(Some(Frame::Welcome(name))) => {
                // Whoever is welcome may be told more at once: that the run is over, for instance.
                (link.peer, link.early) = (name, inbox);
                return Ok(link);
            }
            Ok(Some(Frame::Abort(abort))) => return Err(abort.error.from_peer("rank 0")),
            Ok(None) => {}
            _ => {
                let what = format!("{} is no coll-perf of this version", link.peer);
                return Err(Error::new(ErrorKind::NotLinkproof, what));
            }
        }
        if interrupt::requested() {
            return Err(interrupted());
        }
        if Instant::now() >= deadline {
            return Err(Error::new(ErrorKind::PeerTimeout, format!("{} said nothing", link.peer)));
        }
        wait_for(&mut [PollFd::new(link.socket.as_fd(), PollFlags::POLLIN)], LOOK_AROUND);
        if let Got::End(why) = read_some(&link.socket, &mut inbox) {
            let why = why.unwrap_or_else(|| "its connection closed".to_owned());
            return Err(Error::new(ErrorKind::PeerLost, format!("{} is gone: {why}", link.peer)));
        }
    }
}
