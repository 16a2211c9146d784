//! Planted faults: each ends with its exit status and the words that name it, in time.

use linkproof_tests::{Finished, SOON, schema};
use nix::sys::signal::Signal;

use crate::ranks::{Ranks, Start, has_gpu};

const LINE: &str = "--shared-gpu --op all_reduce -b 1M -e 1M -n 3 --rounds 1";
/// Long enough to be still under way when it is ended.
const LONG: &str = "--shared-gpu --op all_reduce -b 1M -e 1M -n 1000 --rounds 1000";

fn finished_without(ranks: Ranks, killed: usize) -> Vec<Finished> {
    let all = ranks.finish().into_iter().enumerate();
    all.filter(|(rank, _)| *rank != killed).map(|(_, finished)| finished).collect()
}

#[test]
fn a_rank_killed_while_nccl_comes_together_ends_the_others_by_name() {
    if !has_gpu("a_rank_killed_while_nccl_comes_together_ends_the_others_by_name") {
        return;
    }
    let ranks = Start::new(3, LINE).start();
    ranks.wait_for_log(2, "NCCL version");
    ranks.rank(2).signal(Signal::SIGKILL);
    for finished in finished_without(ranks, 2) {
        finished.exits(4).says(&["rank 2"]);
    }
}

#[test]
fn a_rank_killed_in_a_collective_ends_the_others_by_name() {
    if !has_gpu("a_rank_killed_in_a_collective_ends_the_others_by_name") {
        return;
    }
    let ranks = Start::new(2, LONG).start();
    ranks.wait_for_log(1, "Init COMPLETE");
    ranks.wait_for_log(1, "Channel");
    // In the warm-up or in a round, which takes seconds.
    std::thread::sleep(SOON / 4);
    ranks.rank(1).signal(Signal::SIGKILL);
    for finished in finished_without(ranks, 1) {
        finished.exits(4).says(&["rank 1"]);
    }
}

/// A process that neither goes on nor ends: no connection says that it is gone. NCCL's own watch knows of it, from 2.24 on.
#[test]
fn a_rank_that_stands_still_ends_the_others_by_the_deadline() {
    if !has_gpu("a_rank_that_stands_still_ends_the_others_by_the_deadline") {
        return;
    }
    let ranks = Start::new(2, &format!("{LONG} -T 8")).start();
    ranks.wait_for_log(1, "Channel");
    std::thread::sleep(SOON / 4);
    ranks.rank(1).signal(Signal::SIGSTOP);
    ranks.finish_first().exits(4).says(&["within 8 s", "NCCL's RAS at localhost:28028"]);
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    if !has_gpu("an_interface_that_is_not_there_is_named") {
        return;
    }
    let run = Start::new(2, LINE).with(&[("NCCL_SOCKET_IFNAME", "nosuch0")]).run();
    run.exits(2).says(&["NCCL finds no interface that is NCCL_SOCKET_IFNAME: nosuch0"]);
}

#[test]
fn a_gpu_that_is_not_there_is_named() {
    if !has_gpu("a_gpu_that_is_not_there_is_named") {
        return;
    }
    let run = Start::new(2, "-b 1M -e 1M").with(&[("LOCAL_RANK", "9")]).run();
    run.exits(3).says(&["has no GPU of its own: this process sees 1", "CUDA_VISIBLE_DEVICES: 0"]);
}

#[test]
fn two_ranks_on_one_gpu_are_refused() {
    if !has_gpu("two_ranks_on_one_gpu_are_refused") {
        return;
    }
    let run = Start::new(2, "--op all_reduce -b 1M -e 1M").with(&[("LOCAL_RANK", "0")]).run();
    run.exits(2).says(&["ranks 0 and 1 are on one GPU", "--shared-gpu"]);
}

#[test]
fn a_library_that_is_not_there_is_named() {
    if !has_gpu("a_library_that_is_not_there_is_named") {
        return;
    }
    let run = Start::new(1, "--nccl-lib /nowhere/libnccl.so.2 -b 1M -e 1M --json").run();
    run.exits(3).says(&["/nowhere/libnccl.so.2"]);
    assert_eq!(schema::parse(&run.stdout)["verdict"]["failures"][0]["code"], "library-missing");
    let run = Start::new(1, "-b 1M -e 1M").with(&[("LINKPROOF_CUDA", "/nowhere/libcuda.so.1")]).run();
    run.exits(3).says(&["/nowhere/libcuda.so.1"]);
}

#[test]
fn more_memory_than_the_gpu_has_is_refused_with_what_it_has() {
    if !has_gpu("more_memory_than_the_gpu_has_is_refused_with_what_it_has") {
        return;
    }
    let run = Start::new(1, "--op all_reduce -b 400G -e 400G -c 0").run();
    run.exits(3).says(&["400 GiB"]);
}
