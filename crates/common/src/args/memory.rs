//! What the bytes lie in.

use clap::{Args, ValueEnum};

use crate::memory::MemoryRequest;

/// What the bytes lie in, of both tools.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "The measurement (client only)")]
pub struct MemoryArgs {
    /// Use pages of 2 MiB on both ends; without =try too few in the kernel's pool are an error
    #[arg(long, value_name = "MODE", num_args = 0..=1, require_equals = true, default_missing_value = "must")]
    pub hugepages: Option<HugePages>,
}

/// How much they are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HugePages {
    /// An end that has too few of them refuses
    Must,
    /// An end that has too few of them takes pages of the base size, and a warning says so
    Try,
}

impl MemoryArgs {
    /// What is asked for.
    pub fn request(&self) -> MemoryRequest {
        match self.hugepages {
            None => MemoryRequest::Host,
            Some(HugePages::Must) => MemoryRequest::HostHuge,
            Some(HugePages::Try) => MemoryRequest::HostHugeIfAny,
        }
    }
}
