//! `--arm`: several ways of doing one measurement, run in turn by one command, and judged.
//!
//! ```text
//! --arm words → Arm → schedule A B B A … → a fresh process each run → result documents → perf_compare
//!               what   so that drift       what it finds in the        one for each run   the verdict
//!               is set hits all arms       environment is read once
//! ```
//!
//! [`link`] has what the tools that measure a link need of it.
//!
//! A run is the tool itself, started again with what its arm sets and without `--arm`. What proves that an arm did what
//! its name says is the tool's to know ([`Tool::prove`]): an arm that can't be proven has failed, and is not compared.

mod arm;
mod child;
mod document;
mod line;
pub mod link;
mod schedule;
mod show;
mod step;
mod text;
mod trial;

pub use arm::{Arm, parse};
pub use document::{Report, SCHEMA};
pub use line::Line;
pub use show::{Terminal, show};
pub use step::{Alone, Lockstep};
pub use trial::{Observer, Tool, Tried, run, this_program};

/// Runs of each arm unless the user says otherwise: the fewest that are judged in pairs.
pub const ROUNDS: u32 = linkproof_common::compare::PAIRED_FROM as u32;
