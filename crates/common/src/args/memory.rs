//! What the bytes lie in.

use std::str::FromStr;

use clap::{Args, ValueEnum};

use crate::cuda::GpuName;
use crate::memory::MemoryRequest;
use crate::plan::{GpuPathRequest, GpuPlan};

/// What the bytes lie in, of both tools.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Memory (client only)")]
pub struct MemoryArgs {
    /// Use GPU memory on both ends: a GPU's number, PCI address or identity, which each end looks up for itself
    #[arg(long, value_name = "GPU", value_parser = GpuName::from_str, conflicts_with_all = ["memory", "peer_memory"])]
    pub use_cuda: Option<GpuName>,
    /// This end's memory alone: host, or cuda:GPU
    #[arg(long, value_name = "WHAT", value_parser = Memory::from_str)]
    pub memory: Option<Memory>,
    /// The other end's memory alone: host, or cuda:GPU
    #[arg(long, value_name = "WHAT", value_parser = Memory::from_str)]
    pub peer_memory: Option<Memory>,
    /// How the network comes to GPU memory; what was tried is said
    #[arg(long, value_name = "PATH", value_enum)]
    pub cuda_path: Option<GpuPathRequest>,
    /// Let --cuda-path auto go through host memory where the adapter can't reach the GPU; otherwise that is an error
    #[arg(long)]
    pub allow_staged: bool,
    /// Use pages of 2 MiB on both ends; without =try too few in the kernel's pool are an error
    #[arg(long, value_name = "MODE", num_args = 0..=1, require_equals = true, default_missing_value = "must")]
    pub hugepages: Option<HugePages>,
}

/// The memory of one end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The host's.
    Host,
    /// A GPU's.
    Cuda(GpuName),
}

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "host" => Ok(Self::Host),
            None if text == "cuda" => Ok(Self::Cuda(GpuName::Ordinal(0))),
            Some(("cuda", gpu)) => gpu.parse().map(Self::Cuda),
            _ => Err("host, cuda, or cuda:GPU with a GPU's number, PCI address or identity".to_owned()),
        }
    }
}

impl Memory {
    fn gpu(&self) -> Option<GpuName> {
        match self {
            Self::Host => None,
            Self::Cuda(gpu) => Some(gpu.clone()),
        }
    }
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
    /// What host memory is asked for.
    pub fn request(&self) -> MemoryRequest {
        match self.hugepages {
            None => MemoryRequest::Host,
            Some(HugePages::Must) => MemoryRequest::HostHuge,
            Some(HugePages::Try) => MemoryRequest::HostHugeIfAny,
        }
    }

    /// What GPU memory is asked for; `None` where no option speaks of any.
    pub fn gpu(&self) -> Option<GpuPlan> {
        let of = |memory: &Option<Memory>| memory.as_ref().and_then(Memory::gpu);
        let client = self.use_cuda.clone().or_else(|| of(&self.memory));
        let server = self.use_cuda.clone().or_else(|| of(&self.peer_memory));
        let spoken = client.is_some() || server.is_some() || self.cuda_path.is_some() || self.allow_staged;
        spoken.then(|| GpuPlan {
            client,
            server,
            path: self.cuda_path.unwrap_or_default(),
            allow_staged: self.allow_staged,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_the_hosts_or_a_gpus() {
        let memory = |text: &str| text.parse::<Memory>();
        assert_eq!(memory("host"), Ok(Memory::Host));
        assert_eq!(memory("cuda"), Ok(Memory::Cuda(GpuName::Ordinal(0))));
        assert_eq!(memory("cuda:0000:17:00.0"), Ok(Memory::Cuda(GpuName::Pci("0000:17:00.0".into()))));
        for wrong in ["gpu", "cuda:", "cuda:first", "host:1", ""] {
            assert!(memory(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_option_is_no_gpu_memory() {
        assert_eq!(MemoryArgs::default().gpu(), None);
        let both = MemoryArgs { use_cuda: Some(GpuName::Ordinal(1)), ..MemoryArgs::default() }.gpu().unwrap();
        assert_eq!((both.client.clone(), both.client), (both.server, Some(GpuName::Ordinal(1))));
        let peer =
            MemoryArgs { peer_memory: Some(Memory::Cuda(GpuName::Ordinal(2))), ..MemoryArgs::default() };
        let peer = peer.gpu().unwrap();
        assert_eq!((peer.client, peer.server), (None, Some(GpuName::Ordinal(2))));
    }
}
