//! Registered memory: how a peer comes to reach it.
//!
//! At its registration private memory is moved, in place, into this process's *arena*: a memfd in which a byte's
//! offset is its address. A peer maps the same pages, and its writes are plain stores. Only whole pages that are
//! registered from end to end are moved: the others may hold something that another thread is writing at this moment,
//! which a move would lose. They, and memory that can't be moved (shared and file mappings, huge pages of the pool,
//! the stack), are reached through the kernel instead, by process_vm_writev(2), which costs a system call.
//!
//! When the last registration of a page ends, it becomes private again. Both moves copy: whoever writes to memory
//! while it is being registered, or its registration ended, may lose what was written.

mod arena;
mod cross;
mod mapping;
mod maps;
mod pinned;
mod ranges;

pub(crate) use arena::{Arena, open_to_peer};
pub(crate) use cross::CrossMemory;
pub(crate) use mapping::{Mapping, new_memfd, page_size};
pub(crate) use pinned::{Pinned, pages};
