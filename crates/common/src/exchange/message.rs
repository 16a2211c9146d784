//! What the two ends say to each other.
//!
//! A connection begins with sixteen bytes from each end, the preamble, so that a stranger and another version
//! are known before anything is parsed. Then come frames: a length of four bytes, big endian, and that many bytes
//! of JSON. `docs/wire-protocol.md` has the order of the messages.

use serde::{Deserialize, Serialize};

use crate::environment::Host;
use crate::error::Error;
use crate::gid::LinkOffer;
use crate::intervals::Interval;
use crate::memory::EndMemory;
use crate::node::Node;
use crate::plan::Plan;
use crate::qp::QpAddress;
use crate::report::{Conditions, Document, Evidence, RdmaEnd, Round, TcpEnd};
use crate::validate::Checked;

/// The version of this protocol. Ends of different versions refuse each other.
pub const PROTOCOL_VERSION: u32 = 1;

/// Bytes of a preamble.
pub const PREAMBLE_LEN: usize = 16;

const PREAMBLE_NAME: &str = "linkproof/";

/// What this end says first: `linkproof/1`, filled up with zeros.
pub fn preamble() -> [u8; PREAMBLE_LEN] {
    preamble_of(PROTOCOL_VERSION)
}

/// What an end of that version says first. One of more than six digits is cut off.
pub fn preamble_of(version: u32) -> [u8; PREAMBLE_LEN] {
    let mut bytes = [0; PREAMBLE_LEN];
    let text = format!("{PREAMBLE_NAME}{version}");
    bytes.iter_mut().zip(text.bytes()).for_each(|(byte, of_text)| *byte = of_text);
    bytes
}

/// The protocol version in a peer's preamble; `None` where it is no linkproof tool's, to the last byte.
pub fn version_in_preamble(bytes: &[u8; PREAMBLE_LEN]) -> Option<u32> {
    let text = std::str::from_utf8(bytes).ok()?.trim_end_matches('\0');
    let version = text.strip_prefix(PREAMBLE_NAME)?.parse().ok()?;
    // Rust reads more spellings of a number than one.
    (preamble_of(version) == *bytes).then_some(version)
}

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// Both: who I am.
    Hello {
        /// The tool: both ends must be the same.
        tool: String,
        /// The machine.
        host: Host,
    },
    /// Server, to a client that only looks (see [`crate::serve::LOOKER`]): what is seen of my machine. The connection ends here.
    Node {
        /// What its files say.
        node: Box<Node>,
    },
    /// Server: I have your proposal, and serve another client first. Said at once and then each second.
    Wait {
        /// Whom; absent between two clients.
        serving: Option<String>,
        /// How many wait that came before.
        ahead: u32,
    },
    /// Client: what I want to measure.
    Propose {
        /// The plan.
        plan: Plan,
        /// What the client's port offers; absent over TCP.
        link: Option<LinkOffer>,
    },
    /// Server: I hold the same plan.
    Agree {
        /// What the server's port offers; absent over TCP.
        link: Option<LinkOffer>,
    },
    /// Both: my end of the connection, ready to be connected to.
    Connect {
        /// The end.
        end: EndInfo,
    },
    /// Both: my end is connected.
    Ready,
    /// Client: make ready for a stretch of writes.
    Begin {
        /// Which.
        stretch: Stretch,
    },
    /// Server: I am ready for it; the client starts as soon as it reads this.
    Begun,
    /// Both, in a stretch: I live, and so many of my messages have completed.
    Progress {
        /// Messages completed in this stretch.
        completed: u64,
    },
    /// Server, in a round of intervals in which it writes: one is over.
    Interval {
        /// What came in it.
        interval: Interval,
    },
    /// Client, in a stretch: its user wants to stop; finish what is outstanding, and no more.
    Stop,
    /// Client: my writes of this stretch are complete.
    End {
        /// Messages on each queue pair.
        per_qp: Vec<u64>,
    },
    /// Server: my part of this stretch.
    Outcome {
        /// What the server wrote in it; absent in one direction, and for the warm-up.
        round: Option<Round>,
        /// What the server found in its memory; absent where nothing is checked.
        checked: Option<Checked>,
        /// Messages that the server wrote on each queue pair.
        per_qp: Vec<u64>,
    },
    /// Client: no more stretches.
    Finish,
    /// Server: what my adapter's counters say, and under which conditions I measured.
    Evidence {
        /// One entry for each source.
        evidence: Vec<Evidence>,
        /// This end's.
        conditions: Box<Conditions>,
    },
    /// Client: the result.
    Result {
        /// The whole document.
        document: Box<Document>,
    },
    /// Server: I have it; the connection ends here.
    Goodbye,
    /// Both, at any time: I can't go on, and why. The connection ends here.
    Abort {
        /// Why.
        error: Error,
    },
}

