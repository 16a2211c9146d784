//! Raw libibverbs, loaded at run time.
//!
//! This crate owns the project's FFI declarations for verbs: the C types and constants (`bindings.rs`,
//! generated and committed), the library's functions as a table of pointers ([`Verbs`]), and by hand what the
//! C header defines inline: the calls of the data path, and the extended verbs that go through a device's own
//! table. Names are C's, unchanged, so that a man page reads as documentation.
//!
//! It promises that
//! - a program using it builds without rdma-core's headers and libclang, and starts where libibverbs is
//!   missing: that is a [`LoadError`], and so is a library too old to be used;
//! - functions newer than the oldest library supported are `Option`s in the table;
//! - no C enum is a Rust enum: a value that only a newer kernel knows, such as the `event_type` (a `u32`) of
//!   an [`ibv_async_event`], is an odd number and nothing worse;
//! - layouts agree with C's (`tests/layout.rs` pins them and asks the C compiler).
//!
//! It does not own memory, check arguments, or turn errno into errors. Everything callable is `unsafe`, with
//! C's conventions; safe types are built on top, in `linkproof-common`.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("the bindings were generated for 64-bit Linux");

#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    reason = "generated, and named as in C"
)]
#[rustfmt::skip]
mod bindings;
mod extended;
mod inline;
mod library;

pub use bindings::*;
pub use extended::*;
pub use inline::*;
pub use library::{DEFAULT_LIBRARY, LIBRARY_VARIABLE, LoadError, Verbs};

/// The bit of `ibv_port_attr.flags` that says that every address handle on this port needs a GRH.
pub const IBV_QPF_GRH_REQUIRED: u32 = IB_UVERBS_QPF_GRH_REQUIRED;

/// The access flags that a kernel or device may leave unheeded, [`IBV_ACCESS_RELAXED_ORDERING`] among them.
pub const IBV_ACCESS_OPTIONAL_RANGE: u32 = IB_UVERBS_ACCESS_OPTIONAL_RANGE;
