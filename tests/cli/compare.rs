//! `perf-compare` from outside: verdicts over made-up and real results, refusals, and files that are not what they
//! should be.

use std::fs;
use std::path::Path;

use linkproof_tests::{Finished, Tool, schema};
use serde_json::{Value, json};

/// A write-bw result whose round of 64 KiB took so that the bandwidth is `gbit`; made in the second `second`.
pub(crate) fn bandwidth(second: u32, gbit: &[f64]) -> Value {
    let round = |(number, gbit): (usize, &f64)| {
        json!({
            "size_bytes": 65536, "round": number, "direction": "client_to_server", "messages": 10000,
            "elapsed_ns": (10000.0 * 65536.0 * 8.0 / gbit).round() as u64, "peak_messages_per_sec": 1.0,
            "partial": false,
        })
    };
    let time = |millis: u32| format!("2026-11-29T10:{:02}:{:02}.{millis:03}Z", second / 60, second % 60);
    json!({
        "schema": "linkproof/result.v1", "tool": "write-bw", "version": "0.1.0", "command": ["write-bw", "b"],
        "started": time(0), "finished": time(500),
        "hosts": [], "conditions": [], "evidence": [], "warnings": [],
        "link": {"transport": "tcp", "client": {"address": "10.0.0.1:1", "netdev": "eth0"}, "server": {"address": "10.0.0.2:2"}},
        "rounds": gbit.iter().enumerate().map(round).collect::<Vec<_>>(), "results": [],
        "verdict": {"ok": true, "failures": []},
    })
}

pub(crate) fn write(folder: &Path, name: &str, value: &Value) {
    schema::validate(value);
    fs::write(folder.join(name), value.to_string()).expect("a file");
}

/// Runs of two arms made in turn, A B B A …, one a file.
pub(crate) fn sitting(folder: &Path, a: &[f64], b: &[f64]) {
    for (index, (a, b)) in a.iter().zip(b).enumerate() {
        let first = 2 * index as u32;
        let (at_a, at_b) = if index % 2 == 0 { (first, first + 1) } else { (first + 1, first) };
        write(folder, &format!("a-{index}.json"), &bandwidth(at_a, &[*a]));
        write(folder, &format!("b-{index}.json"), &bandwidth(at_b, &[*b]));
    }
}

pub(crate) fn compare(folder: &Path, args: &str) -> Finished {
    let args = args.replace("DIR", &folder.display().to_string());
    Tool::new("perf-compare").args(&args).run()
}

pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn help_of_perf_compare() {
    let help = Tool::new("perf-compare").args("--help").run();
    help.exits(0);
    insta::assert_snapshot!(help.stdout);
}

#[test]
fn six_runs_in_turn_get_a_verdict_and_a_valid_document() {
    let folder = folder();
    sitting(folder.path(), &[10.0, 10.1, 9.9, 10.0, 10.05, 9.95], &[12.0, 12.1, 11.9, 12.05, 12.0, 11.95]);
    let run = compare(folder.path(), "a=DIR/a-*.json b=DIR/b-*.json");
    run.exits(0);
    assert!(
        run.stdout.contains("in turn, by their times") && run.stdout.contains(": better"),
        "{}",
        run.stdout
    );
    let document = schema::comparison(&compare(folder.path(), "a=DIR/a-*.json b=DIR/b-*.json --json").stdout);
    let primary = &document["comparisons"][0]["primary"];
    assert_eq!((&primary["verdict"], &primary["paired"]), (&json!("better"), &json!(true)));
    assert_eq!(primary["arm_rounds"].as_array().map(Vec::len), Some(6));
    let low = primary["interval_percent"][0].as_f64().expect("an interval");
    assert!((17.0..20.0).contains(&low), "{low}");
}

