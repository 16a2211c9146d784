//! Functions on the PCI bus: where they are, how they are connected, what stands between them.

use serde::{Deserialize, Serialize};

use super::RdmaDevice;
use crate::host::HostFiles;
use crate::units::Bandwidth;

const DEVICES: &str = "/sys/bus/pci/devices";

/// Why relaxed ordering and ACS are not seen by everybody.
pub(super) const ONLY_ROOT_SEES: &str =
    "only root sees PCI configuration space beyond its first 64 bytes (sudo rdma-check)";

/// A PCIe link: what a lane carries, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PciLink {
    /// Transfers on a lane, in 10⁹ a second.
    pub gt_per_sec: f64,
    /// How many lanes it has.
    pub width: u32,
}

/// A PCI function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PciFunction {
    /// Its address: `0000:17:00.0`.
    pub address: String,
    /// From the host bridge down to the function itself, by name; empty where it does not show.
    pub path: Vec<String>,
    /// Its NUMA node.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub numa_node: Option<u32>,
    /// Its driver.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub driver: Option<String>,
    /// Its link, as trained.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub link: Option<PciLink>,
    /// The best that its link could be trained to: the lesser of what the two ends can do.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub best_link: Option<PciLink>,
    /// Whether it is a virtual function.
    pub virtual_function: bool,
    /// How the IOMMU treats it: `identity`, `DMA`, `DMA-FQ`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub iommu: Option<String>,
    /// Whether it may send writes with relaxed ordering.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub relaxed_ordering: Option<bool>,
    /// The bridges above it whose access control sends traffic between devices up to the root.
    pub acs_redirecting: Vec<String>,
    /// Whether the bridges' access control could be looked at.
    pub acs_seen: bool,
}

/// An adapter made for RDMA that no RDMA device belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adapter {
    /// Its PCI address.
    pub address: String,
    /// Its vendor and device, as `15b3:1021`.
    pub identity: String,
    /// Its driver.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub driver: Option<String>,
}

impl PciLink {
    /// What it carries in one direction, after the line code and before packet headers.
    pub fn bandwidth(self) -> Bandwidth {
        // 8b/10b up to generation 2, 128b/130b to 5, then fixed-size flits of 256 bytes with 242 of payload.
        let code = match self.gt_per_sec {
            rate if rate < 6.0 => 0.8,
            rate if rate < 60.0 => 128.0 / 130.0,
            _ => 242.0 / 256.0,
        };
        Bandwidth::from_gbit_per_sec(self.gt_per_sec * code * f64::from(self.width))
    }

    fn lesser(self, other: Self) -> Self {
        Self { gt_per_sec: self.gt_per_sec.min(other.gt_per_sec), width: self.width.min(other.width) }
    }

    /// Whether it is worse than `best` in either way.
    pub fn is_below(self, best: Self) -> bool {
        self.gt_per_sec < best.gt_per_sec || self.width < best.width
    }

    /// In words: `16 GT/s x8`.
    pub fn describe(self) -> String {
        format!("{} GT/s x{}", self.gt_per_sec, self.width)
    }
}

impl PciFunction {
    /// The function that `folder` of `/sys` is or leads to.
    pub(super) fn at(files: &HostFiles, folder: &str) -> Option<Self> {
        let real = files.real(folder)?;
        let path = bus_path(&real);
        let address = path.last()?.clone();
        // A virtual function shares the link of its physical one, and tells nothing of it.
        let physical = files.real(&format!("{real}/physfn"));
        let virtual_function = physical.is_some();
        let of_link = physical.unwrap_or_else(|| real.clone());
        let above = bridges(&real);
        let acs: Vec<Option<bool>> = above.iter().map(|bridge| acs_redirects(files, bridge)).collect();
        let redirecting = above.iter().zip(&acs).filter(|(_, redirects)| **redirects == Some(true));
        Some(Self {
            numa_node: files.words(&format!("{real}/numa_node")).and_then(|node| node.parse().ok()),
            driver: files.link_name(&format!("{real}/driver")),
            link: link(files, &of_link, "current"),
            best_link: best_link(files, &of_link),
            virtual_function,
            iommu: files.words(&format!("{real}/iommu_group/type")),
            relaxed_ordering: config(files, &real).and_then(|config| relaxed_ordering(&config)),
            acs_redirecting: redirecting.filter_map(|(bridge, _)| last(bridge)).collect(),
            acs_seen: acs.iter().all(Option::is_some) && !acs.is_empty(),
            address,
            path,
        })
    }

