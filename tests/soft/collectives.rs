//! `coll-perf --transport rdma`: collectives between processors over the software device.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use linkproof_tests::{Finished, Ranks, Running, SOON, Tool, free_port, rank_name, schema, skip, works};
use nix::sys::signal::Signal;
use serde_json::Value;

/// What the issue of a lost rank allows.
const NOTICED_WITHIN: Duration = Duration::from_secs(5);

/// A description of one device in a fabric that no other test has.
fn device(more: &str) -> String {
    format!("fabric=collectives-{}; soft0 {more}", free_port())
}

/// Ranks as threads. Few and short iterations: what is tested is not time.
fn threads(description: String, args: &str) -> Tool {
    let tool = Tool::new("coll-perf").args("--transport rdma --soft-device -n 3 -w 1 --rounds 2");
    tool.args(args).env("LINKPROOF_SOFTNIC", description)
}

/// Ranks as processes with `line` besides; `change` has each before it starts.
fn processes(count: u32, line: &str, change: impl Fn(Tool, u32) -> Tool) -> Vec<Running> {
    let description = device("");
    let line = format!("--transport rdma --soft-device {line}");
    let start = |tool: Tool, rank| change(tool.env("LINKPROOF_SOFTNIC", description.clone()), rank);
    Ranks::of(count).start_with(&line, start)
}

fn results(document: &Value) -> &Vec<Value> {
    document["results"].as_array().expect("results")
}

#[track_caller]
fn all_right(run: &Finished, collectives: usize) -> Value {
    let document = schema::parse(&run.exits(0).stdout);
    let names: std::collections::BTreeSet<&str> =
        results(&document).iter().filter_map(|row| row["collective"].as_str()).collect();
    assert_eq!(names.len(), collectives, "{names:?}");
    for row in results(&document) {
        assert_eq!(row["wrong_elements"], 0, "{row}");
        assert!(row["checked_elements"].as_u64() > Some(0), "{row}");
    }
    document
}

#[test]
fn every_collective_is_right_between_threads_and_says_what_it_went_over() {
    // Small pieces through slots, large ones without a copy, and odd counts of both.
    for (ranks, collectives) in [(2, 11), (3, 10), (5, 10)] {
        let line = format!("--op all -b 1001 -e 300K -f 17 --root all --ranks {ranks} --json");
        let document = all_right(&threads(device("mtu=2048"), &line).run(), collectives);
        assert_eq!(document["backend"]["transport"], "rdma");
        let hosts = document["hosts"].as_array().expect("ranks");
        assert_eq!(hosts.len(), ranks);
        for host in hosts {
            let port = &host["port"];
            assert_eq!((&port["device"], &port["device_kind"]), (&"soft0".into(), &"software".into()));
            assert_eq!((&port["port_num"], &port["path_mtu_bytes"]), (&1.into(), &2048.into()));
            assert_eq!(port["gids"][0]["gid"], "::ffff:127.0.0.1");
        }
        let warned = document["warnings"].as_array().expect("warnings").iter();
        assert!(warned.map(|warning| &warning["code"]).any(|code| code == "software-device"));
    }
}

#[test]
fn every_collective_is_right_between_processes() {
    for (ranks, collectives) in [(2, 11), (3, 10)] {
        let line = "--op all -b 1K -e 100K -f 100 -n 3 -w 1 --rounds 2 --json";
        let ended: Vec<Finished> =
            processes(ranks, line, |tool, _| tool).into_iter().map(Running::finish).collect();
        all_right(&ended[0], collectives);
        for other in &ended[1..] {
            other.exits(0).silent_on_stdout();
        }
    }
}

#[test]
fn a_device_of_any_kind_will_do() {
    // Without inline data every small piece goes by way of a slot of its own; a port may take less than a piece in a write,
    // and may be addressed by LID.
    for more in ["max_inline=0", "link=infiniband lid=5", "gid=none gid=roce2:192.0.2.1", "latency=20us"] {
        let line = "--op alltoall,all_reduce,broadcast -b 64 -e 1M -f 128 --ranks 3 --json";
        all_right(&threads(device(more), line).run(), 3);
    }
}

#[test]
fn more_small_pieces_than_there_are_slots_wait_for_free_ones() {
    // A broadcast goes one way only: what is free is told of in messages that carry nothing else.
    let line = "--op broadcast,gather,scatter,sendrecv -b 4K -e 4K -m 200 --ranks 3 --json";
    all_right(&threads(device(""), line).run(), 4);
}

