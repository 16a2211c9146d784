//! The tables.

use std::collections::BTreeMap;

use linkproof_common::counters::is_trouble;
use linkproof_common::gid::LinkLayer;
use linkproof_common::node::{Distance, Node, PciLink, RdmaDevice, RdmaPort, Subnet};
use linkproof_common::units::ByteSize;

use super::grid::{UNKNOWN, cell, grid, header};
use super::wrapped;

pub(super) fn devices(node: &Node) -> String {
    let head =
        header(&["device", "port", "state", "link", "rate", "MTU", "netdev", "PCI", "NUMA", "firmware"]);
    let line = |(device, port): (&RdmaDevice, &RdmaPort)| {
        let pci = device.pci.as_ref();
        let numa = pci.and_then(|pci| pci.numa_node);
        vec![
            device.name.clone(),
            port.port_num.to_string(),
            cell(port.state.as_ref()),
            cell(port.link_layer.map(LinkLayer::name)),
            cell(port.rate.as_ref()),
            cell(port.active_mtu_bytes),
            port.netdev.clone().unwrap_or_else(|| if is_infiniband(port) { "-" } else { UNKNOWN }.to_owned()),
            pci.map_or_else(|| cell(device.software.as_ref()), |pci| pci.address.clone()),
            numa.map_or("-".to_owned(), |numa| numa.to_string()),
            cell(device.firmware.as_ref()),
        ]
    };
    grid("Devices", &std::iter::once(head).chain(node.ports().map(line)).collect::<Vec<_>>())
}

fn is_infiniband(port: &RdmaPort) -> bool {
    port.link_layer == Some(LinkLayer::InfiniBand)
}

pub(super) fn interfaces(node: &Node) -> String {
    let head = header(&["interface", "state", "MTU", "RoCE MTU", "subnets", "rp_filter", "part of"]);
    let lines = node.netdevs.iter().map(|netdev| {
        let subnets: Vec<String> = netdev.subnets.iter().map(Subnet::describe).collect();
        vec![
            netdev.name.clone(),
            cell(netdev.state.as_ref()),
            cell(netdev.mtu_bytes),
            cell(netdev.mtu_bytes.map(linkproof_common::node::roce_mtu)),
            if subnets.is_empty() { "-".to_owned() } else { subnets.join(" ") },
            cell(netdev.reverse_path_filter),
            netdev.master.clone().unwrap_or("-".to_owned()),
        ]
    });
    grid("Interfaces of RDMA ports", &std::iter::once(head).chain(lines).collect::<Vec<_>>())
}

pub(super) fn gids(node: &Node) -> String {
    let head = header(&["device", "port", "index", "GID", "IP", "type", "netdev", ""]);
    let mut lines = vec![head];
    // What is the same of several ports is said once.
    let mut choices: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (device, port) in node.ports() {
        let chosen = port.chosen_gid.as_ref();
        for entry in &port.gids {
            let is_chosen = chosen.and_then(|chosen| chosen.index) == Some(entry.index);
            let ip = entry.gid.ip();
            lines.push(vec![
                device.name.clone(),
                port.port_num.to_string(),
                entry.index.to_string(),
                entry.gid.to_string(),
                if ip.is_ipv4() { ip.to_string() } else { "-".to_owned() },
                entry.gid_type.name().to_owned(),
                entry.netdev.clone().unwrap_or("-".to_owned()),
                if is_chosen { "<- chosen" } else { "" }.to_owned(),
            ]);
        }
        if let Some(chosen) = chosen {
            let index = chosen.index.map_or(String::new(), |index| format!("GID {index}, "));
            let who = format!("{} port {}", device.name, port.port_num);
            choices.entry(format!("{index}{}", chosen.reason)).or_default().push(who);
        }
    }
    let table = grid("GIDs", &lines);
    if table.is_empty() || choices.is_empty() {
        return table;
    }
    let lines: Vec<String> =
        choices.iter().map(|(what, who)| wrapped("", &format!(" {}: {what}", who.join(", ")), 2)).collect();
    format!("{table}\n\nChosen, for a peer with a table like it\n{}", lines.join("\n"))
}

