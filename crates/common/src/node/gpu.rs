//! GPUs, their driver, and whether an adapter can reach their memory.

use serde::{Deserialize, Serialize};

use super::{PciFunction, pci};
use crate::host::HostFiles;

const NVIDIA: u32 = 0x10de;
const AMD: u32 = 0x1002;

/// A GPU on the PCI bus.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its name, where the driver tells it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// Its place on the bus.
    pub pci: PciFunction,
}

/// The module through which adapters are given GPU memory the older way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerMemory {
    /// The driver's own.
    #[serde(rename = "nvidia_peermem")]
    NvidiaPeermem,
    /// The older, separate one.
    #[serde(rename = "nv_peer_mem")]
    NvPeerMem,
}

/// The GPUs' driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuDriver {
    /// Its version; absent where it is not loaded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version: Option<String>,
    /// Whether its kernel modules are the open ones; absent where not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub open_modules: Option<bool>,
    /// The peer-memory module that is loaded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer_memory: Option<PeerMemory>,
    /// What CUDA says; absent where it was not asked or has not answered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cuda: Option<CudaFacts>,
    /// Why CUDA can't be used, where it was asked and can't.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cuda_refusal: Option<String>,
}

/// What CUDA says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CudaFacts {
    /// The newest CUDA that the driver knows: `13.0`.
    pub version: String,
    /// GPUs that this process may use.
    pub gpus: u32,
    /// Whether all of them give out dma-bufs of their memory.
    pub dma_buf: bool,
}

/// Every GPU on the PCI bus.
pub(super) fn gpus(files: &HostFiles) -> Vec<Gpu> {
    // VGA and 3D controllers, and AMD's processing accelerators. A graphics chip of a board's own is neither vendor's.
    let is_gpu = |vendor, class: u32| match vendor {
        NVIDIA => matches!(class >> 8, 0x0300 | 0x0302),
        AMD => matches!(class >> 8, 0x0380 | 0x1200),
        _ => false,
    };
    let gpu = |address: &String| {
        let information = format!("/proc/driver/nvidia/gpus/{address}/information");
        Some(Gpu {
            model: files.value_of(&information, "Model").filter(|model| !model.is_empty()),
            pci: PciFunction::by_address(files, address)?,
        })
    };
    pci::functions(files, is_gpu).iter().filter_map(gpu).collect()
}

/// The driver of NVIDIA's GPUs, where there are GPUs or it is loaded.
pub(super) fn driver(files: &HostFiles, has_gpus: bool) -> Option<GpuDriver> {
    let text = files.words("/proc/driver/nvidia/version");
    if !has_gpus && text.is_none() {
        return None;
    }
    let line = text.as_deref().and_then(|text| text.lines().find(|line| line.starts_with("NVRM version:")));
    let loaded = |module: &str| files.exists(&format!("/sys/module/{module}"));
    Some(GpuDriver {
        version: line.and_then(version_in),
        open_modules: line.map(|line| line.contains("Open Kernel Module")),
        peer_memory: [("nvidia_peermem", PeerMemory::NvidiaPeermem), ("nv_peer_mem", PeerMemory::NvPeerMem)]
            .into_iter()
            .find(|(module, _)| loaded(module))
            .map(|(_, kind)| kind),
        ..GpuDriver::default()
    })
}

/// `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  …`: the first word that is a version.
fn version_in(line: &str) -> Option<String> {
    let is_version =
        |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    line.split_whitespace().find(is_version).map(str::to_owned)
}

impl PeerMemory {
    /// The module's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::NvidiaPeermem => "nvidia_peermem",
            Self::NvPeerMem => "nv_peer_mem",
        }
    }
}
