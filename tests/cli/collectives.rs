//! `coll-perf` with ranks that are threads: right data for every collective, type and reduction, faults that are found
//! and named, and what it says to those who mistype.

use std::fs;
use std::time::{Duration, Instant};

use linkproof_tests::{Finished, SOON, Tool, schema};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Few and short iterations: what is tested is not time.
fn coll(args: &str) -> Tool {
    Tool::new("coll-perf").args("-n 3 -w 1 --rounds 2").args(args)
}

fn document(run: &Finished) -> Value {
    schema::parse(&run.stdout)
}

fn results(document: &Value) -> &Vec<Value> {
    document["results"].as_array().expect("results")
}

#[test]
fn help_of_coll_perf() {
    let help = Tool::new("coll-perf").args("--help").run();
    help.exits(0);
    insta::assert_snapshot!(help.stdout);
}

#[test]
fn every_collective_gives_right_data_out_of_place_and_in_place() {
    let run = coll("--op all -b 1K -e 300K -f 16 --ranks 2 --json").run();
    run.exits(0);
    let document = document(&run);
    let names: std::collections::BTreeSet<&str> =
        results(&document).iter().filter_map(|row| row["collective"].as_str()).collect();
    assert_eq!(names.len(), 11);
    // 3 sizes of each, and as many in place of the eight that have an in-place form.
    assert_eq!(results(&document).len(), 3 * (11 + 8));
    for row in results(&document) {
        assert_eq!(row["wrong_elements"], 0, "{row}");
        assert!(row["checked_elements"].as_u64() > Some(0) && row["time_usec"].as_f64() > Some(0.0), "{row}");
    }
}

#[test]
fn ranks_that_are_no_power_of_two_and_odd_counts_are_right_too() {
    for ranks in [1, 3, 5, 8] {
        let run = coll(&format!("--op all -b 1001 -e 70007 -f 69 --ranks {ranks} --root all --json")).run();
        run.exits(0);
        let document = document(&run);
        let hypercube = results(&document).iter().any(|row| row["collective"] == "hypercube");
        assert_eq!(hypercube, [1, 8].contains(&ranks));
        assert!(results(&document).iter().all(|row| row["wrong_elements"] == 0));
        let roots = results(&document).iter().filter_map(|row| row["root"].as_u64()).max();
        assert_eq!(roots, Some(ranks - 1));
    }
}

#[test]
fn every_type_and_reduction_is_exact() {
    let line = "--op all_reduce,reduce_scatter,reduce -d all -o all -b 1040 -e 40K -f 39 --ranks 3 --json";
    let run = coll(line).run();
    run.exits(0);
    let document = document(&run);
    // 3 collectives, 12 types, 5 reductions, 2 sizes, 2 placements.
    assert_eq!(results(&document).len(), 3 * 12 * 5 * 2 * 2);
    assert!(results(&document).iter().all(|row| row["wrong_elements"] == 0));
}

#[test]
fn aligned_and_several_calls_in_an_iteration() {
    let run = coll("--op all -b 1K -e 1K --ranks 3 --aligned -m 3 --json").run();
    run.exits(0);
    let document = document(&run);
    assert!(results(&document).iter().all(|row| row["pacing"] == "aligned" && row["wrong_elements"] == 0));
    let reduced_in_place = |row: &Value| row.get("redop").is_some() && row["placement"] == "in_place";
    assert!(!results(&document).iter().any(reduced_in_place));
}

#[test]
fn a_flipped_bit_is_found_and_located() {
    let run = coll("--op alltoall -b 4K -e 4K --ranks 2 --inject-fault flip:1:2500 --json").run();
    run.exits(1).says(&[
        "wrong elements in results: 2, at 1 of 1 points",
        "first: alltoall of 4 KiB, float, round 1",
        "rank: 1 (",
        "offset: 2500 B of its receive buffer, from rank 1",
        "expected: ",
        "found: ",
    ]);
    let document = document(&run);
    assert_eq!(document["verdict"]["failures"][0]["code"], "wrong-data");
    assert_eq!(document["rounds"][1]["checked"]["first_wrong"]["offset_bytes"], 2500);
    assert_eq!(document["results"][0]["wrong_elements"], 2);
}

