//! Messages that take time.

use crate::runs::Server;

#[test]
fn no_message_is_faster_than_the_latency() {
    let server = Server::start("write-lat", "soft0 latency=300us");
    let run = server.client("soft0 latency=300us").args("-s 8 -n 50 --warmup 5 --rounds 1 --json").run();
    let document = run.exits(0).document();
    let fastest = document["results"][0]["t_min_usec"].as_f64().unwrap();
    assert!(fastest >= 300.0, "{fastest}");
}

#[test]
fn no_more_passes_than_the_pace_allows() {
    let server = Server::start("write-bw", "soft0 pace=1G");
    let run = server.client("soft0 pace=1G").args("-s 64K -n 200 --validate --json").run();
    let document = run.exits(0).document();
    // A round may end before its last message has passed at the target, but not begin before its first.
    for round in document["rounds"].as_array().unwrap() {
        let bits = round["messages"].as_f64().unwrap() * 65536.0 * 8.0;
        let gbit = bits / round["elapsed_ns"].as_f64().unwrap();
        assert!(gbit <= 1.01, "{gbit}: {round}");
    }
    assert_eq!(document["results"][0]["wrong_bytes"], 0);
}

#[test]
fn order_is_kept_and_bytes_arrive_whatever_the_latency() {
    let server = Server::start("write-bw", "soft0 latency=50us");
    let run = server.client("soft0 latency=50us").args("-b -q 3 -s 8,4K -n 300 --validate --json").run();
    let document = run.exits(0).document();
    for result in document["results"].as_array().unwrap() {
        assert_eq!(result["wrong_bytes"], 0, "{result}");
    }
}
