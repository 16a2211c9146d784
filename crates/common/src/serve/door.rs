//! The doorkeeper: accepts, greets, and tells those who wait that they are not forgotten.
//!
//! One thread for all of them, which never waits for anybody: sockets are read and written as far as they go. What
//! strangers can take from the server is bounded: [`MAX_NEWCOMERS`] + [`MAX_WAITING`] connections, each with a frame of
//! [`FrameLimit::Greeting`](crate::exchange::frame::FrameLimit::Greeting) at most.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::complaints::Complaints;
use super::newcomer::{Newcomer, Progress};
use super::{Client, Greeting, Manners, Shared};
use crate::error::{Error, ErrorKind, Result, show_io_error};
use crate::exchange::tcp::{TcpChannel, show_address};
use crate::exchange::{Channel, Message, out_of_order};
use crate::perftest;
use crate::watch::{PEER_SILENCE_LIMIT, silence};

/// Who may be in its greeting at a time. An honest client is through in milliseconds; where there are more, the
/// oldest that has said nothing goes.
const MAX_NEWCOMERS: usize = 64;
/// Clients that may wait their turn: a cluster's nodes in a row, against one server.
const MAX_WAITING: usize = 64;
/// How exactly the greeting's limit is kept.
const TICK_MS: u16 = 100;
/// How often those who wait are told that they do, and are heard.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Messages that are read of a client that waits, each second; it has five to say.
const AT_A_TIME: usize = 16;
/// How long nobody is accepted where the process has no descriptors left.
const RECOVER: Duration = Duration::from_millis(50);

pub(super) struct Door {
    listener: TcpListener,
    manners: Manners,
    complaints: Complaints,
    shared: Arc<Shared>,
    woken: UnixStream,
    newcomers: Vec<Newcomer>,
    told: Instant,
}

impl Door {
    pub(super) fn new(
        listener: TcpListener,
        mut manners: Manners,
        shared: Arc<Shared>,
        woken: UnixStream,
    ) -> Self {
        let complaints = Complaints::new(std::mem::replace(&mut manners.complain, Box::new(|_| {})));
        Self { listener, manners, complaints, shared, woken, newcomers: Vec::new(), told: Instant::now() }
    }

    /// Keeps the door until the server is dropped, or nobody can be accepted any more.
    pub(super) fn keep(mut self) {
        loop {
            let waiting = {
                let state = self.shared.lock();
                if state.closed {
                    return;
                }
                state.waiting.len()
            };
            self.sleep(waiting);
            if let Err(failure) = self.accept() {
                self.shared.lock().failure = Some(failure);
                return self.shared.changed.notify_all();
            }
            self.greet();
            if self.told.elapsed() >= TELL_EVERY {
                self.told = Instant::now();
                self.attend_waiting();
            }
            self.complaints.sum_up();
        }
    }

    /// Sleeps until somebody says something, or it is time to look around.
    fn sleep(&mut self, waiting: usize) {
        let timeout = match (self.newcomers.is_empty(), waiting > 0 || self.complaints.pending()) {
            (true, false) => PollTimeout::NONE,
            _ => PollTimeout::from(TICK_MS),
        };
        let sockets = self.newcomers.iter().map(|newcomer| newcomer.channel.as_fd());
        let mut fds: Vec<_> = [self.woken.as_fd(), self.listener.as_fd()]
            .into_iter()
            .chain(sockets)
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        // A signal ends it early, which does no harm.
        let _ = poll(&mut fds, timeout);
        let asked_to_wake = fds[0].any().unwrap_or(false);
        if asked_to_wake {
            let _ = self.woken.read(&mut [0; 16]);
        }
    }

    fn accept(&mut self) -> Result<()> {
        // Not without end: those who are in have their turn as well.
        for _ in 0..MAX_NEWCOMERS {
            match self.listener.accept() {
                Ok((socket, from)) => self.let_in(socket, from),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if may_pass(&error) => {}
                Err(error) if is_want(&error) => {
                    self.turn_oldest_away();
                    std::thread::sleep(RECOVER);
                    return Ok(());
                }
                Err(error) => {
                    let what = format!("cannot accept clients: {}", show_io_error(&error));
                    return Err(Error::new(ErrorKind::Listen, what));
                }
            }
        }
        Ok(())
    }

    fn let_in(&mut self, socket: TcpStream, from: SocketAddr) {
        if self.newcomers.len() >= MAX_NEWCOMERS {
            self.turn_oldest_away();
        }
        match Newcomer::new(socket, from) {
            Ok(newcomer) => self.newcomers.push(newcomer),
            Err(error) => self.complaints.add(&error),
        }
    }

