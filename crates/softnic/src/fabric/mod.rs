//! How processes find each other, with nothing left behind.
//!
//! Each process takes a *slot*: it listens on an abstract Unix socket whose name has the user, the fabric and the
//! slot's number. Binding is atomic, so no two have one slot, and the kernel drops the name with the process, however
//! that ends. Nobody answers on the socket: who connects learns the process's id from the kernel, and opens its control
//! segment through `/proc`. A word in the segment tells when the process is gone ([`life`]).

mod life;
mod peer;
mod process;
mod slot;

pub(crate) use life::{is_alive, with_signals_blocked};
pub(crate) use peer::{Peer, Region};
pub(crate) use process::{Barriers, Process, lock, take};
