//! What performs a collective. [`host`] does it with the processors of the ranks' machines.
//!
//! A backend owns the buffers of one rank. It is told the call once ([`Backend::set_up`]), chooses its way to do it,
//! and then performs stretches of it; nothing is decided between.

pub mod host;
pub mod nccl;

use std::time::Duration;

use linkproof_common::error::Result;
use serde::{Deserialize, Serialize};

use crate::collective::Call;
use crate::data::Recipe;
use crate::group::Group;
use crate::measure::IterationLog;
use crate::report::RankPort;

/// Whether the result goes to a buffer of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// It does.
    OutOfPlace,
    /// It lies where the input was ([`crate::collective::InPlace`]).
    InPlace,
}

/// One of a rank's two buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The input. In place it is kept aside, and put into the shared buffer at the begin of a stretch.
    Send,
    /// The result.
    Recv,
}

/// When an iteration begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pacing {
    /// As soon as the one before has ended on this rank: ranks drift, and iterations overlap. A throughput.
    Pipelined,
    /// When all ranks have met, outside the time. A latency.
    Aligned,
}

/// A run of iterations without a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// How many.
    pub iterations: u32,
    /// Calls in each, one after another, timed together.
    pub calls: u32,
    /// When each begins.
    pub pacing: Pacing,
    /// For tests: how much later than it could this rank begins each iteration.
    pub delay: Option<Duration>,
}

/// What a backend's own comparison found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differences {
    /// Elements that are not what they should be.
    pub wrong_elements: u64,
    /// The number of the first of them, where there is one.
    pub first: u64,
}

/// What carries the bytes, in words, for header and document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carrier {
    /// `host`.
    pub backend: String,
    /// `shm` for instance.
    pub transport: String,
    /// What one must know of it to read its figures.
    pub note: String,
}

/// One rank's way to perform collectives.
pub trait Backend {
    /// What carries the bytes.
    fn carrier(&self) -> Carrier;

    /// The RDMA port that the bytes go through, where this backend knows it.
    fn port(&self) -> Option<RankPort> {
        None
    }

    /// Makes room for the largest call to come, in bytes of its two buffers.
    ///
    /// # Errors
    /// `memory`, naming what was asked for.
    fn reserve(&mut self, send_bytes: u64, recv_bytes: u64) -> Result<()>;

    /// Gets ready for `call`; every rank does, at the same time. Returns the name of the algorithm.
    ///
    /// # Errors
    /// Those of the group.
    fn set_up(&mut self, group: &mut dyn Group, call: &Call, placement: Placement) -> Result<&'static str>;

    /// Copies `bytes` to `offset` of a buffer.
    fn write(&mut self, side: Side, offset: u64, bytes: &[u8]);

    /// Copies from `offset` of a buffer into `bytes`.
    fn read(&self, side: Side, offset: u64, bytes: &mut [u8]);

    /// Fills `bytes` at `offset` of a buffer as `recipe` says, where the backend has a faster way than [`Backend::write`];
    /// false where it has none, and nothing was done.
    fn fill(&mut self, _side: Side, _offset: u64, _bytes: u64, _recipe: &Recipe<'_>) -> bool {
        false
    }

    /// Compares `bytes` at `offset` of the result with what `recipe` says, where the backend has a faster way than
    /// [`Backend::read`]; `None` where it has none.
    fn compare(&mut self, _offset: u64, _bytes: u64, _recipe: &Recipe<'_>) -> Option<Differences> {
        None
    }

    /// Performs `stretch` with the call that was set up, and notes when each iteration began and ended. When it
    /// returns, this rank's result is complete and its input is free.
    ///
    /// # Errors
    /// A rank that did not come in time, is gone, or has ended the run.
    fn perform(&mut self, stretch: &Stretch, log: &mut IterationLog) -> Result<()>;
}