#[test]
fn data_that_is_not_checked_is_said_not_to_be() {
    let run = coll("-b 4K -e 4K --ranks 2 -c 0 --inject-fault flip:1:0").run();
    run.exits(0);
    assert!(run.stdout.contains("not checked"), "{}", run.stdout);
}

#[test]
fn a_delayed_rank_is_named_as_the_straggler() {
    let line = "--op all_reduce -b 4K -e 4K --ranks 3 --aligned -n 10 --inject-fault delay:1:20000 --json";
    let run = Tool::new("coll-perf").args(line).run();
    run.exits(0).says(&["warning: rank 1 (", "behind the rank before it"]);
    let document = document(&run);
    let warnings: Vec<&str> = document["warnings"]
        .as_array()
        .expect("warnings")
        .iter()
        .filter_map(|w| w["code"].as_str())
        .collect();
    assert!(warnings.contains(&"straggler"), "{warnings:?}");
    let ranks = &document["results"][0]["ranks"];
    let time = |rank: usize| ranks[rank]["time_usec"].as_f64().expect("a time");
    assert!(time(1) < time(0) && time(1) < time(2), "the late rank's own times are the shortest: {ranks}");
}

#[test]
fn a_rank_that_does_not_come_in_time_is_named() {
    let run = coll("--op all_gather -b 64K -e 64K --ranks 2 --inject-fault delay:1:4000000 -T 1").run();
    run.exits(4).says(&["rank 0 has waited 1 s for rank 1", "--timeout"]);
    assert_eq!(run.stdout, "");
}

#[test]
fn one_rank_has_no_bus_bandwidth() {
    let run = coll("-b 4K -e 4K --ranks 1 --json").run();
    run.exits(0);
    assert_eq!(document(&run)["results"][0].get("bus_bw_gbyte_per_sec"), None);
    let table = coll("-b 4K -e 4K --ranks 1").run();
    assert!(table.stdout.contains("no busbw: one rank has no bus"), "{}", table.stdout);
}

#[test]
fn a_matrix_decides_what_an_alltoallv_sends() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("matrix");
    fs::write(&path, "0 1600 32\n16 0 0\n0 48 96\n").expect("a file");
    let run = coll("--op alltoallv --ranks 3 --json --matrix").arg(&path).run();
    run.exits(0);
    let document = document(&run);
    let row = &document["results"][0];
    assert_eq!((row["size_bytes"].as_u64(), row["per_peer_bytes"].as_u64()), (Some(1648), Some(1600)));
    assert_eq!(row["wrong_elements"], 0);
    // Of the three receive buffers: 16, 1648 and 128 bytes, in each of two rounds.
    assert_eq!(row["checked_elements"], 2 * (16 + 1648 + 128) / 4);
    fs::write(&path, "1 2\n3 4\n").expect("a file");
    let refused = coll("--op alltoallv --ranks 3 --matrix").arg(&path).run();
    refused.exits(2).says(&["it has 2 rows, and there are 3 ranks"]);
}

#[test]
fn raw_samples_have_a_line_for_every_rank_and_iteration() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("samples");
    coll("--op alltoall,all_reduce -b 4K -e 4K --ranks 2 --raw-samples").arg(&path).run().exits(0);
    let text = fs::read_to_string(&path).expect("the file");
    // 3 points (alltoall has no in-place form), 2 rounds, 3 iterations, 2 ranks.
    assert_eq!(text.lines().count(), 1 + 3 * 2 * 3 * 2);
    let last: Vec<&str> = text.lines().last().expect("a line").split(' ').collect();
    assert_eq!(last[..9], ["all_reduce", "4096", "float", "sum", "-", "in_place", "1", "2", "1"]);
    let (start, stop): (f64, f64) = (last[9].parse().expect("a number"), last[10].parse().expect("a number"));
    assert!(start < stop);
}

