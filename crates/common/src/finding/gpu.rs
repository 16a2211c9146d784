//! GPUs, their driver, and their way to the adapters.

use super::{Code, Finding, Severity};
use crate::node::{Distance, GpuDriver, Node};

/// The first kernel with dma-bufs that RDMA can register.
const DMA_BUF_KERNEL: (u32, u32) = (5, 12);

pub(super) fn check(node: &Node) -> Vec<Finding> {
    let Some(driver) = &node.gpu_driver else { return Vec::new() };
    let mut found = Vec::new();
    if driver.version.is_none() && is_nvidia(node) {
        let seen = format!("{} GPUs are on the PCI bus, and NVIDIA's driver is not loaded", node.gpus.len());
        return vec![Finding::new(Code::GpuDriverMissing, seen)];
    }
    if let Some(refusal) = &driver.cuda_refusal {
        found.push(Finding::new(Code::GpuUnusable, refusal.clone()));
    }
    if !node.devices.is_empty() {
        found.extend(gpudirect(node, driver));
        found.extend(distances(node));
    }
    // Without CUDA's answer it is not known whether NCCL was looked for.
    if driver.cuda.is_some()
        && node.nccl.library.is_none()
        && !node.unseen.iter().any(|unseen| unseen.what.contains("NCCL"))
    {
        found.push(Finding::new(
            Code::NcclMissing,
            "no NCCL library was found by name or in a Python environment",
        ));
    }
    found
}

fn is_nvidia(node: &Node) -> bool {
    // AMD's functions have another driver, of which nothing is known here.
    node.gpus.iter().any(|gpu| gpu.pci.driver.as_deref() != Some("amdgpu"))
}

fn gpudirect(node: &Node, driver: &GpuDriver) -> Option<Finding> {
    if let Some(module) = driver.peer_memory.filter(|_| driver.version.is_some()) {
        return Some(Finding::new(
            Code::GpudirectPossible,
            format!("the module {} is loaded", module.name()),
        ));
    }
    let kernel = node.system.kernel.as_deref().and_then(release)?;
    let by_cuda = driver.cuda.as_ref().map(|cuda| cuda.dma_buf);
    let gives = by_cuda.or(driver.open_modules)?;
    if gives && kernel >= DMA_BUF_KERNEL {
        let who = if by_cuda.is_some() {
            "CUDA gives out dma-bufs"
        } else {
            "the open kernel modules give out dma-bufs"
        };
        return Some(Finding::new(
            Code::GpudirectPossible,
            format!("{who}, and this kernel's RDMA takes them"),
        ));
    }
    let seen = if gives {
        "no peer-memory module is loaded, and the kernel is older than 5.12, so RDMA takes no dma-buf"
    } else {
        "no peer-memory module is loaded, and the driver gives out no dma-buf of GPU memory"
    };
    Some(Finding::new(Code::GpudirectMissing, seen))
}

/// `5.15.0-91-generic`.
fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn distances(node: &Node) -> Vec<Finding> {
    let gpus = node.topology.places.iter().enumerate().take(node.gpus.len());
    let finding = |(row, place): (usize, &crate::node::Place)| {
        let best = node.topology.best_of(row)?;
        let code = if best <= Distance::Pxb { Code::GpuNear } else { Code::GpuFar };
        let severity = match best {
            Distance::Pix | Distance::Pxb => Severity::Ok,
            // Within a NUMA node many machines have no switch at all; NCCL takes PHB where there is nothing nearer.
            Distance::Phb | Distance::Node => Severity::Note,
            Distance::Sys => Severity::Warning,
        };
        let seen = format!("the nearest adapter is {} away: {}", best.word(), best.meaning());
        Some(Finding::new(code, seen).on(&place.label).as_bad_as(severity))
    };
    gpus.filter_map(finding).collect()
}
