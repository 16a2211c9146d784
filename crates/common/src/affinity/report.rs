//! What was bound to what in the end, as the report has it: read back from the kernel, not repeated from the options.

use serde::{Deserialize, Serialize};

/// Where the measuring threads of an end could run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadBinding {
    /// The cores, as `taskset` takes them; `unknown` where the kernel does not say.
    pub cores: String,
    /// The NUMA nodes that they belong to; empty where the kernel does not say.
    pub numa_nodes: Vec<u32>,
    /// By whose wish.
    pub bound_by: BoundBy,
    /// Why they are not bound; absent where they are.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why_not: Option<Unbound>,
    /// The kernel's words, where it has refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refusal: Option<String>,
}

/// Where the memory of an end lay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryBinding {
    /// The NUMA node that it was to lie on; absent where nobody said.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub numa_node: Option<u32>,
    /// By whose wish.
    pub bound_by: BoundBy,
    /// Why it is not bound; absent where it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why_not: Option<Unbound>,
    /// The kernel's words, where it has refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refusal: Option<String>,
    /// Where its pages were found, of those that were looked at; empty where the kernel does not say.
    pub pages: Vec<NodePages>,
}

/// Pages that were found on a NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePages {
    /// The node.
    pub numa_node: u32,
    /// How many.
    pub pages: u64,
}

/// By whose wish something is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundBy {
    /// The RDMA device's NUMA node.
    Device,
    /// `--cores` or `--numa`.
    Option,
    /// It is not bound.
    None,
}

/// Why something is not bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unbound {
    /// `--numa none`.
    Asked,
    /// TCP has no RDMA device to be near to.
    NoDevice,
    /// The device has no NUMA node.
    NoNode,
    /// The device's node has nothing that this process may use.
    NotAllowed,
    /// The process was started with a memory policy of its own.
    Inherited,
    /// The kernel has refused.
    Refused,
    /// It is memory of a GPU.
    Gpu,
}

impl Unbound {
    fn words(self) -> &'static str {
        match self {
            Self::Asked => "--numa none",
            Self::NoDevice => "no RDMA device",
            Self::NoNode => "its device has no NUMA node",
            Self::NotAllowed => "none of its device's NUMA node may be used",
            Self::Inherited => "it has a policy of its own, from numactl",
            Self::Refused => "the kernel refused",
            Self::Gpu => "it is a GPU's",
        }
    }
}

/// Why not, with the kernel's words where it has some.
fn why(why_not: Option<Unbound>, refusal: Option<&String>) -> String {
    refusal.cloned().unwrap_or_else(|| why_not.map_or("", Unbound::words).to_owned())
}

impl BoundBy {
    fn words(self) -> &'static str {
        match self {
            Self::Device => "its device's",
            Self::Option => "as asked",
            Self::None => "",
        }
    }
}

fn numbers(numbers: impl Iterator<Item = u32>) -> String {
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(" and ")
}

/// `core 2`, `cores 2-5`: a list that may be of another machine.
pub(crate) fn cores_named(cores: &str) -> String {
    format!("core{} {cores}", if cores.contains(['-', ',']) { "s" } else { "" })
}

/// An end's binding in words: `to cores 4-7 (NUMA 1, its device's), memory on NUMA 1`.
pub(crate) fn describe(threads: &ThreadBinding, memory: &MemoryBinding) -> String {
    let node = numbers(threads.numa_nodes.iter().copied());
    let node = if node.is_empty() { String::new() } else { format!("NUMA {node}, ") };
    let bound = match threads.bound_by {
        BoundBy::None => format!("not bound ({})", why(threads.why_not, threads.refusal.as_ref())),
        by => format!("to {} ({node}{})", cores_named(&threads.cores), by.words()),
    };
    let same = threads.bound_by == BoundBy::None
        && (threads.why_not, &threads.refusal) == (memory.why_not, &memory.refusal);
    if same { bound } else { format!("{bound}, {}", memory.describe()) }
}