#[test]
fn the_header_says_which_port_and_what_the_speed_is_not() {
    let run = threads(device(""), "-b 4K -e 4K --ranks 2").run();
    run.exits(0).says(&["warning: soft0 is emulated in software (softnic)"]);
    for line in [
        "# Backend  : host, rdma: a reliable connection between every two ranks\n",
        ", ranks 0-1: soft0 port 1, 1 ::ffff:127.0.0.1 (RoCE v2, lo), path MTU 4096\n",
        "# Device   : software: no speed below is a link's\n",
    ] {
        assert!(run.stdout.contains(line), "{line}\n{}", run.stdout);
    }
}

#[test]
fn a_flipped_bit_is_found_and_located() {
    let run =
        threads(device(""), "--op alltoall -b 4K -e 4K --ranks 2 --inject-fault flip:1:2500 --json").run();
    run.exits(1).says(&["rank: 1 (", "offset: 2500 B of its receive buffer, from rank 1"]);
}

#[test]
fn a_byte_that_the_device_spoils_is_found() {
    // Small pieces only: of a large one the word where it is wanted might be spoilt instead, and then it is refused.
    let description = device("fault=send~0.9:corrupt seed=3");
    let run = threads(description, "--op alltoall -b 4K -e 4K --ranks 2 --json").run();
    let document = schema::parse(&run.exits(1).stdout);
    assert_eq!(document["verdict"]["failures"][0]["code"], "wrong-data");
}

/// Ranks of a long run, in the middle of it; `folder` is for what they write.
fn mid_run(count: u32, options: &str, folder: &Path) -> Vec<Running> {
    let samples = folder.join("samples");
    let line = format!("{options} -n 200 --rounds 1000");
    let ranks = processes(count, &line, |tool, _| tool.arg("--raw-samples").arg(&samples));
    let begin = Instant::now();
    while fs::metadata(&samples).map_or(0, |file| file.len()) == 0 {
        assert!(begin.elapsed() < SOON, "no samples");
        std::thread::sleep(Duration::from_millis(2));
    }
    ranks
}

#[test]
fn a_killed_rank_ends_the_others_within_seconds_with_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    for (count, lost, options) in [
        (2, 1, "--op alltoall -b 256K -e 256K"),
        (3, 2, "--op all_reduce -b 4K -e 4K --aligned"),
        (3, 0, "--op broadcast -b 64K -e 64K"),
    ] {
        let mut ranks = mid_run(count, options, folder.path());
        let gone = ranks.remove(lost);
        let name = rank_name(lost as u32, gone.pid());
        gone.signal(Signal::SIGKILL);
        let killed = Instant::now();
        for other in ranks {
            let left = NOTICED_WITHIN.saturating_sub(killed.elapsed());
            other.finish_within(left).exits(4).says(&[&format!("{name} is gone")]);
        }
        fs::remove_file(folder.path().join("samples")).expect("it was written");
    }
}

#[test]
fn a_stopped_rank_is_named_after_the_time_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut ranks = mid_run(2, "-T 1 -b 64K -e 64K", folder.path());
    let stopped = ranks.remove(1);
    stopped.signal(Signal::SIGSTOP);
    ranks.remove(0).finish_within(SOON).exits(4).says(&["rank 0 ", "1 s", "rank 1", "--timeout"]);
}

#[test]
fn a_rank_with_other_options_is_refused_by_name() {
    let line = "-b 4K -e 4K -n 3 --rounds 1";
    let ranks = processes(2, line, |tool, rank| if rank == 1 { tool.args("-m 2") } else { tool });
    let refusal = format!("{} was started with other options than rank 0", rank_name(1, ranks[1].pid()));
    let ended: Vec<Finished> = ranks.into_iter().map(Running::finish).collect();
    ended[0].exits(2).says(&[&refusal, "calls_per_iteration: 1 at rank 0, 2 there"]);
    ended[1].exits(4).says(&[&refusal]);
}

#[test]
fn a_rank_without_a_port_ends_all_and_is_this_machine_there_only() {
    let line = "-b 4K -e 4K -n 3 --rounds 1";
    let down = |tool: Tool, rank| match rank {
        1 => tool.env("LINKPROOF_SOFTNIC", "soft0 state=down"),
        _ => tool,
    };
    let ended: Vec<Finished> = processes(3, line, down).into_iter().map(Running::finish).collect();
    ended[1].exits(3).says(&["port 1 of soft0 is DOWN, not ACTIVE"]);
    for rank in [0, 2] {
        ended[rank].exits(4).says(&["rank 1 (", "could not go on: port 1 of soft0 is DOWN"]);
    }
}

