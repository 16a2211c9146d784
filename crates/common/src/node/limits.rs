//! What this process may have.

use serde::{Deserialize, Serialize};

use super::Unseen;
use crate::host::HostFiles;
use crate::memlock::LockedMemory;

/// What this process may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Locked memory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memlock: Option<LockedMemory>,
    /// The largest message that one queue pair can use under that limit, in bytes; absent where nothing is limited, or
    /// where the limit is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub largest_message_bytes: Option<u64>,
    /// Whether the process could be given `CAP_IPC_LOCK`, and does not have it in effect.
    pub cap_ipc_lock_not_effective: bool,
    /// Open files at a time; absent where unlimited or unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub open_files: Option<u64>,
    /// The pools of huge pages.
    pub huge_pages: Vec<HugePages>,
}

/// The kernel's pool of huge pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugePages {
    /// The size of a page.
    pub page_bytes: u64,
    /// Pages in the pool.
    pub total: u64,
    /// Of them those that nobody uses.
    pub free: u64,
}

/// A run of one queue pair in one direction registers one region of the size of its largest message, in whole pages.
const PAGE: u64 = 4096;

impl Limits {
    pub(super) fn read(files: &HostFiles, unseen: &mut Vec<Unseen>) -> Self {
        let memlock = LockedMemory::recorded(files);
        if memlock.is_none() {
            unseen.push(Unseen::new("the locked-memory limit", "/proc/self/limits can't be read"));
        }
        Self {
            memlock,
            largest_message_bytes: memlock.and_then(|memlock| memlock.most()).map(|most| most / PAGE * PAGE),
            cap_ipc_lock_not_effective: capability_idle(files),
            open_files: limit(files, "Max open files").and_then(|(soft, _)| soft),
            huge_pages: huge_pages(files),
        }
    }
}

/// The soft and hard limit that `/proc/self/limits` calls `name`, each absent where unlimited; `None` where the file does
/// not say.
pub fn limit(files: &HostFiles, name: &str) -> Option<(Option<u64>, Option<u64>)> {
    let text = files.text("/proc/self/limits")?;
    let values = text.lines().find_map(|line| line.strip_prefix(name))?;
    let mut values = values.split_whitespace().map(|value| match value {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    });
    Some((values.next()??, values.next()??))
}

/// In a container that was given the capability a process that is not root has it in its bounding set only.
fn capability_idle(files: &HostFiles) -> bool {
    let has = |mask: &str| {
        let mask =
            files.value_of("/proc/self/status", mask).and_then(|mask| u64::from_str_radix(&mask, 16).ok());
        mask.map(|mask| mask >> crate::memlock::CAP_IPC_LOCK & 1 == 1)
    };
    has("CapBnd") == Some(true) && has("CapEff") == Some(false)
}

fn huge_pages(files: &HostFiles) -> Vec<HugePages> {
    let folder = "/sys/kernel/mm/hugepages";
    let pool = |name: &String| {
        let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let count = |file: &str| files.number(&format!("{folder}/{name}/{file}"));
        Some(HugePages {
            page_bytes: kib.checked_mul(1024)?,
            total: count("nr_hugepages")?,
            free: count("free_hugepages")?,
        })
    };
    files.names(folder).iter().filter_map(pool).collect()
}
