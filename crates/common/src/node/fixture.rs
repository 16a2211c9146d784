//! Recorded nodes, for tests: what `/sys` and `/proc` have of machines that nobody has at hand, written down as what
//! differs between them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Where trees are best written: in memory. They have many small files, which take seconds on a slow disk.
pub fn quick_folder() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

/// A tree of files and links, by their paths on a live system.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, Vec<u8>>,
    links: BTreeMap<String, String>,
}

/// A link's speed and width, now and at best.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// As `16.0 GT/s PCIe`.
    pub now: (&'static str, u32),
    /// The same.
    pub best: (&'static str, u32),
}

const GEN5: &str = "32.0 GT/s PCIe";
const GEN4: &str = "16.0 GT/s PCIe";
const GEN3: &str = "8.0 GT/s PCIe";

const FULL: Link = Link { now: (GEN5, 16), best: (GEN5, 16) };

/// What a port is.
#[derive(Clone, Debug)]
pub struct Port<'a> {
    /// As `4: ACTIVE`.
    pub state: &'a str,
    /// As `5: LinkUp`.
    pub physical: &'a str,
    /// `InfiniBand` or `Ethernet`.
    pub layer: &'a str,
    /// In the kernel's words.
    pub rate: &'a str,
    /// Local identifiers of the port and of its subnet manager.
    pub lids: (u16, u16),
    /// The table: GID, type and interface, each at its index.
    pub gids: Vec<(String, &'a str, &'a str)>,
}

impl Default for Port<'_> {
    fn default() -> Self {
        Self {
            state: "4: ACTIVE",
            physical: "5: LinkUp",
            layer: "Ethernet",
            rate: "400 Gb/sec (4X NDR)",
            lids: (0, 0),
            gids: Vec::new(),
        }
    }
}

impl Tree {
    /// Sets a file.
    pub fn file(&mut self, path: impl Into<String>, text: impl AsRef<[u8]>) -> &mut Self {
        let mut bytes = text.as_ref().to_vec();
        bytes.push(b'\n');
        self.files.insert(path.into(), bytes);
        self
    }

    /// Sets a link to `target`, an absolute path.
    pub fn link(&mut self, path: impl Into<String>, target: impl Into<String>) -> &mut Self {
        self.links.insert(path.into(), target.into());
        self
    }

    /// Takes away what lies at `path` or below it.
    pub fn without(mut self, path: &str) -> Self {
        let is_kept = |name: &String| name != path && !name.starts_with(&format!("{path}/"));
        self.files.retain(|name, _| is_kept(name));
        self.links.retain(|name, _| is_kept(name));
        self
    }

    /// The same tree with another text in a file.
    pub fn with(mut self, path: &str, text: &str) -> Self {
        self.file(path, text);
        self
    }

    /// The paths of its files.
    pub fn paths(&self) -> Vec<&str> {
        self.files.keys().map(String::as_str).collect()
    }

    /// Writes it below `root`.
    ///
    /// # Errors
    /// As the file system says.
    pub fn write_to(&self, root: &Path) -> io::Result<()> {
        let at = |path: &str| root.join(path.trim_start_matches('/'));
        let make_room = |path: &Path| path.parent().map_or(Ok(()), fs::create_dir_all);
        for (path, bytes) in &self.files {
            make_room(&at(path))?;
            fs::write(at(path), bytes)?;
        }
        for (path, target) in &self.links {
            make_room(&at(path))?;
            let up = "../".repeat(path.matches('/').count() - 1);
            std::os::unix::fs::symlink(format!("{up}{}", target.trim_start_matches('/')), at(path))?;
        }
        Ok(())
    }