#[test]
fn a_file_that_can_not_be_written_is_a_failure_of_this_machine() {
    let full = coll("-b 4K -e 4K --ranks 2 --json=/dev/full").run();
    full.exits(3).says(&["cannot write /dev/full: ENOSPC (28)"]);
    assert!(full.stdout.contains("all_reduce"), "the table is there all the same");
    coll("-b 4K -e 4K --ranks 2 --raw-samples /dev/full").run().exits(3).says(&["cannot write /dev/full"]);
    coll("--raw-samples /nowhere/x").run().exits(3).says(&["cannot write /nowhere/x: ENOENT"]);
}

#[test]
fn an_interrupted_run_shows_what_it_has_and_exits_130() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("samples");
    let line = "-b 4K -e 4K --ranks 2 --rounds 1000 -n 2000 --aligned --json --raw-samples";
    let run = Tool::new("coll-perf").args(line).arg(&path).start();
    // Nothing is said before the end; the samples tell that rounds have been measured.
    let begin = Instant::now();
    while fs::metadata(&path).map_or(0, |file| file.len()) == 0 {
        assert!(begin.elapsed() < SOON, "no samples");
        std::thread::sleep(Duration::from_millis(2));
    }
    run.signal(Signal::SIGINT);
    let run = run.finish();
    run.exits(130);
    let document = document(&run);
    assert_eq!(document["verdict"]["failures"][0]["code"], "interrupted");
}

#[test]
fn a_pipe_gets_the_table_and_nothing_else() {
    let run = coll("-b 4K -e 16K --ranks 2").run();
    run.exits(0);
    assert!(!run.stderr.contains('\r') && !run.stderr.contains("[1/"), "{}", run.stderr);
    let lines: Vec<&str> = run.stdout.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines.len(), 3, "{}", run.stdout);
    let words: Vec<&str> = lines[2].split_whitespace().collect();
    // nccl-tests' columns in its order: size, count, type, redop, root, and time, algbw, busbw, #wrong twice.
    assert_eq!(words[..5], ["16384", "4096", "float", "sum", "-"]);
    assert_eq!((words[8], words[12]), ("0", "0"));
    assert_eq!(words.len(), 13 + 6);
}

#[test]
fn nothing_is_replaced_silently() {
    for (line, text) in [
        ("--op alltoallw", "is no collective; there are all_reduce"),
        ("--op sum", "sum is a reduction: use -o sum"),
        ("-d floaty", "is no type; there are int8"),
        ("-o mulsum", "mulsum"),
        ("-b 8 --op alltoall --ranks 4", "rounds to 0 elements of float"),
        ("--op hypercube --ranks 3", "hypercube needs a power of two of ranks"),
        ("-r 2 --ranks 2", "there is no rank 2"),
        ("-G 1 --backend host", "-G and -R are for GPUs"),
        ("-R 1 --backend host", "-G and -R are for GPUs"),
        ("-R 2", "symmetric windows"),
        ("-t 8", "--ranks N"),
        ("-z 1", "-z 3 has the same barrier"),
        ("-c 3", "the timed rounds themselves are checked"),
        ("--frobnicate", "docs/compatibility.md"),
        (
            "--op all_reduce -d f8e5m2 -o avg --ranks 9 -b 1K -e 1K",
            "avg of f8e5m2 over 9 ranks can't be checked",
        ),
        ("--cores 0 --ranks 2", "--cores has 1 cores, and there are 2 ranks"),
    ] {
        let run = Tool::new("coll-perf").args(line).run();
        run.exits(2).says(&[text]);
        assert_eq!(run.stdout, "", "{line}");
    }
}

#[test]
fn more_memory_than_there_is_is_refused_before_it_is_taken() {
    let run = Tool::new("coll-perf").args("-b 100G -e 100G --ranks 8").run();
    run.exits(3).says(&["of host memory", "use a smaller -e or fewer --ranks"]);
}
