//! `rdma-check`: is this node fit to measure, and if not, why not.
//!
//! It looks at what the kernel and the libraries tell ([`linkproof_common::node`]), has it judged
//! ([`linkproof_common::finding`]), and shows what was found, worst first, with the tables that one would ask for next. It
//! reads only, needs no privilege, takes less than a second, and works where there is no RDMA at all: that is a finding.

mod app;
pub mod args;
pub mod document;
pub mod metrics;
mod output;
pub mod run;
pub mod show;
mod view;

pub use app::main;
pub use view::View;
