//! How processes find each other, with nothing left behind.
//!
//! Each process takes a *slot*: it listens on an abstract Unix socket whose name has the user, the fabric and the
//! slot's number. Binding is atomic, so no two have one slot, and the kernel drops the name with the process, however
//! that ends. Nobody answers on the socket: who connects learns the process's id from the kernel, opens its control
//! segment through `/proc`, and keeps the connection, which breaks when the process is gone.

mod peer;
mod process;
mod slot;

pub(crate) use peer::{Peer, Region};
pub(crate) use process::{Barriers, Process, lock, take};
