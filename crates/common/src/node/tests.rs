use super::fixture::{self, Tree};
use super::*;
use crate::gid::GidType;

pub(crate) fn node_of(tree: &Tree) -> Node {
    let folder = tempfile::tempdir_in(fixture::quick_folder()).unwrap();
    tree.write_to(folder.path()).unwrap();
    Node::read(&HostFiles::below(folder.path()))
}

/// What `nvidia-smi topo -mp` prints for a machine of this kind (`-mp`: PCIe alone; NVLink is not looked at here).
const NVIDIAS_MATRIX: &str = "\
        GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7 NIC0 NIC1 NIC2 NIC3 NIC4 NIC5 NIC6 NIC7
   GPU0 X    NODE NODE NODE SYS  SYS  SYS  SYS  PIX  NODE NODE NODE SYS  SYS  SYS  SYS
   GPU1 NODE X    NODE NODE SYS  SYS  SYS  SYS  NODE PIX  NODE NODE SYS  SYS  SYS  SYS
   GPU2 NODE NODE X    NODE SYS  SYS  SYS  SYS  NODE NODE PIX  NODE SYS  SYS  SYS  SYS
   GPU3 NODE NODE NODE X    SYS  SYS  SYS  SYS  NODE NODE NODE PIX  SYS  SYS  SYS  SYS
   GPU4 SYS  SYS  SYS  SYS  X    NODE NODE NODE SYS  SYS  SYS  SYS  PIX  NODE NODE NODE
   GPU5 SYS  SYS  SYS  SYS  NODE X    NODE NODE SYS  SYS  SYS  SYS  NODE PIX  NODE NODE
   GPU6 SYS  SYS  SYS  SYS  NODE NODE X    NODE SYS  SYS  SYS  SYS  NODE NODE PIX  NODE
   GPU7 SYS  SYS  SYS  SYS  NODE NODE NODE X    SYS  SYS  SYS  SYS  NODE NODE NODE PIX
   NIC0 PIX  NODE NODE NODE SYS  SYS  SYS  SYS  X    NODE NODE NODE SYS  SYS  SYS  SYS
   NIC1 NODE PIX  NODE NODE SYS  SYS  SYS  SYS  NODE X    NODE NODE SYS  SYS  SYS  SYS
   NIC2 NODE NODE PIX  NODE SYS  SYS  SYS  SYS  NODE NODE X    NODE SYS  SYS  SYS  SYS
   NIC3 NODE NODE NODE PIX  SYS  SYS  SYS  SYS  NODE NODE NODE X    SYS  SYS  SYS  SYS
   NIC4 SYS  SYS  SYS  SYS  PIX  NODE NODE NODE SYS  SYS  SYS  SYS  X    NODE NODE NODE
   NIC5 SYS  SYS  SYS  SYS  NODE PIX  NODE NODE SYS  SYS  SYS  SYS  NODE X    NODE NODE
   NIC6 SYS  SYS  SYS  SYS  NODE NODE PIX  NODE SYS  SYS  SYS  SYS  NODE NODE X    NODE
   NIC7 SYS  SYS  SYS  SYS  NODE NODE NODE PIX  SYS  SYS  SYS  SYS  NODE NODE NODE X";

#[test]
fn the_matrix_of_eight_gpus_and_eight_adapters_is_nvidias() {
    let topology = node_of(&fixture::eight_by_eight()).topology;
    let rows: Vec<Vec<&str>> = NVIDIAS_MATRIX.lines().map(|line| line.split_whitespace().collect()).collect();
    let labels: Vec<&str> = topology.places.iter().map(|place| place.label.as_str()).collect();
    assert_eq!(labels, rows[0]);
    for (row, expected) in rows[1..].iter().enumerate() {
        let words: Vec<&str> = (0..16)
            .map(|column| {
                topology.distance(row, column).map_or(if row == column { "X" } else { "?" }, Distance::word)
            })
            .collect();
        assert_eq!(words, expected[1..], "{}", expected[0]);
    }
}

#[test]
fn each_gpu_has_its_own_nearest_adapter() {
    let node = node_of(&fixture::eight_by_eight());
    for (index, place) in node.topology.places.iter().take(8).enumerate() {
        assert_eq!(place.nearest, [format!("mlx5_{index}")], "{}", place.label);
        assert_eq!(node.topology.best_of(index), Some(Distance::Pix));
    }
}

