//! What the software device does at the verbs: every fact of the conformance suite, and no difference.

use linkproof_tests::{Tool, free_port, softgpu};

/// Facts about bytes on their way.
const MESSAGES: &str = "writes:: messages:: receives:: keys:: memory:: extended:: flush:: processes::";

/// Every fact holds on a device that `devices` describes.
fn every_fact_holds(devices: &str) {
    facts_hold(devices, "", 200);
}

/// The facts that `arguments` choose, at least so many, hold on a device that `devices` describes, beside a GPU.
fn facts_hold(devices: &str, arguments: &str, at_least: usize) {
    let fabric = format!("facts-{}", free_port());
    let tool =
        || Tool::soft("verbs-facts", &fabric, devices).args(arguments).env("LINKPROOF_CUDA", softgpu());
    let facts = tool().args("--list").run();
    let count = facts.exits(0).stdout.lines().count();
    assert!(count >= at_least, "only {count} facts");
    let run = tool().run();
    let told = run.exits(0).stdout.lines().last();
    assert_eq!(told, Some(&*format!("{count} facts of soft0: {count} ok, 0 differ as listed, 0 failed")));
}

#[test]
fn every_verbs_fact_holds_on_ethernet() {
    every_fact_holds("");
}

#[test]
fn every_verbs_fact_holds_on_infiniband() {
    every_fact_holds("soft0 link=infiniband lid=5");
}

#[test]
fn every_verbs_fact_holds_with_small_limits() {
    every_fact_holds("soft0 mtu=256 max_qp_wr=128 max_sge=4 max_inline=128 max_cqe=256");
}

#[test]
fn every_verbs_fact_holds_on_memory_of_a_gpu() {
    facts_hold("", "--memory gpu", 200);
}

#[test]
fn messages_from_a_gpu_to_the_host_are_as_any() {
    facts_hold("", &format!("--memory gpu,host {MESSAGES}"), 50);
}

#[test]
fn messages_from_the_host_to_a_gpu_are_as_any() {
    facts_hold("", &format!("--memory host,gpu {MESSAGES}"), 50);
}

#[test]
fn messages_between_dma_bufs_are_as_any() {
    facts_hold("", &format!("--memory dma-buf {MESSAGES}"), 50);
}
