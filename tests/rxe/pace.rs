//! Writes held back to a rate, over real verbs.

use linkproof_tests::lab::Lab;
use serde_json::Value;

use crate::{client_in_b, port, server_in_a};

fn document(lab: &Lab, port: &str, options: &[&str]) -> Value {
    let options: Vec<&str> = options.iter().copied().chain(["--json"]).collect();
    let document = client_in_b(lab, port, &options).expect_status(0).json();
    linkproof_tests::schema::validate(&document);
    document
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_third_of_what_the_lab_holds_is_kept_within_two_per_cent() {
    let Some(lab) = Lab::get("a_third_of_what_the_lab_holds_is_kept_within_two_per_cent") else { return };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    let free = document(lab, &port, &["-s", "16K", "-D", "3"]);
    let held = number(&free["results"][0]["bw_average_mib_per_sec"]);
    let limit = format!("{:.2}MiB/s", held / 3.0);
    // The VMs share their processors with whatever else the host does, which may take more than two thirds of them for a
    // while: a run below gets two more chances. One above is a defect at once.
    let runs = (0..3)
        .map(|_| document(lab, &port, &["-s", "16K", "-D", "9", "--rounds", "1", "--rate-limit", &limit]));
    let mut shares = runs.map(|run| number(&run["results"][0]["rate_limit_percent"])).inspect(|share| {
        assert!(*share <= 100.01, "{share} % of {limit}");
    });
    assert!(shares.any(|share| share >= 98.0), "three runs more than 2 % below {limit}");
}

#[test]
fn both_ends_and_all_queue_pairs_keep_to_a_message_rate_in_lists() {
    let Some(lab) = Lab::get("both_ends_and_all_queue_pairs_keep_to_a_message_rate_in_lists") else { return };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    let options = [
        "-b",
        "-q",
        "3",
        "-s",
        "64",
        "-l",
        "4",
        "-n",
        "50",
        "--rounds",
        "2",
        "--validate",
        "--rate-limit",
        "0.0001Mpps",
    ];
    let run = document(lab, &port, &options);
    assert_eq!(
        (&run["results"][0]["iterations"], &run["results"][0]["wrong_bytes"]),
        (&150.into(), &0.into())
    );
    for round in run["rounds"].as_array().unwrap() {
        let rate = number(&round["messages"]) / number(&round["elapsed_ns"]) * 1e9;
        assert!(rate <= 100.01, "{rate} messages a second in one direction");
    }
}