pub(super) fn links(node: &Node) -> String {
    let head = header(&[
        "device",
        "PCI",
        "link",
        "at best",
        "Gb/s",
        "port Gb/s",
        "NUMA",
        "IOMMU",
        "relaxed ordering",
    ]);
    let line = |device: &RdmaDevice| {
        let pci = device.pci.as_ref()?;
        let rates = device.ports.iter().filter_map(RdmaPort::bandwidth);
        let rate = rates.reduce(|sum, rate| sum.plus(rate));
        Some(vec![
            device.name.clone(),
            pci.address.clone(),
            cell(pci.link.map(PciLink::describe)),
            cell(pci.best_link.map(PciLink::describe)),
            cell(pci.link.map(|link| format!("{:.0}", link.bandwidth().gbit_per_sec()))),
            cell(rate.map(|rate| format!("{:.0}", rate.gbit_per_sec()))),
            pci.numa_node.map_or("-".to_owned(), |numa| numa.to_string()),
            pci.iommu.clone().unwrap_or("-".to_owned()),
            cell(pci.relaxed_ordering.map(|on| if on { "on" } else { "off" })),
        ])
    };
    let lines = node.devices.iter().filter_map(line);
    grid("PCIe", &std::iter::once(head).chain(lines).collect::<Vec<_>>())
}

pub(super) fn matrix(node: &Node) -> String {
    let places = &node.topology.places;
    if places.len() < 2 {
        return String::new();
    }
    let mut lines =
        vec![std::iter::once(String::new()).chain(places.iter().map(|place| place.label.clone())).collect()];
    for (row, place) in places.iter().enumerate() {
        let distance = |column: usize| {
            let distance = node.topology.distance(row, column).map(Distance::word);
            distance.unwrap_or(if row == column { "X" } else { UNKNOWN }).to_owned()
        };
        let nearest = if place.nearest.is_empty() {
            String::new()
        } else {
            format!("nearest: {}", place.nearest.join(", "))
        };
        let numa = place.numa_node.map_or(String::new(), |numa| format!("NUMA {numa}"));
        let cells = std::iter::once(place.label.clone()).chain((0..places.len()).map(distance));
        lines.push(cells.chain([place.name.clone(), numa, nearest]).collect::<Vec<String>>());
    }
    let legend: Vec<String> = Distance::ALL
        .iter()
        .filter(|distance| places.iter().any(|place| place.distances.contains(&Some(**distance))))
        .map(|distance| format!(" {:<4}  {}", distance.word(), distance.meaning()))
        .collect();
    format!("{}\n\n{}", grid("Distances on the PCI bus (NVLink is not looked at)", &lines), legend.join("\n"))
}

pub(super) fn gpus(node: &Node) -> String {
    let Some(driver) = &node.gpu_driver else { return String::new() };
    let modules = driver
        .open_modules
        .map(|open| if open { ", open kernel modules" } else { ", closed kernel modules" });
    let version = driver.version.as_ref().map(|version| format!("{version}{}", modules.unwrap_or_default()));
    let cuda = driver.cuda.as_ref().map(|cuda| {
        let buffers = if cuda.dma_buf { "gives out dma-bufs" } else { "gives out no dma-bufs" };
        format!("{}, {} GPUs, {buffers}", cuda.version, cuda.gpus)
    });
    let rows = [
        ("GPUs", node.gpus.len().to_string()),
        ("model", cell(node.gpus.first().and_then(|gpu| gpu.model.as_ref()))),
        ("driver", version.unwrap_or("not loaded".to_owned())),
        ("peer memory", driver.peer_memory.map_or("no module", |module| module.name()).to_owned()),
        ("CUDA", cuda.or_else(|| driver.cuda_refusal.clone()).unwrap_or("not asked".to_owned())),
    ];
    pairs("GPUs", &rows)
}