    /// The oldest that has said nothing, else the oldest.
    fn turn_oldest_away(&mut self) {
        if self.newcomers.is_empty() {
            return;
        }
        let oldest = self.newcomers.iter().position(Newcomer::is_silent).unwrap_or(0);
        let peer = self.newcomers.remove(oldest).channel.peer();
        let what = format!("{peer} was turned away in its greeting: too many connect at a time");
        self.complaints.add(&Error::new(ErrorKind::PeerTimeout, what));
    }

    fn greet(&mut self) {
        for mut newcomer in std::mem::take(&mut self.newcomers) {
            match newcomer.listen(&self.manners) {
                Ok(Progress::Greeting) => self.newcomers.push(newcomer),
                Ok(Progress::Answered) => {}
                Ok(Progress::Proposed) => {
                    if let Some(client) = newcomer.into_client() {
                        self.queue(client);
                    }
                }
                Err(error) => self.complaints.add(&error),
            }
        }
    }

    fn queue(&mut self, mut client: Client) {
        let mut state = self.shared.lock();
        let ahead = state.waiting.len();
        if ahead >= MAX_WAITING {
            drop(state);
            let what = format!("{ahead} clients wait for their turn already");
            let error = Error::new(ErrorKind::Refused, what)
                .hint("try again later, or start another server on another --port");
            if matches!(client.greeting, Greeting::Linkproof(_)) {
                let _ = client.channel.say(&Message::Abort { error: error.clone() });
            }
            return self.complaints.add(&error.fact("client", show_address(client.from)));
        }
        if state.serving.is_some() || ahead > 0 {
            // A client that is gone is found at the next look, or when its turn comes.
            if matches!(client.greeting, Greeting::Linkproof(_)) {
                let _ = client.channel.say(&turn(state.serving.clone(), ahead));
            }
        }
        state.waiting.push_back(client);
        self.shared.count(&state);
    }

    /// Tells everybody who waits that it does, and lets those go who have gone.
    fn attend_waiting(&mut self) {
        let mut state = self.shared.lock();
        let serving = state.serving.clone();
        let mut still = std::collections::VecDeque::with_capacity(state.waiting.len());
        let mut gone = Vec::new();
        for mut client in state.waiting.drain(..) {
            match attend(&mut client, turn(serving.clone(), still.len())) {
                Ok(()) => still.push_back(client),
                Err(error) => gone.push(error.fact("client", show_address(client.from))),
            }
        }
        state.waiting = still;
        self.shared.count(&state);
        drop(state);
        gone.iter().for_each(|error| self.complaints.add(error));
    }
}

fn turn(serving: Option<String>, ahead: usize) -> Message {
    Message::Wait { serving, ahead: ahead as u32 }
}

/// Hears the client, whose proposal stays where it is, and tells it `turn`.
fn attend(client: &mut Client, turn: Message) -> Result<()> {
    let channel = &mut client.channel;
    if let Greeting::Perftest(_) = client.greeting {
        return attend_perftest(channel);
    }
    let proposal = channel.receive_within(Duration::ZERO)?;
    for _ in 0..AT_A_TIME {
        match channel.receive_within(Duration::ZERO)? {
            None => break,
            Some(Message::Progress { .. } | Message::Stop) => {}
            Some(Message::Abort { error }) => return Err(error.from_peer(&channel.peer())),
            Some(other) => return Err(out_of_order("progress", &other)),
        }
    }
    channel.put_back(proposal.into_iter().collect());
    if channel.heard().elapsed() > PEER_SILENCE_LIMIT {
        return Err(silence(PEER_SILENCE_LIMIT));
    }
    channel.say(&turn)
}

/// A perftest can't be told to wait, and waits for an answer to its first number.
fn attend_perftest(channel: &mut TcpChannel) -> Result<()> {
    channel.listen(Duration::ZERO)?;
    match channel.gathered().len() {
        0..=perftest::NUMBER_LEN => Ok(()),
        many => {
            let what = format!(
                "{} said {many} bytes before it was its turn, which perftest does not",
                channel.peer()
            );
            Err(Error::new(ErrorKind::Protocol, what))
        }
    }
}

/// A signal, or a client that left before it was accepted.
fn may_pass(error: &std::io::Error) -> bool {
    use std::io::ErrorKind as Io;
    matches!(error.kind(), Io::Interrupted | Io::ConnectionAborted | Io::ConnectionReset)
}

/// No descriptors or no memory, which others may have taken for a moment.
fn is_want(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}