impl Message {
    /// The message's name, for messages about messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Node { .. } => "node",
            Self::Wait { .. } => "wait",
            Self::Propose { .. } => "propose",
            Self::Agree { .. } => "agree",
            Self::Connect { .. } => "connect",
            Self::Ready => "ready",
            Self::Begin { .. } => "begin",
            Self::Begun => "begun",
            Self::Progress { .. } => "progress",
            Self::Interval { .. } => "interval",
            Self::Stop => "stop",
            Self::End { .. } => "end",
            Self::Outcome { .. } => "outcome",
            Self::Finish => "finish",
            Self::Evidence { .. } => "evidence",
            Self::Result { .. } => "result",
            Self::Goodbye => "goodbye",
            Self::Abort { .. } => "abort",
        }
    }
}

/// One end of the data path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "transport", rename_all = "snake_case")]
pub enum EndInfo {
    /// Queue pairs in INIT, and the memory that may be written to.
    Rdma {
        /// What goes into the report.
        end: RdmaEnd,
        /// The queue pairs, in order.
        qps: Vec<QpAddress>,
        /// Where the sink region of each queue pair begins; empty where this end is not written to.
        sinks: Vec<u64>,
        /// The keys to the sinks, one for each queue pair or one for all; empty where there are no sinks.
        rkeys: Vec<u32>,
        /// This end's memory.
        memory: EndMemory,
        /// Where the peer may write what this end's processor looks at; absent where no end has GPU memory.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        flags: Option<FlagsAt>,
    },
    /// A listener for the data connections, at the server; nothing of the kind at the client.
    Tcp {
        /// What goes into the report.
        end: TcpEnd,
        /// Where the server takes data connections.
        data_port: Option<u16>,
        /// What a data connection says first, so that a stranger's is not taken for one.
        token: u64,
        /// This end's memory.
        memory: EndMemory,
    },
}

/// Memory for what the processor looks at, beside GPU memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlagsAt {
    /// Its first byte.
    pub address: u64,
    /// The key to it.
    pub rkey: u32,
}

/// A stretch of writes between two meetings on the control channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// Which of the plan's sizes.
    pub point: u32,
    /// Which round; absent: the warm-up before the first.
    pub round: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_preamble_names_its_version() {
        assert_eq!(version_in_preamble(&preamble()), Some(PROTOCOL_VERSION));
        assert_eq!(version_in_preamble(b"linkproof/77\0\0\0\0"), Some(77));
        assert_eq!(version_in_preamble(b"GET / HTTP/1.1\r\n"), None);
        for another_spelling in [b"linkproof/+1\0\0\0\0", b"linkproof/01\0\0\0\0"] {
            assert_eq!(version_in_preamble(another_spelling), None);
        }
        assert_eq!(version_in_preamble(b"6.06\0\0\0\0\0\0\0\0\0\0\0\0"), None);
    }

    #[test]
    fn messages_survive_the_wire() {
        let messages = [
            Message::Ready,
            Message::Begin { stretch: Stretch { point: 3, round: None } },
            Message::Propose { plan: crate::plan::tests::plan(), link: None },
            Message::Node { node: Box::default() },
            Message::Wait { serving: Some("10.0.0.1:4000".to_owned()), ahead: 2 },
            Message::End { per_qp: vec![1, 2] },
            Message::Interval {
                interval: Interval { begin_ns: 0, elapsed_ns: 1_000_000_000, messages: 7, latency: None },
            },
            Message::Abort { error: Error::new(crate::error::ErrorKind::Memlock, "x") },
        ];
        for message in messages {
            let text = serde_json::to_string(&message).unwrap();
            assert!(text.contains(&format!("\"message\":\"{}\"", message.name())), "{text}");
            assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), message);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = serde_json::from_slice::<Message>(&bytes);
        }
    }
}
