//! The server's half of opening the data connections: takes them as they come, and sends strangers away.
//!
//! Nobody is waited for but the client as a whole, and the control channel is listened to all the while: a client that
//! stops, goes or can't go on is noticed there.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{GREETING, failed, greeting};
use crate::error::{Error, ErrorKind, Result};
use crate::exchange::tcp::TcpChannel;
use crate::exchange::{Channel, Message, PROGRESS_EVERY, interrupted, out_of_order};
use crate::plan::Plan;
use crate::session::STEP_LIMIT;

/// How long a connection may take to say whose it is: a client says it with the connection.
const GREETING_LIMIT: Duration = Duration::from_secs(3);
/// Connections that may be in their greeting at a time; when as many have not said all of it, the oldest goes. A client
/// opens them one by one.
const MAX_NEWCOMERS: usize = 64;
/// How often an end that sleeps looks around.
const TICK_MS: u16 = 100;

/// The data connections that have come so far.
pub(super) struct Arrivals<'a> {
    listener: &'a TcpListener,
    token: u64,
    plan: &'a Plan,
    /// By direction, then by queue pair.
    places: Vec<Option<TcpStream>>,
    newcomers: Vec<Newcomer>,
    last_came: Instant,
}

/// A connection that has not said yet whose it is.
struct Newcomer {
    socket: TcpStream,
    said: [u8; GREETING],
    length: usize,
    since: Instant,
}

impl<'a> Arrivals<'a> {
    /// At `listener`, those of `plan`; each shows `token`.
    pub(super) fn new(listener: &'a TcpListener, token: u64, plan: &'a Plan) -> Self {
        let places = std::iter::repeat_with(|| None).take(plan.sockets() as usize).collect();
        Self { listener, token, plan, places, newcomers: Vec::new(), last_came: Instant::now() }
    }

    /// Waits until all are there; gives them by direction, then by queue pair.
    ///
    /// # Errors
    /// [`ErrorKind::PeerTimeout`] where none comes for [`STEP_LIMIT`], and what the control channel says of the client.
    pub(super) fn take_all(mut self, channel: &mut TcpChannel) -> Result<Vec<TcpStream>> {
        let mut early = None;
        let mut told = Instant::now();
        let mut missing = self.places.len();
        while missing > 0 {
            self.sleep(channel);
            missing -= self.look()?;
            listen(channel, &mut early)?;
            if told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                channel.send(&Message::Progress { completed: 0 })?;
            }
            if crate::interrupt::requested() {
                return Err(interrupted());
            }
            if self.last_came.elapsed() > STEP_LIMIT {
                return Err(self.none_came(missing));
            }
        }
        channel.put_back(early.into_iter().collect());
        Ok(self.places.into_iter().flatten().collect())
    }

    /// Sleeps until somebody comes or says something, or it is time to look around.
    fn sleep(&self, channel: &TcpChannel) {
        let newcomers = self.newcomers.iter().map(|newcomer| newcomer.socket.as_fd());
        let mut fds: Vec<_> = [self.listener.as_fd(), channel.as_fd()]
            .into_iter()
            .chain(newcomers)
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        // A signal ends it early, which does no harm.
        let _ = poll(&mut fds, PollTimeout::from(TICK_MS));
    }

    /// Takes who has come and hears what they say; gives how many places were taken.
    fn look(&mut self) -> Result<usize> {
        self.accept()?;
        let mut taken = 0;
        for mut newcomer in std::mem::take(&mut self.newcomers) {
            match newcomer.hear() {
                // Strangers are sent away, and so is a second one for the same place.
                Heard::All => taken += usize::from(self.place(newcomer)),
                Heard::Part if newcomer.since.elapsed() < GREETING_LIMIT => self.newcomers.push(newcomer),
                Heard::Part | Heard::Nothing => {}
            }
        }
        // Room for the next, also where strangers have taken it all. They have all been heard just now.
        if self.newcomers.len() >= MAX_NEWCOMERS {
            self.newcomers.remove(0);
        }
        Ok(taken)
    }

    fn accept(&mut self) -> Result<()> {
        // Not without end: those who are in have their turn as well.
        while self.newcomers.len() < MAX_NEWCOMERS {
            match self.listener.accept() {
                Ok((socket, _)) if socket.set_nonblocking(true).is_ok() => {
                    let since = Instant::now();
                    self.newcomers.push(Newcomer { socket, said: [0; GREETING], length: 0, since });
                }
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ECONNABORTED)) => {}
                Err(error) => {
                    let address = self.listener.local_addr().unwrap_or(SocketAddr::from(([0; 4], 0)));
                    return Err(failed("take a data connection on", address, &error));
                }
            }
        }
        Ok(())
    }

    fn place(&mut self, newcomer: Newcomer) -> bool {
        let place = self.place_of(&newcomer.said).and_then(|index| self.places.get_mut(index));
        let Some(place) = place.filter(|place| place.is_none()) else { return false };
        // Without it small messages would wait for each other's acknowledgements.
        if newcomer.socket.set_nodelay(true).is_err() {
            return false;
        }
        *place = Some(newcomer.socket);
        self.last_came = Instant::now();
        true
    }

    /// The place of a connection that said this; `None` for a stranger's.
    fn place_of(&self, said: &[u8; GREETING]) -> Option<usize> {
        let qp = u32::from_be_bytes(*said.last_chunk()?);
        let directions = self.plan.directions().iter();
        let direction =
            directions.map(|&direction| greeting(self.token, direction, qp)).position(|of| of == *said)?;
        (qp < self.plan.qps).then_some(direction * self.plan.qps as usize + qp as usize)
    }

    fn none_came(&self, missing: usize) -> Error {
        let (all, limit) = (self.places.len(), STEP_LIMIT.as_secs());
        let what = match all - missing {
            0 => format!("the client opened no data connection within {limit} s"),
            some => {
                format!("the client opened {some} of {all} data connections, and no other within {limit} s")
            }
        };
        Error::new(ErrorKind::PeerTimeout, what)
            .hint("see that no firewall drops TCP ports other than the control channel's between the hosts")
    }
}

/// What has come of a greeting.
enum Heard {
    All,
    Part,
    /// It is gone.
    Nothing,
}

impl Newcomer {
    /// Hears what it has said since, without waiting.
    fn hear(&mut self) -> Heard {
        match self.socket.read(&mut self.said[self.length..]) {
            Ok(0) => return Heard::Nothing,
            Ok(count) => self.length += count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return Heard::Nothing,
        }
        if self.length == GREETING { Heard::All } else { Heard::Part }
    }
}

/// Hears the control channel. The client says that it lives until it has opened all, and then, early, that it is ready.
fn listen(channel: &mut TcpChannel, early: &mut Option<Message>) -> Result<()> {
    match channel.receive_within(Duration::ZERO)? {
        None | Some(Message::Progress { .. } | Message::Stop) => Ok(()),
        Some(Message::Abort { error }) => Err(error.from_peer(&channel.peer())),
        Some(message) if early.is_none() => {
            *early = Some(message);
            Ok(())
        }
        Some(message) => Err(out_of_order("progress", &message)),
    }
}
