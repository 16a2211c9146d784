//! Locked memory: what a run will pin against what this process may pin, asked before anything is registered.
//!
//! The kernel charges every registration against `RLIMIT_MEMLOCK`, page by page, unless the process has
//! `CAP_IPC_LOCK` in the initial user namespace. It answers a refusal with a bare `ENOMEM` that looks like a lack
//! of memory, so this module asks first and explains.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::host::HostFiles;
use crate::memory::LESS_MEMORY;
use crate::units::ByteSize;

/// Bit of `CAP_IPC_LOCK` in a capability mask (`linux/capability.h`).
pub(crate) const CAP_IPC_LOCK: u32 = 14;

/// What this process may pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockedMemory {
    /// The limit in force; absent: unlimited.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub soft_bytes: Option<u64>,
    /// How far the process may raise it itself; absent: unlimited.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hard_bytes: Option<u64>,
    /// Whether the process has `CAP_IPC_LOCK` where the kernel looks for it.
    pub cap_ipc_lock: bool,
}

impl LockedMemory {
    /// Of this process.
    pub fn of_this_process(files: &HostFiles) -> Self {
        let finite = |limit| (limit != RLIM_INFINITY).then_some(limit);
        let (soft, hard) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap_or((RLIM_INFINITY, RLIM_INFINITY));
        Self { soft_bytes: finite(soft), hard_bytes: finite(hard), cap_ipc_lock: has_cap_ipc_lock(files) }
    }

    /// Of the process whose `/proc/self` is in `files`; `None` where that does not say.
    pub fn recorded(files: &HostFiles) -> Option<Self> {
        let (soft_bytes, hard_bytes) = crate::node::limit(files, "Max locked memory")?;
        Some(Self { soft_bytes, hard_bytes, cap_ipc_lock: has_cap_ipc_lock(files) })
    }

    /// The most that can be pinned; `None` where there is no limit.
    pub fn most(&self) -> Option<u64> {
        if self.cap_ipc_lock { None } else { self.soft_bytes }
    }

    /// In words, for messages and headers.
    pub fn describe(&self) -> String {
        let show =
            |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |bytes| ByteSize(bytes).to_string());
        let capability = if self.cap_ipc_lock { "with" } else { "without" };
        format!("soft {}, hard {}, {capability} CAP_IPC_LOCK", show(self.soft_bytes), show(self.hard_bytes))
    }

    /// Whether `need` bytes in `regions` (in words) can be pinned on `device`.
    ///
    /// # Errors
    /// [`ErrorKind::Memlock`] with the limit, the need and the remedy.
    pub fn check(&self, need: u64, regions: &str, device: &str) -> Result<()> {
        match self.most() {
            Some(most) if need > most => Err(self.too_small(need, most, regions, device)),
            _ => Ok(()),
        }
    }

    fn too_small(&self, need: u64, most: u64, regions: &str, device: &str) -> Error {
        let (need_shown, most_shown) = (ByteSize(need), ByteSize(most));
        let remedy = match self.hard_bytes {
            Some(hard) if hard < need => {
                "have an administrator raise the limit (memlock in /etc/security/limits.conf, LimitMEMLOCK in a \
                 systemd unit, or CAP_IPC_LOCK for root in a container)"
            }
            _ => "raise the limit (ulimit -l)",
        };
        Error::new(
            ErrorKind::Memlock,
            format!("cannot register {need_shown} of host memory on {device}: the locked-memory limit is {most_shown}"),
        )
        .fact("memlock", self.describe())
        .fact("this run pins", format!("{need_shown} ({regions})"))
        .hint(format!("{remedy}, or pin less with {LESS_MEMORY}"))
    }
}

/// `CAP_IPC_LOCK` is asked of the initial user namespace: in a container with a namespace of its own even root
/// does not have it.
fn has_cap_ipc_lock(files: &HostFiles) -> bool {
    let effective = files
        .value_of("/proc/self/status", "CapEff")
        .and_then(|mask| u64::from_str_radix(&mask, 16).ok())
        .unwrap_or(0);
    let initial_namespace = files
        .text("/proc/self/uid_map")
        .is_none_or(|map| map.split_whitespace().eq(["0", "0", "4294967295"]));
    effective >> CAP_IPC_LOCK & 1 == 1 && initial_namespace
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const SMALL: LockedMemory =
        LockedMemory { soft_bytes: Some(65536), hard_bytes: Some(65536), cap_ipc_lock: false };

    fn files(cap_eff: &str, uid_map: &str) -> (tempfile::TempDir, HostFiles) {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir_all(tree.path().join("proc/self")).unwrap();
        fs::write(tree.path().join("proc/self/status"), format!("Name:\tx\nCapEff:\t{cap_eff}\n")).unwrap();
        fs::write(tree.path().join("proc/self/uid_map"), uid_map).unwrap();
        let files = HostFiles::below(tree.path());
        (tree, files)
    }

    #[test]
    fn refuses_what_the_limit_does_not_hold_and_says_both() {
        assert!(SMALL.check(65536, "1 of 64 KiB", "rxe0").is_ok());
        let error = SMALL.check(1 << 20, "1 of 1 MiB", "rxe0").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Memlock);
        assert_eq!(
            error.what,
            "cannot register 1 MiB of host memory on rxe0: the locked-memory limit is 64 KiB"
        );
        let hint = error.hint.unwrap();
        assert!(hint.contains("administrator"), "{hint}");
        // Another user of a container does not have the capability in effect, whoever adds it.
        assert!(hint.contains("CAP_IPC_LOCK for root in a container"), "{hint}");
    }

    #[test]
    fn a_soft_limit_can_be_raised_by_the_user() {
        let limits = LockedMemory { hard_bytes: None, ..SMALL };
        assert!(
            limits
                .check(1 << 20, "", "rxe0")
                .unwrap_err()
                .hint
                .unwrap()
                .starts_with("raise the limit (ulimit -l)")
        );
    }

    #[test]
    fn the_capability_lifts_the_limit() {
        assert!(LockedMemory { cap_ipc_lock: true, ..SMALL }.check(1 << 40, "", "rxe0").is_ok());
    }

    #[test]
    fn the_capability_counts_in_the_initial_user_namespace_only() {
        let initial = "         0          0 4294967295\n";
        let (_a, root) = files("000001ffffffffff", initial);
        assert!(has_cap_ipc_lock(&root));
        let (_b, none) = files("0000000000000000", initial);
        assert!(!has_cap_ipc_lock(&none));
        let (_c, container) = files("000001ffffffffff", "         0     100000      65536\n");
        assert!(!has_cap_ipc_lock(&container));
    }
}
