//! What of the machine may explain a failure of `coll-perf`, on a machine whose adapter's port has gone down.

use linkproof_common::node::fixture;
use linkproof_tests::{Finished, Ranks, Tool, free_port, is_root, schema, skip, works};

/// A machine with that port, as programs in a mount namespace of their own see it.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    /// `None`, and a reason printed, where this process can't make one.
    fn with_a_port_that_is_down(test: &str) -> Option<Self> {
        if !is_root() || !works("unshare -m true") {
            skip(test, "only root can have another /sys, in a mount namespace");
            return None;
        }
        let folder = tempfile::tempdir_in(fixture::quick_folder()).expect("a folder");
        fixture::link_down().write_to(folder.path()).expect("a tree");
        let script = format!("mount --bind {}/sys /sys && exec \"$@\"\n", folder.path().display());
        std::fs::write(folder.path().join("enter.sh"), script).expect("a script");
        Some(Self { folder })
    }

    fn run(&self, tool: Tool) -> Finished {
        tool.by_way_of(&format!("unshare -m sh {}/enter.sh", self.folder.path().display())).run()
    }
}

/// The first failure says what may be behind it, in words and by its code.
#[track_caller]
fn suggests_the_port(run: &Finished, code: &str) {
    let document = schema::parse(&run.exits(4).stdout);
    let failure = &document["verdict"]["failures"][0];
    assert_eq!(failure["code"], code, "{}", run.stderr);
    assert_eq!(failure["findings"][0], "port-not-active", "{failure}");
    run.says(&["suggestion: port-not-active (mlx5_0 port 1): the port is DOWN"]);
}

#[test]
fn a_connection_between_ranks_that_fails_is_explained_as_a_writes_is() {
    const TEST: &str = "a_connection_between_ranks_that_fails_is_explained_as_a_writes_is";
    let Some(machine) = Machine::with_a_port_that_is_down(TEST) else { return };
    let tool = Tool::new("coll-perf")
        .args("--transport rdma --soft-device --ranks 2 --cores any -b 1M -e 1M -n 3 --json")
        .env(
            "LINKPROOF_SOFTNIC",
            format!("fabric=suggest-{}; soft0 fault=send@3:RETRY_EXC_ERR", free_port()),
        );
    suggests_the_port(&machine.run(tool), "completion");
}

#[test]
fn ranks_that_do_not_come_are_explained() {
    let Some(machine) = Machine::with_a_port_that_is_down("ranks_that_do_not_come_are_explained") else {
        return;
    };
    let tool = Ranks::of(2).rank(0, "--transport tcp -T 1 --json");
    suggests_the_port(&machine.run(tool), "peer-timeout");
}

#[test]
fn ranks_that_wait_without_a_network_are_not_explained_by_one() {
    const TEST: &str = "ranks_that_wait_without_a_network_are_not_explained_by_one";
    let Some(machine) = Machine::with_a_port_that_is_down(TEST) else { return };
    // A rank that is late by more than the others wait.
    let late = "--backend host --transport shm --ranks 2 --cores any -b 1K -e 1K -n 3 -T 1 --inject-fault delay:1:5000000 --json";
    let run = machine.run(Tool::new("coll-perf").args(late));
    let document = schema::parse(&run.exits(4).stdout);
    assert_eq!(document["verdict"]["failures"][0].get("findings"), None, "{}", run.stderr);
}
