//! The network interfaces of RDMA ports: their MTU, addresses, subnets, and how the kernel treats what arrives.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::rdma::natural;
use super::{RdmaDevice, Unseen};
use crate::gid::LinkLayer;
use crate::host::HostFiles;

/// What the kernel takes off a network interface's MTU for RoCE's headers (`iboe_get_mtu`): a global route header of 40
/// bytes, UDP 8, base transport 12, extended headers 4 and 28, and the check sum of 4.
const ROCE_HEADERS: u32 = 96;

/// The active MTU that a RoCE port gets from its network interface's: the largest of the five that fits with its headers.
pub fn roce_mtu(netdev_mtu: u32) -> u32 {
    let room = netdev_mtu.saturating_sub(ROCE_HEADERS);
    crate::plan::PATH_MTUS
        .iter()
        .copied()
        .filter(|&mtu| mtu <= room)
        .max()
        .unwrap_or(crate::plan::PATH_MTUS[0])
}

/// A subnet that an interface is in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subnet {
    /// The interface.
    pub netdev: String,
    /// Its first address.
    pub network: IpAddr,
    /// The length of its prefix.
    pub prefix_len: u8,
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Netdev {
    /// Its kernel name, as tools show it.
    pub name: String,
    /// Its MTU in bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mtu_bytes: Option<u32>,
    /// Its state: `up`, `down`, `dormant`, …
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub state: Option<String>,
    /// Whether a signal comes in; absent where the kernel does not say, as of an interface that is down.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub carrier: Option<bool>,
    /// The subnets that it is in, of those that are more than link-local.
    pub subnets: Vec<Subnet>,
    /// How strictly it refuses packets whose sender it would answer by another interface: 0 not, 1 strictly, 2 loosely.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reverse_path_filter: Option<u8>,
    /// Whether a default route leads through it.
    pub default_route: bool,
    /// The bond that it is part of.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub master: Option<String>,
    /// What it bonds, where it is a bond.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bond: Option<Bond>,
}

/// Several interfaces as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bond {
    /// How they share the work: `802.3ad`, `active-backup`, …
    pub mode: String,
    /// The interfaces.
    pub members: Vec<String>,
}

impl Subnet {
    /// In words: `10.0.0.0/24`.
    pub fn describe(&self) -> String {
        format!("{}/{}", self.network, self.prefix_len)
    }

    fn contains(&self, ip: IpAddr) -> bool {
        first_bits(self.network, self.prefix_len) == first_bits(ip, self.prefix_len)
    }
}

/// The first `count` bits of an address, with its length, so that the two families never agree.
fn first_bits(ip: IpAddr, count: u8) -> (u32, u128) {
    let (len, bits) = match ip {
        IpAddr::V4(v4) => (32, u128::from(v4.to_bits())),
        IpAddr::V6(v6) => (128, v6.to_bits()),
    };
    let rest = len - u32::from(count).min(len);
    (len, bits.checked_shr(rest).unwrap_or(0))
}

/// The subnets that interfaces are in, by the kernel's routes.
pub(super) fn subnets(files: &HostFiles) -> Vec<Subnet> {
    let v4 = files.text("/proc/net/route").unwrap_or_default();
    let v6 = files.text("/proc/net/if_inet6").unwrap_or_default();
    let mut found: Vec<Subnet> =
        v4.lines().filter_map(subnet_v4).chain(v6.lines().filter_map(subnet_v6)).collect();
    found.sort();
    found.dedup();
    found
}

/// A line of `/proc/net/route` that leads to neighbours: interface, destination, gateway, …, mask.
fn subnet_v4(line: &str) -> Option<Subnet> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [netdev, destination, gateway, _, _, _, _, mask, ..] = fields.as_slice() else { return None };
    let number = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::from_be);
    let (network, mask) = (number(destination)?, number(mask)?);
    (number(gateway)? == 0 && mask != 0).then(|| Subnet {
        netdev: (*netdev).to_owned(),
        network: IpAddr::V4(Ipv4Addr::from_bits(network)),
        prefix_len: mask.count_ones() as u8,
    })
}

/// A line of `/proc/net/if_inet6`: address, interface's number, prefix, scope, flags, interface.
fn subnet_v6(line: &str) -> Option<Subnet> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [address, _, prefix, _, _, netdev] = fields.as_slice() else { return None };
    let bits = u128::from_str_radix(address, 16).ok()?;
    let prefix_len = u8::from_str_radix(prefix, 16).ok().filter(|&len| (1..=128).contains(&len))?;
    let network = Ipv6Addr::from_bits(bits >> (128 - prefix_len) << (128 - prefix_len));
    Some(Subnet { netdev: (*netdev).to_owned(), network: IpAddr::V6(network), prefix_len })
}

/// The length of the prefix that `ip` has on `netdev`, the longest that fits.
pub(super) fn prefix_of(subnets: &[Subnet], netdev: Option<&str>, ip: IpAddr) -> Option<u8> {
    let fits = |subnet: &&Subnet| Some(subnet.netdev.as_str()) == netdev && subnet.contains(ip);
    subnets.iter().filter(fits).map(|subnet| subnet.prefix_len).max()
}

