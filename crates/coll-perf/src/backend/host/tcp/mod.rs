//! `tcp`: a socket between every two ranks, whether they are processes of many machines or threads of one.
#![allow(unsafe_code, reason = "pieces of memory by address")]

mod flow;
mod mesh;

use std::net::{IpAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use linkproof_common::error::{Error, ErrorKind, Result, show_io_error};
use linkproof_common::units::show_duration;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::messages::{Exchange, Messages, Piece};
use crate::backend::Carrier;
use crate::group::{Alarm, Group};
use crate::plan::Plan;
use flow::Flow;

/// Sockets to all other ranks.
pub(crate) struct Sockets {
    rank: u32,
    /// By rank; none to itself.
    sockets: Vec<Option<TcpStream>>,
    alarm: Alarm,
    limit: Duration,
    /// What is under way, kept for its room.
    flows: Vec<Flow>,
}

/// How long a rank tries without sleeping: on one machine, and in a fast network, an answer comes sooner than the kernel
/// wakes a process up. With fewer processors than ranks the peer may be waiting for this one.
const SPIN: Duration = Duration::from_micros(50);
/// How often a rank that sleeps looks whether the run is over.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// How a rank is reached by the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    /// This rank's address, if it is the same for all who look.
    pub(crate) own: Option<IpAddr>,
    /// Rank 0's, as this rank sees it.
    pub(crate) root: Option<IpAddr>,
}

/// One rank's backend over TCP; `alarm` is the group's.
///
/// # Errors
/// A rank that can't be reached; those of the group.
pub(crate) fn backend(
    group: &mut dyn Group,
    alarm: Alarm,
    addresses: Addresses,
    plan: &Plan,
) -> Result<Messages<Sockets>> {
    Messages::over(mesh::connect(group, alarm, addresses, Duration::from_secs_f64(plan.timeout_seconds))?)
}

impl Exchange for Sockets {
    fn carrier(&self) -> Carrier {
        Carrier {
            backend: "host".to_owned(),
            transport: "tcp".to_owned(),
            note: "a socket between every two ranks".to_owned(),
        }
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn n_ranks(&self) -> u32 {
        self.sockets.len() as u32
    }

    unsafe fn exchange(&mut self, sends: &[Piece], recvs: &[Piece]) -> Result<()> {
        let mut flows = std::mem::take(&mut self.flows);
        flows.clear();
        flows.extend(sends.iter().map(|piece| Flow::out(*piece)));
        flows.extend(recvs.iter().map(|piece| Flow::into(*piece)));
        // SAFETY: as the caller says.
        let result = unsafe { self.carry(&mut flows) };
        self.flows = flows;
        result
    }
}

impl Sockets {
    /// # Safety
    /// As [`Exchange::exchange`].
    unsafe fn carry(&self, flows: &mut [Flow]) -> Result<()> {
        let mut last_progress = Instant::now();
        let mut left = flows.len();
        while left > 0 {
            let mut moved = false;
            for index in 0..flows.len() {
                // Between two ranks pieces go in order: one waits for those of its kind before it.
                if flows[index].is_done() || is_behind(flows, index) {
                    continue;
                }
                // SAFETY: as the caller says.
                if unsafe { self.advance(&mut flows[index]) }? {
                    moved = true;
                    left -= usize::from(flows[index].is_done());
                }
            }
            if moved {
                last_progress = Instant::now();
            } else {
                self.wait(flows, last_progress)?;
            }
        }
        Ok(())
    }

    /// Moves what can be moved now; false where that is nothing.
    ///
    /// # Safety
    /// As [`Exchange::exchange`].
    unsafe fn advance(&self, flow: &mut Flow) -> Result<bool> {
        let Some(socket) = &self.sockets[flow.piece.peer as usize] else { return Ok(false) };
        // SAFETY: as the caller says.
        unsafe { flow.advance(socket) }.map_err(|error| {
            let what = format!("the data connection of rank {} to rank {} ended", self.rank, flow.piece.peer);
            Error::new(ErrorKind::PeerLost, format!("{what}: {}", show_io_error(&error)))
        })
    }

    #[cold]
    fn wait(&self, flows: &[Flow], last_progress: Instant) -> Result<()> {
        let idle = last_progress.elapsed();
        if idle < SPIN {
            std::hint::spin_loop();
            return Ok(());
        }
        self.alarm.check()?;
        if idle > self.limit {
            return Err(self.stalled(flows));
        }
        let waiting =
            flows.iter().enumerate().filter(|(index, flow)| !flow.is_done() && !is_behind(flows, *index));
        let mut fds: Vec<PollFd> = waiting
            .filter_map(|(_, flow)| {
                let socket = self.sockets[flow.piece.peer as usize].as_ref()?;
                Some(PollFd::new(
                    socket.as_fd(),
                    if flow.is_out { PollFlags::POLLOUT } else { PollFlags::POLLIN },
                ))
            })
            .collect();
        let _ = poll(&mut fds, PollTimeout::try_from(LOOK_AROUND).unwrap_or(PollTimeout::MAX));
        Ok(())
    }

    fn stalled(&self, flows: &[Flow]) -> Error {
        let mut peers: Vec<u32> =
            flows.iter().filter(|flow| !flow.is_done()).map(|flow| flow.piece.peer).collect();
        peers.sort_unstable();
        peers.dedup();
        let peers: Vec<String> = peers.iter().map(ToString::to_string).collect();
        Error::new(
            ErrorKind::Stalled,
            format!("rank {} moved nothing for {}", self.rank, show_duration(self.limit)),
        )
        .fact("waiting for", format!("rank {}", peers.join(", ")))
        .hint("a longer limit is set with --timeout")
    }
}

/// Whether an earlier piece of the same kind is still under way between the same ranks.
fn is_behind(flows: &[Flow], index: usize) -> bool {
    let flow = &flows[index];
    let alike = |earlier: &Flow| {
        !earlier.is_done() && earlier.is_out == flow.is_out && earlier.piece.peer == flow.piece.peer
    };
    flows[..index].iter().any(alike)
}
