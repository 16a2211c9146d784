//! Peers that are not what the tools expect.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::SOON;

/// Bytes that a linkproof tool says first.
const PREAMBLE: usize = 16;

/// What a tool of protocol version `version` says first.
pub(crate) fn preamble(version: u32) -> [u8; PREAMBLE] {
    let mut bytes = [0; PREAMBLE];
    let text = format!("linkproof/{version}");
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}

/// A server that gives one client one answer.
pub struct FakeServer {
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    thread: Option<JoinHandle<Vec<u8>>>,
}

impl FakeServer {
    /// A server that reads what the client says first, says `answer`, and waits for the client to hang up.
    ///
    /// # Panics
    /// Where it can't listen.
    pub fn answering(answer: &[u8]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of 127.0.0.1");
        let port = listener.local_addr().expect("it has an address").port();
        let answer = answer.to_vec();
        listener.set_nonblocking(true).expect("it can be polled");
        let thread = std::thread::spawn(move || serve_once(&listener, &answer));
        Self { port, thread: Some(thread) }
    }

    /// A linkproof server of another protocol version.
    pub fn of_version(version: u32) -> Self {
        Self::answering(&preamble(version))
    }

    /// What the client said, when it has hung up.
    ///
    /// # Panics
    /// Where no client came, or it didn't hang up.
    pub fn heard(mut self) -> Vec<u8> {
        self.thread.take().expect("asked once").join().expect("the fake server saw its client to the end")
    }
}

fn serve_once(listener: &TcpListener, answer: &[u8]) -> Vec<u8> {
    let deadline = Instant::now() + SOON;
    let mut client = loop {
        match listener.accept() {
            Ok((client, _)) => break client,
            Err(error) => assert!(Instant::now() < deadline, "no client came: {error}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    client.set_nonblocking(false).expect("a socket can block");
    client.set_read_timeout(Some(SOON)).expect("a socket has a deadline");
    let mut heard = vec![0; PREAMBLE];
    client.read_exact(&mut heard).expect("the client speaks first");
    client.write_all(answer).expect("the client listens");
    // A reset says as well as an end that the client has gone.
    let _ = client.read_to_end(&mut heard);
    heard
}

/// A client that says what it likes.
pub struct StrangeClient(TcpStream);

impl StrangeClient {
    /// Connects to 127.0.0.1 and says `words`.
    ///
    /// # Panics
    /// Where nobody listens there.
    pub fn saying(port: u16, words: &[u8]) -> Self {
        let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the server listens");
        socket.set_read_timeout(Some(SOON)).expect("a socket has a deadline");
        socket.write_all(words).expect("the server takes it");
        Self(socket)
    }

    /// A client of another protocol version.
    pub fn of_version(port: u16, version: u32) -> Self {
        Self::saying(port, &preamble(version))
    }

    /// The server's first words.
    ///
    /// # Panics
    /// Where it says less than a preamble.
    pub fn preamble(&mut self) -> String {
        let mut bytes = [0; PREAMBLE];
        self.0.read_exact(&mut bytes).expect("the server says who it is");
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
    }
}
