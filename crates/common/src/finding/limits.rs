//! What the process may have.

use super::{Code, Finding, Severity};
use crate::node::Node;
use crate::units::ByteSize;

/// Below this the usual sizes of a sweep (to 8 MiB, both directions, and the queues beside them) do not fit.
const ENOUGH: u64 = 64 << 20;

/// The size that is measured where none is named. Less than that, and no default run works.
const DEFAULT_SIZE: u64 = 64 << 10;

pub(super) fn check(node: &Node) -> Vec<Finding> {
    let mut found = Vec::new();
    let most = node.limits.memlock.as_ref().map(|memlock| (memlock.most(), memlock.describe()));
    match most {
        Some((Some(most), words)) if most < ENOUGH => found.extend(low(node, most, &words)),
        Some((_, words)) => found.push(Finding::new(Code::MemlockEnough, words)),
        None => {}
    }
    if let Some(limit) = &node.system.rdma_cgroup {
        found.push(Finding::new(
            Code::CgroupLimit,
            format!("rdma.max of this process's control group: {limit}"),
        ));
    }
    found
}

fn low(node: &Node, most: u64, words: &str) -> Vec<Finding> {
    let largest = ByteSize(node.limits.largest_message_bytes.unwrap_or(0));
    let seen = format!(
        "locked memory: {words}; that holds one message of at most {largest} (one queue pair, one direction), less what the queues take"
    );
    // Nothing is lost on a node that has no RDMA device anyway.
    let severity = match most {
        most if most < DEFAULT_SIZE && !node.devices.is_empty() => Severity::Unfit,
        _ if node.devices.is_empty() => Severity::Note,
        _ => Severity::Warning,
    };
    let mut found = vec![Finding::new(Code::MemlockLow, seen).as_bad_as(severity)];
    if node.limits.cap_ipc_lock_not_effective && node.system.container.is_some() {
        found.push(Finding::new(
            Code::CapabilityIdle,
            "CAP_IPC_LOCK is in the bounding set and not in effect",
        ));
    }
    found
}
