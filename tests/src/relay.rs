//! A control channel with a listener in the middle: it passes everything on unchanged and shows a test how far a
//! run is; where a test wants it, both ends fall silent at a message. The data connections go past it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use serde_json::Value;

use crate::SOON;

/// Bytes that each end says before the first frame.
const PREAMBLE: usize = 16;

/// Whose words they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The client's.
    Client,
    /// The server's.
    Server,
}

/// A message that went by.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Who sent it.
    pub sender: Sender,
    /// What it is.
    pub body: Value,
}

impl Frame {
    /// The messages completed, where it is a report of progress by `sender`.
    pub fn progress_of(&self, sender: Sender) -> Option<u64> {
        let is_progress = self.sender == sender && self.body["message"] == "progress";
        self.body["completed"].as_u64().filter(|_| is_progress)
    }
}

struct Seen {
    frames: Mutex<Vec<Frame>>,
    changed: Condvar,
    freezes_at: Box<dyn Fn(&Frame) -> bool + Send + Sync>,
    frozen: AtomicBool,
}

/// Stands between one client and a server.
pub struct Relay {
    /// Where the client connects, on 127.0.0.1.
    pub port: u16,
    seen: Arc<Seen>,
}

impl Relay {
    /// A relay for one connection to the server at `server_port`.
    ///
    /// # Panics
    /// Where it can't listen.
    pub fn to(server_port: u16) -> Self {
        Self::freezing_at(server_port, |_| false)
    }

    /// The same, but neither the first message for which `freezes_at` nor anything after it is passed on, in either
    /// direction: each end hears nothing more of the other, and the connection stays.
    ///
    /// # Panics
    /// Where it can't listen.
    pub fn freezing_at(
        server_port: u16,
        freezes_at: impl Fn(&Frame) -> bool + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of 127.0.0.1");
        let port = listener.local_addr().expect("it has an address").port();
        let seen = Arc::new(Seen {
            frames: Mutex::default(),
            changed: Condvar::new(),
            freezes_at: Box::new(freezes_at),
            frozen: AtomicBool::new(false),
        });
        let shared = Arc::clone(&seen);
        // Lives until both ends have hung up, or with the process where nobody comes.
        std::thread::spawn(move || relay(&listener, server_port, &shared));
        Self { port, seen }
    }

    /// Waits until a frame went by for which `pick` gives something.
    ///
    /// # Panics
    /// Where none comes in time.
    pub fn wait_for<T>(&self, what: &str, pick: impl Fn(&Frame) -> Option<T>) -> T {
        let deadline = Instant::now() + SOON;
        let mut frames = self.seen.frames.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(picked) = frames.iter().find_map(&pick) {
                return picked;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {what} within {SOON:?}; seen: {frames:#?}");
            frames = self.seen.changed.wait_timeout(frames, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until nothing is passed on any more.
    pub fn wait_until_frozen(&self) {
        self.wait_for("message to freeze at", |frame| (self.seen.freezes_at)(frame).then_some(()));
    }

    /// Waits until a round is under way and `sender` has reported completed messages; gives their number.
    pub fn wait_for_progress_of(&self, sender: Sender) -> u64 {
        let what = format!("report of progress by the {sender:?}");
        self.wait_for(&what, |frame| frame.progress_of(sender).filter(|&completed| completed > 0))
    }

    /// Everything that has gone by.
    pub fn frames(&self) -> Vec<Frame> {
        self.seen.frames.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The last number of messages that `sender` reported.
    pub fn last_progress_of(&self, sender: Sender) -> Option<u64> {
        let frames = self.seen.frames.lock().unwrap_or_else(PoisonError::into_inner);
        frames.iter().rev().find_map(|frame| frame.progress_of(sender))
    }
}

fn relay(listener: &TcpListener, server_port: u16, seen: &Seen) {
    let Ok((client, _)) = listener.accept() else { return };
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server_port)) else { return };
    std::thread::scope(|scope| {
        scope.spawn(|| pass_on(&client, &server, Sender::Client, seen));
        pass_on(&server, &client, Sender::Server, seen);
    });
}

/// Passes whole frames on until either end is gone, and lets the other know.
fn pass_on(mut from: &TcpStream, mut to: &TcpStream, sender: Sender, seen: &Seen) {
    let mut inbox = Vec::new();
    let mut preamble = PREAMBLE;
    let mut piece = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        inbox.extend_from_slice(&piece[..count]);
        let said: Vec<u8> = inbox.drain(..inbox.len().min(preamble)).collect();
        preamble -= said.len();
        let mut passed = to.write_all(&said).is_ok();
        while let Some(frame) = take_frame(&mut inbox) {
            // Noted first: what a test has seen an end react to is then always there.
            note(&frame, sender, seen);
            passed &= seen.frozen.load(Ordering::SeqCst) || to.write_all(&frame).is_ok();
        }
        if !passed {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// The first frame in `inbox`, with its length, if it is whole.
fn take_frame(inbox: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = 4 + u32::from_be_bytes(*inbox.first_chunk::<4>()?) as usize;
    (inbox.len() >= end).then(|| inbox.drain(..end).collect())
}

fn note(frame: &[u8], sender: Sender, seen: &Seen) {
    let frame = Frame { sender, body: serde_json::from_slice(&frame[4..]).unwrap_or(Value::Null) };
    if (seen.freezes_at)(&frame) {
        seen.frozen.store(true, Ordering::SeqCst);
    }
    seen.frames.lock().unwrap_or_else(PoisonError::into_inner).push(frame);
    seen.changed.notify_all();
}
