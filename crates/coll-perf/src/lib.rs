//! Collectives measured: what they are ([`collective`]), what they move and must result in ([`data`]), who takes part
//! ([`group`]), what carries the bytes ([`backend`]), and what comes of it ([`measure`], [`summary`], [`report`]).
//!
//! ```text
//! argv → Args → Plan → points (one Call each) → every rank: set up, fill, iterate, check → rank 0: Document → text | JSON
//! ```
//!
//! Two seams: a [`group::Group`] is how the ranks agree and exchange small things outside the measurement, a
//! [`backend::Backend`] is what performs a collective.
#![deny(unsafe_code)]

pub mod app;
pub mod args;
pub mod arms;
pub mod backend;
pub mod collective;
pub mod cores;
pub mod data;
pub mod dtype;
pub mod element;
pub mod fault;
pub mod group;
pub mod launch;
pub mod measure;
pub mod plan;
pub mod preflight;
pub mod processes;
pub mod redop;
pub mod report;
pub mod run;
pub mod summary;
pub mod sweep;
pub mod threads;
pub mod traffic;
