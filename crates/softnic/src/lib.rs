//! softnic: a software RDMA device in user space, behind libibverbs' interface.
//!
//! The library takes the place of libibverbs in a program: by `LINKPROOF_IBVERBS` in the tools of this project, by
//! `LD_PRELOAD` in others. Its devices move real bytes between processes of one user on one machine. Whoever posts a
//! write copies the bytes into the target's registered memory, at once and without a thread or a system call of
//! anybody's; queue pairs, keys, limits, errors and events are those of reliable connections as the InfiniBand
//! specification has them.
//!
//! It is for tests and demonstrations, and says so wherever a device can: the firmware version begins with `softnic`,
//! and the vendor id is 0. **No speed of it is a link's.**
//!
//! What is not there: atomics, datagram and unreliable queue pairs, shared receive queues, address handles, memory windows.
//! Those functions exist, and fail with `EOPNOTSUPP`.
//!
//! The modules, from the outside in: `exports` is the C face; `device`, `context`, `pd`, `mr`, `cq` and
//! `qp` are the objects of verbs; `fabric` finds other processes; `shared` is what processes show each other;
//! `memory` makes registered memory reachable, `gpu` that on GPUs; `config` is what devices there are.
#![allow(unsafe_code, reason = "the interface is C's, and the memory is shared with other processes")]

mod clock;
mod config;
mod context;
mod cq;
mod device;
mod errno;
mod events;
mod exports;
mod fabric;
mod fault;
mod gpu;
mod lock;
mod memory;
mod mr;
mod pd;
mod pool;
mod port;
mod progress;
mod qp;
mod retry;
mod shared;
