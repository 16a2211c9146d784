//! Whole runs over TCP on the loopback: the table, the document, and that both ends hold the same.

use linkproof_tests::{Finished, Running, Tool, free_port, schema};
use serde_json::Value;

/// A server and the line of options that leads to it.
fn server() -> (Running, String) {
    let port = free_port();
    (Tool::write_bw_tcp().serve(port), format!("127.0.0.1 -p {port}"))
}

fn client(to: &str, options: &str) -> Finished {
    let finished = Tool::write_bw_tcp().args(to).args(options).run();
    finished.exits(0);
    finished
}

fn document(to: &str, options: &str) -> Value {
    let document = client(to, &format!("{options} --json")).document();
    assert_eq!(document["verdict"]["ok"], true);
    document
}

fn columns(finished: &Finished) -> String {
    let header = finished.stdout.lines().find(|line| line.contains("#bytes")).expect("a header");
    header.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_table_has_perftests_columns_in_perftests_order() {
    let (_server, to) = server();
    let run = client(&to, "-n 50");
    assert_eq!(
        columns(&run),
        "#bytes #iterations BW peak[MiB/sec] BW average[MiB/sec] MsgRate[Mpps] spread[%] line rate[%]"
    );
    let rows = run.rows();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0][..2], ["65536", "50"]);
    let [peak, average]: [f64; 2] = [2, 3].map(|column: usize| rows[0][column].parse().expect("a number"));
    assert!(average > 0.0 && peak >= average * 0.99, "peak {peak}, average {average}");
    assert!(run.stdout.lines().any(|line| line == "-".repeat(87)), "perftest's rule");
}

#[test]
fn all_measures_every_power_of_two_from_2_bytes_to_8_mib() {
    let (_server, to) = server();
    let run = client(&to, "-a -n 5 --rounds 1 --warmup 0");
    let sizes: Vec<u64> = run.rows().iter().map(|row| row[0].parse().expect("a size")).collect();
    assert_eq!(sizes, (1..=23).map(|power| 1_u64 << power).collect::<Vec<_>>());
}

#[test]
fn sizes_are_measured_in_the_order_given() {
    let (_server, to) = server();
    let document = document(&to, "-s 4K,1:8,100 -n 5 --rounds 1");
    let rows = document["results"].as_array().expect("results");
    let sizes: Vec<u64> = rows.iter().map(|row| row["size_bytes"].as_u64().expect("a size")).collect();
    assert_eq!(sizes, [4096, 1, 2, 4, 8, 100]);
}

#[test]
fn gigabits_are_the_same_bandwidth_in_another_unit() {
    let (_server, to) = server();
    assert!(columns(&client(&to, "-n 20 --report-gbits")).contains("BW peak[Gb/sec] BW average[Gb/sec]"));
    let document = document(&to, "-n 20");
    let row = &document["results"][0];
    let value = |name: &str| row[name].as_f64().expect("a number");
    let bits = value("bw_average_mib_per_sec") * 1_048_576.0 * 8.0;
    assert!((bits / (value("bw_average_gbit_per_sec") * 1e9) - 1.0).abs() < 1e-9);
    assert!((bits / (value("msg_rate_mpps") * 1e6 * 65536.0 * 8.0) - 1.0).abs() < 0.01);
}