#[test]
fn distances_follow_the_bridges_between() {
    let function = |path: &str, numa_node| PciFunction {
        address: String::new(),
        path: path.split('/').map(str::to_owned).collect(),
        numa_node,
        driver: None,
        link: None,
        best_link: None,
        virtual_function: false,
        iommu: None,
        relaxed_ordering: None,
        acs_redirecting: Vec::new(),
        acs_seen: false,
    };
    let between = |one: &str, other: &str| {
        Distance::between(&function(one, Some(0)), &function(other, Some(0))).unwrap().word()
    };
    // Two functions of one card; two devices below one switch; below two switches of one root port; two root ports.
    assert_eq!(between("pci0000:00/r/nic.0", "pci0000:00/r/nic.1"), "PIX");
    assert_eq!(between("pci0000:00/r/up/d0/gpu", "pci0000:00/r/up/d1/nic"), "PIX");
    assert_eq!(between("pci0000:00/r/up/d0/up2/e0/gpu", "pci0000:00/r/up/d1/up3/e0/nic"), "PXB");
    assert_eq!(between("pci0000:00/r/up/d0/gpu", "pci0000:00/s/up/d1/nic"), "PHB");
    assert_eq!(between("pci0000:00/r/gpu", "pci0000:40/r/nic"), "NODE");
    let far = function("pci0000:80/r/nic", Some(1));
    assert_eq!(Distance::between(&function("pci0000:00/r/gpu", Some(0)), &far), Some(Distance::Sys));
    assert_eq!(Distance::between(&PciFunction { path: Vec::new(), ..far.clone() }, &far), None);
}

#[test]
fn a_roce_table_has_types_interfaces_prefixes_and_a_choice() {
    let node = node_of(&fixture::roce());
    let port = &node.devices[0].ports[0];
    assert_eq!(port.gids.len(), 8);
    assert_eq!(port.gids[3].gid_type, GidType::RoceV2);
    assert_eq!(port.gids[3].prefix_len, Some(24));
    let chosen = port.chosen_gid.as_ref().unwrap();
    assert_eq!(chosen.index, Some(3));
    assert_eq!(chosen.reason, "RoCE v2, IPv4-mapped: the ends share its subnet");
    assert_eq!(node.netdev_of(port).unwrap().mtu_bytes, Some(9000));
}

#[test]
fn infiniband_is_addressed_by_its_lid() {
    let node = node_of(&fixture::infiniband());
    let port = &node.devices[0].ports[0];
    assert_eq!((port.lid, port.subnet_manager_lid), (Some(7), Some(1)));
    assert_eq!(port.chosen_gid.as_ref().unwrap().index, None);
}

#[test]
fn a_bond_is_seen_with_its_members() {
    let node = node_of(&fixture::bond());
    let names: Vec<&str> = node.netdevs.iter().map(|netdev| netdev.name.as_str()).collect();
    assert_eq!(names, ["bond0", "eth2", "eth3"]);
    assert_eq!(node.netdev("bond0").unwrap().bond.as_ref().unwrap().members, ["eth2", "eth3"]);
    assert_eq!(node.netdev("eth3").unwrap().master.as_deref(), Some("bond0"));
    assert!(node.idle_adapters.is_empty(), "the second function belongs to the bond");
}

#[test]
fn a_virtual_functions_link_is_its_physical_ones() {
    let node = node_of(&fixture::pod_without_node());
    let device = &node.devices[0];
    let pci = device.pci.as_ref().unwrap();
    assert!(pci.virtual_function);
    assert_eq!(pci.link.map(PciLink::describe).as_deref(), Some("32 GT/s x16"));
    assert_eq!(device.node_file, Some(NodeFile::Missing));
    assert_eq!(node.system.container.as_deref(), Some("kubernetes"));
}

#[test]
fn a_slot_bounds_what_a_link_could_be() {
    let of = |tree: &Tree| {
        let pci = node_of(tree).devices[0].pci.clone().unwrap();
        (pci.link.unwrap().describe(), pci.best_link.unwrap().describe())
    };
    assert_eq!(of(&fixture::degraded_link()), ("8 GT/s x8".to_owned(), "32 GT/s x16".to_owned()));
    assert_eq!(of(&fixture::slow_slot()), ("16 GT/s x16".to_owned(), "16 GT/s x16".to_owned()));
}

#[test]
fn a_machine_without_anything_says_what_it_did_not_see() {
    let node = node_of(&fixture::bare());
    assert!(node.devices.is_empty() && node.gpus.is_empty() && node.gpu_driver.is_none());
    let why: Vec<&str> = node.unseen.iter().map(|unseen| unseen.why.as_str()).collect();
    assert!(why.iter().any(|why| why.ends_with("is a recorded tree")), "{why:?}");
}

#[test]
fn a_node_survives_json() {
    for (name, tree) in fixture::all() {
        let node = node_of(&tree);
        let text = serde_json::to_string(&node).unwrap();
        assert_eq!(serde_json::from_str::<Node>(&text).unwrap(), node, "{name}");
    }
}

#[test]
fn settings_of_nccl_come_from_the_file_and_the_environment_goes_before() {
    let mut tree = fixture::bare();
    tree.file("/etc/nccl.conf", "NCCL_DEBUG=WARN\n# NCCL_X=1\nNCCL_IB_DISABLE=1");
    tree.file("/proc/self/environ", "NCCL_DEBUG=INFO\0HOME=/\0");
    let nccl = node_of(&tree).nccl;
    assert_eq!((nccl.setting("NCCL_DEBUG"), nccl.settings.len()), (Some("INFO"), 2));
    assert!(nccl.is_on("NCCL_IB_DISABLE"));
}
