//! The bus: links, NUMA nodes, IOMMU, access control.

use super::{Code, Finding, Severity};
use crate::node::{Node, PciFunction, RdmaDevice};
use crate::units::Bandwidth;

pub(super) fn check(node: &Node) -> Vec<Finding> {
    let on_bus = node.devices.iter().filter_map(|device| Some((device, device.pci.as_ref()?)));
    let mut found = Vec::new();
    for (device, pci) in on_bus {
        let all =
            [link(device, pci), numa(node, pci), iommu(node, pci), relaxed_ordering(pci), acs(node, pci)];
        found.extend(all.into_iter().flatten().map(|finding| finding.on(&device.name)));
    }
    found
}

fn port_rate(device: &RdmaDevice) -> Option<Bandwidth> {
    let rates =
        device.ports.iter().filter(|port| port.is_active() == Some(true)).filter_map(|port| port.bandwidth());
    rates.reduce(Bandwidth::plus)
}

fn link(device: &RdmaDevice, pci: &PciFunction) -> Option<Finding> {
    let (link, best, rate) = (pci.link?, pci.best_link, port_rate(device));
    let carries = link.bandwidth();
    let against = |rate: Bandwidth| {
        format!(
            "{} carries {:.0} Gb/s, the port {:.0} Gb/s",
            link.describe(),
            carries.gbit_per_sec(),
            rate.gbit_per_sec()
        )
    };
    if let Some(best) = best.filter(|best| link.is_below(*best)) {
        let port =
            rate.map_or(String::new(), |rate| format!("; the port has {:.0} Gb/s", rate.gbit_per_sec()));
        let seen = format!(
            "the PCIe link is {}, {:.0} Gb/s, and its two ends could do {}{port}",
            link.describe(),
            carries.gbit_per_sec(),
            best.describe()
        );
        return Some(Finding::new(Code::PcieDegraded, seen));
    }
    let rate = rate?;
    if carries.gbit_per_sec() < rate.gbit_per_sec() {
        return Some(Finding::new(Code::PcieNarrow, format!("the PCIe link {}", against(rate))));
    }
    best.map(|_| Finding::new(Code::PcieGood, against(rate)))
}

fn numa(node: &Node, pci: &PciFunction) -> Option<Finding> {
    let nodes = node.system.numa_nodes.filter(|&nodes| nodes > 1)?;
    pci.numa_node.is_none().then(|| {
        Finding::new(
            Code::NumaUnknown,
            format!("the machine has {nodes} NUMA nodes, and the kernel does not say which one it is on"),
        )
    })
}

fn iommu(node: &Node, pci: &PciFunction) -> Option<Finding> {
    let mode = pci.iommu.as_deref().filter(|mode| mode.starts_with("DMA"))?;
    let severity = if node.gpus.is_empty() { Severity::Note } else { Severity::Warning };
    Some(
        Finding::new(Code::IommuTranslates, format!("the IOMMU translates for it ({mode})"))
            .as_bad_as(severity),
    )
}

fn relaxed_ordering(pci: &PciFunction) -> Option<Finding> {
    (pci.relaxed_ordering == Some(false)).then(|| {
        Finding::new(Code::RelaxedOrderingOff, "its PCIe device control does not allow relaxed ordering")
    })
}

/// Only where there are GPUs is there traffic between devices.
fn acs(node: &Node, pci: &PciFunction) -> Option<Finding> {
    let bridges = &pci.acs_redirecting;
    (!node.gpus.is_empty() && !bridges.is_empty()).then(|| {
        let severity = if node.system.virtual_machine { Severity::Note } else { Severity::Warning };
        let seen = format!("ACS redirects requests or completions at {}", bridges.join(", "));
        Finding::new(Code::AcsRedirects, seen).as_bad_as(severity)
    })
}