impl MemoryBinding {
    /// Of memory that is on no NUMA node.
    pub(super) fn of_gpu() -> Self {
        Self {
            numa_node: None,
            bound_by: BoundBy::None,
            why_not: Some(Unbound::Gpu),
            refusal: None,
            pages: Vec::new(),
        }
    }

    fn describe(&self) -> String {
        match (self.bound_by, self.numa_node, self.pages.is_empty()) {
            (BoundBy::None, _, _) => {
                format!("memory not bound ({})", why(self.why_not, self.refusal.as_ref()))
            }
            (_, _, false) => format!("memory {}", self.describe_pages()),
            (_, node, true) => format!("memory meant for NUMA {}, not verified", node.unwrap_or_default()),
        }
    }

    /// Where its pages were found: `on NUMA 1`, `2 pages on NUMA 0 and 510 on NUMA 1`.
    pub(super) fn describe_pages(&self) -> String {
        if let [one] = self.pages.as_slice() {
            return format!("on NUMA {}", one.numa_node);
        }
        let part = |node: &NodePages| format!("{} on NUMA {}", node.pages, node.numa_node);
        let parts: Vec<String> = self.pages.iter().map(part).collect();
        parts.join(" and ").replacen(" on", " pages on", 1)
    }

    /// Of the pages that were looked at, those that are not on `node`, and all.
    pub(crate) fn pages_not_on(&self, node: u32) -> (u64, u64) {
        let all: u64 = self.pages.iter().map(|found| found.pages).sum();
        let there: u64 =
            self.pages.iter().filter(|found| found.numa_node == node).map(|found| found.pages).sum();
        (all - there, all)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn threads_near_the_device() -> ThreadBinding {
        ThreadBinding {
            cores: "4-7".into(),
            numa_nodes: vec![1],
            bound_by: BoundBy::Device,
            why_not: None,
            refusal: None,
        }
    }

    pub(crate) fn memory_near_the_device() -> MemoryBinding {
        MemoryBinding {
            numa_node: Some(1),
            bound_by: BoundBy::Device,
            why_not: None,
            refusal: None,
            pages: vec![NodePages { numa_node: 1, pages: 512 }],
        }
    }

    #[test]
    fn a_binding_is_told_with_its_reason() {
        let (threads, memory) = (threads_near_the_device(), memory_near_the_device());
        assert_eq!(describe(&threads, &memory), "to cores 4-7 (NUMA 1, its device's), memory on NUMA 1");
        let one =
            ThreadBinding { cores: "2".into(), numa_nodes: vec![0], bound_by: BoundBy::Option, ..threads };
        let split = MemoryBinding {
            pages: vec![NodePages { numa_node: 0, pages: 2 }, NodePages { numa_node: 1, pages: 510 }],
            ..memory.clone()
        };
        assert_eq!(
            describe(&one, &split),
            "to core 2 (NUMA 0, as asked), memory 2 pages on NUMA 0 and 510 on NUMA 1"
        );
        assert_eq!(split.pages_not_on(1), (2, 512));
        let unseen = MemoryBinding { pages: Vec::new(), ..memory };
        assert!(describe(&one, &unseen).ends_with("memory meant for NUMA 1, not verified"));
    }

    #[test]
    fn what_is_not_bound_is_told_once_with_its_reason() {
        let threads = ThreadBinding {
            cores: "0-7".into(),
            numa_nodes: vec![0, 1],
            bound_by: BoundBy::None,
            why_not: Some(Unbound::NoNode),
            refusal: None,
        };
        let memory = MemoryBinding {
            numa_node: None,
            bound_by: BoundBy::None,
            why_not: Some(Unbound::NoNode),
            refusal: None,
            pages: Vec::new(),
        };
        assert_eq!(describe(&threads, &memory), "not bound (its device has no NUMA node)");
        let refused = MemoryBinding {
            why_not: Some(Unbound::Refused),
            refusal: Some("set_mempolicy: EPERM (1), Operation not permitted".into()),
            ..memory
        };
        assert_eq!(
            describe(&threads_near_the_device(), &refused),
            "to cores 4-7 (NUMA 1, its device's), memory not bound (set_mempolicy: EPERM (1), Operation not permitted)"
        );
    }
}