    /// What can be told of it by its address alone.
    pub(super) fn by_address(files: &HostFiles, address: &str) -> Option<Self> {
        Self::at(files, &format!("{DEVICES}/{address}"))
    }
}

/// The functions of the class that `wanted` accepts (the three bytes as a number), by address.
pub(super) fn functions(files: &HostFiles, wanted: impl Fn(u32, u32) -> bool) -> Vec<String> {
    let is_wanted = |address: &String| {
        let number = |file: &str| hexadecimal(&files.text(&format!("{DEVICES}/{address}/{file}"))?);
        matches!((number("vendor"), number("class")), (Some(vendor), Some(class)) if wanted(vendor, class))
    };
    files.names(DEVICES).into_iter().filter(is_wanted).collect()
}

/// Adapters that could be RDMA devices and are none: InfiniBand controllers, and what NVIDIA's networking makes.
pub(super) fn idle_adapters(files: &HostFiles, devices: &[RdmaDevice]) -> Vec<Adapter> {
    const MELLANOX: u32 = 0x15b3;
    let is_network =
        |vendor, class: u32| class >> 8 == 0x0207 || (vendor == MELLANOX && class >> 8 == 0x0200);
    let is_used = |address: &String| {
        devices.iter().filter_map(|device| device.pci.as_ref()).any(|pci| pci.address == *address)
    };
    let idle = functions(files, is_network).into_iter().filter(|address| !is_used(address));
    let adapter = |address: String| {
        let folder = format!("{DEVICES}/{address}");
        let id = |file: &str| files.text(&format!("{folder}/{file}")).unwrap_or_default().replace("0x", "");
        Adapter {
            identity: format!("{}:{}", id("vendor"), id("device")),
            driver: files.link_name(&format!("{folder}/driver")),
            address,
        }
    };
    // One that has been given to a virtual machine or to a user-space driver is not for this node.
    let is_given_away =
        |adapter: &Adapter| adapter.driver.as_deref().is_some_and(|driver| driver.starts_with("vfio"));
    // A function whose RDMA device is the bond of several has none of its own.
    let is_bonded = |address: &String| {
        files.exists(&format!("{DEVICES}/{address}/infiniband")) || in_bond(files, address)
    };
    idle.filter(|address| !is_bonded(address))
        .map(adapter)
        .filter(|adapter| !is_given_away(adapter))
        .collect()
}

fn in_bond(files: &HostFiles, address: &str) -> bool {
    let folder = format!("{DEVICES}/{address}/net");
    files.names(&folder).iter().any(|netdev| files.exists(&format!("{folder}/{netdev}/bonding_slave")))
}

/// `pci0000:15`, `0000:15:01.0`, … of a path below `/sys/devices`.
fn bus_path(real: &str) -> Vec<String> {
    let is_bridge = |name: &str| name.strip_prefix("pci").is_some_and(|rest| rest.contains(':'));
    let components = real.split('/').skip_while(|name| !is_bridge(name));
    components.take_while(|name| is_bridge(name) || is_address(name)).map(str::to_owned).collect()
}

fn is_address(name: &str) -> bool {
    name.split([':', '.']).count() == 4
        && name.split([':', '.']).all(|part| u32::from_str_radix(part, 16).is_ok())
}

/// The bridges above the function at `real`, the nearest first, as folders of `/sys`.
fn bridges(real: &str) -> Vec<String> {
    let parent = |path: &String| path.rsplit_once('/').map(|(parent, _)| parent.to_owned());
    let above = std::iter::successors(parent(&real.to_owned()), parent);
    above.take_while(|path| last(path).is_some_and(|name| is_address(&name))).collect()
}

fn last(path: &str) -> Option<String> {
    path.rsplit('/').next().map(str::to_owned)
}

