//! Two ends of a channel in one process, for tests.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::{Channel, Message, Waker};
use crate::error::{Error, ErrorKind, Result};

enum Item {
    Message(Box<Message>),
    Wake,
    Gone,
}

/// One end.
pub struct PairChannel {
    to_peer: Sender<Item>,
    to_self: Sender<Item>,
    inbox: Receiver<Item>,
    early: VecDeque<Message>,
}

/// Two connected ends. Dropping one is the death of that peer.
pub fn pair() -> (PairChannel, PairChannel) {
    let (to_first, first_inbox) = channel();
    let (to_second, second_inbox) = channel();
    let end = |to_peer: &Sender<Item>, to_self: &Sender<Item>, inbox| PairChannel {
        to_peer: to_peer.clone(),
        to_self: to_self.clone(),
        inbox,
        early: VecDeque::new(),
    };
    (end(&to_second, &to_first, first_inbox), end(&to_first, &to_second, second_inbox))
}

fn gone() -> Error {
    Error::new(ErrorKind::PeerLost, "the peer is gone")
}

impl Drop for PairChannel {
    fn drop(&mut self) {
        // The peer may be gone already.
        let _ = self.to_peer.send(Item::Gone);
    }
}

impl Channel for PairChannel {
    fn send(&mut self, message: &Message) -> Result<()> {
        self.to_peer.send(Item::Message(Box::new(message.clone()))).map_err(|_| gone())
    }

    fn receive_within(&mut self, wait: Duration) -> Result<Option<Message>> {
        if let Some(message) = self.early.pop_front() {
            return Ok(Some(message));
        }
        match self.inbox.recv_timeout(wait) {
            Ok(Item::Message(message)) => Ok(Some(*message)),
            Ok(Item::Wake) | Err(RecvTimeoutError::Timeout) => Ok(None),
            Ok(Item::Gone) | Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }

    fn put_back(&mut self, messages: Vec<Message>) {
        self.early.extend(messages);
    }

    fn take_in(&mut self, wait: Duration) {
        // The inbox is without bounds: nobody waits to be read. What ends the wait is kept.
        match self.inbox.recv_timeout(wait) {
            Ok(Item::Message(message)) => self.early.push_back(*message),
            Ok(Item::Wake) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Item::Gone) | Err(RecvTimeoutError::Disconnected) => {
                let _ = self.to_self.send(Item::Gone);
                std::thread::sleep(wait);
            }
        }
    }

    fn waker(&self) -> Waker {
        let to_self = self.to_self.clone();
        Waker::new(move || {
            let _ = to_self.send(Item::Wake);
        })
    }

    fn peer(&self) -> String {
        "the peer".to_owned()
    }
}
