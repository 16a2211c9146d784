//! The library that every linkproof tool is made of.
//!
//! Data flows one way, and each arrow makes a new type:
//!
//! ```text
//! argv → Args → Plan → AgreedPlan → Session → Samples → Summary → Report → text | JSON
//!        clap   ranges both ends    device,   raw,      pure      the document
//!                      hold the     MR, QP    no alloc
//!                      same plan    in RTS    once running
//! ```
//!
//! Three seams, each with two implementations: [`endpoint::Endpoint`] (verbs, TCP), [`memory::Buffer`] (host) and
//! [`exchange::Channel`] (TCP, in-process). [`units`], [`stats`], [`clock`] and [`error`] know nothing of verbs,
//! and [`report`] knows nothing of endpoints. Unsafe code lives only in the modules that allow it by name.
#![deny(unsafe_code)]

pub mod addresses;
pub mod affinity;
pub mod args;
pub mod clock;
pub mod compare;
pub mod conduct;
pub mod contention;
pub mod counters;
pub mod cq;
pub mod cuda;
pub mod device;
pub mod endpoint;
pub mod environment;
pub mod error;
pub mod exchange;
pub mod finding;
pub mod gid;
pub mod histogram;
pub mod host;
pub mod interrupt;
pub mod intervals;
pub mod latency;
pub mod memlock;
pub mod memory;
pub mod mr;
pub mod node;
pub mod open_files;
pub mod perftest;
pub mod plan;
pub mod qp;
pub mod rate;
pub mod report;
pub mod requirement;
pub mod samples;
pub mod serve;
pub mod session;
pub mod stats;
pub mod traffic;
pub mod units;
pub mod validate;
pub mod warning;
pub mod watch;
