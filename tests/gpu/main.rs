//! `coll-perf` over NCCL on a machine with an NVIDIA GPU: right data, proven paths, and the failures by name. And memory
//! of the GPU on the software device.
//!
//! One GPU is enough; its ranks share it. `LINKPROOF_GPU=1` says that there is one: without it each test is skipped and
//! says so. The tests can be built elsewhere and carried there with the binaries (docs/collectives.md).

mod failures;
mod memory;
mod ranks;
mod results;
