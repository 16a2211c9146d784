//! Which protocol the other end is spoken to in.

/// Which protocol the other end is spoken to in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PeerProtocol {
    /// Our own where the other end knows it, else perftest's
    #[default]
    Auto,
    /// Our own only
    Linkproof,
    /// perftest's only
    Perftest,
}