    /// A machine with `numa_nodes` and nothing on its bus.
    fn machine(numa_nodes: u32) -> Self {
        let mut tree = Self::default();
        tree.file("/proc/sys/kernel/hostname", "node-a")
            .file("/proc/sys/kernel/osrelease", "6.5.0-44-generic")
            .file(
                "/proc/cpuinfo",
                "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8480C\nflags\t\t: fpu vme",
            )
            .file(
                "/proc/self/status",
                "Name:\trdma-check\nCapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff",
            )
            .file("/proc/self/uid_map", "         0          0 4294967295")
            .file("/proc/self/cgroup", "0::/user.slice")
            .file("/proc/self/environ", "HOME=/root\0PATH=/usr/bin\0")
            .file("/proc/net/if_inet6", "00000000000000000000000000000001 01 80 10 80       lo")
            .file("/proc/sys/net/ipv4/conf/all/rp_filter", "0")
            .file("/sys/class/net/lo/mtu", "65536")
            .file("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "1024")
            .file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "1000");
        tree.memlock("unlimited");
        tree.routes(&[]);
        for number in 0..numa_nodes {
            tree.file(format!("/sys/devices/system/node/node{number}/cpulist"), "0-3");
        }
        tree
    }

    /// Sets the locked-memory limit, soft and hard.
    pub fn memlock(&mut self, limit: &str) -> &mut Self {
        let text = format!(
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max locked memory         {limit:<20} {limit:<20} bytes     \n\
             Max open files            1024                 1048576              files     "
        );
        self.file("/proc/self/limits", text)
    }

    /// Sets the connected IPv4 routes: interface, network and mask as the kernel writes them.
    pub fn routes(&mut self, routes: &[(&str, &str, &str)]) -> &mut Self {
        let mut text =
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT".to_owned();
        for (netdev, network, mask) in routes {
            text.push_str(&format!("\n{netdev}\t{network}\t00000000\t0001\t0\t0\t0\t{mask}\t0\t0\t0"));
        }
        self.file("/proc/net/route", text)
    }

    /// A function at `path` (below `/sys/devices`), on the bus by its address.
    fn function(&mut self, path: &str, identity: (&str, &str, &str), numa: i32, link: Link) -> &mut Self {
        let address = path.rsplit('/').next().unwrap_or_default();
        let (vendor, device, class) = identity;
        for (file, text) in [
            ("vendor", vendor.to_owned()),
            ("device", device.to_owned()),
            ("class", class.to_owned()),
            ("numa_node", numa.to_string()),
            ("current_link_speed", link.now.0.to_owned()),
            ("current_link_width", link.now.1.to_string()),
            ("max_link_speed", link.best.0.to_owned()),
            ("max_link_width", link.best.1.to_string()),
        ] {
            self.file(format!("{path}/{file}"), text);
        }
        self.link(format!("/sys/bus/pci/devices/{address}"), path)
    }

    fn bridge(&mut self, path: &str, numa: i32) -> &mut Self {
        self.function(path, ("0x1000", "0xc030", "0x060400"), numa, FULL)
    }

    fn gpu(&mut self, path: &str, numa: i32) -> &mut Self {
        let address = path.rsplit('/').next().unwrap_or_default();
        self.file(
            format!("/proc/driver/nvidia/gpus/{address}/information"),
            "Model: \t\t NVIDIA H100 80GB HBM3",
        );
        self.function(path, ("0x10de", "0x2330", "0x030200"), numa, FULL)
    }

    fn nvidia_driver(&mut self) -> &mut Self {
        self.file(
            "/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build",
        )
        .file("/sys/module/nvidia_peermem/refcnt", "0")
    }

