//! Data that is changed on the way: found by `--validate`, named by its place, and a failure.

use linkproof_tests::{Corruptor, FLIP, Finished, Running, Sender, Tool, free_port, schema};
use serde_json::Value;

/// Ten messages of 4 KiB a round, all into one slot: what counts is the last, so its byte is changed.
const OPTIONS: &str = "-s 4K -n 10 --warmup 0 --rounds 2 --json";
const LAST_OF_ROUND_0: u64 = 9 * 4096;

fn corrupted_run(offset: u64, options: &str) -> (Finished, Running) {
    let port = free_port();
    let server = Tool::write_bw_tcp().args("--once").serve(port);
    let path = Corruptor::to(port, Sender::Client, offset);
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

/// Ten round trips of 4 KiB in each of two rounds. The server's stream has a byte more after each message.
fn corrupted_ping_pong(sender: Sender, message: u64, offset: u64, options: &str) -> (Finished, Running) {
    let port = free_port();
    let server = Tool::tcp("write-lat").args("--once").serve(port);
    let length = 4096 + u64::from(sender == Sender::Server && options.contains("--validate"));
    let path = Corruptor::to(port, sender, (message - 1) * length + offset);
    let client =
        Tool::tcp("write-lat").args(&format!("127.0.0.1 -p {} {OPTIONS} {options}", path.port)).run();
    (client, server)
}

/// The outcome of one round of a document.
fn outcome<'a>(document: &'a Value, round: usize, of: &str) -> &'a Value {
    &document["rounds"][round][of]
}

#[test]
fn a_byte_of_any_ping_or_answer_is_found_with_its_message_and_both_ends_exit_1() {
    for (sender, of, other, direction) in [
        (Sender::Client, "checked", "answers_checked", "from the client to the server"),
        (Sender::Server, "answers_checked", "checked", "from the server to the client"),
    ] {
        let (client, server) = corrupted_ping_pong(sender, 5, 123, "--validate");
        client.exits(1).says(&[
            "write-lat: 1 bytes arrived wrong, first at message size 4 KiB in round 1",
            &format!("direction: {direction}"),
            "first wrong byte: queue pair 0, message 5, offset 123: expected 0x",
        ]);
        let document = client.document();
        schema::validate(&document);
        assert_eq!(document["verdict"]["failures"][0]["code"], "wrong-data");
        let row = &document["results"][0];
        // Two rounds of ten messages in both directions.
        assert_eq!((&row["wrong_bytes"], &row["checked_bytes"]), (&1.into(), &(2 * 10 * 2 * 4096).into()));
        let first = &outcome(&document, 0, of)["first_wrong"];
        let byte = |name: &str| first[name].as_u64().expect("a byte");
        assert_eq!(byte("expected") ^ byte("found"), u64::from(FLIP));
        for (round, of) in [(0, other), (1, of), (1, other)] {
            assert_eq!(outcome(&document, round, of)["wrong_bytes"], 0, "{round} {of}");
        }
        server.finish().exits(1).says(&["1 bytes arrived wrong", direction]);
    }
}

#[test]
fn the_number_in_a_messages_last_byte_is_checked_as_well() {
    let (client, server) = corrupted_ping_pong(Sender::Client, 3, 4095, "--validate");
    let (expected, found) = (3, 3 ^ FLIP);
    let place = format!("message 3, offset 4095: expected 0x{expected:02x}, found 0x{found:02x}");
    client.exits(1).says(&[&place]);
    server.finish().exits(1).says(&[&place]);
}

#[test]
fn without_validate_nothing_is_claimed_of_a_ping_pong() {
    let (client, server) = corrupted_ping_pong(Sender::Server, 5, 123, "");
    client.exits(0);
    let document = client.document();
    assert!(document["results"][0].get("checked_bytes").is_none());
    assert!(outcome(&document, 0, "checked").is_null() && outcome(&document, 0, "answers_checked").is_null());
    server.finish().exits(0);
}
