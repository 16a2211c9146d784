//! Which cores an end measures on, and which NUMA node its memory is on.
//!
//! By default both are the RDMA device's NUMA node, where it has one: the processor's reads of what the adapter has
//! written, and its doorbells, then do not cross between sockets. The whole node and not one core of it: two servers
//! of one host, or both ends of a run, would otherwise choose the same core and wait for each other. `--cores` and
//! `--numa` say otherwise, of this end alone.
//!
//! What is bound is the thread that measures, and threads that it starts; the threads beside it that watch the control
//! channel go where the process was started ([`roam`]). What an option asks for and can't be had is an error; what
//! the default can't have is told in the report, which has what the kernel says afterwards ([`report`]).

mod cores;
mod intent;
mod kernel;
pub mod report;
mod spread;
mod topology;

pub use cores::{Cores, MAX_CORES};
pub use intent::{Numa, Wish};
pub use report::{BoundBy, MemoryBinding, NodePages, ThreadBinding, Unbound};
pub use spread::{allowed, one_each};

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::OnceLock;

use crate::error::{Error, ErrorKind, Result};
use crate::host::HostFiles;
use crate::memory::{Buffer, MemoryKind};
use intent::{Aim, Premises};
use kernel::MemoryPolicy;
use topology::Topology;

/// The cores that the process was started on; known once something was bound.
static AT_START: OnceLock<Cores> = OnceLock::new();

fn at_start() -> &'static Cores {
    AT_START.get_or_init(|| kernel::cores().unwrap_or_default())
}

/// Lets the calling thread run wherever the process was started: one that is started by a bound thread is bound too,
/// and what is not measuring would take the core from what is.
pub fn roam() {
    if let Some(cores) = AT_START.get() {
        // A thread that stays where it is does its work as well.
        let _ = kernel::run_on(cores);
    }
}

/// Has the calling thread run on `cores`: a measuring thread of several, on those of [`ThreadCores::for_thread`].
///
/// # Errors
/// [`ErrorKind::Affinity`] with the kernel's words.
pub fn run_on(cores: &Cores) -> Result<()> {
    kernel::run_on(cores).map_err(|refusal| {
        let what = format!("cannot run on {}: {}", cores.describe(), refusal.describe());
        Error::new(ErrorKind::Affinity, what)
    })
}

/// Which cores each of several measuring threads gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadCores {
    cores: Cores,
    one_each: bool,
}

impl ThreadCores {
    /// All of them.
    pub fn all(&self) -> &Cores {
        &self.cores
    }

    /// The cores of the thread number `index`, from 0, of so many: one each of a list that `--cores` gave, in its order,
    /// where it has enough; otherwise all. Two threads that poll on one core would take turns there while another may
    /// be idle.
    pub fn for_thread(&self, index: usize, threads: usize) -> Cores {
        if self.one_each && threads <= self.cores.len() {
            Cores::of([self.cores.numbers()[index]])
        } else {
            self.cores.clone()
        }
    }
}

/// The calling thread, bound. It is as it was before once this is dropped, on that thread.
#[derive(Debug)]
pub struct Bound {
    cores_before: Option<Cores>,
    policy_before: Option<MemoryPolicy>,
    device_node: Option<u32>,
    cores: ThreadCores,
    threads: ThreadBinding,
    memory: MemoryBinding,
    on_this_thread: PhantomData<*const ()>,
}

impl Bound {
    /// Binds the calling thread and the memory that it will allocate, as `wish` says and the node of the RDMA device
    /// `device` suggests.
    ///
    /// # Errors
    /// [`ErrorKind::Affinity`] where what `wish` says can't be had.
    pub fn here(wish: &Wish, device: Option<&str>, files: &HostFiles) -> Result<Self> {
        let policy = MemoryPolicy::current();
        let memory_chosen = policy.is_ok_and(|policy| !policy.is_default());
        let premises = Premises { wish, device, allowed: at_start(), memory_chosen, files };
        let intent = premises.intent()?;
        let mut bound = Self::nothing(intent.device_node, wish.cores.as_ref());
        bound.bind_threads(intent.threads)?;
        bound.read_back(files);
        bound.bind_memory(intent.memory)?;
        Ok(bound)
    }

    fn nothing(device_node: Option<u32>, list: Option<&Cores>) -> Self {
        Self {
            cores_before: None,
            policy_before: None,
            device_node,
            cores: ThreadCores { cores: list.cloned().unwrap_or_default(), one_each: list.is_some() },
            threads: ThreadBinding {
                cores: "unknown".to_owned(),
                numa_nodes: Vec::new(),
                bound_by: BoundBy::None,
                why_not: None,
                refusal: None,
            },
            memory: MemoryBinding {
                numa_node: None,
                bound_by: BoundBy::None,
                why_not: None,
                refusal: None,
                pages: Vec::new(),
            },
            on_this_thread: PhantomData,
        }
    }

    fn bind_threads(&mut self, aim: Aim<Cores>) -> Result<()> {
        let (cores, by) = match aim {
            Aim::To(cores, by) => (cores, by),
            Aim::Nothing(why) => {
                self.threads.why_not = Some(why);
                return Ok(());
            }
        };
        self.cores_before = kernel::cores().ok();
        match kernel::run_on(&cores) {
            Ok(()) if by == BoundBy::Option => check_got(&cores)?,
            Ok(()) => {}
            Err(refusal) if by == BoundBy::Option => {
                let what = format!("cannot run on {}: {}", cores.describe(), refusal.describe());
                return Err(not_allowed(what));
            }
            Err(refusal) => {
                self.threads.why_not = Some(Unbound::Refused);
                self.threads.refusal = Some(refusal.describe());
                return Ok(());
            }
        }
        self.threads.bound_by = by;
        Ok(())
    }

