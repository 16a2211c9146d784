//! Command lines that can't be honoured: exit status 2, nothing on stdout but a document where one was asked for.

use linkproof_tests::{Finished, Tool, schema};
use serde_json::Value;

/// Command lines, and what the message must name.
const REFUSED: &[(&str, &str)] = &[
    ("host -s 0", "1 byte to 2 GiB"),
    ("host -s 2Q", "\"Q\" is no unit of size"),
    ("host -s 3G", "1 byte to 2 GiB"),
    ("host -s", "--size"),
    ("host -s 64,4K,64", "64 B is there twice"),
    ("host -s 64:1000", "64 never becomes 1000"),
    ("host -n 0", "--iters"),
    ("host -n 5x", "--iters"),
    ("host -q 100000", "100000 is not in 1..=16384"),
    ("host -t 0", "--tx-depth"),
    ("host --rounds 0", "--rounds"),
    ("host -D 0", "--duration"),
    ("host -D nan", "--duration"),
    ("host --interval 1s", "-n ends them by number"),
    ("host -D 3 --interval 2s", "a round takes no more than 1 s"),
    ("host -D 3 --interval 1ms", "it can be 0.1 to 3600 s"),
    ("host -D 3 --interval 1m", "\"m\" is no unit of time"),
    ("host -D 2 -n 5", "cannot be used with"),
    ("host -a -s 4K", "cannot be used with"),
    ("host -m 1500", "256, 512, 1024, 2048 and 4096"),
    ("host -p 0", "--port"),
    ("host -p 65536", "--port"),
    ("host --transport udp", "possible values: rdma, tcp"),
    ("host --transport tcp --mtu 1024", "--mtu sets the path MTU of a queue pair"),
    ("host --transport tcp --tclass 106", "--tclass is about queue pairs"),
    ("host --transport tcp --mr-per-qp", "--mr-per-qp is about queue pairs"),
    ("host --hugepages=maybe", "invalid value 'maybe' for '--hugepages[=<MODE>]'"),
    ("host -s 1M --working-set 1M", "it can be twice the largest message, here 2 MiB"),
    ("host --working-set much", "--working-set"),
    ("host -t 16 -Q 17", "--cq-mod is 17; it can be 1 to 16"),
    ("host -t 16 -l 3", "--post-list is 3"),
    ("host -Q 6 -l 4", "a signal is on the last write of a list"),
    ("host -u 0", "0 is not in 1..=31"),
    ("host --retry-count 8", "8 is not in 0..=7"),
    ("host -S 16", "16 is not in 0..=15"),
    ("host -I 5000", "5000 is not in 0..=4096"),
    ("host --frobnicate", "--frobnicate"),
    ("host -R", "rdma_cm is not supported"),
    ("-c UD host", "always reliable-connected"),
    ("host --limit_bw=90", "use --min-bw"),
    ("host -w 90", "use --min-bw"),
    ("host --run_infinitely -s 1K,2K", "measures one size, and there are 2"),
    ("host --run_infinitely -D 5", "--interval 5s"),
    ("host --run-infinitely --rounds 2", "cannot be used with"),
    ("host --run-infinitely -n 100", "cannot be used with"),
    ("host --out_json", "use --json"),
    ("host --output=bandwidth", "jq"),
    ("host --bind-source-ip nowhere", "--bind-source-ip"),
    ("host --cores 5-2", "5-2 runs backwards"),
    ("host --cores 1,0-2", "core 1 is there twice"),
    ("host --cores all", "a list of cores is 2, 2-5 or 2-5,8"),
    ("host --numa all", "the number of a NUMA node, or none"),
    ("host --pin_cores=1", "use --cores"),
    ("host --numa_node=1", "use --numa N"),
    ("host --disable_numa", "use --numa none"),
    ("host --min-bw 90", "Gb/s or MiB/s"),
    ("host --min-bw 90GB/s", "is no unit of bandwidth"),
    ("host --min-msgrate 1.5", "Mpps"),
    ("host --rate-limit 10", "Gb/s, MiB/s or Mpps"),
    ("host --rate_limit=10Gbps", "is no unit of rate"),
    ("host --rate_limit=10Gb/s --rate_units=g", "give --rate-limit its unit"),
    ("host --burst-size 4", "under --rate-limit, and no limit is given"),
    ("host --rate-limit 1Gb/s -l 8 --burst-size 4", "--burst-size is 4; it can be 8 to 16384"),
    ("host --rate-limit 0.001MiB/s", "completions of 64 KiB messages 62.5 s apart"),
    ("host --rate-limit 1MiB/s -D 1", "lets 5.3 messages of 64 KiB through in a round"),
    ("host --threads 0", "0 is not in 1..=256"),
    ("host -q 2 --threads 4", "--threads is 4 and --qp 2"),
    ("host --once", "--once is an option of the server"),
    ("host other-host", "other-host"),
    ("-s 4K", "a server takes no test options, and without a host this is the server: --size"),
    ("--tx_depth 4 -b --transport tcp", "a server takes no test options"),
];

