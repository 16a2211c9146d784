//! Memory of a GPU, and the ways in which a network comes to it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Buffer, MemoryKind};
use crate::cuda::{DeviceBuffer, DmabufMapping, Driver, Gpu, GpuContext, GpuName, choose};
use crate::error::{Error, Result};
use crate::node::{Distance, Topology};

/// How an adapter, or a socket, comes to the bytes of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuPath {
    /// The driver exports the memory as a dma-buf, and the adapter's driver maps that: GPUDirect RDMA.
    Dmabuf,
    /// The same with a mapping that goes over PCIe where the GPU has another link to the host's memory as well.
    DmabufPcie,
    /// The adapter's driver asks a peer memory module (nvidia-peermem) for the memory: GPUDirect RDMA, the older way.
    Peermem,
    /// By way of host memory, which the GPU copies to and from.
    Staged,
}

impl GpuPath {
    /// As options and the report spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dmabuf => "dmabuf",
            Self::DmabufPcie => "dmabuf-pcie",
            Self::Peermem => "peermem",
            Self::Staged => "staged",
        }
    }

    /// In words, for the header.
    pub fn words(self) -> &'static str {
        match self {
            Self::Dmabuf => "GPUDirect by dma-buf",
            Self::DmabufPcie => "GPUDirect by dma-buf, mapped over PCIe",
            Self::Peermem => "GPUDirect by peer memory",
            Self::Staged => "staged through host memory",
        }
    }
}

/// A GPU whose memory a run uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuUse {
    /// Its number in the process.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: String,
    /// Its PCI address.
    pub pci_address: String,
    /// How its memory is reached.
    pub path: GpuPath,
    /// Ways that were tried before and did not work.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub refused: Vec<Refusal>,
    /// How far it is from the RDMA device on the PCI bus; absent where that is not known or there is no such device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub distance: Option<Distance>,
    /// RDMA devices of its machine that are nearer to it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub nearer: Vec<String>,
}

/// A way that did not work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Which.
    pub path: GpuPath,
    /// What was said to it.
    pub why: String,
}

impl GpuUse {
    /// `gpu`, reached by `path`.
    pub fn of(gpu: &Gpu, path: GpuPath, refused: Vec<Refusal>) -> Self {
        Self {
            ordinal: gpu.ordinal,
            name: gpu.name.clone(),
            uuid: gpu.uuid.clone(),
            pci_address: gpu.pci_address.clone(),
            path,
            refused,
            distance: None,
            nearer: Vec::new(),
        }
    }

    /// The same with how far it is from `device` in the node that `topology` shows.
    pub fn seen_from(mut self, device: &str, topology: &Topology) -> Self {
        let row = |name: &str| topology.places.iter().position(|place| place.name == name);
        let Some((gpu, device)) = row(&self.pci_address).zip(row(device)) else { return self };
        self.distance = topology.distance(gpu, device);
        if self.distance > topology.best_of(gpu) {
            self.nearer.clone_from(&topology.places[gpu].nearest);
        }
        self
    }

    /// For the header: `GPU 0, NVIDIA H200, 0000:3c:00.0, GPUDirect by dma-buf`.
    pub fn describe(&self) -> String {
        let words = |distance: Distance| format!(", {} from the device", distance.word());
        let distance = self.distance.map_or(String::new(), words);
        format!("GPU {}, {}, {}, {}{distance}", self.ordinal, self.name, self.pci_address, self.path.words())
    }
}

/// Peer memory modules map the GPU's pages, which are of this size, and dma-bufs want the host's, which are no larger.
const GPU_PAGE: u64 = 64 * 1024;

/// Plain device memory that begins at one of the GPU's pages.
///
/// May be reached from any thread: each call makes the GPU's context its own.
pub struct GpuMemory {
    device: DeviceBuffer,
    /// Bytes of `device` before the first of this.
    before: u64,
    len: u64,
}