#[test]
fn what_is_worse_exits_1_and_says_by_how_much() {
    let folder = folder();
    sitting(folder.path(), &[12.0, 12.1, 11.9, 12.0, 12.1, 11.9], &[10.0, 10.1, 9.9, 10.0, 10.1, 9.9]);
    let run = compare(folder.path(), "a=DIR/a-*.json b=DIR/b-*.json --json=DIR/out.json");
    run.exits(1).says(&["b is worse than a: -16."]);
    assert!(run.stdout.contains("worse"));
    let document = schema::comparison(&fs::read_to_string(folder.path().join("out.json")).expect("a file"));
    assert_eq!(document["verdict"]["failures"][0]["code"], "requirement-not-met");
}

#[test]
fn where_nothing_is_decided_it_says_what_to_do() {
    let quiet = [10.0, 10.01, 9.99, 10.02, 9.98, 10.0];
    let with_lone = [10.0, 10.01, 4.0, 10.02, 9.98, 10.0];
    let slower = quiet.map(|gbit| gbit * 0.9);
    let rough = [10.0, 13.5, 7.4, 12.2, 8.2, 11.1];
    let shuffled = [12.0, 7.3, 10.2, 8.1, 13.4, 11.0];
    let shares = [1.02, 1.25, 1.05, 1.3, 1.03, 1.2];
    let a_little_more: [f64; 6] = std::array::from_fn(|round| rough[round] * shares[round]);
    for (a, b, advice) in [
        (
            &with_lone,
            &slower,
            "round 3 of a is unlike the others, which widens the interval: see what disturbed it",
        ),
        (
            &rough,
            &shuffled,
            "rounds scatter too much to tell a change of 1 % from none: make the runs longer",
        ),
        (&rough, &a_little_more, "a change this small beside the noise may be luck: about "),
    ] {
        let folder = folder();
        sitting(folder.path(), a, b);
        let run = compare(folder.path(), "a=DIR/a-*.json b=DIR/b-*.json");
        run.exits(0);
        assert!(run.stdout.contains("no measurable difference"), "{}", run.stdout);
        assert!(run.stdout.contains(advice), "{}", run.stdout);
    }
    let folder = folder();
    let twice = |arm: [f64; 6], again: [f64; 6]| [arm, again].concat();
    sitting(folder.path(), &twice(with_lone, quiet), &twice(slower, slower));
    let run = compare(folder.path(), "a=DIR/a-*.json b=DIR/b-*.json");
    run.exits(1).says(&["b is worse than a"]);
}

#[test]
fn three_rounds_show_the_lone_slow_one_and_decide_nothing() {
    let folder = folder();
    sitting(folder.path(), &[0.27, 0.271, 0.269], &[39.180, 44.458, 18.763]);
    let run = compare(folder.path(), "a=DIR/a-*.json b=DIR/b-*.json");
    run.exits(0);
    for text in
        ["39.18", "too few rounds", "outlier", "round 3 is unlike the others, 18.76 of 39.18, 44.46, 18.76"]
    {
        assert!(run.stdout.contains(text), "{text}: {}", run.stdout);
    }
    compare(folder.path(), "a=DIR/a-*.json b=DIR/b-*.json --require-decision")
        .exits(1)
        .says(&["b against a is not decided: too few rounds"]);
}

#[test]
fn one_run_after_the_other_gets_no_verdict_unless_it_is_asked_for() {
    let folder = folder();
    write(folder.path(), "a.json", &bandwidth(0, &[10.0, 10.1, 9.9, 10.0]));
    write(folder.path(), "b.json", &bandwidth(10, &[12.0, 12.1, 11.9, 12.0]));
    let run = compare(folder.path(), "DIR/a.json DIR/b.json");
    run.exits(0);
    assert!(run.stdout.contains("no verdict: not in turn") && run.stdout.contains("+20.0"), "{}", run.stdout);
    let apart = compare(folder.path(), "DIR/a.json DIR/b.json --order apart");
    assert!(apart.stdout.contains("better") && apart.stdout.contains("unpaired"), "{}", apart.stdout);
    compare(folder.path(), "DIR/a.json DIR/b.json --order in-turn").exits(2).says(&["were not run in turn"]);
}