#[test]
fn the_averages_are_what_the_raw_rounds_say() {
    let (_server, to) = server();
    let document = document(&to, "-n 30 -s 8K --rounds 5");
    let rounds = document["rounds"].as_array().expect("rounds");
    assert_eq!(rounds.len(), 5);
    let mut rates: Vec<f64> = rounds
        .iter()
        .map(|round| {
            assert_eq!(round["messages"], 30);
            30.0 * 8192.0 / (round["elapsed_ns"].as_f64().expect("a time") / 1e9) / 1_048_576.0
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    let shown = document["results"][0]["bw_average_mib_per_sec"].as_f64().expect("a bandwidth");
    assert!((shown / rates[2] - 1.0).abs() < 1e-9, "shown {shown}, median of {rates:?}");
}

#[test]
fn both_directions_are_measured_and_added() {
    let (_server, to) = server();
    let document = document(&to, "-b -n 40 --rounds 2");
    let count = |direction: &str| {
        let rounds = document["rounds"].as_array().expect("rounds");
        rounds.iter().filter(|round| round["direction"] == direction && round["messages"] == 40).count()
    };
    assert_eq!((count("client_to_server"), count("server_to_client")), (2, 2));
    assert_eq!(document["plan"]["traffic"], "bidirectional");
}

#[test]
fn queue_pairs_share_the_table_line() {
    let (_server, to) = server();
    let document = document(&to, "-q 4 -n 25");
    assert_eq!(document["plan"]["qps"], 4);
    assert_eq!(document["results"][0]["iterations"], 100);
}

#[test]
fn a_duration_is_shared_by_the_rounds_and_kept() {
    let (_server, to) = server();
    let document = document(&to, "-D 0.3");
    assert_eq!(document["plan"]["round_length"]["seconds"], 0.3 / 3.0);
    for round in document["rounds"].as_array().expect("rounds") {
        let seconds = round["elapsed_ns"].as_f64().expect("a time") / 1e9;
        assert!((0.05..2.0).contains(&seconds), "a round of 0.1 s took {seconds} s");
        assert_eq!(round["partial"], false);
    }
}

#[test]
fn validation_checks_every_byte_that_a_round_leaves_behind() {
    let (_server, to) = server();
    // Messages of 4 KiB and more have one slot a queue pair, which each round leaves full once.
    let (size, qps, rounds, directions) = (65536, 3, 2, 2);
    let document = document(&to, &format!("--validate -b -n 10 -s {size} -q {qps} --rounds {rounds}"));
    let row = &document["results"][0];
    assert_eq!(row["checked_bytes"], size * qps * rounds * directions);
    assert_eq!(row["wrong_bytes"], 0);
    // Messages of 1000 bytes lie 1024 apart, four to a page; three messages use three of the slots.
    let small = client(&to, "--validate -n 3 -s 1000 --rounds 1");
    assert!(small.stdout.contains("3000 bytes checked by the target, all as sent"));
    assert!(client(&to, "-n 3").stdout.contains("not checked"));
}

#[test]
fn both_ends_write_the_same_document() {
    let port = free_port();
    let server = Tool::write_bw_tcp().args("--json").serve(port);
    let to = format!("127.0.0.1 -p {port}");
    let ours = [document(&to, "-n 20"), document(&to, "-b -q 2 -n 20 --validate")];
    let theirs = server.wait_for_stdout_lines(2);
    assert_eq!(theirs.len(), 2, "one line a run");
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(*ours, schema::parse(theirs));
    }
    let roles: Vec<&Value> =
        ours[0]["hosts"].as_array().expect("hosts").iter().map(|host| &host["role"]).collect();
    assert_eq!(roles, ["client", "server"]);
    assert_eq!(ours[0]["link"]["server"]["address"], format!("127.0.0.1:{port}"));
}

#[test]
fn json_in_a_file_stands_beside_the_table() {
    let (_server, to) = server();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("result.json");
    let run = client(&to, &format!("-n 20 --json={}", file.display()));
    assert_eq!(run.rows().len(), 1);
    let document = schema::parse(&std::fs::read_to_string(&file).expect("the file was written"));
    assert_eq!(document["results"][0]["size_bytes"], 65536);
}

#[test]
fn perftests_underscores_are_taken() {
    let (_server, to) = server();
    let document = document(&to, "-n 20 --tx_depth=16");
    assert_eq!((&document["plan"]["tx_depth"], &document["plan"]["signal_every"]), (&16.into(), &4.into()));
}

#[test]
fn verbose_shows_every_round() {
    let (_server, to) = server();
    let run = client(&to, "-v -b -n 20 --rounds 2");
    for line in ["round 1: 20 messages", "round 2: 20 messages"] {
        assert_eq!(run.stdout.matches(line).count(), 2, "one for each direction: {line}");
    }
    assert!(!client(&to, "-n 20").stdout.contains("round 1:"));
}

#[test]
fn a_window_of_one_and_a_message_of_one_byte_are_measured() {
    let (_server, to) = server();
    let document = document(&to, "-n 7 -s 1 -t 1 -q 2 --warmup 0 --validate");
    assert_eq!(document["results"][0]["iterations"], 14);
    assert_eq!(document["results"][0]["wrong_bytes"], 0);
}

#[test]
fn needless_options_of_perftest_are_taken_and_noted() {
    let port = free_port();
    let server = Tool::write_bw_tcp().args("-F").serve(port);
    let run = client(&format!("127.0.0.1 -p {port}"), "-n 20 -F --ipv6 --ipv6-addr");
    run.says(&["-F is needless", "--ipv6 is needless", "--ipv6-addr is needless"]);
    assert_eq!(run.rows().len(), 1);
    drop(server);
}

#[test]
fn both_ends_use_the_source_address_named() {
    let port = free_port();
    let _server = Tool::write_bw_tcp().args("--bind-source-ip 127.0.0.2").serve(port);
    let document = document(&format!("127.0.0.2 -p {port}"), "-n 20 -q 2 -b --bind-source-ip 127.0.0.3");
    let address = |end: &str| document["link"][end]["address"].as_str().expect("an address").to_owned();
    assert!(address("client").starts_with("127.0.0.3:"), "{}", address("client"));
    assert_eq!(address("server"), format!("127.0.0.2:{port}"));
    let elsewhere = Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {port}")).run();
    elsewhere.exits(4).says(&["nothing listens at 127.0.0.1"]);
}

#[test]
fn a_source_address_of_another_machine_is_refused_with_those_present() {
    for line in ["127.0.0.1 --bind-source-ip 192.0.2.1", "--bind-source-ip 192.0.2.1"] {
        let refused = Tool::write_bw_tcp().args(line).run();
        refused.exits(3).silent_on_stdout().says(&[
            "cannot use 192.0.2.1",
            "present: ",
            "127.0.0.1 (lo)",
            "hint: ",
        ]);
    }
    let refused = Tool::write_bw_tcp().args("127.0.0.1 --bind-source-ip ::1").run();
    refused.exits(3).says(&["::1 is IPv6 and 127.0.0.1 has no such address"]);
}

#[test]
fn a_size_below_a_floor_exits_1_with_the_table_and_names_it() {
    let port = free_port();
    let server = Tool::write_bw_tcp().args("--once --json").serve(port);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("result.json");
    let run = Tool::write_bw_tcp()
        .args(&format!("127.0.0.1 -p {port} -s 8,64K -n 20 --min-bw 99999Gb/s --min-msgrate 0.000001Mpps"))
        .arg(format!("--json={}", file.display()))
        .run();
    run.exits(1).says(&[
        "write-bw: 2 of 2 sizes did not meet what was required: --min-bw 99999Gb/s, --min-msgrate 0.000001Mpps",
        "  at 8 B: ",
        "  at 64 KiB: ",
        " Gb/s, and 99999 was required",
    ]);
    assert_eq!(run.rows().len(), 2, "the table is shown");
    let document = schema::parse(&std::fs::read_to_string(&file).expect("the file was written"));
    assert_eq!(document["verdict"]["failures"][0]["code"], "requirement-not-met");
    assert_eq!(document["plan"]["requirements"]["min_bw_gbit_per_sec"], 99999.0);
    assert_eq!(server.finish().exits(1).document(), document, "the server holds the same");
}

#[test]
fn a_floor_that_is_reached_changes_nothing() {
    let (_server, to) = server();
    let document = document(&to, "-n 20 -s 64,64K --min-bw 0.001MiB/s --min-msgrate 0.000001Mpps");
    assert_eq!(document["verdict"]["failures"].as_array().map(Vec::len), Some(0));
}
