//! How an adapter comes to a GPU's memory: the ways in their order, and what each was answered.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::registered::{Reached, Wanted};
use crate::cuda::{DmabufMapping, PinnedBuffer};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{Buffer, EndBuffer, GpuMemory, GpuPath, LESS_MEMORY, Refusal};
use crate::mr::Registrar;
use crate::plan::{Plan, Transport};

/// Tries the plan's ways; gives the first that works, and what was said to those before.
///
/// # Errors
/// [`ErrorKind::Registration`] with every answer, where none works; what has nothing to do with the way, as it is.
pub(super) fn reach(
    wanted: &Wanted,
    plan: &Plan,
    buffer: &Arc<EndBuffer>,
    memory: &GpuMemory,
) -> Result<(Reached, GpuPath, Vec<Refusal>)> {
    let paths = plan.gpu.as_ref().map_or(&[][..], |gpu| gpu.paths(Transport::Rdma));
    let mut refused = Vec::new();
    for &path in paths {
        match reach_by(path, wanted, buffer, memory) {
            Ok(reached) => return Ok((reached, path, refused)),
            Err(error) => refused.push(Refusal { path, why: error.what }),
        }
    }
    Err(none_worked(wanted, memory, &refused))
}

fn reach_by(path: GpuPath, wanted: &Wanted, buffer: &Arc<EndBuffer>, memory: &GpuMemory) -> Result<Reached> {
    match path {
        GpuPath::Dmabuf => reach_by_dmabuf(DmabufMapping::Drivers, wanted, buffer, memory),
        GpuPath::DmabufPcie => reach_by_dmabuf(DmabufMapping::Pcie, wanted, buffer, memory),
        GpuPath::Peermem => wanted.register(buffer, Registrar::Plain),
        GpuPath::Staged => {
            let mirror = Arc::new(PinnedBuffer::new(memory.context(), memory.len() as usize)?);
            mirror.clear();
            wanted.in_order().register(&mirror, Registrar::Plain)
        }
    }
}

fn reach_by_dmabuf(
    mapping: DmabufMapping,
    wanted: &Wanted,
    buffer: &Arc<EndBuffer>,
    memory: &GpuMemory,
) -> Result<Reached> {
    // Registered memory stays; the descriptor is not needed after that.
    let exported = memory.export_dmabuf(mapping)?;
    wanted.register(buffer, Registrar::DmaBuf(exported.as_raw_fd()))
}

#[cold]
fn none_worked(wanted: &Wanted, memory: &GpuMemory, refused: &[Refusal]) -> Error {
    let (device, gpu) = (wanted.device(), memory.gpu().describe());
    let error = Error::new(ErrorKind::Registration, format!("{device} can't reach the memory of {gpu}"));
    let error = refused.iter().fold(error, |error, refusal| error.fact(refusal.path.name(), &refusal.why));
    error.hint(way_out(refused, wanted.software().as_deref()))
}

/// What the answers say is missing.
fn way_out(refused: &[Refusal], software: Option<&str>) -> String {
    let said = |paths: &[GpuPath], word: &str| {
        refused.iter().any(|refusal| paths.contains(&refusal.path) && refusal.why.contains(word))
    };
    let (peermem, over_pcie) = (&[GpuPath::Peermem], &[GpuPath::DmabufPcie]);
    let dmabufs = &[GpuPath::Dmabuf, GpuPath::DmabufPcie];
    let cause = if let Some(software) = software.filter(|_| said(dmabufs, "EOPNOTSUPP")) {
        format!("{software} has no way to a GPU's memory")
    } else if said(dmabufs, "ENOMEM") || said(peermem, "ENOMEM") {
        format!("the GPU's BAR may have no room (nvidia-smi -q: BAR1 Memory Usage): use {LESS_MEMORY}")
    } else if said(peermem, "EFAULT") {
        "no peer memory module answers for the GPU: modprobe nvidia-peermem, on a driver stack that has it; dma-bufs need \
         the GPU driver's open kernel modules, Linux 5.12, and an adapter's driver that registers them"
            .into()
    } else if said(dmabufs, "EOPNOTSUPP") {
        "the adapter's driver or kernel registers no dma-bufs: use a newer one, or nvidia-peermem with --cuda-path peermem"
            .into()
    } else if said(over_pcie, "NOT_SUPPORTED") {
        "a GPU that has no link to the host but PCIe needs no such mapping: --cuda-path dmabuf goes over PCIe there".into()
    } else if said(over_pcie, "ENOTSUPP") {
        "the GPU's driver maps over PCIe only for an adapter with a path of its own to the GPU (dmesg has its word, \
         NVRM): --cuda-path dmabuf, or another --ib-dev"
            .into()
    } else if said(over_pcie, "INVALID_VALUE") {
        "mappings over PCIe need a GPU driver for CUDA 12.8 or newer: --cuda-path dmabuf leaves the mapping to it".into()
    } else {
        "rdma-check shows what this node has".into()
    };
    format!("{cause}; --cuda-path staged measures through host memory, and says so")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(path: GpuPath, why: &str) -> Refusal {
        Refusal { path, why: why.into() }
    }

    #[test]
    fn what_is_missing_follows_from_what_was_said() {
        use GpuPath::{Dmabuf, DmabufPcie, Peermem};
        let way = |refused: &[Refusal]| way_out(refused, None);
        assert!(way(&[refusal(Dmabuf, "EOPNOTSUPP"), refusal(Peermem, "EFAULT")]).contains("nvidia-peermem"));
        assert!(way(&[refusal(Dmabuf, "EOPNOTSUPP")]).contains("registers no dma-bufs"));
        assert!(way(&[refusal(Peermem, "ENOMEM")]).contains("BAR1"));
        assert!(way(&[refusal(DmabufPcie, "CUDA_ERROR_INVALID_VALUE")]).contains("CUDA 12.8"));
        assert!(
            way(&[refusal(DmabufPcie, "CUDA_ERROR_NOT_SUPPORTED (801)")]).contains("no link to the host but")
        );
        assert!(way(&[refusal(DmabufPcie, "ibv_reg_dmabuf_mr: ENOTSUPP (524)")]).contains("NVRM"));
        assert!(way(&[refusal(DmabufPcie, "EOPNOTSUPP")]).contains("registers no dma-bufs"));
        assert!(way(&[refusal(Dmabuf, "CUDA_ERROR")]).contains("rdma-check"));
        let soft = way_out(&[refusal(Dmabuf, "EOPNOTSUPP"), refusal(Peermem, "EFAULT")], Some("Soft-RoCE"));
        assert!(soft.contains("Soft-RoCE has no way"));
        assert!(soft.contains("--cuda-path staged"));
    }
}