/// The interfaces of `devices`, and those that these bond.
pub(super) fn of_devices(files: &HostFiles, devices: &[RdmaDevice], unseen: &mut Vec<Unseen>) -> Vec<Netdev> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    for (device, port) in
        devices.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)))
    {
        if port.netdev.is_none() && port.link_layer == Some(LinkLayer::Ethernet) {
            unseen.push(Unseen::new(
                format!("the network interface of {} port {}", device.name, port.port_num),
                "neither its GID table nor its folder in /sys names one: it may be in another network namespace",
            ));
        }
        let of_port = port.gids.iter().filter_map(|entry| entry.netdev.clone()).chain(port.netdev.clone());
        for name in of_port {
            names.extend(bond(files, &name).into_iter().flat_map(|bond| bond.members));
            names.insert(name);
        }
    }
    let (present, absent): (Vec<String>, Vec<String>) =
        names.into_iter().partition(|name| files.exists(&format!("/sys/class/net/{name}")));
    unseen.extend(absent.iter().map(|name| {
        Unseen::new(format!("the network interface {name}"), "it is not among this network namespace's")
    }));
    let (subnets, through) = (subnets(files), default_routes(files));
    let mut netdevs: Vec<Netdev> = present.iter().map(|name| read(files, name, &subnets, &through)).collect();
    netdevs.sort_by_key(|netdev| natural(&netdev.name));
    netdevs
}

fn read(files: &HostFiles, name: &str, subnets: &[Subnet], through: &BTreeSet<String>) -> Netdev {
    let folder = format!("/sys/class/net/{name}");
    let is_own = |subnet: &&Subnet| subnet.netdev == name && !is_link_local(subnet.network);
    Netdev {
        name: name.to_owned(),
        mtu_bytes: files.number(&format!("{folder}/mtu")).and_then(|mtu| mtu.try_into().ok()),
        state: files.words(&format!("{folder}/operstate")),
        carrier: files.number(&format!("{folder}/carrier")).map(|carrier| carrier == 1),
        subnets: subnets.iter().filter(is_own).cloned().collect(),
        reverse_path_filter: reverse_path_filter(files, name),
        default_route: through.contains(name),
        master: files.link_name(&format!("{folder}/master")),
        bond: bond(files, name),
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// The kernel takes the stricter of the interface's own and of what is set for all (2, loose, is above 1).
fn reverse_path_filter(files: &HostFiles, name: &str) -> Option<u8> {
    let of = |name: &str| files.number(&format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
    Some(of(name)?.max(of("all")?)).and_then(|filter| filter.try_into().ok())
}

fn bond(files: &HostFiles, name: &str) -> Option<Bond> {
    let folder = format!("/sys/class/net/{name}/bonding");
    let members = files.words(&format!("{folder}/slaves"))?.split_whitespace().map(str::to_owned).collect();
    // `802.3ad 4`
    let mode = files.words(&format!("{folder}/mode"))?.split(' ').next()?.to_owned();
    Some(Bond { mode, members })
}

/// The interfaces that IPv4's default routes lead through.
fn default_routes(files: &HostFiles) -> BTreeSet<String> {
    let routes = files.text("/proc/net/route").unwrap_or_default();
    let is_default =
        |fields: &Vec<&str>| fields.get(1) == Some(&"00000000") && fields.get(7) == Some(&"00000000");
    let fields = routes.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields.filter(is_default).map(|fields| fields[0].to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_rounding_of_mtus() {
        let steps = [
            (1500, 1024),
            (2143, 1024),
            (2144, 2048),
            (4191, 2048),
            (4192, 4096),
            (4200, 4096),
            (9000, 4096),
        ];
        for (netdev, active) in steps {
            assert_eq!(roce_mtu(netdev), active, "{netdev}");
        }
        assert_eq!((roce_mtu(0), roce_mtu(600)), (256, 256));
    }

    #[test]
    fn subnets_are_read_from_routes_and_addresses() {
        let route = "eth2\t000A4D0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0";
        assert_eq!(subnet_v4(route).unwrap().describe(), "10.77.10.0/24");
        let gateway = "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0";
        assert_eq!(subnet_v4(gateway), None);
        assert_eq!(subnet_v4("Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask"), None);
        let six = "fd770000000000000000000000000001 03 40 00 80     eth2";
        assert_eq!(subnet_v6(six).unwrap().describe(), "fd77::/64");
    }

    #[test]
    fn a_prefix_is_of_the_same_interface_and_family() {
        let subnets = [Subnet { netdev: "eth2".into(), network: "10.0.0.0".parse().unwrap(), prefix_len: 8 }];
        assert_eq!(prefix_of(&subnets, Some("eth2"), "10.1.2.3".parse().unwrap()), Some(8));
        assert_eq!(prefix_of(&subnets, Some("eth3"), "10.1.2.3".parse().unwrap()), None);
        assert_eq!(prefix_of(&subnets, Some("eth2"), "::a00:1".parse().unwrap()), None);
    }
}