#[test]
fn conditions_that_differ_are_warned_of_until_they_are_declared() {
    let folder = folder();
    write(folder.path(), "a.json", &bandwidth(0, &[10.0]));
    let mut other = bandwidth(10, &[12.0]);
    other["link"]["client"]["netdev"] = json!("eth1");
    write(folder.path(), "b.json", &other);
    let run = compare(folder.path(), "DIR/a.json DIR/b.json");
    run.exits(0).says(&["conditions that differ: link.client.netdev"]);
    assert!(run.stdout.contains("link.client.netdev  a: eth0; b: eth1"), "{}", run.stdout);
    let declared = compare(folder.path(), "DIR/a.json DIR/b.json --allow netdev");
    assert!(declared.stderr.is_empty() && declared.stdout.contains("Declared differences"));
}

#[test]
fn what_is_not_comparable_is_refused() {
    let folder = folder();
    write(folder.path(), "a.json", &bandwidth(0, &[10.0]));
    let mut wrong = bandwidth(10, &[12.0]);
    let failure =
        json!({"code": "wrong-data", "what": "3 bytes arrived wrong", "facts": [], "origin": "local"});
    wrong["verdict"] = json!({"ok": false, "failures": [failure]});
    write(folder.path(), "wrong.json", &wrong);
    compare(folder.path(), "DIR/a.json DIR/wrong.json").exits(2).silent_on_stdout().says(&[
        "not comparable: a run's figures may be wrong",
        "wrong-data: 3 bytes arrived wrong",
        "--allow validity",
    ]);
    compare(folder.path(), "DIR/a.json DIR/wrong.json --allow validity").exits(0);
    compare(folder.path(), "DIR/a.json").exits(2).says(&["nothing to compare it with"]);
    compare(folder.path(), "").exits(2).says(&["there is nothing to compare", "hint: give two files"]);
    compare(folder.path(), "DIR/a.json DIR/none-*.json").exits(2).says(&["no file fits"]);
    let document = schema::comparison(&compare(folder.path(), "DIR/a.json DIR/x.json --json").stdout);
    assert_eq!(document["verdict"]["failures"][0]["code"], "usage");
}

#[test]
fn broken_files_are_named_with_the_line_and_what_was_expected() {
    let folder = folder();
    write(folder.path(), "a.json", &bandwidth(0, &[10.0]));
    let good = serde_json::to_string_pretty(&bandwidth(0, &[10.0])).expect("JSON");
    let half = &good[..good.len() / 2];
    let perftest = " #bytes     #iterations    BW peak[MB/sec]\n 65536      1000             11.0\n";
    for (text, words) in [
        ("", "it is empty"),
        (half, "the file ends in the middle"),
        (perftest, "line 1: expected value"),
        ("{\"schema\": \"linkproof/result.v9\"}", "line 1: its schema is \"linkproof/result.v9\""),
        ("\0\u{1b}[2J", "line 1"),
    ] {
        fs::write(folder.path().join("b.json"), text).expect("a file");
        let run = compare(folder.path(), "DIR/a.json DIR/b.json");
        run.exits(2).silent_on_stdout().says(&[
            "b.json can't be read as a result:",
            words,
            "expected: JSON documents",
        ]);
        assert!(!run.stderr.contains('\u{1b}'));
    }
    compare(folder.path(), "DIR/a.json DIR/missing.json").exits(2).says(&["missing.json: ENOENT (2)"]);
    compare(folder.path(), "DIR/a.json DIR").exits(2).says(&["EISDIR"]);
}

