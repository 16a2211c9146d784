//! How far devices are from each other on the PCI bus, in the words of NVIDIA's tool.

use serde::{Deserialize, Serialize};

use super::{Gpu, PciFunction, RdmaDevice};

/// What lies between two devices, the nearest first. The words are those of `nvidia-smi topo -m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Distance {
    /// At most a single PCIe switch.
    Pix,
    /// Several PCIe switches, and no host bridge.
    Pxb,
    /// A host bridge: the processor.
    Phb,
    /// Several host bridges of one NUMA node.
    Node,
    /// The interconnect between NUMA nodes.
    Sys,
}

impl Distance {
    /// Between two functions; `None` where either's place does not show.
    pub fn between(one: &PciFunction, other: &PciFunction) -> Option<Self> {
        let (bridge, other_bridge) = (one.path.first()?, other.path.first()?);
        if bridge != other_bridge {
            // A machine with one node calls it -1, which is absent here: the same node then.
            return Some(if one.numa_node == other.numa_node { Self::Node } else { Self::Sys });
        }
        let shared = one.path.iter().zip(&other.path).take_while(|(ours, theirs)| ours == theirs).count();
        if shared == 1 {
            return Some(Self::Phb);
        }
        // Below where the ways part there is, for one switch, its port towards the device and the device itself.
        let below_one_switch = |path: &[String]| path.len().saturating_sub(shared) <= 2;
        let one_switch = below_one_switch(&one.path) && below_one_switch(&other.path);
        Some(if one_switch { Self::Pix } else { Self::Pxb })
    }

    /// The tool's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Phb => "PHB",
            Self::Node => "NODE",
            Self::Sys => "SYS",
        }
    }

    /// What the word means.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Pix => "at most one PCIe switch between them",
            Self::Pxb => "several PCIe switches, and no host bridge",
            Self::Phb => "through a PCIe host bridge, which is the processor",
            Self::Node => "through several host bridges of one NUMA node",
            Self::Sys => "through the interconnect between NUMA nodes",
        }
    }

    /// All, the nearest first.
    pub const ALL: [Self; 5] = [Self::Pix, Self::Pxb, Self::Phb, Self::Node, Self::Sys];
}

/// A device of the matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its short name in the matrix: `GPU0`, `NIC3`.
    pub label: String,
    /// What it is: a PCI address or an RDMA device's name.
    pub name: String,
    /// Its NUMA node.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub numa_node: Option<u32>,
    /// Its distances, in the order of [`Topology::places`]; null for itself and where it does not show.
    pub distances: Vec<Option<Distance>>,
    /// Of a GPU, the RDMA devices that are nearest to it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub nearest: Vec<String>,
}

/// How far GPUs and RDMA devices are from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// GPUs by address, then RDMA devices by name.
    pub places: Vec<Place>,
}

impl Topology {
    pub(super) fn of(gpus: &[Gpu], devices: &[RdmaDevice]) -> Self {
        let of_gpus = gpus.iter().map(|gpu| (gpu.pci.address.as_str(), &gpu.pci));
        let on_bus = devices.iter().filter_map(|device| Some((device.name.as_str(), device.pci.as_ref()?)));
        let all: Vec<(&str, &PciFunction)> = of_gpus.chain(on_bus).collect();
        let place = |(index, (name, pci)): (usize, &(&str, &PciFunction))| {
            let is_gpu = index < gpus.len();
            let distance = |(at, (_, other)): (usize, &(&str, &PciFunction))| {
                (at != index).then(|| Distance::between(pci, other)).flatten()
            };
            let distances: Vec<Option<Distance>> = all.iter().enumerate().map(distance).collect();
            let to_devices = all.iter().zip(&distances).skip(gpus.len());
            let best = to_devices.clone().filter_map(|(_, distance)| *distance).min().filter(|_| is_gpu);
            let nearest = to_devices.filter(|(_, distance)| best.is_some() && **distance == best);
            Place {
                label: if is_gpu { format!("GPU{index}") } else { format!("NIC{}", index - gpus.len()) },
                name: (*name).to_owned(),
                numa_node: pci.numa_node,
                nearest: nearest.map(|((name, _), _)| (*name).to_owned()).collect(),
                distances,
            }
        };
        Self { places: all.iter().enumerate().map(place).collect() }
    }

    /// The distance between the places at `row` and `column`.
    pub fn distance(&self, row: usize, column: usize) -> Option<Distance> {
        *self.places.get(row)?.distances.get(column)?
    }

    /// The distance of the GPU in `row` to its nearest RDMA device.
    pub fn best_of(&self, row: usize) -> Option<Distance> {
        let nearest = self.places.get(row)?.nearest.first()?;
        let column = self.places.iter().position(|place| place.name == *nearest)?;
        self.distance(row, column)
    }
}
