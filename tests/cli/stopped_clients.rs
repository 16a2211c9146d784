//! A client that stops in the middle of its run, at each step of the conversation: the next one is served soon.
#![allow(clippy::print_stdout, reason = "the figures, for whoever runs them with --nocapture")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use linkproof_tests::{Frame, Relay, Running, Sender, Tool, free_port};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::attack::{PREAMBLE, held_when_idle, honest, honest_frames, is_as_before, server, stranger};

/// How long a client that has stopped may hold the next one: a second, and what a slow, busy machine takes for the
/// next one's run.
const SOON: Duration = Duration::from_secs(6);

/// Where a client stops: the first message of `sender` with that name that neither end passes.
#[derive(Clone, Copy)]
struct Stop {
    tool: &'static str,
    options: &'static str,
    sender: Sender,
    message: &'static str,
}

impl Stop {
    fn at(sender: Sender, message: &'static str) -> Self {
        Self { tool: "write-bw", options: "-n 10", sender, message }
    }

    fn is_at(self, frame: &Frame) -> bool {
        frame.sender == self.sender
            && frame.body["message"] == self.message
            // In a stretch, and under way.
            && (self.message != "progress" || frame.progress_of(self.sender) > Some(0))
    }

    /// How long the next client takes, from its start to its end, when this one has stopped.
    fn holds_the_next(self) {
        let port = free_port();
        let server = Tool::tcp(self.tool).serve(port);
        let before = (self.tool == "write-bw").then(|| held_when_idle(&server, port));
        let relay = Relay::freezing_at(port, move |frame| self.is_at(frame));
        let client = Tool::tcp(self.tool).args(&format!("127.0.0.1 -p {} {}", relay.port, self.options));
        let stopped = client.start();
        relay.wait_until_frozen();
        let begin = Instant::now();
        Tool::tcp(self.tool).args(&format!("127.0.0.1 -p {port} -n 10")).run().exits(0);
        self.tell(begin.elapsed());
        server.wait_for_stderr("has said nothing for ");
        drop(stopped);
        if let Some(before) = before {
            is_as_before(&server, before);
        }
    }

    fn tell(self, took: Duration) {
        let Self { tool, options, sender, message } = self;
        println!("{tool} {options}: silent from the {sender:?}'s {message} on, the next took {took:?}");
        assert!(took < SOON, "{tool} {options}, {sender:?}'s {message}: the next client took {took:?}");
    }
}

/// Each with a server of its own, side by side: they mostly wait.
fn each(stops: &[Stop]) {
    std::thread::scope(|scope| {
        for stop in stops {
            scope.spawn(|| stop.holds_the_next());
        }
    });
}

#[test]
fn a_client_that_stops_between_stretches_holds_the_next_for_a_second() {
    let stops = [
        Stop::at(Sender::Server, "agree"),
        Stop::at(Sender::Client, "connect"),
        // It opens no data connection.
        Stop::at(Sender::Server, "connect"),
        // It has opened all.
        Stop::at(Sender::Client, "ready"),
        Stop::at(Sender::Client, "begin"),
        Stop::at(Sender::Server, "outcome"),
        Stop::at(Sender::Client, "finish"),
        Stop::at(Sender::Server, "evidence"),
        Stop::at(Sender::Client, "result"),
    ];
    each(&stops);
}

#[test]
fn a_client_that_stops_in_a_stretch_holds_the_next_for_a_second() {
    let long = Stop { options: "-D 60 --rounds 1", ..Stop::at(Sender::Client, "progress") };
    let stops = [
        // Before its first message, and after its last.
        Stop::at(Sender::Server, "begun"),
        Stop::at(Sender::Client, "end"),
        long,
        Stop { options: "-D 60 --rounds 1 -b", ..long },
        Stop { tool: "write-lat", ..long },
    ];
    each(&stops);
}

#[test]
fn a_stopped_process_that_is_written_to_holds_the_next_for_a_second() {
    let (server, port) = server();
    let before = held_when_idle(&server, port);
    let relay = Relay::to(port);
    let line = format!("127.0.0.1 -p {} -D 60 --rounds 1 -b -s 1M", relay.port);
    let stopped = Tool::write_bw_tcp().args(&line).start();
    relay.wait_for_progress_of(Sender::Server);
    stopped.signal(Signal::SIGSTOP);
    let begin = Instant::now();
    honest(port).run().exits(0);
    println!("a stopped process held the next for {:?}", begin.elapsed());
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    server.wait_for_stderr("has said nothing for 900 ms");
    drop(stopped);
    is_as_before(&server, before);
}

/// The server's data port, once it has told it.
fn data_port(client: &mut TcpStream) -> u16 {
    let mut words = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let count = client.read(&mut piece).expect("the server agrees and connects");
        assert!(count > 0, "the server hung up: {}", String::from_utf8_lossy(&words));
        words.extend(&piece[..count]);
        let text = String::from_utf8_lossy(&words);
        let whole = text.find("{\"message\":\"connect\"").map(|begin| &text[begin..]);
        if let Some(Ok(connect)) =
            whole.and_then(|json| serde_json::Deserializer::from_str(json).into_iter::<Value>().next())
        {
            return connect["end"]["data_port"].as_u64().expect("the server has one") as u16;
        }
    }
}

fn let_go(server: &Running, port: u16) {
    let next = honest(port).start();
    next.wait_for_stderr("waiting for this client's turn: the server 127.0.0.1 serves 127.0.0.1:");
    let begin = Instant::now();
    next.finish().exits(0);
    println!("the next client was served after {:?}", begin.elapsed());
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    server.wait_for_stderr("has said nothing for 900 ms");
}

#[test]
fn a_client_that_stops_in_the_greeting_of_a_data_connection_is_let_go_too() {
    let frames = honest_frames();
    let (server, port) = server();
    let before = held_when_idle(&server, port);
    let mut stopped = stranger(port, &[PREAMBLE.as_slice(), &frames[..3].concat()].concat());
    let data_port = data_port(&mut stopped);
    // On a busy machine the server has let go before all of them have come, and refuses the rest.
    let greetings: Vec<_> = (0..100)
        .map_while(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, data_port)).ok())
        .filter_map(|mut data| data.write_all(&[7; 9]).is_ok().then_some(data))
        .collect();
    assert!(!greetings.is_empty(), "it listens");
    let_go(&server, port);
    drop((stopped, greetings));
    is_as_before(&server, before);
}
