//! The command line.

use clap::Parser;
use linkproof_arms::link::ArmArgs;
use linkproof_common::args::help::{AFTER_HELP, Example, after_long_help};
use linkproof_common::args::{DeviceArgs, OutputArgs, PeerArgs, TransferArgs};
use linkproof_common::conduct::Ends;

/// Measure RDMA write bandwidth between two hosts
///
/// Start `write-bw -d DEV` on one host: it is the server, takes no test options, and serves one client after
/// another. Then run `write-bw -d DEV HOST` on the other: it is the client and decides everything.
#[derive(Parser, Clone, Debug)]
#[command(name = "write-bw", version, after_help = AFTER_HELP, after_long_help = after_long_help(EXAMPLES))]
pub struct Args {
    /// Which device of this end.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// The other end.
    #[command(flatten)]
    pub peer: PeerArgs,
    /// What is measured.
    #[command(flatten)]
    pub transfer: TransferArgs,
    /// Several ways of measuring it, in turn.
    #[command(flatten)]
    pub arms: ArmArgs,
    /// How it is shown.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What `--help` shows, the usual first.
const EXAMPLES: &[Example] = &[
    Example { what: "The server, on one host", line: "write-bw -d mlx5_0" },
    Example { what: "64 KiB messages from the other host", line: "write-bw -d mlx5_0 node-a" },
    Example {
        what: "Every size from 2 bytes to 8 MiB, in Gb/s",
        line: "write-bw -d mlx5_0 -a --report-gbits node-a",
    },
    Example {
        what: "Both directions, 8 queue pairs, 10 s",
        line: "write-bw -d mlx5_0 -b -q 8 -s 1M -D 10 node-a",
    },
    Example {
        what: "Accept a 400 Gb/s link: exit status 1 below what it must carry",
        line: "write-bw -d mlx5_0 -q 4 -s 1M -D 30 --min-bw 370Gb/s --json=result.json node-a",
    },
    Example {
        what: "A link that flaps: a line each second until Ctrl-C",
        line: "write-bw -d mlx5_0 -s 1M --run-infinitely --interval 1s node-a",
    },
    Example { what: "The same pattern over TCP, for comparison", line: "write-bw --transport tcp node-a" },
    Example { what: "No adapter at hand: a device in software", line: "write-bw --soft-device 127.0.0.1" },
];

impl Args {
    /// What the options say of the two ends.
    pub fn ends(&self) -> Ends<'_> {
        Ends { device: &self.device, peer: &self.peer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkproof_common::args::{Parse, Parsed, parse};

    #[test]
    fn each_example_of_the_help_is_understood() {
        for Example { line, .. } in EXAMPLES {
            let parsed = parse::<Args>(line.split_whitespace().map(Into::into));
            let Ok(Parse::Run(Parsed { args, .. })) = parsed else { panic!("{line}: {:?}", parsed.err()) };
            let measures =
                args.peer.host.is_none() || args.transfer.plan("write-bw", args.ends().transport()).is_ok();
            assert!(line.starts_with("write-bw ") && measures, "{line}");
        }
    }
}
