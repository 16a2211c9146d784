//! What shall be bound to what: from the options, the device and the machine. Pure but for reading files.

use super::cores::Cores;
use super::report::{BoundBy, Unbound};
use super::topology::Topology;
use crate::error::{Error, ErrorKind, Result};
use crate::host::HostFiles;

/// What the options of an end say; nothing, unless told otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// `--cores`: where the measuring threads run.
    pub cores: Option<Cores>,
    /// `--numa`: where the memory lies, and the threads run if nothing else is said of them.
    pub numa: Option<Numa>,
}

/// A value of `--numa`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numa {
    /// This node.
    Node(u32),
    /// Nothing is bound.
    None,
}

impl Numa {
    /// The value that a user has written.
    ///
    /// # Errors
    /// What would have been understood.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        if text == "none" {
            return Ok(Self::None);
        }
        match Cores::parse(text).as_ref().map(Cores::numbers) {
            Ok([node]) => Ok(Self::Node(*node)),
            _ => Err("the number of a NUMA node, or none".to_owned()),
        }
    }
}

/// One half of a binding: to what and by whose wish, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Aim<T> {
    To(T, BoundBy),
    Nothing(Unbound),
}

/// What to bind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Intent {
    pub(super) device_node: Option<u32>,
    pub(super) threads: Aim<Cores>,
    pub(super) memory: Aim<u32>,
}

/// What an end has to go by.
pub(super) struct Premises<'a> {
    pub(super) wish: &'a Wish,
    /// The RDMA device; `None` over TCP.
    pub(super) device: Option<&'a str>,
    /// The cores that the process may run on.
    pub(super) allowed: &'a Cores,
    /// Whether the process was started with a memory policy of its own (`numactl`).
    pub(super) memory_chosen: bool,
    pub(super) files: &'a HostFiles,
}

