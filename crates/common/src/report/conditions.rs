//! Under which conditions an end measured: where its threads and its memory were, by which clock, and who else wanted
//! the cores.

use serde::{Deserialize, Serialize};

use super::DeviceKind;
use crate::affinity::report::describe;
use crate::affinity::{Bound, Cores, MemoryBinding, ThreadBinding, Unbound};
use crate::clock::ClockUse;
use crate::contention::{Contention, Load};
use crate::error::Result;
use crate::host::HostFiles;
use crate::memory::Buffer;
use crate::plan::{Plan, Role};
use crate::warning::Warning;

/// What one end measured under.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// What took this end's times; absent where it took none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clock: Option<ClockUse>,
    /// How busy its host was before the run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub load: Option<Load>,
    /// Who else wanted the cores; absent where no thread of this end measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub contention: Option<Contention>,
}

impl Conditions {
    /// Those of the end `role` before it measures, bound as `bound` is, with the memory `buffer`.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Affinity`] where the memory is not where an option wants it.
    pub fn of(role: Role, bound: &Bound, buffer: &impl Buffer, files: &HostFiles) -> Result<Self> {
        Ok(Self {
            role,
            device_numa_node: bound.device_node(),
            threads: bound.threads().clone(),
            memory: bound.placement(buffer)?,
            clock: None,
            load: Load::now(files),
            contention: None,
        })
    }

    /// What they do to the numbers.
    pub fn warnings(&self, device: Option<DeviceKind>) -> Vec<Warning> {
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
        threads.into_iter().chain(memory).chain(self.contention_warnings(device)).collect()
    }

    /// What was taken from the threads: seen, or, where the kernel says too little of it, to be feared.
    fn contention_warnings(&self, device: Option<DeviceKind>) -> Vec<Warning> {
        let Some(seen) = self.contention else { return Vec::new() };
        let (role, cores) = (self.role, self.threads.cores.as_str());
        let steal = seen.steal().map(|share| Warning::cpu_steal(role, cores, share));
        let others = if seen.cores_were_shared(device) {
            Some(Warning::cores_shared(role, cores, &seen, self.load))
        } else {
            let high = self.load.filter(|load| load.is_high() && seen.may_suffer_from_load());
            high.map(|load| Warning::host_busy(role, load))
        };
        steal.into_iter().chain(others).collect()
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

/// What took the times, in a line; `None` where nothing did.
pub(super) fn describe_clocks(conditions: &[Conditions]) -> Option<String> {
    let end = |end: &Conditions| Some(format!("{} {}", end.role.name(), end.clock.as_ref()?.describe()));
    let clocks: Vec<String> = conditions.iter().filter_map(end).collect();
    (!clocks.is_empty()).then(|| clocks.join("; "))
}

/// Who else wanted the cores, a line for each end.
pub(super) fn describe_contention(conditions: &[Conditions]) -> String {
    let end = |end: &Conditions| {
        let load = end.load.map_or(String::new(), |load| format!("; {}", load.describe()));
        Some(format!(" Cores of the {}: {}{load}\n", end.role.name(), end.contention?.describe()))
    };
    conditions.iter().filter_map(end).collect()
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
            clock: Some(ClockUse::monotonic("one reading a batch")),
            load: Some(Load { average: 0.5, cores: 8 }),
            contention: Some(quiet()),
        }
    }

    /// Two seconds on a core of its own.
    fn quiet() -> Contention {
        Contention {
            thread_time_ns: 2_000_000_000,
            waited_ns: Some(100_000),
            involuntary_switches: 9,
            voluntary_switches: 2,
            cores_wanted_ns: Some(2_000_000_000),
            cores_steal_ns: Some(0),
        }
    }

    fn codes(conditions: &Conditions) -> Vec<String> {
        conditions.warnings(Some(DeviceKind::Adapter)).into_iter().map(|warning| warning.code).collect()
    }

    #[test]
    fn contention_is_warned_of_by_what_was_seen_of_it() {
        let with = |load: f64, seen: Contention| Conditions {
            load: Some(Load { average: load, cores: 8 }),
            contention: Some(seen),
            ..near_the_device(Role::Server)
        };
        assert!(codes(&with(9.0, quiet())).is_empty(), "the load had no effect");
        let unknown = Contention { waited_ns: None, ..quiet() };
        assert_eq!(codes(&with(9.0, unknown)), ["host-busy"]);
        assert!(codes(&with(7.0, unknown)).is_empty());
        let shared = Contention { waited_ns: Some(1_000_000_000), involuntary_switches: 261, ..quiet() };
        assert_eq!(codes(&with(9.0, shared)), ["cores-shared"]);
        let seen = with(9.0, shared).warnings(Some(DeviceKind::Adapter))[0].seen.clone();
        assert_eq!(
            seen,
            "on the server, other tasks ran on cores 4-7: waited 50.00 % of 2.0 s for a core, 261 involuntary and 2 \
             voluntary switches, steal 0.0 %; load 9.0 on 8 cores before"
        );
        let stolen = Contention { cores_steal_ns: Some(200_000_000), ..quiet() };
        assert_eq!(codes(&with(0.1, stolen)), ["cpu-steal"]);
        assert!(
            Conditions { contention: None, ..with(99.0, quiet()) }
                .warnings(Some(DeviceKind::Adapter))
                .is_empty()
        );
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
        assert!(near_the_device(Role::Client).warnings(Some(DeviceKind::Adapter)).is_empty());
        let warnings = not_bound(Unbound::NotAllowed).warnings(Some(DeviceKind::Adapter));
        let codes: Vec<&str> = warnings.iter().map(|warning| warning.code.as_str()).collect();
        assert_eq!(codes, ["threads-far-from-device", "memory-far-from-device"]);
        assert!(warnings[1].seen.contains("3 of 4 pages"), "{}", warnings[1].seen);
        for asked in [Unbound::Asked, Unbound::Inherited, Unbound::NoNode] {
            assert!(not_bound(asked).warnings(Some(DeviceKind::Adapter)).is_empty(), "{asked:?}");
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
        assert!(
            Conditions { threads, memory, ..near_the_device(Role::Client) }
                .warnings(Some(DeviceKind::Adapter))
                .is_empty()
        );
    }

    #[test]
    fn memory_that_went_elsewhere_is_warned_of() {
        let near = near_the_device(Role::Client);
        let memory = MemoryBinding { pages: vec![NodePages { numa_node: 0, pages: 4 }], ..near.memory };
        assert_eq!(
            Conditions { memory, ..near }.warnings(Some(DeviceKind::Adapter))[0].code,
            "memory-far-from-device"
        );
    }
}
