//! write-lat over TCP on the loopback: its table, its samples, its document.

use linkproof_tests::{Finished, Running, Tool, free_port, schema};
use serde_json::Value;

fn server() -> (Running, String) {
    let port = free_port();
    (Tool::tcp("write-lat").serve(port), format!("127.0.0.1 -p {port}"))
}

fn client(to: &str, options: &str) -> Finished {
    let finished = Tool::tcp("write-lat").args(to).args(options).run();
    finished.exits(0);
    finished
}

/// Half round trips in microseconds, by round, from a file of raw samples.
fn raw_rounds(path: &std::path::Path) -> Vec<Vec<f64>> {
    let mut rounds: Vec<Vec<f64>> = Vec::new();
    for line in std::fs::read_to_string(path).expect("the samples were written").lines() {
        let fields: Vec<f64> = line.split(' ').map(|field| field.parse().expect("a number")).collect();
        let [_size, round, number, usec] = fields[..] else { panic!("four fields: {line}") };
        rounds.resize_with(rounds.len().max(round as usize + 1), Vec::new);
        assert_eq!(rounds[round as usize].len(), number as usize, "samples are numbered in order");
        rounds[round as usize].push(usec);
    }
    rounds
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The nearest-rank percentile, worked out on its own: in thousandths of a per cent, without floating point.
fn percentile(samples: &[f64], per_100_000: usize) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() * per_100_000).div_ceil(100_000) - 1]
}

#[test]
fn every_figure_of_the_table_follows_from_the_raw_samples_to_the_last_digit() {
    let (_server, to) = server();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("samples");
    let run = client(&to, &format!("-s 64 -n 777 --rounds 3 -U {}", path.display()));
    let rounds = raw_rounds(&path);
    assert_eq!(rounds.iter().map(Vec::len).collect::<Vec<_>>(), [777, 777, 777]);
    let of_rounds = |figure: &dyn Fn(&Vec<f64>) -> f64| rounds.iter().map(figure).collect::<Vec<_>>();
    let all = || rounds.iter().flatten().copied();
    let mean = |samples: &Vec<f64>| samples.iter().sum::<f64>() / samples.len() as f64;
    let deviation = |samples: &Vec<f64>| {
        let mean = mean(samples);
        (samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / samples.len() as f64).sqrt()
    };
    let expected = [
        all().fold(f64::INFINITY, f64::min),
        all().fold(0.0, f64::max),
        median(of_rounds(&|samples| percentile(samples, 50_000))),
        median(of_rounds(&mean)),
        median(of_rounds(&deviation)),
        median(of_rounds(&|samples| percentile(samples, 99_000))),
        median(of_rounds(&|samples| percentile(samples, 99_900))),
        median(of_rounds(&|samples| percentile(samples, 99_990))),
    ];
    let rows = run.rows();
    assert_eq!(rows[0][..2], ["64", "777"]);
    assert_eq!(rows[0][2..10], expected.map(|usec| format!("{usec:.3}")));
}

fn document(to: &str, options: &str) -> Value {
    let document = client(to, &format!("{options} --json")).document();
    schema::validate(&document);
    document
}

#[test]
fn timed_runs_have_every_figure_and_a_histogram_that_holds_every_sample() {
    let (_server, to) = server();
    let document = document(&to, "-D 0.6 -s 8");
    let rounds = document["rounds"].as_array().expect("rounds");
    assert_eq!(rounds.len(), 3);
    for round in rounds {
        let bars = round["latency"]["histogram"].as_array().expect("bars");
        let counted: u64 = bars.iter().map(|bar| bar["count"].as_u64().expect("a count")).sum();
        assert_eq!(counted, round["messages"].as_u64().expect("a count"));
        let elapsed = round["elapsed_ns"].as_u64().expect("a time") as f64 / 1e9;
        assert!((0.19..2.0).contains(&elapsed), "a fifth of a second, not {elapsed} s");
    }
    let row = &document["results"][0];
    for figure in ["t_min_usec", "t_max_usec", "t_typical_usec", "t_stdev_usec", "p99_99_usec"] {
        assert!(row[figure].as_f64().expect("a figure") > 0.0, "{figure}: {row}");
    }
}

#[test]
fn the_histogram_is_drawn() {
    let (_server, to) = server();
    let run = client(&to, "-n 200 --rounds 2 --histogram");
    let bars: Vec<&str> = run.stdout.lines().filter(|line| line.starts_with("  up to ")).collect();
    let count =
        |bar: &&str| bar.split_whitespace().nth(4).expect("a count").parse::<u64>().expect("a number");
    assert_eq!(bars.iter().map(count).sum::<u64>(), 400, "{}", run.stdout);
    assert!(run.stdout.contains(" Half round trips at 2 B"));
}

#[test]
fn both_ends_hold_the_same_document_and_the_server_stays() {
    let port = free_port();
    let server = Tool::tcp("write-lat").args("--json").serve(port);
    let to = format!("127.0.0.1 -p {port}");
    for number in 1..=2 {
        let ours = document(&to, "-n 50 -s 4K");
        let line = server.wait_for_stdout_lines(number).pop().expect("a line");
        assert_eq!(serde_json::from_str::<Value>(&line).expect("JSON"), ours);
        assert_eq!(ours["plan"]["traffic"], "ping_pong");
    }
}

