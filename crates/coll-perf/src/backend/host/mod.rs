//! The host backend: the ranks' processors move and reduce the bytes.

mod caches;
mod copy;
mod fold;
mod memory;
mod messages;
pub mod rdma;
pub mod shm;
pub mod tcp;