/// `write-bw: …` on the first line, facts and one hint below, indented; no full stop, no shouting.
fn has_the_shape_of_a_message(refused: &Finished) {
    let lines: Vec<&str> = refused.stderr.lines().collect();
    assert!(lines[0].starts_with("write-bw: "), "{}", lines[0]);
    assert!(!lines[0].ends_with(['.', '!']), "{}", lines[0]);
    assert!(lines[1..].iter().all(|line| line.starts_with("  ") && line.contains(": ")), "{lines:?}");
    let hints = lines.iter().filter(|line| line.starts_with("  hint: ")).count();
    assert_eq!(hints, 1, "{lines:?}");
}

fn refused(line: &str) -> Finished {
    let refused = Tool::new("write-bw").args(line).run();
    refused.exits(2);
    refused
}

fn only_failure(document: &Value) -> &Value {
    assert_eq!(document["verdict"]["ok"], false);
    let failures = document["verdict"]["failures"].as_array().expect("failures are an array");
    assert_eq!(failures.len(), 1, "{failures:?}");
    &failures[0]
}

#[test]
fn what_cannot_be_honoured_exits_2_with_a_message_that_names_it() {
    for (line, named) in REFUSED {
        let refused = refused(line);
        refused.silent_on_stdout().says(&[named]);
        has_the_shape_of_a_message(&refused);
    }
}

#[test]
fn the_words_of_each_refusal() {
    let told = |(line, _): &(&str, &str)| format!("$ write-bw {line}\n{}", refused(line).stderr);
    insta::assert_snapshot!(REFUSED.iter().map(told).collect::<Vec<_>>().join("\n"));
}

#[test]
fn with_json_every_refusal_is_one_valid_document_on_stdout() {
    for (line, _) in REFUSED {
        // In front: behind, `-s` without a value would take it for one.
        let refused = refused(&format!("--json {line}"));
        let document = refused.document();
        assert_eq!(only_failure(&document)["code"], "usage");
        assert!(refused.stderr.starts_with("write-bw: "), "people are told as well");
    }
}

#[test]
fn with_json_and_a_file_the_refusal_is_a_document_there() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (index, line) in ["host -s 0", "host -s 2Q", "-s 4K"].iter().enumerate() {
        let file = folder.path().join(format!("{index}.json"));
        let refused = Tool::new("write-bw").args(line).arg(format!("--json={}", file.display())).run();
        refused.exits(2).silent_on_stdout();
        let document = schema::parse(&std::fs::read_to_string(&file).expect("the file was written"));
        assert_eq!(only_failure(&document)["code"], "usage");
    }
}

