//! The tools over the software device: whole RDMA runs on any machine.

mod arms;
mod calls;
mod collectives;
mod driver;
mod faults;
mod gpu_memory;
mod kills;
mod limits;
mod matrix;
mod model;
mod option;
mod perftest;
mod perftest_client;
mod perftest_server;
mod posting;
mod requests;
mod runs;
mod suggestions;
mod trial;
mod use_cuda;
mod users;
mod verbs_facts;
