//! `coll-perf` with ranks that are processes, and what goes wrong with one of them: the others end soon, and say who it
//! was.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use linkproof_tests::{Finished, Ranks, Running, SOON, Tool, rank_name, schema, skip, works};
use nix::sys::signal::Signal;

/// Few and short iterations: what is tested is not time.
const SHORT: &str = "-b 4K -e 4K -n 3 -w 1 --rounds 2";
/// A run that does not end by itself while a test looks at it.
const LONG: &str = "-b 64K -e 64K -n 200 --rounds 1000";
/// What the issue of a lost rank allows.
const NOTICED_WITHIN: Duration = Duration::from_secs(5);

/// Ranks of a long run with `options`, in the middle of it; `folder` is for what they write.
fn mid_run(count: u32, options: &str, folder: &Path) -> Vec<Running> {
    let samples = folder.join("samples");
    let line = format!("{options} {LONG}");
    let ranks = Ranks::of(count).start_with(&line, |tool, _| tool.arg("--raw-samples").arg(&samples));
    let begin = Instant::now();
    while fs::metadata(&samples).map_or(0, |file| file.len()) == 0 {
        assert!(begin.elapsed() < SOON, "no samples");
        std::thread::sleep(Duration::from_millis(2));
    }
    ranks
}

/// The others of `ranks` once `lost` is killed.
fn kill(mut ranks: Vec<Running>, lost: usize) -> Vec<Finished> {
    let gone = ranks.remove(lost);
    gone.signal(Signal::SIGKILL);
    let begin = Instant::now();
    let left = |limit: Duration| limit.saturating_sub(begin.elapsed());
    ranks.into_iter().map(|rank| rank.finish_within(left(NOTICED_WITHIN))).collect()
}

#[test]
fn a_killed_rank_ends_the_others_within_seconds_with_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    for (count, lost, options) in
        [(2, 1, "--op alltoall"), (3, 2, "--op all_reduce --aligned"), (3, 1, "--op broadcast"), (3, 0, "")]
    {
        let ranks = mid_run(count, options, folder.path());
        let name = rank_name(lost, ranks[lost as usize].pid());
        for other in kill(ranks, lost as usize) {
            other.exits(4).says(&[&format!("{name} is gone")]);
        }
        fs::remove_file(folder.path().join("samples")).expect("it was written");
    }
}

#[test]
fn the_document_of_a_run_that_lost_a_rank_is_valid_and_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let ranks = mid_run(2, "--json", folder.path());
    let name = rank_name(1, ranks[1].pid());
    let first = kill(ranks, 1).remove(0);
    let failure = &schema::parse(&first.exits(4).stdout)["verdict"]["failures"][0];
    assert_eq!(failure["code"], "peer-lost");
    assert!(failure["what"].as_str().is_some_and(|what| what.contains(&name)), "{failure}");
}

#[test]
fn a_stopped_rank_is_named_after_the_time_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut ranks = mid_run(2, "-T 1", folder.path());
    let stopped = ranks.remove(1);
    stopped.signal(Signal::SIGSTOP);
    let first = ranks.remove(0).finish_within(SOON);
    // It waits for the other's bytes, or for its word between rounds.
    first.exits(4).says(&["rank 0 ", "1 s", "rank 1", "--timeout"]);
}

#[test]
fn an_interrupt_of_one_rank_ends_all_with_what_there_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let ranks = mid_run(2, "--json", folder.path());
    ranks[1].signal(Signal::SIGINT);
    let ended: Vec<Finished> = ranks.into_iter().map(Running::finish).collect();
    for rank in &ended {
        rank.exits(130);
    }
    let document = schema::parse(&ended[0].stdout);
    assert!(document["results"][0]["rounds"].as_u64() > Some(0), "what was measured is there");
}

#[test]
fn a_rank_with_other_options_is_refused_by_name() {
    let ranks = Ranks::of(3);
    let others = [(1, ""), (2, "-m 2")].map(|(rank, more)| ranks.rank(rank, &format!("{SHORT} {more}")));
    let others = others.map(|tool| tool.start());
    let name = rank_name(2, others[1].pid());
    let refusal = format!("{name} was started with other options than rank 0");
    let first = ranks.rank(0, SHORT).run();
    first.exits(2).says(&[&refusal, "calls_per_iteration: 1 at rank 0, 2 there"]);
    for other in others.map(Running::finish) {
        other.exits(4).says(&[&refusal]);
    }
}