/// A title, and names with their values.
fn pairs(title: &str, rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = rows.iter().map(|(name, value)| format!(" {name:<width$} : {value}"));
    format!("{title}\n{}", lines.collect::<Vec<_>>().join("\n"))
}

pub(super) fn limits(node: &Node) -> String {
    let limits = &node.limits;
    let pool = |pages: &linkproof_common::node::HugePages| {
        format!("{} of {} free, {} each", pages.free, pages.total, ByteSize(pages.page_bytes))
    };
    let pools: Vec<String> = limits.huge_pages.iter().map(pool).collect();
    let largest = match (&limits.memlock, limits.largest_message_bytes) {
        (_, Some(bytes)) => ByteSize(bytes).to_string(),
        (Some(_), None) => "not bounded by it".to_owned(),
        (None, None) => UNKNOWN.to_owned(),
    };
    let rows = [
        ("locked memory", cell(limits.memlock.map(|memlock| memlock.describe()))),
        ("largest message", format!("{largest} (one queue pair, one direction)")),
        ("open files", limits.open_files.map_or(UNKNOWN.to_owned(), |files| files.to_string())),
        ("huge pages", if pools.is_empty() { "no pool".to_owned() } else { pools.join("; ") }),
        ("RDMA cgroup", node.system.rdma_cgroup.clone().unwrap_or("no limit".to_owned())),
    ];
    let own = pairs("Limits of this process", &rows);
    let head = header(&["device", "QPs", "WRs of a queue", "CQs", "CQEs", "MRs", "largest MR"]);
    let of_device = node.devices.iter().filter_map(|device| {
        let limits = device.limits?;
        let counts = [limits.max_qp, limits.max_qp_wr, limits.max_cq, limits.max_cqe, limits.max_mr];
        let cells = std::iter::once(device.name.clone()).chain(counts.iter().map(u32::to_string));
        Some(cells.chain([show_bytes(limits.max_mr_bytes)]).collect::<Vec<String>>())
    });
    let table = grid("Limits of the devices", &std::iter::once(head).chain(of_device).collect::<Vec<_>>());
    if table.is_empty() { own } else { format!("{own}\n\n{table}") }
}

/// Drivers without a limit give all ones.
fn show_bytes(bytes: u64) -> String {
    if bytes >= 1 << 62 { "unlimited".to_owned() } else { ByteSize(bytes).to_string() }
}

pub(super) fn nccl(node: &Node) -> String {
    let library = node.nccl.library.as_ref().map(|library| {
        format!("{} ({})", library.version, library.file.as_deref().unwrap_or("of an unknown file"))
    });
    if library.is_none() && node.nccl.settings.is_empty() {
        return String::new();
    }
    let settings = node.nccl.settings.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let rows: Vec<(&str, String)> =
        std::iter::once(("library", library.unwrap_or("not found".to_owned()))).chain(settings).collect();
    pairs("NCCL", &rows)
}

pub(super) fn counters(node: &Node) -> String {
    let mut lines = vec![header(&["device", "port", "counter", "count"])];
    for (device, port) in node.ports() {
        let moved = port.counters.iter().filter(|(name, count)| **count > 0 && is_trouble(name));
        lines.extend(moved.map(|(name, count)| {
            vec![device.name.clone(), port.port_num.to_string(), name.clone(), count.to_string()]
        }));
    }
    let watched = node.ports().filter(|(_, port)| !port.counters.is_empty()).count();
    match lines.len() {
        1 if watched > 0 => format!(
            "Counters\n none that means trouble has counted anything (ports with counters: {watched})"
        ),
        1 => String::new(),
        _ => grid("Counters that mean trouble", &lines),
    }
}
