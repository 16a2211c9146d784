//! The tools over the software device: whole RDMA runs on any machine.

mod calls;
mod limits;
mod model;
mod option;
mod perftest;
mod posting;
mod requests;
mod runs;
mod verbs_facts;