#[test]
fn a_rank_that_comes_twice_and_one_of_another_run_are_refused_by_name() {
    let ranks = Ranks::of(3);
    let twice = [0, 1].map(|_| ranks.rank(1, SHORT).start());
    let first = ranks.rank(0, SHORT).run();
    first.exits(2).says(&["rank 1 came twice: from host ", "every rank must be there once"]);
    for rank in twice.map(Running::finish) {
        rank.exits(4);
    }

    let stranger = ranks.told(2).rank(1, SHORT).start();
    let name = rank_name(1, stranger.pid());
    let first = ranks.rank(0, SHORT).run();
    first.exits(2).says(&[&format!("{name} was told of 2 ranks, and rank 0 of 3")]);
    stranger.finish().exits(4);
}

#[test]
fn ranks_that_never_come_are_named_at_the_deadline() {
    let ranks = Ranks::of(4);
    let there = [0, 2].map(|rank| ranks.rank(rank, SHORT).args("--timeout 1").start());
    for rank in there.map(Running::finish) {
        rank.exits(4).says(&["2 of 4 ranks have not come within 1 s", "rank 1, 3", "--timeout sets"]);
    }
    let alone = ranks.rank(1, SHORT).args("--timeout 1").run();
    alone.exits(4).says(&[
        "rank 1 found no rank 0 at 127.0.0.1:",
        "within 1 s",
        "see that rank 0 was started",
    ]);
}

#[test]
fn a_rank_without_a_network_says_where_it_looked_and_that_there_is_no_way() {
    const NAME: &str = "a_rank_without_a_network_says_where_it_looked_and_that_there_is_no_way";
    if !works("unshare -n true") {
        return skip(NAME, "a network namespace can't be made here");
    }
    // RFC 5737: an address for documentation. As in a container that has no network but its own loopback.
    let line =
        format!("{SHORT} --backend host --rank 1 --world-size 2 --rendezvous 192.0.2.1:7000 --timeout 1");
    let alone = Tool::new("coll-perf").args(&line).by_way_of("unshare -n").run();
    alone
        .exits(4)
        .silent_on_stdout()
        .says(&["rank 1 found no rank 0 at 192.0.2.1:7000 within 1 s", "ENETUNREACH"]);
}

#[test]
fn a_flipped_byte_of_another_process_is_found_and_located() {
    let ended =
        Ranks::of(3).run("--op alltoall -b 4K -e 4K -n 3 --rounds 2 --inject-fault flip:1:2500 --json");
    ended[0].exits(1).says(&[
        "first: alltoall of",
        "rank: 1 (",
        "offset: 2500 B of its receive buffer, from rank 1",
    ]);
    let document = schema::parse(&ended[0].stdout);
    assert_eq!(document["verdict"]["failures"][0]["code"], "wrong-data");
    assert_eq!(document["rounds"][0]["checked"]["first_wrong"]["rank"], 1);
}

#[test]
fn a_delayed_process_is_named_as_the_straggler() {
    let ended = Ranks::of(3).run("-b 4K -e 4K --aligned -n 10 --inject-fault delay:2:20000 --json");
    let host = rank_name(2, 0).replace("host ", "").replace(", pid 0", "");
    ended[0].exits(0).says(&[&format!("warning: {host} came last to"), "behind the rank before it"]);
}

#[test]
fn a_full_disk_fails_rank_0_and_the_table_is_there_all_the_same() {
    let ended = Ranks::of(2).run(&format!("{SHORT} --json=/dev/full"));
    ended[0].exits(3).says(&["cannot write /dev/full: ENOSPC (28)"]);
    assert!(ended[0].stdout.contains("all_reduce"), "{}", ended[0].stdout);
    ended[1].exits(0);
}

#[test]
fn a_port_where_others_meet_is_refused_with_the_way_out() {
    let ranks = Ranks::of(2);
    let first = ranks.rank(0, SHORT).start();
    linkproof_tests::wait_for_listener(ranks.port());
    ranks.rank(0, SHORT).run().exits(3).says(&["where the ranks are to meet: EADDRINUSE", "MASTER_PORT"]);
    let second = ranks.rank(1, SHORT).start();
    for rank in [first, second].map(Running::finish) {
        rank.exits(0);
    }
}

#[test]
fn ranks_of_size_1_that_a_launcher_has_started_as_two_are_refused() {
    let mpirun = |tool: Tool| tool.env("OMPI_COMM_WORLD_RANK", "1").env("OMPI_COMM_WORLD_SIZE", "2");
    let single = Tool::new("coll-perf").args(SHORT).env("RANK", "0").env("WORLD_SIZE", "1");
    let refused = mpirun(single).run();
    refused.exits(2).silent_on_stdout();
    refused.says(&["torchrun says that this is the only rank, and Open MPI has started it as rank 1 of 2"]);
    let asked = Tool::new("coll-perf").args(SHORT).args("--world-size 1");
    mpirun(asked).run().exits(2).says(&["--world-size 1, and Open MPI has started rank 1 of 2"]);
}
