//! NCCL, loaded at run time.
//!
//! The types, constants and functions of `nccl.h` that a measurement needs, as a table of pointers ([`Nccl`]) filled
//! from a library opened by path. A program that uses it builds without CUDA and NCCL, starts where neither is, and can
//! say which file it opened and which version that is. RCCL has the same functions and is opened the same way.
//!
//! Names are C's, unchanged. Nothing is checked here, and everything callable is `unsafe`.

mod find;
mod library;
mod types;

pub use find::{LIBRARY_NAMES, LIBRARY_VARIABLE, candidates};
pub use library::Nccl;
pub use loader::LoadError;
pub use types::*;
