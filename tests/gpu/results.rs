//! What is right when all is well.

use linkproof_tests::schema;
use serde_json::Value;

use crate::ranks::{Start, has_gpu};

const SHORT: &str = "-n 3 -w 1 --rounds 2";

fn results(document: &Value) -> &Vec<Value> {
    document["results"].as_array().expect("results")
}

#[test]
fn one_rank_has_no_bus_and_says_so() {
    if !has_gpu("one_rank_has_no_bus_and_says_so") {
        return;
    }
    let run = Start::new(1, &format!("{SHORT} --op all_reduce,alltoall -b 1M -e 16M --json")).run();
    run.exits(0);
    let document = schema::parse(&run.stdout);
    assert!(results(&document).iter().all(|row| row.get("bus_bw_gbyte_per_sec").is_none()));
    assert!(results(&document).iter().all(|row| row["wrong_elements"] == 0));
    let text = Start::new(1, &format!("{SHORT} -b 1M -e 1M")).run();
    text.exits(0);
    assert!(text.stdout.contains("no busbw: one rank has no bus"), "{}", text.stdout);
}

#[test]
fn every_collective_of_ranks_that_share_a_gpu_is_right_and_goes_over_sockets() {
    if !has_gpu("every_collective_of_ranks_that_share_a_gpu_is_right_and_goes_over_sockets") {
        return;
    }
    for n in [2, 4] {
        let line = format!("--shared-gpu {SHORT} --op all -b 64K -e 64K --require-transport socket --json");
        let run = Start::new(n, &line).run();
        run.exits(0);
        let document = schema::parse(&run.stdout);
        assert_eq!(document["plan"]["shared_gpu"], true);
        let names: std::collections::BTreeSet<_> =
            results(&document).iter().filter_map(|row| row["collective"].as_str()).collect();
        assert_eq!(names.len(), 11);
        assert!(results(&document).iter().all(|row| row["wrong_elements"] == 0));
        assert!(results(&document).iter().all(|row| row["checked_elements"].as_u64() > Some(0)));
    }
}

#[test]
fn graphs_and_registered_buffers_give_right_results_and_say_so() {
    if !has_gpu("graphs_and_registered_buffers_give_right_results_and_say_so") {
        return;
    }
    let run = |line: &str| {
        // Without CUMEM NCCL's memory is plain device memory as well; what is tested here are the calls.
        let line =
            format!("--shared-gpu {SHORT} --op all_reduce,alltoall,sendrecv -b 1M -e 1M {line} --json");
        let run = Start::new(2, &line).with(&[("NCCL_CUMEM_ENABLE", "0")]).run();
        run.exits(0);
        let document = schema::parse(&run.stdout);
        assert!(results(&document).iter().all(|row| row["wrong_elements"] == 0), "{line}");
        document
    };
    assert_eq!(run("-G 3")["plan"]["graph_launches"], 3);
    assert_eq!(run("-G 1 --aligned")["plan"]["graph_launches"], 1);
    let both = run("-G 2 -R 1");
    assert_eq!((&both["plan"]["graph_launches"], &both["plan"]["registered"]), (&2.into(), &true.into()));
    let note = both["backend"]["note"].as_str().unwrap_or_default();
    assert!(note.contains("registered with it"), "{note}");
    assert!(both["evidence"][0]["ports"].as_array().is_some_and(|ports| !ports.is_empty()), "{both:#}");
}

#[test]
fn every_type_and_reduction_is_exact() {
    if !has_gpu("every_type_and_reduction_is_exact") {
        return;
    }
    let line =
        format!("--shared-gpu {SHORT} --op all_reduce,reduce_scatter -d all -o all -b 40K -e 40K --json");
    let run = Start::new(2, &line).run();
    run.exits(0);
    let document = schema::parse(&run.stdout);
    // 2 collectives, 12 types, 5 reductions, 2 placements.
    assert_eq!(results(&document).len(), 2 * 12 * 5 * 2);
    assert!(results(&document).iter().all(|row| row["wrong_elements"] == 0));
}

#[test]
fn a_wrong_byte_is_found_on_the_gpu_and_located() {
    if !has_gpu("a_wrong_byte_is_found_on_the_gpu_and_located") {
        return;
    }
    let line = format!("--shared-gpu {SHORT} --op alltoall -b 8M -e 8M --inject-fault flip:1:1234567");
    let run = Start::new(2, &line).run();
    run.exits(1).says(&[
        "wrong elements in results: 2, at 1 of 1 points",
        "rank: 1 (",
        "offset: 1234564 B",
        "from rank 0",
    ]);
}

#[test]
fn a_transport_that_is_not_what_was_asked_for_fails_and_names_the_edges() {
    if !has_gpu("a_transport_that_is_not_what_was_asked_for_fails_and_names_the_edges") {
        return;
    }
    let line = format!("--shared-gpu {SHORT} --op alltoall -b 1M -e 1M --require-transport ib");
    let run = Start::new(2, &line).run();
    run.exits(1).says(&["2 of 2 edges are not ib", "0->1 NET/Socket", "1->0 NET/Socket"]);
}

#[test]
fn an_arm_that_can_not_be_proven_fails_with_its_reason_and_the_others_are_compared() {
    if !has_gpu("an_arm_that_can_not_be_proven_fails_with_its_reason_and_the_others_are_compared") {
        return;
    }
    let line = "--shared-gpu -n 3 -w 1 --op alltoall -b 1M -e 1M --rounds 2 --arm default --arm rdma --arm tcp --json";
    let run = Start::new(2, line).run();
    run.exits(1).says(&[
        "2 of 2 edges are not ib",
        "networks chosen: Socket",
        "RoCE devices: none",
        "arm: rdma",
    ]);
    let document = schema::arms(&run.stdout);
    let of = |arm: usize, field: &str| document["arms"][arm][field].clone();
    assert_eq!([of(0, "proof"), of(2, "proof")], ["NET/Socket", "NET/Socket"]);
    assert_eq!(of(1, "failure")["code"], "requirement-not-met");
    assert_eq!(document["comparison"]["arms"].as_array().map(Vec::len), Some(2));
}
