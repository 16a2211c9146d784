//! The tools from outside, on a host without an RDMA device: what they say, how they exit, and whole runs over TCP.

mod affinity;
mod arms;
mod attack;
mod collectives;
mod compare;
mod corruption;
mod failure_cases;
mod failures;
mod help;
mod interrupts;
mod intervals;
mod latency;
mod launchers;
mod lost_peers;
mod machine;
mod pace;
mod ranks;
mod runs;
mod serving;
mod stopped_clients;
mod strangers;
mod threads;
mod until_stopped;
mod usage;
