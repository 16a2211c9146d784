//! The other end: asked over the control channel of any of our servers there.

use std::time::Duration;

use linkproof_common::environment::Host;
use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::exchange::frame::FrameLimit;
use linkproof_common::exchange::tcp::{Greeted, TcpChannel};
use linkproof_common::exchange::{Channel, Message, PeerProtocol, out_of_order};
use linkproof_common::finding::{End, Finding, Severity, compare, examine};
use linkproof_common::host::HostFiles;
use linkproof_common::node::Node;
use linkproof_common::plan::Role;
use linkproof_common::serve::LOOKER;
use serde::{Deserialize, Serialize};

/// How long the other end may take for its answer: it reads some hundred small files.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Whoever asks does not know which programs answer; the hint of a failed connection is for those who want to measure.
const WHO_ANSWERS: &str = "servers of write-bw and write-lat answer (start write-bw there, without a host, and name its --port here); \
                           the ranks of coll-perf and perftest's tools do not";

/// A failure to get an answer with who would have answered, where the host may be right and the program not.
fn who_answers(error: Error) -> Error {
    match error.kind {
        ErrorKind::Refused | ErrorKind::NotLinkproof | ErrorKind::PeerLost | ErrorKind::PeerTimeout => {
            error.hint(WHO_ANSWERS)
        }
        _ => error,
    }
}

/// The other end, as its server has shown it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// Its host name, by its own account.
    pub name: String,
    /// The tool that answered.
    pub tool: String,
    /// The version of that tool.
    pub version: String,
    /// What its files say: no library was asked there.
    pub node: Node,
}

impl Peer {
    /// Asks the server at `host`.
    ///
    /// # Errors
    /// The kinds of connecting and of the protocol; `peer-version` of a server that does not know the question.
    pub fn ask(host: &str, port: u16) -> Result<Self> {
        Self::ask_any(host, port).map_err(who_answers)
    }

    fn ask_any(host: &str, port: u16) -> Result<Self> {
        let Greeted::Linkproof(mut channel) = TcpChannel::connect(host, port, None, PeerProtocol::Linkproof)?
        else {
            return Err(Error::new(
                ErrorKind::NotLinkproof,
                format!("{host} is a server of perftest's, which shows nothing of its machine"),
            ));
        };
        let files = HostFiles::this_machine();
        let ours = Host::this_machine(Role::Client, env!("CARGO_PKG_VERSION"), &files);
        channel.send(&Message::Hello { tool: LOOKER.to_owned(), host: ours })?;
        let (tool, host) = match channel.expect_any(ANSWER_LIMIT)? {
            Message::Hello { tool, host } => (tool, host),
            other => return Err(out_of_order("hello", &other)),
        };
        channel.allow_frames(FrameLimit::Run);
        match channel.expect_any(ANSWER_LIMIT)? {
            Message::Node { node } => Ok(Self { name: host.name, tool, version: host.version, node: *node }),
            other => Err(out_of_order("node", &other)),
        }
    }

    /// What is to be said of a run between `ours` and this end, and what is wrong there.
    pub fn findings(&self, ours: &Node) -> Vec<Finding> {
        let name = ours.system.name.as_deref().unwrap_or("this host");
        let end = |node, name| End { node, name, device: None };
        let between = compare(end(ours, name), end(&self.node, &self.name));
        let there = examine(&self.node).into_iter().filter(|finding| finding.severity >= Severity::Warning);
        between.into_iter().chain(there.map(|finding| self.theirs(finding))).collect()
    }

    fn theirs(&self, mut finding: Finding) -> Finding {
        if finding.on.is_empty() {
            finding.on.push(self.name.clone());
        } else {
            finding.on.iter_mut().for_each(|on| *on = format!("{} {on}", self.name));
        }
        finding
    }
}
