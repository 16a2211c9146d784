//! The tools from outside, on a host without an RDMA device: what they say, how they exit, and whole runs over TCP.

mod affinity;
mod arms;
mod attack;
mod check;
mod collectives;
mod compare;
mod corruption;
mod failures;
mod fleets;
mod help;
mod interrupts;
mod intervals;
mod latency;
mod launchers;
mod lost_peers;
mod machine;
mod pace;
mod ranks;
mod report;
mod runs;
mod serving;
mod stopped_clients;
mod strangers;
mod threads;
mod until_stopped;
mod usage;
