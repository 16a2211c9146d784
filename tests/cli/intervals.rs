//! Long runs, interval by interval: what is told while they go on, and what stays of it in the result.

use std::time::{Duration, Instant};

use linkproof_tests::{Finished, Running, SOON, Tool, free_port};
use nix::sys::signal::Signal;
use serde_json::Value;

/// A server of `tool` and the line of options that leads to it.
fn server(tool: &str) -> (Running, String) {
    let port = free_port();
    (Tool::tcp(tool).args("--json").serve(port), format!("127.0.0.1 -p {port}"))
}

/// The lines of intervals on stderr, split into columns.
fn lines(stderr: &str) -> Vec<Vec<String>> {
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let below = stderr.lines().skip_while(|line| !line.contains("time[UTC]")).skip(1);
    below.map(columns).take_while(|columns| columns[0].parse::<u64>().is_ok()).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("no list but {value}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number but {value}"))
}

/// MiB/s of an interval of messages of `size` bytes.
pub(crate) fn mib_per_sec(interval: &Value, size: f64) -> f64 {
    number(&interval["messages"]) * size / 1_048_576.0 / (number(&interval["elapsed_ns"]) / 1e9)
}

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs())
}

/// Checks that what the result says of its intervals in `direction` is what its rounds say.
fn figures_are_of_the_rounds(document: &Value, direction: &str) {
    let summary = list(&document["results"][0]["intervals"]);
    let summary = summary.iter().find(|summary| summary["direction"] == direction).expect("one a direction");
    let rounds = list(&document["rounds"]).iter().filter(|round| round["direction"] == direction);
    let (mut bandwidths, mut slowest) = (Vec::new(), (f64::INFINITY, Value::Null, Value::Null));
    for round in rounds {
        let intervals = &round["intervals"];
        assert_eq!(intervals["merged"], 1);
        assert_eq!(intervals["count"], list(&intervals["list"]).len());
        let mut messages = 0;
        for interval in list(&intervals["list"]) {
            let bandwidth = mib_per_sec(interval, 65536.0);
            if bandwidth < slowest.0 {
                slowest = (bandwidth, round["round"].clone(), interval["begin_ns"].clone());
            }
            bandwidths.push(bandwidth);
            messages += interval["messages"].as_u64().expect("a count");
        }
        assert!(messages <= round["messages"].as_u64().expect("a count"), "{round}");
    }
    bandwidths.sort_by(f64::total_cmp);
    let median = (bandwidths[(bandwidths.len() - 1) / 2] + bandwidths[bandwidths.len() / 2]) / 2.0;
    assert_eq!(summary["count"], bandwidths.len());
    assert!(close(number(&summary["bw_min_mib_per_sec"]), bandwidths[0]), "{summary}");
    assert!(close(number(&summary["bw_median_mib_per_sec"]), median), "{summary}, {bandwidths:?}");
    assert!(close(number(&summary["bw_max_mib_per_sec"]), bandwidths[bandwidths.len() - 1]), "{summary}");
    assert_eq!(summary["slowest_round"], slowest.1);
    assert!(close(number(&summary["slowest_at_seconds"]) * 1e9, number(&slowest.2)), "{summary}");
}

#[test]
fn each_interval_is_told_as_it_ends_and_stays_in_the_result() {
    let (server, to) = server("write-bw");
    let run = Tool::write_bw_tcp().args(&to).args("-D 2 --rounds 2 --interval 200ms --json").run();
    let document = run.exits(0).document();
    assert_eq!(document["plan"]["interval_seconds"], 0.2);
    figures_are_of_the_rounds(&document, "client_to_server");
    let told = lines(&run.stderr);
    let kept: Vec<&Value> =
        list(&document["rounds"]).iter().flat_map(|r| list(&r["intervals"]["list"])).collect();
    assert!(told.len() == kept.len() && kept.len() >= 2, "{} told, {} kept", told.len(), kept.len());
    for (told, kept) in told.iter().zip(kept) {
        assert_eq!(told[1], kept["messages"].to_string());
        assert_eq!(told[3], format!("{:.2}", mib_per_sec(kept, 65536.0)));
    }
    assert_eq!(serde_json::from_str::<Value>(&server.wait_for_stdout_lines(1)[0]).expect("JSON"), document);
}

#[test]
fn of_two_directions_each_has_its_own_intervals() {
    let (server, to) = server("write-bw");
    let run = Tool::write_bw_tcp().args(&to).args("-D 1.2 --rounds 1 --interval 200ms -b --json").run();
    let document = run.exits(0).document();
    for (direction, words) in
        [("client_to_server", ["client", "to", "server"]), ("server_to_client", ["server", "to", "client"])]
    {
        figures_are_of_the_rounds(&document, direction);
        assert!(lines(&run.stderr).iter().any(|line| line.ends_with(&words.map(str::to_owned))), "{words:?}");
    }
    assert_eq!(serde_json::from_str::<Value>(&server.wait_for_stdout_lines(1)[0]).expect("JSON"), document);
}