impl GpuMemory {
    /// `len` zero bytes of the GPU `name`.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::GpuDriver`], [`crate::error::ErrorKind::NoGpu`], [`crate::error::ErrorKind::GpuNotFound`],
    /// [`crate::error::ErrorKind::Memory`] or [`crate::error::ErrorKind::GpuFailed`], with the call.
    pub fn new(name: &GpuName, len: u64) -> Result<Self> {
        let driver = Driver::load()?;
        let context = GpuContext::open(driver, choose(driver, name)?)?;
        // Whole pages at both ends, of which nothing else is registered with them.
        let device = DeviceBuffer::new(&context, len.next_multiple_of(GPU_PAGE) + GPU_PAGE)?;
        let before = device.address().next_multiple_of(GPU_PAGE) - device.address();
        device.fill(0)?;
        // An adapter that reads or writes it does not know of copies that are still on their way.
        device.set_sync_memops()?;
        Ok(Self { device, before, len })
    }

    /// Its GPU, in use.
    pub fn context(&self) -> &Arc<GpuContext> {
        self.device.context()
    }

    /// The GPU.
    pub fn gpu(&self) -> &Gpu {
        self.context().gpu()
    }

    /// All of it, in whole pages, as a dma-buf, which is mapped so.
    ///
    /// # Errors
    /// The driver's, or that it is too old.
    pub fn export_dmabuf(&self, mapping: DmabufMapping) -> Result<OwnedFd> {
        self.context().bind()?;
        let bytes = self.len.next_multiple_of(GPU_PAGE);
        self.context().driver().export_dmabuf(self.address(), bytes, mapping)
    }
}

impl Buffer for GpuMemory {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Cuda
    }

    fn address(&self) -> u64 {
        self.device.address() + self.before
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.context().bind()?;
        self.device.write_at(self.before + offset, bytes).map_err(|error| self.named(error))
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.context().bind()?;
        self.device.read_at(self.before + offset, bytes).map_err(|error| self.named(error))
    }
}

impl GpuMemory {
    fn named(&self, error: Error) -> Error {
        error.fact("gpu", self.gpu().describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Place;

    fn gpu() -> GpuUse {
        let gpu = Gpu {
            ordinal: 1,
            name: "NVIDIA H200".into(),
            uuid: "GPU-8a5c".into(),
            pci_address: "0000:3c:00.0".into(),
            memory_bytes: 1 << 37,
            compute_capability: "9.0".into(),
            multiprocessors: 132,
            dma_buf: true,
        };
        GpuUse::of(&gpu, GpuPath::Dmabuf, Vec::new())
    }

    fn place(name: &str, distances: [Option<Distance>; 3], nearest: &[&str]) -> Place {
        let nearest = nearest.iter().map(|&name| name.into()).collect();
        Place { label: name.into(), name: name.into(), numa_node: None, distances: distances.into(), nearest }
    }

    #[test]
    fn a_device_that_is_not_the_nearest_is_told_with_those_that_are() {
        use Distance::{Pix, Sys};
        let topology = Topology {
            places: vec![
                place("0000:3c:00.0", [None, Some(Pix), Some(Sys)], &["mlx5_0"]),
                place("mlx5_0", [Some(Pix), None, Some(Sys)], &[]),
                place("mlx5_1", [Some(Sys), Some(Sys), None], &[]),
            ],
        };
        let near = gpu().seen_from("mlx5_0", &topology);
        assert_eq!((near.distance, near.nearer.len()), (Some(Pix), 0));
        assert!(near.describe().ends_with("GPUDirect by dma-buf, PIX from the device"));
        let far = gpu().seen_from("mlx5_1", &topology);
        assert_eq!((far.distance, far.nearer), (Some(Sys), vec!["mlx5_0".to_owned()]));
        let unknown = gpu().seen_from("rxe0", &topology);
        assert_eq!((unknown.distance, unknown.nearer.len()), (None, 0));
    }
}
