//! The server that stays: it listens, greets whoever comes, and hands its clients out one after another.
//!
//! Two threads. The doorkeeper (`door`) owns the listening socket and everybody who has not proposed a plan yet, or
//! waits for its turn; nobody can make it wait. The server's own thread takes one client at a time
//! ([`Server::next_client`]) and has it for as long as the run takes.

mod complaints;
mod door;
mod listen;
mod newcomer;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::environment::Host;
use crate::error::{Error, ErrorKind, Result, show_io_error};
use crate::exchange::PeerProtocol;
use crate::exchange::hold::Hold;
use crate::exchange::tcp::{TcpChannel, show_address};
use crate::interrupt;
use crate::perftest::Version;

/// What a client calls itself that only looks: it is shown this machine ([`crate::exchange::Message::Node`]), and takes no
/// turn.
pub const LOOKER: &str = "rdma-check";

/// How often an idle server looks whether it shall stop.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// What a server says of itself, and to whom it complains.
pub struct Manners {
    /// The tool: clients must be the same.
    pub tool: &'static str,
    /// Whether perftest's clients are served.
    pub protocol: PeerProtocol,
    /// This machine, for `hello`.
    pub host: Box<dyn Fn() -> Host + Send>,
    /// Is told of those who were turned away; seldom, however many they are.
    pub complain: Box<dyn Fn(&Error) + Send>,
}

/// A client that has said who it is and, if it is ours, what it wants.
pub struct Client {
    /// The control channel.
    pub channel: TcpChannel,
    /// Where it comes from.
    pub from: SocketAddr,
    /// What it has said of itself.
    pub greeting: Greeting,
}

/// What a client has said of itself.
pub enum Greeting {
    /// It is ours; both machines, the client's first. Its proposal is the next message.
    Linkproof(Vec<Host>),
    /// It is a perftest of that version.
    Perftest(Version),
}

/// A listening server. Dropping it closes the port and sends everybody away who waits.
pub struct Server {
    shared: Arc<Shared>,
    wake: UnixStream,
    doorkeeper: Option<JoinHandle<()>>,
}

/// What the two threads share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// How many wait: [`State::waiting`]'s length, for those who can't wait for the lock.
    others: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Client>,
    /// The client that has its turn.
    serving: Option<String>,
    /// Why nobody can be accepted any more.
    failure: Option<Error>,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called whenever the number of those who wait has changed.
    fn count(&self, state: &State) {
        self.others.store(state.waiting.len(), Ordering::Relaxed);
        self.changed.notify_all();
    }
}

impl Server {
    /// Listens on `port` of every address, IPv6 and IPv4 alike, and begins to greet.
    ///
    /// # Errors
    /// [`ErrorKind::Listen`], naming the port.
    pub fn open(address: Option<IpAddr>, port: u16, manners: Manners) -> Result<Self> {
        let listener = listen::on(address, port)?;
        let shared = Arc::new(Shared::default());
        let spawn = || {
            let (wake, woken) = UnixStream::pair()?;
            let door = door::Door::new(listener, manners, Arc::clone(&shared), woken);
            let doorkeeper = std::thread::Builder::new().name("door".to_owned()).spawn(|| {
                // Who has asked to stop is asked elsewhere.
                let _undisturbed = interrupt::Undisturbed::begin();
                door.keep();
            })?;
            Ok((wake, doorkeeper))
        };
        let (wake, doorkeeper) = spawn().map_err(|error: std::io::Error| {
            Error::new(ErrorKind::Listen, format!("cannot start to serve: {}", show_io_error(&error)))
        })?;
        Ok(Self { shared, wake, doorkeeper: Some(doorkeeper) })
    }

    /// The next client, once the last one is done with; `None` where the user has asked to stop.
    ///
    /// # Errors
    /// [`ErrorKind::Listen`] where nothing can be accepted any more.
    pub fn next_client(&self) -> Result<Option<Client>> {
        let mut state = self.shared.lock();
        state.serving = None;
        while !interrupt::requested() {
            if let Some(client) = state.waiting.pop_front() {
                state.serving = Some(show_address(client.from));
                self.shared.count(&state);
                return Ok(Some(client));
            }
            if let Some(failure) = state.failure.take() {
                return Err(failure);
            }
            let woken = self.shared.changed.wait_timeout(state, LOOK_AROUND);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(None)
    }

    /// A limit for a step in which this server waits for its client: shorter while others wait for theirs.
    pub fn hold_of_step(&self) -> Hold {
        Hold::of_step(Arc::clone(&self.shared.others))
    }

    /// The same for all of a run with a perftest.
    pub fn hold_of_perftest(&self) -> Hold {
        Hold::of_perftest(Arc::clone(&self.shared.others))
    }

    /// The same for a stretch.
    pub fn hold_of_stretch(&self) -> Hold {
        Hold::of_stretch(Arc::clone(&self.shared.others))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        let _ = std::io::Write::write(&mut &self.wake, &[1]);
        if let Some(doorkeeper) = self.doorkeeper.take() {
            // A doorkeeper that panicked has closed the door too.
            let _ = doorkeeper.join();
        }
    }
}

#[cfg(test)]
mod tests;