#[test]
fn a_refusal_comes_before_any_connection_or_device() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port of 127.0.0.1");
    server.set_nonblocking(true).expect("it can be polled");
    let port = server.local_addr().expect("it has an address").port();
    let line = format!("127.0.0.1 -p {port} --transport tcp --mtu 1024");
    refused(&line).silent_on_stdout();
    assert!(server.accept().is_err(), "the client connected though its options contradict each other");
}

/// The options of perftest in a row of `docs/compatibility.md`, with `-` for `_`.
fn options_in(cell: &str) -> Vec<String> {
    let quoted = cell.split('`').skip(1).step_by(2).flat_map(|names| names.split(", "));
    let name = |text: &str| text.split(['=', ' ']).next().unwrap_or_default().replace('_', "-");
    quoted.map(name).filter(|name| name.starts_with('-')).collect()
}

#[test]
fn every_option_of_perftest_that_is_missing_has_a_way_out() {
    let table = perftest_tables();
    let missing =
        table.lines().filter(|line| line.split('|').nth(2).is_some_and(|state| state.trim() == "missing"));
    let options: Vec<String> =
        missing.flat_map(|line| options_in(line.split('|').nth(1).unwrap_or_default())).collect();
    assert!(options.len() > 40, "the table has other columns now: {options:?}");
    for option in &options {
        assert!(linkproof_common::args::way_out(option).is_some(), "{option} has no way out");
    }
}

/// The tables of perftest's options; nccl-tests' come behind them.
fn perftest_tables() -> &'static str {
    let all = include_str!("../../docs/compatibility.md");
    let end = all.find("## coll-perf and nccl-tests").expect("the section has its name");
    &all[..end]
}

/// Every source file of the tests that run the tools.
const TESTS: &[&str] = &[
    include_str!("failures.rs"),
    include_str!("help.rs"),
    include_str!("interrupts.rs"),
    include_str!("intervals.rs"),
    include_str!("latency.rs"),
    include_str!("machine.rs"),
    include_str!("pace.rs"),
    include_str!("runs.rs"),
    include_str!("serving.rs"),
    include_str!("threads.rs"),
    include_str!("../rxe/addressing.rs"),
    include_str!("../rxe/latency.rs"),
    include_str!("../rxe/measuring.rs"),
    include_str!("../rxe/queue_options.rs"),
    include_str!("../soft/runs.rs"),
    include_str!("../src/lab.rs"),
    include_str!("../src/process.rs"),
];

#[test]
fn every_option_that_is_the_same_as_perftests_is_used_by_a_test() {
    let same = |line: &&str| line.split('|').nth(2).is_some_and(|state| state.trim() == "same");
    let rows: Vec<Vec<String>> = perftest_tables()
        .lines()
        .filter(same)
        .map(|line| options_in(line.split('|').nth(1).unwrap_or_default()))
        .filter(|names| !names.is_empty())
        .collect();
    assert!(rows.len() > 12, "the table has other columns now: {rows:?}");
    let words: std::collections::HashSet<String> = TESTS
        .iter()
        .flat_map(|text| text.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_')))
        .map(|word| word.replace('_', "-"))
        .collect();
    for names in &rows {
        let used = names.iter().any(|name| words.contains(&name.replace('_', "-")));
        assert!(used, "no test uses {}", names.join(", "));
    }
}

#[test]
fn no_option_that_exists_has_a_way_out() {
    let help = Tool::new("write-bw").args("--help").run();
    let words =
        help.stdout.lines().filter(|line| line.trim_start().starts_with('-')).flat_map(str::split_whitespace);
    let options: Vec<&str> = words
        .map(|word| word.split(['=', '[', ',']).next().unwrap_or_default())
        .filter(|word| word.starts_with('-') && word.len() > 1)
        .collect();
    assert!(options.contains(&"--size") && options.contains(&"-s"), "{options:?}");
    for option in options {
        assert_eq!(linkproof_common::args::way_out(option), None, "{option}");
    }
}

#[test]
fn json_into_a_file_without_a_name_is_refused() {
    refused("host --json=").silent_on_stdout();
}
