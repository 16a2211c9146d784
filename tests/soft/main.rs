//! The tools over the software device: whole RDMA runs on any machine.

mod runs;
