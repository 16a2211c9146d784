//! What the software device does at the verbs: every fact of the conformance suite, and no difference.

use linkproof_tests::{Tool, free_port};

/// Every fact holds on a device that `devices` describes.
fn every_fact_holds(devices: &str) {
    let fabric = format!("facts-{}", free_port());
    let facts = Tool::soft("verbs-facts", &fabric, devices).args("--list").run();
    let count = facts.exits(0).stdout.lines().count();
    assert!(count >= 60, "only {count} facts");
    let run = Tool::soft("verbs-facts", &fabric, devices).run();
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
