//! softgpu: a CUDA driver in host memory, behind `libcuda.so.1`'s interface.
//!
//! The library takes the place of the CUDA driver in a program: by `LINKPROOF_CUDA` in the tools of this project. Its
//! GPUs have memory and no processors. Memory of a GPU is a memfd, and at its address nothing is mapped: a
//! program, or an adapter that takes it for host memory, faults as it does with a real GPU. The driver's own copies go
//! through a second mapping, which it shows to nobody. Another process maps the same memfd by its IPC handle.
//!
//! Nothing is asynchronous: a copy is done by whoever asks for it before the call returns, which is in the stream's
//! order. Streams and events are there, and are never behind.
//!
//! It is for tests and demonstrations, and says so wherever a GPU can: the name is `Softgpu (host memory)`, the compute
//! capability 0.0, the PCI address in a domain that no machine has. **No speed of it is a GPU's.**
//!
//! What is not there: modules, kernels, and graphs. Those functions exist, and fail with `CUDA_ERROR_NOT_SUPPORTED`.
//!
//! The modules, from the outside in: `exports` is the C face; `driver` begins each call, and has what all of them share;
//! `context`, `allocations`, `copy`, `host`, `ipc` and `streams` are what can be asked for; `mapping` is the memory;
//! `config` is which GPUs there are, and `faults` what goes wrong.
#![allow(unsafe_code, reason = "the interface is C's, and the memory is shared with other processes")]

mod allocations;
mod config;
mod context;
mod copy;
mod driver;
mod exports;
mod failure;
mod faults;
mod gpu;
mod host;
mod ipc;
mod mapping;
mod parse;
mod pointers;
mod streams;
