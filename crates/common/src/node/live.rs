//! What the libraries of the running machine say: libibverbs of its devices, CUDA of its GPUs, NCCL of itself.
//!
//! Each is asked by a thread of its own, and is waited for a little: drivers of many GPUs take seconds to start, and a look
//! at a node must not.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::{CudaFacts, NcclLibrary, Node, RdmaDevice, RdmaPort, Unseen};
use crate::cuda::Driver;
use crate::device::{Library, Port, Surveyed, survey};
use crate::error::Result;
use crate::gid::GidEntry;
use crate::host::HostFiles;

/// How long the libraries have, all together. The whole look should take less than a second.
pub const PATIENCE: Duration = Duration::from_millis(700);

/// Something that is being asked.
struct Asked<T> {
    what: &'static str,
    answer: mpsc::Receiver<T>,
    until: Instant,
}

fn ask<T: Send + 'static>(what: &'static str, question: impl FnOnce() -> T + Send + 'static) -> Asked<T> {
    let (sender, answer) = mpsc::channel();
    // Nobody is there to listen once the time is over.
    thread::spawn(move || sender.send(question()));
    Asked { what, answer, until: Instant::now() + PATIENCE }
}

impl<T> Asked<T> {
    fn wait(self, unseen: &mut Vec<Unseen>) -> Option<T> {
        let left = self.until.saturating_duration_since(Instant::now());
        let answer = self.answer.recv_timeout(left).ok();
        if answer.is_none() {
            unseen.push(Unseen::new(self.what, format!("no answer within {} ms", PATIENCE.as_millis())));
        }
        answer
    }
}

pub(super) fn ask_libraries(node: &mut Node, files: &HostFiles) {
    let of_thread = files.clone();
    let devices = ask("what libibverbs says", move || survey(Library::Ibverbs, &of_thread));
    let has_gpus = node.gpu_driver.is_some();
    let gpus = has_gpus.then(|| ask("what CUDA says", cuda));
    let nccl = has_gpus.then(|| ask("which NCCL there is", nccl));
    if let Some(answer) = devices.wait(&mut node.unseen) {
        take_devices(node, answer);
    }
    if let Some(answer) = gpus.and_then(|gpus| gpus.wait(&mut node.unseen)) {
        take_gpus(node, answer);
    }
    match nccl {
        Some(nccl) => {
            node.nccl.library = nccl.wait(&mut node.unseen).flatten();
        }
        None => {
            node.unseen.push(Unseen::new("CUDA and NCCL", "there is no GPU, so they were not looked for"))
        }
    }
}

fn take_devices(node: &mut Node, answer: Result<Vec<Surveyed>>) {
    let surveyed = match answer {
        Ok(surveyed) => surveyed,
        Err(error) => {
            node.library_missing = Some(error.what.clone());
            return node.unseen.push(Unseen::new("what libibverbs says", error.what));
        }
    };
    for device in &mut node.devices {
        if !surveyed.iter().any(|seen| seen.name == device.name) {
            device.refusal = Some("libibverbs does not list it".to_owned());
        }
    }
    for seen in surveyed {
        let known = node.devices.iter_mut().find(|device| device.name == seen.name);
        match known {
            Some(device) => take_device(device, seen),
            None => {
                let mut device = RdmaDevice::named(&seen.name);
                take_device(&mut device, seen);
                node.devices.push(device);
            }
        }
    }
}

fn take_device(device: &mut RdmaDevice, seen: Surveyed) {
    match seen.answer {
        Err(error) => {
            let facts = error.facts.iter().map(|fact| format!("; {}: {}", fact.label, fact.value));
            device.refusal = Some(format!("{}{}", error.what, facts.collect::<String>()));
        }
        Ok(answer) => {
            device.limits = Some(answer.limits);
            device.software = device.software.take().or(answer.software);
            for (port, gids) in answer.ports {
                take_port(device, &port, gids);
            }
        }
    }
}

fn take_port(device: &mut RdmaDevice, seen: &Port, gids: Vec<GidEntry>) {
    let index = device.ports.iter().position(|port| port.port_num == seen.port_num).unwrap_or_else(|| {
        device.ports.push(RdmaPort::numbered(seen.port_num));
        device.ports.len() - 1
    });
    let port = &mut device.ports[index];
    port.state = Some(seen.state.name().to_owned());
    port.link_layer = Some(seen.link_layer);
    port.lid = Some(seen.lid.into());
    port.active_mtu_bytes = Some(seen.active_mtu).filter(|&mtu| mtu > 0);
    port.netdev = port.netdev.take().or_else(|| gids.iter().find_map(|entry| entry.netdev.clone()));
    port.gids = gids;
    port.gids_seen = true;
    port.choose_gid();
}

fn cuda() -> Result<CudaFacts> {
    let driver = Driver::load()?;
    let gpus = driver.gpus()?;
    Ok(CudaFacts {
        version: driver.cuda_version(),
        gpus: gpus.len() as u32,
        dma_buf: !gpus.is_empty() && gpus.iter().all(|gpu| gpu.dma_buf),
    })
}

fn take_gpus(node: &mut Node, answer: Result<CudaFacts>) {
    let Some(driver) = &mut node.gpu_driver else { return };
    match answer {
        Ok(facts) => driver.cuda = Some(facts),
        Err(error) => {
            driver.cuda_refusal = Some(error.what.clone());
            node.unseen.push(Unseen::new("what CUDA says", error.what));
        }
    }
}

fn nccl() -> Option<NcclLibrary> {
    let wish = std::env::var_os(nccl_sys::LIBRARY_VARIABLE).filter(|name| !name.is_empty());
    let candidates = nccl_sys::candidates(wish.as_deref().map(std::path::Path::new));
    let library = candidates.into_iter().find_map(|name| nccl_sys::Nccl::open(name).ok())?;
    let version = library.version()?;
    Some(NcclLibrary {
        file: library.file().map(|file| file.display().to_string()),
        version: format!("{}.{}.{}", version / 10_000, version % 10_000 / 100, version % 100),
    })
}
