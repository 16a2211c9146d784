//! The ranks' GPUs by the word of the driver, which NCCL's log does not have: over what they reach each other, how much
//! they have sent that way, and who else was at work on them.

use linkproof_common::cuda::{Gpu, Monitor, Monitored};
use linkproof_common::host::HostFiles;
use linkproof_common::traffic::{self, PortTraffic};
use serde::{Deserialize, Serialize};

use super::Seat;

/// One rank's GPU. What is absent is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankGpu {
    /// Which rank.
    pub rank: u32,
    /// The GPU's name.
    pub name: String,
    /// Its PCI address.
    pub pci_address: String,
    /// How busy it was in the second before this rank used it, in percent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub busy_before_percent: Option<u32>,
    /// Processes that were on it then.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub processes_before: Option<u32>,
    /// Its NVLinks that are up.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub nvlinks: Option<u32>,
    /// What it has sent over them from the begin of the run to its end, by its own counters.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub nvlink_sent_bytes: Option<u64>,
}

/// What a rank tells of its GPU when the run is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(super) gpu: RankGpu,
    /// The ranks of the same machine, and whether NVLink reaches their GPUs.
    pub(super) reaches: Vec<(u32, bool)>,
    /// What the ports of its machine have carried, if it is the first rank there.
    pub(super) ports: Vec<HostPort>,
}

/// What a port of one of the machines has carried during the run, for whomever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPort {
    /// The machine.
    pub host: String,
    /// The port and its counters.
    #[serde(flatten)]
    pub traffic: PortTraffic,
}

/// A rank's GPU from before the run to its end.
pub(super) struct Watch {
    told: Told,
    monitored: Option<Monitored>,
    sent_before: Option<u64>,
    /// The machine and what its ports had carried before, where this rank tells of them.
    ports_before: Option<(String, Vec<PortTraffic>)>,
}

impl Watch {
    /// Looks at `gpu`, which `rank` has not used yet; `seats` has every rank's.
    pub(super) fn begin(rank: u32, gpu: &Gpu, seats: &[Seat]) -> Self {
        let monitored = Monitor::load().and_then(|monitor| monitor.gpu(&gpu.pci_address));
        let here = |seat: &Seat| seats.get(rank as usize).is_some_and(|own| own.host == seat.host);
        let reach = |(peer, seat): (usize, &Seat)| {
            let other = Monitor::load()?.gpu(&seat.pci_address)?;
            Some((peer as u32, monitored?.has_nvlink_to(&other)?))
        };
        let peers = seats.iter().enumerate().filter(|(peer, seat)| *peer != rank as usize && here(seat));
        let told = Told {
            gpu: RankGpu {
                rank,
                name: gpu.name.clone(),
                pci_address: gpu.pci_address.clone(),
                busy_before_percent: monitored.and_then(|it| it.busy_percent()),
                processes_before: monitored.and_then(|it| it.processes()).map(|list| list.len() as u32),
                nvlinks: monitored.and_then(|it| it.nvlinks()),
                nvlink_sent_bytes: None,
            },
            reaches: peers.filter_map(reach).collect(),
            ports: Vec::new(),
        };
        let first_here = seats.iter().position(here) == Some(rank as usize);
        let own = seats.get(rank as usize).filter(|_| first_here);
        Self {
            told,
            monitored,
            sent_before: monitored.and_then(|it| it.nvlink_sent_bytes()),
            ports_before: own.map(|seat| (seat.host.clone(), PortTraffic::read(&HostFiles::this_machine()))),
        }
    }

    /// What there is to tell, now that the run is over.
    pub(super) fn end(&self) -> Told {
        let mut told = self.told.clone();
        let now = self.monitored.and_then(|it| it.nvlink_sent_bytes());
        told.gpu.nvlink_sent_bytes =
            now.zip(self.sent_before).and_then(|(now, before)| now.checked_sub(before));
        if let Some((host, before)) = &self.ports_before {
            let moved = traffic::since(before, PortTraffic::read(&HostFiles::this_machine()));
            told.ports = moved.into_iter().map(|traffic| HostPort { host: host.clone(), traffic }).collect();
        }
        told
    }
}
