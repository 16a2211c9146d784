//! Under which conditions an end measured: where its threads and its memory were.

use serde::{Deserialize, Serialize};

use crate::affinity::report::describe;
use crate::affinity::{Bound, Cores, MemoryBinding, ThreadBinding, Unbound};
use crate::error::Result;
use crate::memory::Buffer;
use crate::plan::{Plan, Role};
use crate::warning::Warning;

/// What one end measured under.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// Which end it is.
    pub role: Role,
    /// The NUMA node of its RDMA device; absent where it has none, and over TCP.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device_numa_node: Option<u32>,
    /// Where the measuring threads could run.
    pub threads: ThreadBinding,
    /// Where the memory lay.
    pub memory: MemoryBinding,
}

impl Conditions {
    /// Those of the end `role`, bound as `bound` is, with the memory `buffer`.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Affinity`] where the memory is not where an option wants it.
    pub fn of(role: Role, bound: &Bound, buffer: &impl Buffer) -> Result<Self> {
        Ok(Self {
            role,
            device_numa_node: bound.device_node(),
            threads: bound.threads().clone(),
            memory: bound.placement(buffer)?,
        })
    }

    /// What they do to the numbers.
    pub fn warnings(&self) -> Vec<Warning> {
        let node = self.device_numa_node;
        let threads = node.filter(|_| self.threads_are_elsewhere()).map(|node| {
            Warning::threads_far_from_device(
                self.role,
                node,
                &self.threads.cores,
                self.threads.refusal.as_deref(),
            )
        });
        let memory = node.filter(|_| self.memory_was_not_chosen()).and_then(|node| {
            let (elsewhere, all) = self.memory.pages_not_on(node);
            let refusal = self.memory.refusal.as_deref();
            (elsewhere > 0).then(|| Warning::memory_far_from_device(self.role, node, elsewhere, all, refusal))
        });
        threads.into_iter().chain(memory).collect()
    }

    /// More posting threads than cores, if this end has posting threads.
    pub fn crowded(&self, plan: &Plan) -> Option<Warning> {
        let cores = Cores::from_kernel(&self.threads.cores)?.len();
        let crowded = plan.is_initiator(self.role) && plan.threads > 1 && plan.threads as usize > cores;
        crowded.then(|| Warning::oversubscribed(self.role, plan.threads, &self.threads.cores))
    }

    /// Unbound against the default's will: whoever asked for it knows.
    fn threads_are_elsewhere(&self) -> bool {
        let unwilling = matches!(self.threads.why_not, Some(Unbound::NotAllowed | Unbound::Refused));
        unwilling && self.threads.numa_nodes.as_slice() != self.device_numa_node.as_slice()
    }

    fn memory_was_not_chosen(&self) -> bool {
        use crate::affinity::BoundBy;
        self.memory.bound_by == BoundBy::Device
            || matches!(self.memory.why_not, Some(Unbound::NotAllowed | Unbound::Refused))
    }
}

/// Who was bound where, in a line.
pub(super) fn describe_bindings(conditions: &[Conditions]) -> String {
    let end = |end: &Conditions| format!("{} {}", end.role.name(), describe(&end.threads, &end.memory));
    conditions.iter().map(end).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::affinity::report::tests::{memory_near_the_device, threads_near_the_device};
    use crate::affinity::{BoundBy, NodePages};
    use crate::plan::tests::plan;

    pub(in crate::report) fn near_the_device(role: Role) -> Conditions {
        Conditions {
            role,
            device_numa_node: Some(1),
            threads: threads_near_the_device(),
            memory: memory_near_the_device(),
        }
    }

    fn not_bound(why: Unbound) -> Conditions {
        let near = near_the_device(Role::Server);
        let threads = ThreadBinding {
            cores: "0-3".into(),
            numa_nodes: vec![0],
            bound_by: BoundBy::None,
            why_not: Some(why),
            refusal: None,
        };
        let memory = MemoryBinding {
            numa_node: None,
            bound_by: BoundBy::None,
            why_not: Some(why),
            pages: vec![NodePages { numa_node: 0, pages: 3 }, NodePages { numa_node: 1, pages: 1 }],
            ..near.memory.clone()
        };
        Conditions { threads, memory, ..near }
    }

    #[test]
    fn both_ends_are_told_in_a_line() {
        let server = Conditions { device_numa_node: None, ..not_bound(Unbound::NoNode) };
        assert_eq!(
            describe_bindings(&[near_the_device(Role::Client), server]),
            "client to cores 4-7 (NUMA 1, its device's), memory on NUMA 1; server not bound (its device has no NUMA node)"
        );
    }

    #[test]
    fn what_could_not_be_near_the_device_is_warned_of_and_what_was_asked_for_is_not() {
        assert!(near_the_device(Role::Client).warnings().is_empty());
        let warnings = not_bound(Unbound::NotAllowed).warnings();
        let codes: Vec<&str> = warnings.iter().map(|warning| warning.code.as_str()).collect();
        assert_eq!(codes, ["threads-far-from-device", "memory-far-from-device"]);
        assert!(warnings[1].seen.contains("3 of 4 pages"), "{}", warnings[1].seen);
        for asked in [Unbound::Asked, Unbound::Inherited, Unbound::NoNode] {
            assert!(not_bound(asked).warnings().is_empty(), "{asked:?}");
        }
    }

    #[test]
    fn more_threads_than_cores_are_warned_of_on_the_ends_that_write() {
        let threads = |threads| Plan { threads, qps: 8, ..plan() };
        let [client, server] = [Role::Client, Role::Server].map(near_the_device);
        assert_eq!(client.crowded(&threads(4)), None);
        assert_eq!(client.crowded(&threads(5)).unwrap().code, "oversubscribed");
        assert_eq!(server.crowded(&threads(5)), None);
        // One thread is no choice of the user's.
        let one_core = ThreadBinding { cores: "3".into(), ..threads_near_the_device() };
        assert_eq!(Conditions { threads: one_core, ..client }.crowded(&threads(1)), None);
    }

    #[test]
    fn one_node_is_near_its_device_whoever_binds() {
        let refused = not_bound(Unbound::Refused);
        let threads = ThreadBinding { numa_nodes: vec![1], ..refused.threads };
        let memory = MemoryBinding { pages: vec![NodePages { numa_node: 1, pages: 4 }], ..refused.memory };
        assert!(Conditions { threads, memory, ..near_the_device(Role::Client) }.warnings().is_empty());
    }

    #[test]
    fn memory_that_went_elsewhere_is_warned_of() {
        let near = near_the_device(Role::Client);
        let memory = MemoryBinding { pages: vec![NodePages { numa_node: 0, pages: 4 }], ..near.memory };
        assert_eq!(Conditions { memory, ..near }.warnings()[0].code, "memory-far-from-device");
    }
}