#[test]
fn validation_checks_every_byte_of_every_message_at_both_ends() {
    let (_server, to) = server();
    // One byte is the number alone, and 300 round trips wrap it around; 64 KiB are several pieces to look at.
    let document = document(&to, "-s 1,2,1000,64K -n 300 --rounds 2 --validate");
    for row in document["results"].as_array().expect("rows") {
        let size = row["size_bytes"].as_u64().expect("a size");
        assert_eq!(row["checked_bytes"], 2 * 2 * 300 * size);
        assert_eq!(row["wrong_bytes"], 0);
    }
    let run = client(&to, "-D 0.3 --validate");
    assert!(
        run.stdout.contains(" bytes checked by both ends, message by message, all as sent"),
        "{}",
        run.stdout
    );
    let run = client(&to, "-n 5");
    assert!(run.stdout.contains(" Data         : not checked (--validate"), "{}", run.stdout);
}

#[test]
fn every_power_of_two_with_rounds_whose_last_number_is_any() {
    let (_server, to) = server();
    // 257 round trips end with the message number 1 modulo 256, which must not be taken for the next round's first.
    let run = client(&to, "-a -n 257 --rounds 2 --warmup 256");
    let sizes: Vec<u64> = run.rows().iter().map(|row| row[0].parse().expect("a size")).collect();
    assert_eq!(sizes, (1..=23).map(|power| 1_u64 << power).collect::<Vec<_>>());
}

#[test]
fn a_size_above_a_ceiling_exits_1_with_the_table_and_names_the_point_on_both_ends() {
    let port = free_port();
    let server = Tool::tcp("write-lat").args("--once --json").serve(port);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("result.json");
    let run = Tool::tcp("write-lat")
        .args(&format!("127.0.0.1 -p {port} -s 8,4K -n 20 --max-latency p99.9=1ns,avg=9000ms"))
        .args("--max-latency max=2ns")
        .arg(format!("--json={}", file.display()))
        .run();
    run.exits(1).says(&[
        "write-lat: 2 of 2 sizes did not meet what was required: --max-latency avg=9000000us, \
         --max-latency p99.9=0.001us, --max-latency max=0.002us",
        "  at 8 B: p99.9 ",
        " usec, and at most 0.001 was required; max ",
        "  at 4 KiB: ",
    ]);
    assert_eq!(run.rows().len(), 2, "the table is shown");
    let document = schema::parse(&std::fs::read_to_string(&file).expect("the file was written"));
    assert_eq!(document["verdict"]["failures"][0]["code"], "requirement-not-met");
    let ceilings = &document["plan"]["requirements"]["max_latency"];
    assert_eq!(ceilings, &serde_json::json!({"t_avg_usec": 9e6, "p99_9_usec": 0.001, "t_max_usec": 0.002}));
    assert_eq!(server.finish().exits(1).document(), document, "the server holds the same");
}

#[test]
fn a_ceiling_that_is_kept_changes_nothing() {
    let (_server, to) = server();
    let document = document(&to, "-n 20 --max-latency p50=60000ms,max=60000ms");
    assert_eq!(document["verdict"]["failures"].as_array().map(Vec::len), Some(0));
}

#[test]
fn ceilings_that_say_nothing_or_two_things_are_refused() {
    for (ceilings, named) in [
        ("p99=5", "give a number with ns, us or ms"),
        ("p99=1us,max=1h", "\"h\" is no unit of time; give a number with ns, us or ms"),
        ("p95=5us", "there are avg, p50 (or typical), p99, p99.9, p99.99 and max"),
        ("5us", "a figure and its ceiling, for instance p99=5us"),
        ("p50=5us --max-latency typical=6us", "--max-latency has p50 twice"),
    ] {
        let refused = Tool::tcp("write-lat").args(&format!("127.0.0.1 --max-latency {ceilings}")).run();
        refused.exits(2).silent_on_stdout().says(&[named]);
    }
}

#[test]
fn write_bw_and_write_lat_do_not_take_each_other_for_their_own() {
    let (_server, to) = server();
    let run = Tool::write_bw_tcp().args(&to).args("-n 5").run();
    run.exits(4)
        .silent_on_stdout()
        .says(&["is write-bw, this end is write-lat", "start the same tool on both ends"]);
}

#[test]
fn a_server_of_write_lat_takes_no_test_options() {
    let run = Tool::tcp("write-lat").args("-n 5 -H").run();
    run.exits(2).silent_on_stdout().says(&["a server takes no test options", "--iters", "--histogram"]);
}

#[test]
fn samples_need_a_file_that_can_be_written() {
    let run = Tool::tcp("write-lat").args("127.0.0.1 -U /nonexistent/samples").run();
    run.exits(3).silent_on_stdout().says(&["cannot write the samples to /nonexistent/samples: ENOENT (2)"]);
    Tool::tcp("write-lat").args("127.0.0.1 -D 1 -U x").run().exits(2);
}
