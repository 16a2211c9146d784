//! The host backend: the ranks' processors move and reduce the bytes.

mod copy;
mod fold;
mod memory;
pub mod shm;