#[test]
fn a_huge_file_is_refused_without_being_read() {
    let folder = folder();
    write(folder.path(), "a.json", &bandwidth(0, &[10.0]));
    let file = fs::File::create(folder.path().join("huge.json")).expect("a file");
    file.set_len(100 << 20).expect("a file with a hole");
    compare(folder.path(), "DIR/a.json DIR/huge.json")
        .exits(2)
        .says(&["too large for a result", "largest: 64 MiB"]);
    compare(folder.path(), "DIR/a.json /dev/zero").exits(2).says(&["/dev/zero is too large"]);
}

#[test]
fn hostile_names_reach_neither_the_terminal_nor_the_ticket() {
    let folder = folder();
    let mut evil = bandwidth(0, &[10.0]);
    evil["link"]["client"]["netdev"] = json!("\u{1b}[2J<script>alert(1)</script>|`\u{202e}");
    write(folder.path(), "a.json", &evil);
    write(folder.path(), "b.json", &bandwidth(10, &[12.0]));
    let run = compare(folder.path(), "DIR/a.json DIR/b.json");
    run.exits(0);
    assert!(run.stdout.contains("\\u{1b}[2J<script>") && !run.stdout.contains(['\u{1b}', '\u{202e}']));
    let ticket = compare(folder.path(), "DIR/a.json DIR/b.json --markdown").stdout.clone();
    assert!(ticket.contains("&lt;script&gt;alert(1)&lt;/script&gt;\\|\\`"), "{ticket}");
}

const PERFTEST: &str = "                    RDMA_Write BW Test
 Mtu             : 1024[B]
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      5000             1200.00            1192.09              0.019073
";

#[test]
fn perftests_text_is_imported_and_compared_with_ours() {
    let folder = folder();
    let write_text = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    write_text("p.txt", PERFTEST);
    let import = compare(folder.path(), "import perftest DIR/p.txt DIR/p.txt");
    import.exits(0);
    assert_eq!(import.stdout.lines().count(), 2);
    write_text("p.json", &import.stdout);
    write(folder.path(), "ours.json", &bandwidth(0, &[10.0]));
    let run = compare(folder.path(), "DIR/p.json DIR/ours.json --allow traffic");
    run.exits(0);
    // 1192.09 MiB/s are 10.0000 Gb/s.
    let row = run.stdout.lines().find(|line| line.starts_with(" 64 KiB")).unwrap_or_default();
    assert_eq!(row.split_whitespace().filter(|cell| cell.starts_with("10.00")).count(), 2, "{}", run.stdout);
    write_text("torn.txt", &PERFTEST.replace("1192.09              0.019073", "11"));
    let torn = compare(folder.path(), "import perftest DIR/p.txt DIR/torn.txt");
    torn.exits(2)
        .silent_on_stdout()
        .says(&["torn.txt can't be read as perftest's output: line 4: expected size"]);
    compare(folder.path(), "import nccl-tests DIR/p.txt").exits(2).says(&["give --op"]);
}

/// A sample of the importers' fuzz corpus.
fn sample(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/imports").join(name).display().to_string()
}

#[test]
fn every_other_tools_result_is_imported_into_valid_documents() {
    let folder = folder();
    for (format, prefix, count) in
        [("perftest", "perftest-", 7), ("nccl-tests", "nccl-tests", 8), ("osu", "osu-", 5), ("imb", "imb", 1)]
    {
        let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/imports");
        let names = samples.read_dir().expect("the corpus").flatten().map(|entry| entry.file_name());
        let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.retain(|name| name.starts_with(prefix));
        names.sort();
        assert_eq!(names.len(), count, "{names:?}");
        let files: Vec<String> = names.iter().map(|name| sample(name)).collect();
        let import = Tool::new("perf-compare").args(&format!("import {format} {}", files.join(" "))).run();
        import.exits(0);
        assert_eq!(schema::recordings(&import.stdout).len(), count);
        fs::write(folder.path().join("all.json"), &import.stdout).expect("a file");
    }
    // Of the last, what was wrong with the run stays with it.
    compare(folder.path(), "DIR/all.json DIR/all.json").exits(2).says(&["out-of-mem", "--allow validity"]);
    compare(folder.path(), "DIR/all.json DIR/all.json --allow validity").exits(0);
}