    /// The RDMA device `name` at the PCI function `path`, with its node in `/dev`, number `number`.
    fn device(&mut self, name: &str, path: &str, number: usize, ports: &[Port]) -> &mut Self {
        let folder = format!("{path}/infiniband/{name}");
        for (port_num, port) in (1..).zip(ports) {
            let port_folder = format!("{folder}/ports/{port_num}");
            for (file, text) in [
                ("state", port.state.to_owned()),
                ("phys_state", port.physical.to_owned()),
                ("link_layer", port.layer.to_owned()),
                ("rate", port.rate.to_owned()),
                ("lid", format!("0x{:x}", port.lids.0)),
                ("sm_lid", format!("0x{:x}", port.lids.1)),
                ("counters/symbol_error", "0".to_owned()),
                ("hw_counters/out_of_sequence", "0".to_owned()),
                ("hw_counters/lifespan", "10".to_owned()),
            ] {
                self.file(format!("{port_folder}/{file}"), text);
            }
            for index in 0..port.gids.len().max(2) {
                let entry = port.gids.get(index);
                let gid = entry.map_or("0000:0000:0000:0000:0000:0000:0000:0000", |entry| &entry.0);
                self.file(format!("{port_folder}/gids/{index}"), gid);
                if let Some((_, gid_type, netdev)) = entry {
                    self.file(format!("{port_folder}/gid_attrs/types/{index}"), gid_type);
                    self.file(format!("{port_folder}/gid_attrs/ndevs/{index}"), netdev);
                }
            }
        }
        self.file(format!("{folder}/fw_ver"), "28.39.1002")
            .file(format!("{folder}/board_id"), "MT_0000000838")
            .file(format!("{folder}/node_guid"), format!("a088:c203:00ab:{number:04x}"))
            .link(format!("{folder}/device"), path)
            .link(format!("/sys/class/infiniband/{name}"), &folder)
            .file(format!("/sys/class/infiniband_verbs/uverbs{number}/ibdev"), name)
            .file(format!("/dev/infiniband/uverbs{number}"), "")
            .file("/sys/module/ib_uverbs/refcnt", "1")
            .file("/sys/module/mlx5_ib/refcnt", "0")
    }

    /// A network interface that is up, at the PCI function `path`.
    fn netdev(&mut self, name: &str, path: &str, mtu: u32) -> &mut Self {
        let folder = format!("{path}/net/{name}");
        self.file(format!("{folder}/mtu"), mtu.to_string())
            .file(format!("{folder}/operstate"), "up")
            .file(format!("{folder}/carrier"), "1")
            .file(format!("{folder}/dev_port"), "0")
            .file(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "0")
            .link(format!("/sys/class/net/{name}"), folder)
    }
}

/// The entries that a Mellanox RoCE port has for addresses: v1 and v2 of each in turn.
fn roce_gids<'a>(netdev: &'a str, addresses: &[&str]) -> Vec<(String, &'a str, &'a str)> {
    let both =
        |address: &&str| ["IB/RoCE v1", "RoCE v2"].map(|gid_type| ((*address).to_owned(), gid_type, netdev));
    addresses.iter().flat_map(both).collect()
}

const LINK_LOCAL: &str = "fe80:0000:0000:0000:a288:c2ff:fe5e:0001";
const NIC: (&str, &str, &str) = ("0x15b3", "0x1021", "0x020700");
const ETHERNET_NIC: (&str, &str, &str) = ("0x15b3", "0x1021", "0x020000");

fn infiniband_port(lid: u16) -> Port<'static> {
    Port {
        layer: "InfiniBand",
        lids: (lid, 1),
        gids: vec![(format!("fe80:0000:0000:0000:a088:c203:00ab:{lid:04x}"), "IB/RoCE v1", "")],
        ..Port::default()
    }
}

/// Eight GPUs and eight InfiniBand adapters on two NUMA nodes, one of each below a PCIe switch with a host bridge of its
/// own: what HGX machines with Xeon processors look like.
pub fn eight_by_eight() -> Tree {
    pairs(8)
}

/// The first pairs of that machine: a GPU and an adapter each.
pub fn pairs(count: usize) -> Tree {
    let mut tree = Tree::machine(2);
    tree.nvidia_driver();
    let buses = [0x15_u32, 0x26, 0x37, 0x48, 0x95, 0xa6, 0xb7, 0xc8];
    for (index, bus) in buses.into_iter().take(count).enumerate() {
        let numa = index as i32 / 4;
        let root = format!("/sys/devices/pci0000:{bus:02x}/0000:{bus:02x}:01.0");
        let upstream = format!("{root}/0000:{:02x}:00.0", bus + 1);
        let downstream = [0, 1].map(|port| format!("{upstream}/0000:{:02x}:{port:02x}.0", bus + 2));
        [&root, &upstream, &downstream[0], &downstream[1]].into_iter().for_each(|path| {
            tree.bridge(path, numa);
        });
        tree.gpu(&format!("{}/0000:{:02x}:00.0", downstream[0], bus + 3), numa);
        let nic = format!("{}/0000:{:02x}:00.0", downstream[1], bus + 4);
        tree.function(&nic, NIC, numa, FULL);
        tree.device(&format!("mlx5_{index}"), &nic, index, &[infiniband_port(index as u16 + 10)]);
    }
    tree
}