fn hexadecimal(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn link(files: &HostFiles, folder: &str, which: &str) -> Option<PciLink> {
    // `16.0 GT/s PCIe`, or `Unknown`, and a width of 0 for a link that is not there.
    let speed = files.text(&format!("{folder}/{which}_link_speed"))?;
    let gt_per_sec: f64 = speed.split(' ').next()?.parse().ok()?;
    let width = files.number(&format!("{folder}/{which}_link_width"))?.try_into().ok()?;
    let is_link = gt_per_sec.is_finite() && (1.0..1000.0).contains(&gt_per_sec) && (1..=32).contains(&width);
    is_link.then_some(PciLink { gt_per_sec, width })
}

fn best_link(files: &HostFiles, folder: &str) -> Option<PciLink> {
    let own = link(files, folder, "max")?;
    let parent = bridges(folder).first().and_then(|bridge| link(files, bridge, "max"));
    Some(parent.map_or(own, |parent| own.lesser(parent)))
}

/// Configuration space, where this user may see all of it.
fn config(files: &HostFiles, folder: &str) -> Option<Vec<u8>> {
    files.bytes(&format!("{folder}/config")).filter(|config| config.len() >= 256)
}

fn at_16(config: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(config.get(offset..offset + 2)?.try_into().ok()?))
}

/// Bit 4 of Device Control in the PCI Express capability (identity 0x10).
fn relaxed_ordering(config: &[u8]) -> Option<bool> {
    const EXPRESS: u8 = 0x10;
    let mut offset = usize::from(*config.get(0x34)?) & !3;
    // As many capabilities as there is room for: a damaged list may be a circle.
    for _ in 0..48 {
        if offset < 0x40 {
            return None;
        }
        if *config.get(offset)? == EXPRESS {
            return Some(at_16(config, offset + 8)? >> 4 & 1 == 1);
        }
        offset = usize::from(*config.get(offset + 1)?) & !3;
    }
    None
}

/// Whether access control services of the bridge at `folder` redirect requests or completions between devices (bits 2
/// and 3 of ACS Control, extended capability 0x000d). A bridge without the capability redirects nothing.
fn acs_redirects(files: &HostFiles, folder: &str) -> Option<bool> {
    const ACS: u16 = 0x000d;
    let config = config(files, folder).filter(|config| config.len() >= 4096)?;
    let mut offset = 0x100;
    for _ in 0..960 {
        let header = at_16(&config, offset)?;
        if header == ACS {
            return Some(at_16(&config, offset + 6)? & 0b1100 != 0);
        }
        offset = usize::from(at_16(&config, offset + 2)? >> 4) & !3;
        if offset < 0x100 {
            return Some(false);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_on_the_bus_is_what_lies_below_the_host_bridge() {
        let real = "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/infiniband/mlx5_0";
        assert_eq!(bus_path(real), ["pci0000:15", "0000:15:01.0", "0000:16:00.0"]);
        assert_eq!(bus_path("/sys/devices/virtual/net/lo"), Vec::<String>::new());
        assert_eq!(
            bridges("/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0"),
            ["/sys/devices/pci0000:15/0000:15:01.0"]
        );
    }

    #[test]
    fn a_link_carries_what_its_line_code_leaves() {
        let gbit = |gt_per_sec, width| PciLink { gt_per_sec, width }.bandwidth().gbit_per_sec();
        assert_eq!(gbit(5.0, 8), 32.0);
        assert!((gbit(16.0, 16) - 252.06).abs() < 0.01);
        assert!((gbit(32.0, 16) - 504.12).abs() < 0.01);
    }

    #[test]
    fn relaxed_ordering_is_read_from_the_express_capability() {
        let mut config = vec![0_u8; 256];
        config[0x34] = 0x40;
        config[0x40] = 0x01;
        config[0x41] = 0x60;
        config[0x60] = 0x10;
        assert_eq!(relaxed_ordering(&config), Some(false));
        config[0x68] = 0x10;
        assert_eq!(relaxed_ordering(&config), Some(true));
        // A list that leads back to itself ends.
        config[0x60] = 0x02;
        config[0x61] = 0x40;
        assert_eq!(relaxed_ordering(&config), None);
    }
}
