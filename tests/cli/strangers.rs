//! Peers that are something else: each end says who it is, and the server stays.

use linkproof_tests::{FakeServer, Running, SOON, StrangeClient, Tool, free_port};

fn server() -> (Running, u16) {
    let port = free_port();
    (Tool::write_bw_tcp().serve(port), port)
}

/// An honest client is served after whatever came before.
fn serves_on(port: u16) {
    Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {port} -n 10")).run().exits(0);
}

#[test]
fn a_client_of_another_version_learns_ours_and_the_server_stays() {
    let (server, port) = server();
    let mut stranger = StrangeClient::of_version(port, 9);
    assert_eq!(stranger.preamble(), "linkproof/1");
    server.wait_for_stderr("speaks version 9 of the control protocol, this end version 1");
    serves_on(port);
}

#[test]
fn a_server_of_another_version_is_refused_with_both_versions() {
    let fake = FakeServer::of_version(9);
    let refused = Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {}", fake.port)).run();
    refused.exits(4).silent_on_stdout().says(&["version 9", "version 1", "same release on both ends"]);
    assert!(fake.heard().starts_with(b"6.06 lproof/1\0"));
}

#[test]
fn garbage_on_the_control_port_is_shown_and_the_server_stays() {
    let (server, port) = server();
    let _stranger = StrangeClient::saying(port, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03garbage!");
    server.wait_for_stderr("is no linkproof tool");
    server.wait_for_stderr("it said: \"\\x16\\x03\\x01");
    serves_on(port);
}

#[test]
fn a_frame_of_absurd_length_is_refused_and_the_server_stays() {
    let (server, port) = server();
    let mut words = b"linkproof/1\0\0\0\0\0".to_vec();
    words.extend([0xff; 4]);
    let _stranger = StrangeClient::saying(port, &words);
    server.wait_for_stderr("4294967295 bytes");
    serves_on(port);
}

#[test]
fn a_frame_of_nonsense_is_refused_and_the_server_stays() {
    let (server, port) = server();
    let mut words = b"linkproof/1\0\0\0\0\0\0\0\0\x05".to_vec();
    words.extend(b"[1,2]");
    let _stranger = StrangeClient::saying(port, &words);
    server.wait_for_stderr("a frame that can't be read");
    serves_on(port);
}

#[test]
fn a_client_that_says_nothing_does_not_hold_the_server() {
    let (server, port) = server();
    let _silent = StrangeClient::saying(port, b"");
    serves_on(port);
    server.wait_for_stderr("said nothing");
}

#[test]
fn a_web_server_is_no_linkproof_server() {
    let fake = FakeServer::answering(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    let refused = Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {} --json", fake.port)).run();
    refused.exits(4).says(&["is no linkproof tool", "HTTP/1.1 400"]);
    assert_eq!(refused.document()["verdict"]["failures"][0]["code"], "not-linkproof");
}

#[test]
fn strangers_are_not_the_one_client_of_once() {
    let port = free_port();
    let server = Tool::write_bw_tcp().args("--once").serve(port);
    let _stranger = StrangeClient::saying(port, b"GET / HTTP/1.1\r\n\r\n");
    server.wait_for_stderr("is no linkproof tool");
    serves_on(port);
    server.finish_within(SOON).exits(0);
}