/// A RoCE port with two IPv4 addresses, one IPv6 address and a link-local one: eight GIDs.
pub fn roce() -> Tree {
    let mut tree = Tree::machine(1);
    let nic = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0";
    let gids = roce_gids(
        "eth2",
        &[
            LINK_LOCAL,
            "0000:0000:0000:0000:0000:ffff:0a4d:0a01",
            "fd77:0000:0000:0000:0000:0000:0000:0001",
            "0000:0000:0000:0000:0000:ffff:c0a8:0901",
        ],
    );
    tree.bridge("/sys/devices/pci0000:16/0000:16:01.0", 0).function(nic, ETHERNET_NIC, 0, FULL);
    tree.device("mlx5_0", nic, 0, &[Port { gids, ..Port::default() }]).netdev("eth2", nic, 9000);
    tree.routes(&[("eth2", "000A4D0A", "00FFFFFF"), ("eth2", "0009A8C0", "00FFFFFF")]);
    tree.file("/proc/net/if_inet6", "fd770000000000000000000000000001 03 40 00 80     eth2");
    tree
}

/// One InfiniBand port.
pub fn infiniband() -> Tree {
    let mut tree = Tree::machine(1);
    let nic = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0";
    tree.bridge("/sys/devices/pci0000:16/0000:16:01.0", 0).function(nic, NIC, 0, FULL);
    tree.device("mlx5_0", nic, 0, &[infiniband_port(7)]);
    tree
}

/// Two ports of one card as one RDMA device over a bond.
pub fn bond() -> Tree {
    let mut tree = Tree::machine(1);
    let nic = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0";
    let second = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.1";
    let gids = roce_gids("bond0", &[LINK_LOCAL, "0000:0000:0000:0000:0000:ffff:0a4d:0a01"]);
    tree.bridge("/sys/devices/pci0000:16/0000:16:01.0", 0);
    tree.function(nic, ETHERNET_NIC, 0, FULL).function(second, ETHERNET_NIC, 0, FULL);
    let port = Port { rate: "200 Gb/sec (2X NDR)", gids, ..Port::default() };
    tree.device("mlx5_bond_0", nic, 0, &[port]).netdev("eth2", nic, 9000).netdev("eth3", second, 9000);
    let bond = "/sys/devices/virtual/net/bond0";
    for (file, text) in [
        ("mtu", "9000"),
        ("operstate", "up"),
        ("carrier", "1"),
        ("bonding/mode", "802.3ad 4"),
        ("bonding/slaves", "eth2 eth3"),
    ] {
        tree.file(format!("{bond}/{file}"), text);
    }
    tree.link("/sys/class/net/bond0", bond).routes(&[("bond0", "000A4D0A", "00FFFFFF")]);
    for (netdev, path) in [("eth2", nic), ("eth3", second)] {
        tree.link(format!("{path}/net/{netdev}/master"), bond);
        tree.file(format!("{path}/net/{netdev}/bonding_slave/state"), "ACTIVE");
    }
    tree
}

/// A virtual function in a pod that was not given the device's node.
pub fn pod_without_node() -> Tree {
    let mut tree = roce_function();
    tree.file("/proc/self/cgroup", "0::/kubepods/burstable/pod1");
    tree.memlock("8388608");
    tree.without("/dev/infiniband")
}