#[test]
fn a_name_to_allow_that_nothing_has_is_an_error() {
    let folder = folder();
    write(folder.path(), "a.json", &bandwidth(0, &[10.0]));
    compare(folder.path(), "DIR/a.json DIR/a.json --allow gid-typ").exits(2).silent_on_stdout().says(&[
        "--allow gid-typ: no run has a condition of that name",
        "hint: leave it out: no condition differs",
    ]);
}

#[test]
fn a_link_is_fitted_and_held_to_its_line_rate() {
    let folder = folder();
    // 2 µs and 100 Gb/s: a message of 8 KiB takes 2.66 µs, one of 8 MiB 673 µs.
    let table: String = [(8192_u32, 2.0 + 0.65536), (8 << 20, 2.0 + 671.088_64)]
        .map(|(size, usec)| format!(" {size} 1000 1 1 {usec:.4} 1 1 {usec:.4} 1\n"))
        .concat();
    let text = format!(
        "RDMA_Write Latency Test\n #bytes #iterations t_min[usec] t_max[usec] t_typical[usec]\n{table}"
    );
    fs::write(folder.path().join("l.txt"), text).expect("a file");
    let import = compare(folder.path(), "import perftest DIR/l.txt");
    fs::write(folder.path().join("l.json"), &import.stdout).expect("a file");
    let run = compare(folder.path(), "fit DIR/l.json --line-rate 100G --require 99%");
    run.exits(0);
    assert!(
        run.stdout.contains("Latency      : 2.000 µs") && run.stdout.contains("100 % of the line rate"),
        "{}",
        run.stdout
    );
    compare(folder.path(), "fit DIR/l.json --line-rate 200G --require 90%")
        .exits(1)
        .says(&["the bandwidth is 50 % of the line rate", "required: 90 % of 200.00 Gb/s"]);
    compare(folder.path(), "fit DIR/l.json --require 90%").exits(2);
}

#[test]
fn training_steps_and_the_worth_of_a_link() {
    let folder = folder();
    for (name, seconds) in
        [("a-1", "4.4903"), ("a-2", "4.5"), ("a-3", "4.4"), ("b-1", "3.0499"), ("b-2", "3.1"), ("b-3", "3.0")]
    {
        let steps: String = (1..=20).map(|step| format!("{step},{seconds}\n")).collect();
        fs::write(folder.path().join(format!("{name}.csv")), format!("step,s/it\n{steps}")).expect("a file");
    }
    let run = compare(folder.path(), "steps DIR/a-*.csv DIR/b-*.csv");
    run.exits(0);
    for text in ["4.490 s/step, median of 4.490, 4.500, 4.400", "32.08 %", "47.23 %", "too few rounds"] {
        assert!(run.stdout.contains(text), "{text}: {}", run.stdout);
    }
    compare(folder.path(), "steps --skip 20 DIR/a-1.csv DIR/b-1.csv")
        .exits(2)
        .says(&["no step after the first 20"]);
    let value = compare(folder.path(), "value --communication 40% --removable 90 --overlapped 25");
    assert!(value.stdout.contains("27.00 %") && value.stdout.contains("36.99 %"), "{}", value.stdout);
}

#[test]
fn real_results_of_the_tools_are_read() {
    let folder = folder();
    let json = format!("--json={}", folder.path().join("c.json").display());
    Tool::new("coll-perf")
        .args("--op alltoall -b 4K -e 16K -f 2 -n 3 -w 1 --rounds 4 --ranks 2")
        .arg(json)
        .run()
        .exits(0);
    let run = compare(folder.path(), "DIR/c.json DIR/c.json");
    run.exits(0);
    assert!(run.stdout.contains("alltoall float 4 KiB"), "{}", run.stdout);
}