impl Premises<'_> {
    /// What follows from them.
    ///
    /// # Errors
    /// [`ErrorKind::Affinity`] where a core or node that an option names is not there or can't be used.
    pub(super) fn intent(&self) -> Result<Intent> {
        let device_node = self.device.and_then(|device| self.machine().device_node(device));
        Ok(Intent { device_node, threads: self.threads(device_node)?, memory: self.memory(device_node)? })
    }

    fn machine(&self) -> Topology<'_> {
        Topology::of(self.files)
    }

    fn threads(&self, device_node: Option<u32>) -> Result<Aim<Cores>> {
        match (&self.wish.cores, self.wish.numa, device_node) {
            (Some(cores), _, _) => {
                self.check_online(cores)?;
                Ok(Aim::To(cores.clone(), BoundBy::Option))
            }
            (None, Some(Numa::Node(node)), _) => Ok(Aim::To(self.cores_asked_for(node)?, BoundBy::Option)),
            (None, Some(Numa::None), _) => Ok(Aim::Nothing(Unbound::Asked)),
            (None, None, Some(node)) => {
                let usable = self.machine().cores_of(node).unwrap_or_default().among(self.allowed);
                let none = usable.is_empty();
                Ok(if none { Aim::Nothing(Unbound::NotAllowed) } else { Aim::To(usable, BoundBy::Device) })
            }
            (None, None, None) => Ok(Aim::Nothing(self.no_node())),
        }
    }

    fn memory(&self, device_node: Option<u32>) -> Result<Aim<u32>> {
        match (self.wish.numa, device_node) {
            (Some(Numa::Node(node)), _) => {
                self.check_memory(node)?;
                Ok(Aim::To(node, BoundBy::Option))
            }
            (Some(Numa::None), _) => Ok(Aim::Nothing(Unbound::Asked)),
            (None, _) if self.memory_chosen => Ok(Aim::Nothing(Unbound::Inherited)),
            (None, Some(node)) if self.machine().has_memory(node) => Ok(Aim::To(node, BoundBy::Device)),
            (None, Some(_)) => Ok(Aim::Nothing(Unbound::NotAllowed)),
            (None, None) => Ok(Aim::Nothing(self.no_node())),
        }
    }

    fn no_node(&self) -> Unbound {
        if self.device.is_some() { Unbound::NoNode } else { Unbound::NoDevice }
    }

    /// That they may be used as well is for the kernel to say: a process may leave the cores that it was started on.
    fn check_online(&self, cores: &Cores) -> Result<()> {
        let Some(online) = self.machine().online() else { return Ok(()) };
        let missing = cores.not_among(&online);
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Affinity,
            format!(
                "--cores names {}, which this machine does not have or has switched off",
                missing.describe()
            ),
        )
        .fact("online", online.describe())
        .hint("lscpu -e lists the cores with their NUMA nodes"))
    }

    fn cores_asked_for(&self, node: u32) -> Result<Cores> {
        let cores = self.machine().cores_of(node).ok_or_else(|| self.no_such_node(node))?;
        if cores.is_empty() {
            return Err(Error::new(ErrorKind::Affinity, format!("NUMA node {node} has no cores to run on"))
                .hint(format!("--cores names those to use, with --numa {node} for the memory")));
        }
        let usable = cores.among(self.allowed);
        if usable.is_empty() {
            return Err(Error::new(
                ErrorKind::Affinity,
                format!("this process may not run on any core of NUMA node {node}"),
            )
            .fact("the node has", cores.describe())
            .fact("allowed", self.allowed.describe())
            .hint("start it with other cores allowed (taskset, or the cpuset of its container or job)"));
        }
        Ok(usable)
    }

    fn check_memory(&self, node: u32) -> Result<()> {
        self.machine().cores_of(node).ok_or_else(|| self.no_such_node(node))?;
        if self.machine().has_memory(node) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Affinity, format!("NUMA node {node} has no memory"))
            .hint("numactl --hardware lists the nodes with their memory"))
    }

    fn no_such_node(&self, node: u32) -> Error {
        let nodes = self.machine().nodes().filter(|nodes| !nodes.is_empty());
        Error::new(ErrorKind::Affinity, format!("this machine has no NUMA node {node}"))
            .fact("nodes", nodes.map_or("unknown".to_owned(), |nodes| nodes.to_string()))
            .hint("lscpu lists the nodes with their cores; --numa none binds nothing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::topology::tests::two_nodes;

    const NOTHING: Wish = Wish { cores: None, numa: None };

    fn cores(text: &str) -> Cores {
        Cores::parse(text).unwrap()
    }

    fn intent_of(wish: &Wish, device: Option<&str>, allowed: &str, memory_chosen: bool) -> Result<Intent> {
        let (_tree, files) = two_nodes();
        Premises { wish, device, allowed: &cores(allowed), memory_chosen, files: &files }.intent()
    }

    fn intent(wish: &Wish, device: Option<&str>, allowed: &str) -> Intent {
        intent_of(wish, device, allowed, false).unwrap()
    }

    fn refusal(wish: Wish, allowed: &str) -> Error {
        let error = intent_of(&wish, Some("mlx5_0"), allowed, false).unwrap_err();
        assert_eq!(error.exit_status(), crate::error::ExitStatus::Machine);
        error
    }

    fn numa(node: u32) -> Wish {
        Wish { numa: Some(Numa::Node(node)), ..NOTHING }
    }

    #[test]
    fn the_devices_node_is_the_default_within_what_the_process_may_use() {
        let all = intent(&NOTHING, Some("mlx5_0"), "0-7");
        assert_eq!(all.threads, Aim::To(cores("4-7"), BoundBy::Device));
        assert_eq!((all.memory, all.device_node), (Aim::To(1, BoundBy::Device), Some(1)));
        let some = intent(&NOTHING, Some("mlx5_0"), "0-5");
        assert_eq!(some.threads, Aim::To(cores("4-5"), BoundBy::Device));
    }

    #[test]
    fn nothing_is_bound_where_there_is_nothing_to_go_by() {
        for (device, why) in
            [(None, Unbound::NoDevice), (Some("rxe0"), Unbound::NoNode), (Some("mlx5_1"), Unbound::NoNode)]
        {
            let intent = intent(&NOTHING, device, "0-7");
            assert_eq!((intent.threads, intent.memory), (Aim::Nothing(why), Aim::Nothing(why)));
        }
    }

    #[test]
    fn a_node_whose_cores_may_not_be_used_leaves_the_threads_unbound_unless_it_was_asked_for() {
        let intent = intent(&NOTHING, Some("mlx5_0"), "0-3");
        assert_eq!(intent.threads, Aim::Nothing(Unbound::NotAllowed));
        assert_eq!(intent.memory, Aim::To(1, BoundBy::Device));
        let error = refusal(numa(1), "0-3");
        assert_eq!(error.what, "this process may not run on any core of NUMA node 1");
        assert_eq!(error.facts[1].value, "cores 0-3");
    }

    #[test]
    fn options_come_before_the_device() {
        let wish = Wish { cores: Some(cores("2")), ..NOTHING };
        let by_core = intent(&wish, Some("mlx5_0"), "0-7");
        assert_eq!(by_core.threads, Aim::To(cores("2"), BoundBy::Option));
        assert_eq!(by_core.memory, Aim::To(1, BoundBy::Device));
        let by_node = intent(&numa(0), Some("mlx5_0"), "1-7");
        assert_eq!(by_node.threads, Aim::To(cores("1-3"), BoundBy::Option));
        assert_eq!(by_node.memory, Aim::To(0, BoundBy::Option));
        let not = intent(&Wish { numa: Some(Numa::None), ..NOTHING }, Some("mlx5_0"), "0-7");
        assert_eq!((not.threads, not.memory), (Aim::Nothing(Unbound::Asked), Aim::Nothing(Unbound::Asked)));
    }

    #[test]
    fn cores_may_be_others_than_those_the_process_was_started_on() {
        let wish = Wish { cores: Some(cores("7")), ..NOTHING };
        assert_eq!(intent(&wish, None, "0-3").threads, Aim::To(cores("7"), BoundBy::Option));
    }

    #[test]
    fn a_memory_policy_of_numactl_stays_unless_an_option_says_otherwise() {
        let inherited = intent_of(&NOTHING, Some("mlx5_0"), "0-7", true).unwrap();
        assert_eq!(inherited.memory, Aim::Nothing(Unbound::Inherited));
        let asked = intent_of(&numa(0), Some("mlx5_0"), "0-7", true).unwrap();
        assert_eq!(asked.memory, Aim::To(0, BoundBy::Option));
    }

    #[test]
    fn what_an_option_names_has_to_be_there() {
        let error = refusal(Wish { cores: Some(cores("6-9")), ..NOTHING }, "0-7");
        assert_eq!(
            error.what,
            "--cores names cores 8-9, which this machine does not have or has switched off"
        );
        assert_eq!(error.facts[0].value, "cores 0-7");
        let error = refusal(numa(3), "0-7");
        assert_eq!(
            (error.what.as_str(), error.facts[0].value.as_str()),
            ("this machine has no NUMA node 3", "0-2")
        );
        assert_eq!(refusal(numa(2), "0-7").what, "NUMA node 2 has no cores to run on");
        let memory_only = Wish { cores: Some(cores("7")), ..numa(2) };
        assert_eq!(intent(&memory_only, None, "0-7").memory, Aim::To(2, BoundBy::Option));
    }

    #[test]
    fn a_node_is_a_number_or_none() {
        assert_eq!(Numa::parse("none"), Ok(Numa::None));
        assert_eq!(Numa::parse("1"), Ok(Numa::Node(1)));
        for text in ["", "all", "-1", "0-1", "0,1", "1x"] {
            assert!(Numa::parse(text).is_err(), "{text}");
        }
    }
}
