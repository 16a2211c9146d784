//! The tools over the software device: whole RDMA runs on any machine.

mod option;
mod perftest;
mod posting;
mod runs;
