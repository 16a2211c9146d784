//! Requests that go wrong on their way: what the tools make of it.

use linkproof_tests::Finished;

use crate::runs::Server;

/// A client's run on a device with `fault`, and a server on one without.
fn with_fault(tool: &'static str, fault: &str, options: &str) -> Finished {
    let server = Server::start(tool, "soft0");
    server.client(&format!("soft0 fault={fault}")).args(options).run()
}

/// Short patience: 4 ms, tried once.
const IMPATIENT: &str = "-u 10 --retry-count 0";

#[test]
fn a_status_is_named_with_its_meaning() {
    for (status, words) in [
        ("LOC_LEN_ERR", "LOC_LEN_ERR (1), vendor 0x0, on QP 0x"),
        ("LOC_PROT_ERR", "LOC_PROT_ERR (4), vendor 0x0, on QP 0x"),
        ("WR_FLUSH_ERR", "WR_FLUSH_ERR (5), vendor 0x0, on QP 0x"),
        ("REM_INV_REQ_ERR", "REM_INV_REQ_ERR (9), vendor 0x0, on QP 0x"),
        ("REM_ACCESS_ERR", "REM_ACCESS_ERR (10), vendor 0x0, on QP 0x"),
        ("REM_OP_ERR", "REM_OP_ERR (11), vendor 0x0, on QP 0x"),
        ("RNR_RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR (13), vendor 0x0, on QP 0x"),
        ("FATAL_ERR", "FATAL_ERR (19), vendor 0x0, on QP 0x"),
        ("GENERAL_ERR", "GENERAL_ERR (21), vendor 0x0, on QP 0x"),
    ] {
        let run = with_fault("write-bw", &format!("send@300:{status}"), "-n 400");
        let words = format!("write-bw: a write did not complete: {words}");
        run.exits(4).says(&[
            &words,
            "meaning: ",
            "got so far: round 1 of 3 at 64 KiB",
            "peer: still connected",
        ]);
    }
}

#[test]
fn write_lat_tells_the_same_of_a_status() {
    let run = with_fault("write-lat", "send@300:REM_ACCESS_ERR", "-n 400");
    run.exits(4).says(&["write-lat: a write did not complete: REM_ACCESS_ERR (10)", "got so far: "]);
}

#[test]
fn what_was_complete_before_is_counted() {
    let run = with_fault("write-bw", "send@1:REM_OP_ERR", "-n 400 --warmup 0 --json");
    let document = run.exits(4).document();
    assert_eq!(document["verdict"]["failures"][0]["code"], "completion");
    assert!(document["rounds"].as_array().unwrap().is_empty(), "{document:#}");
}

#[test]
fn a_lost_write_runs_out_of_retries() {
    let run = with_fault("write-bw", "send@200:lost", &format!("-n 400 {IMPATIENT}"));
    run.exits(4).says(&[
        "a write did not complete: RETRY_EXC_ERR (12)",
        "meaning: the peer's adapter acknowledged nothing until the retries ran out",
        "hint: see that the peer's process lives, and that both run on one machine",
    ]);
}

#[test]
fn the_size_at_which_nothing_passes_any_more_is_named() {
    // 1 KiB passes, and of 2 KiB nothing does: as where the path's MTU is smaller than the ends think.
    let options = format!("-s 1K,2K -n 100 --warmup 0 --rounds 1 {IMPATIENT}");
    let run = with_fault("write-bw", "send@101+:lost", &options);
    run.exits(4).says(&["RETRY_EXC_ERR (12)", "got so far: round 1 of 1 at 2 KiB"]);
    let document = with_fault("write-bw", "send@101+:lost", &format!("{options} --json")).document();
    assert_eq!(document["results"][0]["size_bytes"], 1024, "what was measured is there: {document:#}");
}

#[test]
fn one_queue_pair_of_four_may_lose_a_write() {
    let run = with_fault("write-bw", "send/2@50:lost", &format!("-q 4 -n 400 {IMPATIENT}"));
    run.exits(4).says(&["a write did not complete: RETRY_EXC_ERR (12)"]);
}

#[test]
fn a_changed_byte_is_found_by_the_target() {
    // Of the one slot of a large message the last write is seen: each is changed.
    let run = with_fault("write-bw", "send@1+:corrupt=100", "-s 64K -n 50 --validate");
    run.exits(1)
        .says(&["3 bytes arrived wrong, first at", "first wrong byte: queue pair 0, offset 100: expected"]);
}

#[test]
fn a_changed_byte_is_in_the_document_with_its_place() {
    let run = with_fault("write-bw", "send@1+:corrupt=7", "-s 4K -n 50 --validate --json");
    let document = run.exits(1).document();
    assert_eq!(document["verdict"]["failures"][0]["code"], "wrong-data");
    assert_eq!(document["results"][0]["wrong_bytes"], 3, "one in each round");
    let first = &document["rounds"][0]["checked"]["first_wrong"];
    assert_eq!(first["offset"], 7, "{document:#}");
}

#[test]
fn a_changed_byte_goes_unseen_where_nobody_looks() {
    let run = with_fault("write-bw", "send@1+:corrupt", "-s 64K -n 50");
    run.exits(0);
    assert!(run.stdout.contains("Data         : not checked"));
}

#[test]
fn a_delayed_message_is_the_maximum() {
    let run = with_fault("write-lat", "send@150:delay=200ms", "-s 8 -n 100 --warmup 10 --rounds 3 --json");
    let document = run.exits(0).document();
    let slowest = document["results"][0]["t_max_usec"].as_f64().unwrap();
    // Half of the round trip, in which one way took 200 ms at least.
    assert!(slowest >= 100_000.0, "{slowest}");
}

#[test]
fn a_port_that_goes_down_loses_what_is_under_way() {
    let run = with_fault("write-bw", "port@300:down", &format!("-n 400 {IMPATIENT}"));
    run.exits(4).says(&["a write did not complete: RETRY_EXC_ERR (12)"]);
}

#[test]
fn a_port_that_comes_back_in_time_goes_unnoticed() {
    // Ten seconds of patience for half a second.
    let run = with_fault("write-bw", "port@300:down=500ms", "-n 400 --validate");
    run.exits(0);
    assert!(run.stdout.contains("all as sent"));
}

#[test]
fn a_target_whose_port_goes_down_does_not_answer() {
    let server = Server::start("write-bw", "soft0 fault=port@1:down");
    // Bidirectional: the server's first write takes its port down.
    let run = server.client("soft0").args(&format!("-b -n 400 {IMPATIENT}")).run();
    run.exits(4).says(&["RETRY_EXC_ERR (12)"]);
}

#[test]
fn a_port_that_went_down_is_refused_to_the_next_client() {
    let server = Server::start("write-bw", "soft0 fault=port@1:down");
    server.client("soft0").args(&format!("-b -n 400 {IMPATIENT}")).run().exits(4);
    let next = server.client("soft0").args("-n 50").run();
    next.exits(4).says(&["could not go on: port 1 of soft0 is DOWN, not ACTIVE"]);
}