#[test]
fn what_the_device_can_not_do_is_this_machine() {
    for (more, options, words) in [
        ("gid=none", "", "the GID table of soft0 port 1 is empty"),
        ("", "--gid-index 7", "GID index 7 is outside the table of soft0 port 1, which has 2 entries"),
        ("", "--device soft9", "no RDMA device is called soft9"),
        ("", "--ib-port 2", "soft0 has no port 2"),
        ("max_qp=1", "", "3 ranks take 2 queue pairs in each, and soft0 allows 1"),
        ("max_qp_wr=8", "", "outstanding requests for each, and soft0 allows 8"),
        ("max_mr_size=64K", "", "ibv_reg_mr: EINVAL (22)"),
        ("fault=create_qp@2+:ENOMEM", "", "ibv_create_qp: ENOMEM (12)"),
    ] {
        let run = threads(device(more), &format!("-b 4K -e 4K --ranks 3 {options}")).run();
        run.exits(3).silent_on_stdout().says(&[words]);
    }
}

#[test]
fn a_request_that_fails_is_told_with_status_and_both_ends() {
    let run = threads(device("fault=send@15:REM_ACCESS_ERR"), "--op alltoall -b 64K -e 64K --ranks 2").run();
    run.exits(4).says(&[
        "the connection of rank ",
        "REM_ACCESS_ERR (10)",
        " of soft0 to peer QP 0x",
        "meaning: ",
    ]);
}

#[test]
fn without_a_device_there_is_no_run_and_nothing_else_is_used() {
    let run = threads("soft0 mtu=1500".to_owned(), "-b 4K -e 4K --ranks 2").run();
    run.exits(3).silent_on_stdout().says(&["this machine has no RDMA device", "--transport tcp"]);
    let missing = Tool::new("coll-perf").args("--transport rdma -b 4K -e 4K --ranks 2");
    let missing = missing.env("LINKPROOF_IBVERBS", "/nowhere/libibverbs.so.1").run();
    missing.exits(3).silent_on_stdout().says(&["the RDMA library can't be used", "--transport tcp"]);
}

#[test]
fn the_limit_on_locked_memory_is_asked_before_anything_is_measured() {
    let name = "the_limit_on_locked_memory_is_asked_before_anything_is_measured";
    let limited = "prlimit --memlock=4194304:4194304 setpriv --inh-caps=-ipc_lock --bounding-set=-ipc_lock";
    if !works(&format!("{limited} true")) {
        return skip(
            name,
            "prlimit and setpriv can't take the capability here (ci/setup installs util-linux)",
        );
    }
    let run = |line: &str| threads(device(""), line).by_way_of(limited).run();
    run("--op alltoall -b 768K -e 768K --ranks 2").exits(0);
    // What is received to be reduced counts as well, and the largest size before the first is measured.
    for line in ["--op alltoall -b 4K -e 4M --ranks 2", "--op reduce_scatter -b 768K -e 768K --ranks 2"] {
        run(line).exits(3).silent_on_stdout().says(&[
            " of host memory on soft0: the locked-memory limit is 4 MiB",
            "the buffers of 2 ranks",
            "use a smaller -e or fewer ranks",
        ]);
    }
}

#[test]
fn a_port_is_of_use_over_rdma_only() {
    for (line, option) in [
        ("--soft-device", "--soft-device"),
        ("--transport tcp --device soft0", "--ib-dev"),
        ("--transport shm --gid-index 1", "--gid-index"),
    ] {
        let run = Tool::new("coll-perf").args(line).args("-b 4K -e 4K --ranks 2").run();
        run.exits(2).says(&[&format!("{option} is about an RDMA port, and this run has none")]);
    }
}

#[test]
fn arms_over_sockets_and_over_the_software_device_are_told_apart() {
    let line = "--arm shm --arm tcp --arm rdma --soft-device --ranks 2 -b 4K -e 4K -n 5 --rounds 2 --json";
    let run = Tool::new("coll-perf").args(line).env("LINKPROOF_SOFTNIC", device("")).run();
    let document = schema::arms(&run.exits(0).stdout);
    let arms = document["arms"].as_array().expect("arms").iter();
    let proofs: Vec<&str> = arms.map(|arm| arm["proof"].as_str().unwrap_or("none")).collect();
    assert_eq!(proofs, ["shm", "tcp", "rdma, soft0, a device in software: no link's speed"]);
}
