//! A server under attack, over loopback: everything that a stranger can do to the control port, bounded in number and
//! time, always the same. The server serves its next client at once, and is afterwards what it was before.
#![allow(clippy::print_stdout, reason = "the figures, for whoever runs them with --nocapture")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use linkproof_tests::{Random, Relay, Running, SOON, Sender, Tool, free_port};

/// What an honest client may take under attack: its run takes some 30 ms of it.
const AT_ONCE: Duration = Duration::from_secs(1);
/// How far the server's memory may be from where it was.
const MEMORY_SLACK_KIB: u64 = 32 << 10;
/// Everything that a client says before its first frame.
pub(crate) const PREAMBLE: &[u8; 16] = b"linkproof/1\0\0\0\0\0";

pub(crate) fn server() -> (Running, u16) {
    let port = free_port();
    (Tool::write_bw_tcp().serve(port), port)
}

pub(crate) fn honest(port: u16) -> Tool {
    Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {port} -n 10"))
}

/// How long an honest client takes from its start to its end.
fn honest_run(port: u16) -> Duration {
    let begin = Instant::now();
    honest(port).run().exits(0);
    begin.elapsed()
}

fn served_at_once(port: u16, in_spite_of: &str) {
    let took = honest_run(port);
    println!("an honest client was served in {} ms in spite of {in_spite_of}", took.as_millis());
    assert!(took < AT_ONCE, "an honest client took {took:?} in spite of {in_spite_of}");
}

/// What a process holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    resident_kib: u64,
    descriptors: usize,
}

fn held_by(server: &Running) -> Held {
    let folder = format!("/proc/{}", server.pid());
    let status = std::fs::read_to_string(format!("{folder}/status")).expect("it runs");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    let kib = resident.trim().trim_end_matches(" kB").parse().expect("in kB");
    let descriptors = std::fs::read_dir(format!("{folder}/fd")).expect("its own user's").count();
    Held { resident_kib: kib, descriptors }
}

/// What it holds between two clients; the first has brought its memory to what a run takes.
pub(crate) fn held_when_idle(server: &Running, port: u16) -> Held {
    let descriptors = held_by(server).descriptors;
    honest_run(port);
    settled(server, descriptors)
}

/// What the server holds once it has closed what it had open for others: the client ends before.
fn settled(server: &Running, descriptors: usize) -> Held {
    let deadline = Instant::now() + SOON;
    loop {
        let now = held_by(server);
        if now.descriptors <= descriptors {
            return now;
        }
        assert!(Instant::now() < deadline, "descriptors leaked: {descriptors} have become {now:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn is_as_before(server: &Running, before: Held) {
    let now = settled(server, before.descriptors);
    println!("before {before:?}, after {now:?}");
    assert!(now.resident_kib < before.resident_kib + MEMORY_SLACK_KIB, "{before:?} has become {now:?}");
}

/// A stranger: connects and says `words`. The server may hang up at any word.
pub(crate) fn stranger(port: u16, words: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the server listens");
    socket.set_read_timeout(Some(SOON)).expect("a socket has a deadline");
    let _ = socket.write_all(words);
    socket
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes().to_vec();
    bytes.extend(payload);
    bytes
}

/// What an honest client says, frame by frame, taken down from one.
pub(crate) fn honest_frames() -> Vec<Vec<u8>> {
    let (_server, port) = server();
    let relay = Relay::to(port);
    honest(relay.port).run().exits(0);
    let of_client = |frame: &linkproof_tests::Frame| {
        (frame.sender == Sender::Client && frame.body["message"] != "progress")
            .then(|| frame.body.to_string().into_bytes())
    };
    relay.frames().iter().filter_map(of_client).map(|payload| frame(&payload)).collect()
}

/// A frame of one of the kinds that attackers send.
fn hostile_frame(random: &mut Random, honest: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = honest[random.below(honest.len())].clone();
    match random.below(5) {
        // Nothing that anybody would send.
        0 => return random.bytes(300),
        // The length is right, the rest is not.
        1 => return frame(&random.bytes(300)),
        // Cut off in the middle.
        2 => bytes.truncate(1 + random.below(bytes.len())),
        // A byte changed.
        3 => {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        // In its place or out of it.
        _ => {}
    }
    bytes
}

#[test]
fn ten_thousand_frames_of_nonsense_neither_hold_the_server_nor_make_it_grow() {
    const CONNECTIONS: usize = 2000;
    const FRAMES_EACH: usize = 5;
    let frames = honest_frames();
    let (server, port) = server();
    let before = held_when_idle(&server, port);
    let mut random = Random::new(3);
    for connection in 0..CONNECTIONS {
        let mut words = PREAMBLE.to_vec();
        for _ in 0..FRAMES_EACH {
            words.extend(hostile_frame(&mut random, &frames));
        }
        drop(stranger(port, &words));
        if connection % 400 == 200 {
            served_at_once(port, &format!("{} frames of nonsense", (connection + 1) * FRAMES_EACH));
        }
    }
    served_at_once(port, "10 000 frames of nonsense");
    is_as_before(&server, before);
    let lines = server.stderr().lines().count();
    assert!(lines < 1000, "the server complained in {lines} lines");
}

#[test]
fn two_hundred_connections_that_say_nothing_do_not_keep_a_client_out() {
    let (server, port) = server();
    let before = held_when_idle(&server, port);
    let silent: Vec<_> = (0..200).map(|_| stranger(port, b"")).collect();
    served_at_once(port, "200 connections that say nothing");
    assert!(
        held_by(&server).descriptors < 400,
        "their number in the server is bounded: {:?}",
        held_by(&server)
    );
    drop(silent);
    is_as_before(&server, before);
}

#[test]
fn a_frame_of_four_gigabytes_takes_no_memory() {
    let (server, port) = server();
    let before = held_when_idle(&server, port);
    let announced: Vec<_> =
        (0..20).map(|_| stranger(port, &[PREAMBLE.as_slice(), &[0xff; 4], &[b'['; 4096]].concat())).collect();
    served_at_once(port, "frames of 4 GiB");
    drop(announced);
    // As long as a frame may be, all of it brackets, on as many connections as may greet.
    let longest = [PREAMBLE.as_slice(), &frame(&vec![b'['; 128 << 10])].concat();
    let long: Vec<_> = (0..64).map(|_| stranger(port, &longest)).collect();
    served_at_once(port, "64 frames as long as they may be");
    drop(long);
    is_as_before(&server, before);
}

#[test]
fn a_client_that_stops_in_its_greeting_holds_nobody() {
    let frames = honest_frames();
    let (server, port) = server();
    let before = held_when_idle(&server, port);
    let said: Vec<u8> = [PREAMBLE.as_slice(), &frames[0], &frames[1]].concat();
    let hello = PREAMBLE.len() + frames[0].len();
    // In the preamble, after it, in the hello's length, in the hello, after it, in the proposal, before its last byte.
    let cuts =
        [7, PREAMBLE.len(), PREAMBLE.len() + 2, PREAMBLE.len() + 40, hello, hello + 30, said.len() - 1];
    let stopped: Vec<_> = cuts.iter().map(|&cut| stranger(port, &said[..cut])).collect();
    served_at_once(port, "7 clients that stopped in the middle");
    server.wait_for_stderr("did not come to its proposal within 3 s");
    for mut socket in stopped {
        let mut words = Vec::new();
        assert!(socket.read_to_end(&mut words).is_ok(), "the server hangs up by itself");
    }
    is_as_before(&server, before);
}
