//! What adapters have counted.

use std::collections::BTreeMap;

use super::device::name_of;
use super::{Code, Finding, Severity};
use crate::counters::trouble;
use crate::node::Node;
use crate::units::show_duration;

pub(super) fn check(node: &Node) -> Vec<Finding> {
    let finding = |(device, port): (_, &crate::node::RdmaPort)| {
        let counted: BTreeMap<String, u64> = port
            .counters
            .iter()
            .filter(|(_, value)| **value > 0)
            .map(|(name, value)| (name.clone(), *value))
            .collect();
        let seen = trouble(&counted)?;
        Some(
            Finding::new(Code::CountersTrouble, format!("since the start: {seen}")).on(name_of(device, port)),
        )
    };
    node.ports().filter_map(finding).collect()
}

/// What has been counted between two looks at the same node: worse than the same since the start.
pub fn growth(before: &Node, after: &Node, elapsed: std::time::Duration) -> Vec<Finding> {
    let mut found = Vec::new();
    for (device, port) in after.ports() {
        let earlier =
            before.ports().find(|(other, then)| other.name == device.name && then.port_num == port.port_num);
        let Some((_, earlier)) = earlier else { continue };
        let grown = port.counters.iter().filter_map(|(name, now)| {
            let more = now.checked_sub(*earlier.counters.get(name)?)?;
            (more > 0).then(|| (name.clone(), more))
        });
        if let Some(seen) = trouble(&grown.collect()) {
            let mut finding =
                Finding::new(Code::CountersTrouble, format!("within {}: {seen}", show_duration(elapsed)));
            "packets are being lost, repeated, damaged or held back on this port now"
                .clone_into(&mut finding.effect);
            found.push(finding.on(name_of(device, port)).as_bad_as(Severity::Warning));
        }
    }
    found
}