fn roce_function() -> Tree {
    let mut tree = Tree::machine(1);
    let physical = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0";
    let function = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.4";
    let gids = roce_gids("eth0", &[LINK_LOCAL, "0000:0000:0000:0000:0000:ffff:0a4d:0a01"]);
    tree.bridge("/sys/devices/pci0000:16/0000:16:01.0", 0).function(physical, ETHERNET_NIC, 0, FULL);
    // The physical function is the host's, and not to be seen as a device here.
    tree.link(format!("{physical}/driver"), "/sys/bus/pci/drivers/vfio-pci")
        .file("/sys/bus/pci/drivers/vfio-pci/bind", "");
    tree.function(function, ETHERNET_NIC, 0, Link { now: ("Unknown", 0), best: ("Unknown", 0) });
    tree.link(format!("{function}/physfn"), physical);
    tree.device("mlx5_4", function, 4, &[Port { gids, ..Port::default() }]).netdev("eth0", function, 1500);
    tree.routes(&[("eth0", "000A4D0A", "00FFFFFF")]);
    tree
}

/// A virtual function that works.
pub fn virtual_function() -> Tree {
    roce_function()
}

/// An adapter for 400 Gb/s whose link came up at half its width and an older generation.
pub fn degraded_link() -> Tree {
    let mut tree = infiniband();
    let nic = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0";
    tree.function(nic, NIC, 0, Link { now: (GEN3, 8), best: (GEN5, 16) });
    tree
}

/// An adapter for 400 Gb/s in a slot of an older generation: nothing is broken, and it can't be enough.
pub fn slow_slot() -> Tree {
    let mut tree = infiniband();
    tree.function(
        "/sys/devices/pci0000:16/0000:16:01.0",
        ("0x8086", "0x0001", "0x060400"),
        0,
        Link { now: (GEN4, 16), best: (GEN4, 16) },
    );
    tree.function(
        "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0",
        NIC,
        0,
        Link { now: (GEN4, 16), best: (GEN5, 16) },
    );
    tree
}

/// Two RoCE adapters in one subnet, strict about reverse paths.
pub fn one_subnet() -> Tree {
    let mut tree = Tree::machine(1);
    for (index, netdev) in ["eth2", "eth3"].into_iter().enumerate() {
        let root = format!("/sys/devices/pci0000:16/0000:16:0{}.0", index + 1);
        let nic = format!("{root}/0000:{}:00.0", 17 + index);
        let address = format!("0000:0000:0000:0000:0000:ffff:0a4d:0a0{}", index + 1);
        tree.bridge(&root, 0).function(&nic, ETHERNET_NIC, 0, FULL);
        let gids = roce_gids(netdev, &[LINK_LOCAL, &address]);
        tree.device(&format!("mlx5_{index}"), &nic, index, &[Port { gids, ..Port::default() }]);
        tree.netdev(netdev, &nic, 9000).file(format!("/proc/sys/net/ipv4/conf/{netdev}/rp_filter"), "1");
    }
    tree.routes(&[("eth2", "000A4D0A", "00FFFFFF"), ("eth3", "000A4D0A", "00FFFFFF")]);
    tree
}

/// A port whose cable is out.
pub fn link_down() -> Tree {
    let mut tree = roce();
    let nic = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0";
    tree.device("mlx5_0", nic, 0, &[Port { state: "1: DOWN", physical: "3: Disabled", ..Port::default() }]);
    // What had entries has none now.
    let mut tree = tree.without(&format!("{nic}/infiniband/mlx5_0/ports/1/gid_attrs"));
    tree.file(format!("{nic}/net/eth2/operstate"), "down").file(format!("{nic}/net/eth2/carrier"), "0");
    tree
}

/// A machine with neither RDMA nor GPU.
pub fn bare() -> Tree {
    Tree::machine(1)
}

/// Every kind of recorded node, by name; of the large machine one pair, which has all that eight have.
pub fn all() -> Vec<(&'static str, Tree)> {
    vec![
        ("pair", pairs(1)),
        ("roce", roce()),
        ("infiniband", infiniband()),
        ("bond", bond()),
        ("pod-without-node", pod_without_node()),
        ("virtual-function", virtual_function()),
        ("degraded-link", degraded_link()),
        ("slow-slot", slow_slot()),
        ("one-subnet", one_subnet()),
        ("link-down", link_down()),
        ("bare", bare()),
    ]
}
