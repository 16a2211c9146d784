//! Binding for real, on threads of their own: this machine's cores, and trees that lie about its nodes.

use std::fs;

use super::*;
use crate::memory::{HostBuffer, MemoryKind};

const NOTHING: Wish = Wish { cores: None, numa: None };

/// A machine whose device `mlx5_0` is on node `node`, which has the cores `cores`.
fn machine(node: u32, cores: &Cores) -> (tempfile::TempDir, HostFiles) {
    let tree = tempfile::tempdir().unwrap();
    let write = |path: &str, text: String| {
        let path = tree.path().join("sys").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("devices/system/node/online", format!("{node}\n"));
    write(&format!("devices/system/node/node{node}/cpulist"), format!("{cores}\n"));
    write("class/infiniband/mlx5_0/device/numa_node", format!("{node}\n"));
    let files = HostFiles::below(tree.path());
    (tree, files)
}

/// Runs `body` on a thread of its own, with the first core that the process may use.
fn elsewhere(body: impl FnOnce(Cores) + Send + 'static) {
    let first = Cores::of(at_start().numbers().first().copied());
    std::thread::spawn(move || body(first)).join().unwrap();
}

#[test]
fn the_devices_node_is_bound_to_read_back_and_left_again() {
    elsewhere(|first| {
        let before = kernel::cores().unwrap();
        let (_tree, files) = machine(0, &first);
        let bound = Bound::here(&NOTHING, Some("mlx5_0"), &files).unwrap();
        assert_eq!(kernel::cores().unwrap(), first);
        assert_eq!(
            (bound.threads().cores.as_str(), bound.threads().bound_by),
            (first.to_string().as_str(), BoundBy::Device)
        );
        assert_eq!((bound.threads().numa_nodes.as_slice(), bound.device_node()), ([0].as_slice(), Some(0)));
        assert_eq!(bound.cores().for_thread(3, 4), first);
        drop(bound);
        assert_eq!(kernel::cores().unwrap(), before);
    });
}

#[test]
fn threads_that_watch_roam() {
    elsewhere(|first| {
        let (_tree, files) = machine(0, &first);
        let _bound = Bound::here(&NOTHING, Some("mlx5_0"), &files).unwrap();
        let watcher = std::thread::spawn(|| {
            let inherited = kernel::cores().unwrap();
            roam();
            (inherited, kernel::cores().unwrap())
        });
        assert_eq!(watcher.join().unwrap(), (first, at_start().clone()));
    });
}

#[test]
fn each_of_several_threads_gets_one_core_of_a_list_that_has_enough() {
    let list = ThreadCores { cores: Cores::of([8, 2, 3]), one_each: true };
    assert_eq!([0, 1, 2].map(|index| list.for_thread(index, 3).numbers()[0]), [8, 2, 3]);
    assert_eq!(list.for_thread(1, 4), Cores::of([8, 2, 3]));
    let node = ThreadCores { one_each: false, ..list };
    assert_eq!(node.for_thread(1, 2), Cores::of([8, 2, 3]));
}

#[test]
fn nothing_is_touched_where_nothing_is_bound() {
    elsewhere(|_| {
        let before = kernel::cores().unwrap();
        let files = HostFiles::this_machine();
        let bound = Bound::here(&NOTHING, None, &files).unwrap();
        assert_eq!(kernel::cores().unwrap(), before);
        assert_eq!(bound.threads().why_not, Some(Unbound::NoDevice));
        assert_eq!(bound.threads().cores, before.to_string());
    });
}

#[test]
fn cores_outside_of_this_process_are_refused_and_leave_no_trace() {
    elsewhere(|_| {
        let before = kernel::cores().unwrap();
        // The tree says nothing of cores, so that the kernel is asked.
        let (_tree, files) = machine(0, &before);
        let wish = Wish { cores: Some(Cores::of([MAX_CORES - 1])), ..NOTHING };
        let error = Bound::here(&wish, None, &files).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Affinity);
        assert_eq!(error.what, "cannot run on core 8191: sched_setaffinity: EINVAL (22), Invalid argument");
        let first = before.numbers()[0];
        let wish = Wish { cores: Some(Cores::of([first, MAX_CORES - 1])), ..NOTHING };
        let error = Bound::here(&wish, None, &files).unwrap_err();
        assert_eq!(
            error.what,
            format!("this process may not run on core 8191 of the {first},8191 asked for")
        );
        assert_eq!(kernel::cores().unwrap(), before);
    });
}

#[test]
fn memory_for_a_node_that_the_machine_does_not_have_is_noted_by_default_and_refused_when_asked_for() {
    elsewhere(|first| {
        // A node of the tree that no kernel of this machine has.
        let (_tree, files) = machine(1000, &first);
        let bound = Bound::here(&NOTHING, Some("mlx5_0"), &files).unwrap();
        let buffer = HostBuffer::new(10_000, MemoryKind::Host).unwrap();
        let memory = bound.placement(&buffer).unwrap();
        assert_eq!((memory.bound_by, memory.why_not), (BoundBy::None, Some(Unbound::Refused)));
        assert!(memory.refusal.unwrap().starts_with("set_mempolicy: E"));
        drop(bound);
        let wish = Wish { numa: Some(Numa::Node(1000)), ..NOTHING };
        let error = Bound::here(&wish, Some("mlx5_0"), &files).unwrap_err();
        assert!(
            error.what.starts_with("cannot put memory on NUMA node 1000: set_mempolicy: E"),
            "{}",
            error.what
        );
    });
}

#[test]
fn pages_are_found_where_the_kernel_has_put_them() {
    elsewhere(|first| {
        // The node of this core, by this machine's own files; without them there is none to ask for.
        let files = HostFiles::this_machine();
        let Some(&node) = Topology::of(&files).nodes_of(&first).first() else { return };
        let wish = Wish { numa: Some(Numa::Node(node)), ..NOTHING };
        // A container's filter may refuse the policy.
        let Ok(bound) = Bound::here(&wish, None, &files) else { return };
        let buffer = HostBuffer::new(5 << 20, MemoryKind::Host).unwrap();
        let memory = bound.placement(&buffer).unwrap();
        assert_eq!((memory.bound_by, memory.numa_node), (BoundBy::Option, Some(node)));
        if memory.refusal.is_none() {
            assert_eq!(memory.pages, [NodePages { numa_node: node, pages: PAGES_LOOKED_AT }]);
        }
    });
}

#[test]
fn a_buffer_is_looked_at_from_its_first_to_its_last_page() {
    assert_eq!(pages_to_look_at(0x1000, 1), [0x1000]);
    assert_eq!(pages_to_look_at(0x1000, 4097), [0x1000, 0x2000]);
    let many = pages_to_look_at(0, 1 << 30);
    assert_eq!((many.len() as u64, many[0], *many.last().unwrap()), (PAGES_LOOKED_AT, 0, (1 << 30) - 4096));
    assert!(many.is_sorted());
    assert_eq!(
        counted(&[Some(1), Some(0), None, Some(1)]),
        [NodePages { numa_node: 0, pages: 1 }, NodePages { numa_node: 1, pages: 2 }]
    );
}