#[test]
fn the_table_has_a_line_for_each_size_that_names_the_slowest() {
    let (_server, to) = server("write-bw");
    let run = Tool::write_bw_tcp().args(&to).args("-D 0.6 --rounds 2 --interval 100ms -s 4K,64K").run();
    run.exits(0);
    let lines: Vec<&str> = run.stdout.lines().filter(|line| line.starts_with(" Intervals")).collect();
    assert_eq!(lines.len(), 2, "{}", run.stdout);
    for (line, size) in lines.iter().zip(["4 KiB", "64 KiB"]) {
        assert!(line.contains(&format!(": {size}: ")) && line.contains(" of 100 ms, min "), "{line}");
        assert!(line.contains(" MiB/sec, slowest at ") && line.contains(" of round "), "{line}");
    }
    assert_eq!(run.rows().len(), 2);
}

#[test]
fn a_latency_has_the_percentiles_of_each_interval() {
    let (_server, to) = server("write-lat");
    let run = Tool::tcp("write-lat").args(&to).args("-D 1 --rounds 1 --interval 200ms --json").run();
    let document = run.exits(0).document();
    let round = &document["rounds"][0];
    let kept = list(&round["intervals"]["list"]);
    for interval in kept {
        let of = |name: &str| number(&interval["latency"][name]);
        let figures = [of("t_typical_usec"), of("p99_usec"), of("t_max_usec")];
        assert!(figures[0] > 0.0 && figures.is_sorted(), "{interval}");
        // Bars are at most 0.1 % too high.
        assert!(figures[2] <= number(&round["latency"]["t_max_usec"]) * 1.001, "{interval}");
    }
    let summary = &document["results"][0]["intervals"];
    let typical = kept.iter().map(|interval| number(&interval["latency"]["t_typical_usec"]));
    assert_eq!(number(&summary["t_typical_max_usec"]), typical.fold(0.0, f64::max));
    assert_eq!(lines(&run.stderr).len(), kept.len());
}

/// Waits until `client` has told of `count` intervals that satisfy `condition`.
fn await_intervals(client: &Running, count: usize, condition: impl Fn(&[String]) -> bool) {
    let enough = |stderr: &str| lines(stderr).iter().filter(|line| condition(line)).count() >= count;
    client.wait_for_stderr_that("has enough intervals", enough);
}

fn with_a_stopped_server(tool: &str, options: &str) -> Finished {
    let (server, to) = server(tool);
    let client = Tool::tcp(tool).args(&to).args(options).start();
    await_intervals(&client, 5, |_| true);
    server.signal(Signal::SIGSTOP);
    await_intervals(&client, 3, |line| line[1] == "0");
    server.signal(Signal::SIGCONT);
    client.finish()
}

#[test]
fn a_path_that_stands_still_for_a_while_is_seen_and_warned_of() {
    for tool in ["write-bw", "write-lat"] {
        let run = with_a_stopped_server(tool, "-D 8 --rounds 1 --interval 100ms --json");
        let document = run.exits(0).document();
        let intervals = &document["rounds"][0]["intervals"];
        assert_eq!(intervals["slowest"]["messages"], 0, "{tool}");
        let codes: Vec<&Value> = list(&document["warnings"]).iter().map(|warning| &warning["code"]).collect();
        assert!(codes.contains(&&Value::from("slow-intervals")), "{tool}: {codes:?}");
        run.says(&["carried 0 % of what"]);
    }
}

/// Resident memory of a process, in KiB.
fn resident_kib(of: &Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", of.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("in kB")
}

/// How far memory may be from where it was after the first second: code that runs for the first time, a page of the
/// heap. Sixteen bytes kept for each batch of completions, or eight for each round trip, would be more.
const SLACK_KIB: u64 = 1024;

/// Waits until `client` has told of `count` intervals, on whichever stream.
fn await_told(client: &Running, count: usize) {
    let deadline = Instant::now() + SOON;
    while lines(&client.stderr()).len() + lines(&client.stdout()).len() < count {
        assert!(Instant::now() < deadline, "no {count} intervals within {SOON:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs `tool` with options that give it an interval each 100 ms for 6 s or more, and stops it then.
pub(crate) fn memory_stays(tool: &str, options: &str) {
    let (server, to) = server(tool);
    let client = Tool::tcp(tool).args(&to).args(options).start();
    await_told(&client, 10);
    let before = [resident_kib(&client), resident_kib(&server)];
    await_told(&client, 50);
    let after = [resident_kib(&client), resident_kib(&server)];
    client.signal(Signal::SIGINT);
    client.finish();
    for (end, (before, after)) in ["client", "server"].iter().zip(before.into_iter().zip(after)) {
        assert!(after.abs_diff(before) < SLACK_KIB, "{tool}: {before} KiB have become {after} at the {end}");
    }
}

#[test]
fn memory_stays_where_it_was_after_the_first_second() {
    for tool in ["write-bw", "write-lat"] {
        memory_stays(tool, "-D 60 --rounds 1 --interval 100ms -s 64");
    }
}
