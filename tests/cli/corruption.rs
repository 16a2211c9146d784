//! Data that is changed on the way: found by `--validate`, named by its place, and a failure.

use linkproof_tests::{Corruptor, FLIP, Finished, Running, Tool, free_port, schema};

/// Ten messages of 4 KiB a round, all into one slot: what counts is the last, so its byte is changed.
const OPTIONS: &str = "-s 4K -n 10 --warmup 0 --rounds 2 --json";
const LAST_OF_ROUND_0: u64 = 9 * 4096;

fn corrupted_run(offset: u64, options: &str) -> (Finished, Running) {
    let port = free_port();
    let server = Tool::write_bw_tcp().args("--once").serve(port);
    let path = Corruptor::to(port, offset);
    let client = Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {} {OPTIONS} {options}", path.port)).run();
    (client, server)
}

#[test]
fn a_byte_changed_on_the_way_is_found_and_both_ends_exit_1() {
    let (client, server) = corrupted_run(LAST_OF_ROUND_0 + 123, "--validate");
    client.exits(1).says(&[
        "write-bw: 1 bytes arrived wrong, first at message size 4 KiB in round 1",
        "direction: from the client to the server",
        "first wrong byte: queue pair 0, offset 123: expected 0x",
    ]);
    let document = client.document();
    schema::validate(&document);
    assert_eq!(document["verdict"]["failures"][0]["code"], "wrong-data");
    assert_eq!(document["results"][0]["wrong_bytes"], 1);
    assert_eq!(document["results"][0]["checked_bytes"], 2 * 4096);
    let first = &document["rounds"][0]["checked"]["first_wrong"];
    assert_eq!(first["offset"], 123);
    let byte = |name: &str| first[name].as_u64().expect("a byte");
    assert_eq!(byte("expected") ^ byte("found"), u64::from(FLIP));
    assert_eq!(document["rounds"][1]["checked"]["wrong_bytes"], 0, "the next round's data arrived as sent");
    server.finish().exits(1).says(&["1 bytes arrived wrong"]);
}

#[test]
fn without_validate_nothing_is_claimed_of_the_data() {
    let (client, server) = corrupted_run(LAST_OF_ROUND_0 + 123, "");
    client.exits(0);
    assert!(client.document()["results"][0].get("checked_bytes").is_none());
    server.finish().exits(0);
}
