//! The command line.

use clap::Parser;
use linkproof_common::args::{DeviceArgs, OutputArgs, PeerArgs, TransferArgs};
use linkproof_common::conduct::Ends;

/// Measure RDMA write bandwidth between two hosts
///
/// Start `write-bw -d DEV` on one host: it is the server, takes no test options, and serves one client after
/// another. Then run `write-bw -d DEV HOST` on the other: it is the client and decides everything.
#[derive(Parser, Clone, Debug)]
#[command(name = "write-bw", version, after_help = EXIT_STATUSES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) peer: PeerArgs,
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

const EXIT_STATUSES: &str = "Exit status:
  0  measured, and good
  1  measured, but the data that arrived was wrong, or a requirement was not met
  2  the command line
  3  this machine: device, GID, limit, library
  4  the peer or the path to it
  130  interrupted; what was measured until then is printed and marked";

impl Args {
    /// What the options say of the two ends.
    pub(crate) fn ends(&self) -> Ends<'_> {
        Ends { device: &self.device, peer: &self.peer }
    }
}
