//! `--rate-limit` over TCP on the loopback, at rates far below what any machine holds.

use linkproof_tests::{Tool, free_port};
use serde_json::Value;

/// A round of some seconds; gives its document. At such rates a burst of 128 makes up for a scheduler that takes the
/// processor away for half a second.
fn limited(options: &str) -> Value {
    let port = free_port();
    let _server = Tool::write_bw_tcp().serve(port);
    let line = format!("127.0.0.1 -p {port} -D 5 --rounds 1 {options} --json");
    Tool::write_bw_tcp().args(&line).run().exits(0).document()
}

fn percent(document: &Value) -> f64 {
    document["results"][0]["rate_limit_percent"].as_f64().expect("a share of the limit")
}

/// The limit is never passed, on whatever machine: no post is early. How near to it a run comes depends on who else is
/// on the machine: what the last message takes, and what the loop can't make up for, is lost, and 2 % of the round are
/// 100 ms. So a run below gets two more chances; three in a row are a defect.
fn keeps_to_the_limit(options: &str) -> Value {
    let mut documents = (0..3).map(|_| limited(options)).inspect(|document| {
        assert!(percent(document) <= 100.01, "{} % of the limit: {options}", percent(document));
    });
    let kept = documents.find(|document| percent(document) >= 98.0);
    kept.unwrap_or_else(|| panic!("three runs were more than 2 % below the limit: {options}"))
}

fn told(document: &Value, code: &str) -> bool {
    let warnings = document["warnings"].as_array().expect("warnings");
    warnings.iter().any(|warning| warning["code"] == code)
}

#[test]
fn a_bandwidth_is_kept_within_two_per_cent() {
    let document = keeps_to_the_limit("-s 64K --rate-limit 8MiB/s");
    let row = &document["results"][0];
    let average = row["bw_average_mib_per_sec"].as_f64().expect("a bandwidth");
    assert!((7.84..=8.001).contains(&average), "{average} MiB/s");
    assert_eq!(document["plan"]["rate_limit"]["mib_per_sec"], 8.0);
    // Of the machine there may be others: whoever else runs on it is told of.
    assert!(!told(&document, "rate-limit-not-reached"), "{}", document["warnings"]);
}

#[test]
fn a_message_rate_is_that_of_all_queue_pairs_of_an_end_and_both_ends_keep_to_it() {
    let document = keeps_to_the_limit("-b -q 3 -s 1K --rate-limit 0.0002Mpps");
    for round in document["rounds"].as_array().expect("rounds") {
        let rate = round["messages"].as_f64().expect("a count")
            / round["elapsed_ns"].as_f64().expect("a time")
            * 1e9;
        assert!(rate <= 200.02, "{rate} messages a second in one direction");
    }
}

#[test]
fn a_round_by_number_is_shared_evenly_by_the_queue_pairs() {
    let port = free_port();
    let _server = Tool::write_bw_tcp().serve(port);
    let line = format!(
        "127.0.0.1 -p {port} -q 4 -n 25 --rounds 1 --rate-limit 0.0005Mpps --burst-size 2 --validate"
    );
    let run = Tool::write_bw_tcp().args(&line).run();
    run.exits(0);
    assert!(
        run.stdout.contains("Rate limit   : 0.0005Mpps for each end that writes, at most 2 messages at once")
    );
    assert!(run.stdout.contains("% of it achieved"));
    assert_eq!(run.rows()[0][..2], ["65536", "100"]);
}

#[test]
fn a_limit_that_is_not_reached_is_told() {
    let document = limited("-s 64 --rate-limit 100000Gb/s");
    assert!(told(&document, "rate-limit-not-reached"), "{}", document["warnings"]);
    assert!(percent(&document) < 98.0);
}
