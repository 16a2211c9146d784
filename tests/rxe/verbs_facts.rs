//! What Soft-RoCE does at the verbs: every fact of the conformance suite, or a difference that is listed there.

use std::collections::BTreeMap;

use linkproof_tests::lab::{Lab, Vm};

#[test]
fn every_verbs_fact_holds_or_differs_as_listed() {
    let Some(lab) = Lab::get("every_verbs_fact_holds_or_differs_as_listed") else { return };
    let list = lab.run(Vm::A, &["verbs-facts", "--list"]).expect_status(0).stdout;
    let mut topics = BTreeMap::<&str, usize>::new();
    for fact in list.lines() {
        *topics.entry(fact.split("::").next().unwrap()).or_default() += 1;
    }
    assert!(list.lines().count() >= 60, "{list}");
    // By topic, since all together take longer than a program in the lab may.
    for (topic, count) in topics {
        lab.run(Vm::A, &["verbs-facts", "-d", "rxe0", &format!("{topic}::")])
            .expect_status(0)
            .expect_stdout(&[&format!("\n{count} facts of rxe0: "), " 0 failed\n"]);
    }
}