    /// The kernel's word on where this thread may run now.
    fn read_back(&mut self, files: &HostFiles) {
        let Ok(cores) = kernel::cores() else { return };
        self.threads.cores = cores.to_string();
        self.threads.numa_nodes = Topology::of(files).nodes_of(&cores);
        if !self.cores.one_each {
            self.cores.cores = cores;
        }
    }

    fn bind_memory(&mut self, aim: Aim<u32>) -> Result<()> {
        let (node, by) = match aim {
            Aim::To(node, by) => (node, by),
            Aim::Nothing(why) => {
                self.memory.why_not = Some(why);
                return Ok(());
            }
        };
        self.policy_before = MemoryPolicy::current().ok();
        match MemoryPolicy::prefer(node).set() {
            Ok(()) => {
                self.memory.numa_node = Some(node);
                self.memory.bound_by = by;
            }
            Err(refusal) if by == BoundBy::Option => {
                let what = format!("cannot put memory on NUMA node {node}: {}", refusal.describe());
                return Err(Error::new(ErrorKind::Affinity, what).hint(
                    "a container's filter refuses it without CAP_SYS_NICE, and its cpuset has to have the node; or --numa none",
                ));
            }
            Err(refusal) => {
                self.memory.why_not = Some(Unbound::Refused);
                self.memory.refusal = Some(refusal.describe());
            }
        }
        Ok(())
    }

    /// The NUMA node of the RDMA device; `None` where it has none, or there is no device.
    pub fn device_node(&self) -> Option<u32> {
        self.device_node
    }

    /// Which cores several measuring threads get.
    pub fn cores(&self) -> &ThreadCores {
        &self.cores
    }

    /// Where the measuring thread may run, by the kernel's word.
    pub fn threads(&self) -> &ThreadBinding {
        &self.threads
    }

    /// Where the pages of `buffer` are, which was allocated since.
    ///
    /// # Errors
    /// [`ErrorKind::Affinity`] where they are not where an option wants them.
    pub fn placement(&self, buffer: &impl Buffer) -> Result<MemoryBinding> {
        if buffer.kind() == MemoryKind::Cuda {
            return Ok(MemoryBinding::of_gpu());
        }
        let mut memory = self.memory.clone();
        match kernel::nodes_of(&pages_to_look_at(buffer.address(), buffer.len())) {
            Ok(nodes) => memory.pages = counted(&nodes),
            Err(refusal) => memory.refusal = memory.refusal.or_else(|| Some(refusal.describe())),
        }
        match (memory.bound_by, memory.numa_node.map(|node| (node, memory.pages_not_on(node)))) {
            (BoundBy::Option, Some((node, (elsewhere, all)))) if elsewhere > 0 => Err(Error::new(
                ErrorKind::Affinity,
                format!("{elsewhere} of {all} pages looked at are not on NUMA node {node}"),
            )
            .fact("found", memory.describe_pages())
            .hint(format!(
                "the node may be full: numactl --hardware shows its free memory{}",
                match buffer.kind() {
                    MemoryKind::HostHuge => ", and /sys/devices/system/node/nodeN/hugepages its huge pages",
                    MemoryKind::Host | MemoryKind::Cuda => "",
                }
            ))),
            _ => Ok(memory),
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // What was possible once and is refused now leaves a thread that is bound, which the next one rebinds.
        if let Some(cores) = &self.cores_before {
            let _ = kernel::run_on(cores);
        }
        if let Some(policy) = &self.policy_before {
            let _ = policy.set();
        }
    }
}

/// The kernel passes over cores that the control group of the process does not have.
fn check_got(asked: &Cores) -> Result<()> {
    let Ok(got) = kernel::cores() else { return Ok(()) };
    let missing = asked.not_among(&got);
    if missing.is_empty() {
        return Ok(());
    }
    let what = format!("this process may not run on {} of the {asked} asked for", missing.describe());
    Err(not_allowed(what).fact("got", got.describe()))
}

fn not_allowed(what: String) -> Error {
    Error::new(ErrorKind::Affinity, what)
        .fact("started on", at_start().describe())
        .hint("name cores of its cpuset, which its container or job decides on")
}

/// Pages of a buffer that are looked at: enough to see a buffer that is split, and one quick call for any size.
const PAGES_LOOKED_AT: u64 = 512;
/// The base page of x86-64; on machines with larger ones some are looked at twice.
const PAGE: u64 = 4096;

/// Addresses in as many pages of a buffer, from its first to its last, evenly.
fn pages_to_look_at(address: u64, len: u64) -> Vec<u64> {
    let pages = len.div_ceil(PAGE).max(1);
    let count = pages.min(PAGES_LOOKED_AT);
    let page = |index: u64| if count == 1 { 0 } else { index * (pages - 1) / (count - 1) };
    (0..count).map(|index| address + page(index) * PAGE).collect()
}

fn counted(nodes: &[Option<u32>]) -> Vec<NodePages> {
    let mut pages = BTreeMap::new();
    for node in nodes.iter().flatten() {
        *pages.entry(*node).or_insert(0) += 1;
    }
    pages.into_iter().map(|(numa_node, pages)| NodePages { numa_node, pages }).collect()
}

#[cfg(test)]
mod tests;
