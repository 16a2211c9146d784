//! Somebody who has connected and has not proposed a plan yet.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::{Client, Greeting, LOOKER, Manners};
use crate::environment::Host;
use crate::error::{Error, ErrorKind, Origin, Result};
use crate::exchange::tcp::{Guest, TcpChannel, show_address};
use crate::exchange::{Channel, Message, out_of_order};
use crate::host::HostFiles;
use crate::node::Node;
use crate::session::known_peer;

/// How long the whole greeting may take, preamble, `hello` and `propose`: a client has all three ready before it
/// connects, so this is three round trips and a slow network.
pub(super) const GREETING_LIMIT: Duration = Duration::from_secs(3);
/// Messages that are read of one at a time, before the others have their turn.
const AT_A_TIME: usize = 16;

/// A node with eight GPUs and as many adapters takes some 60 KB.
const ROOM_FOR_A_NODE: usize = 256 << 10;

/// One of them.
pub(super) struct Newcomer {
    pub(super) channel: TcpChannel,
    pub(super) from: SocketAddr,
    since: Instant,
    stage: Stage,
}

enum Stage {
    Preamble,
    Hello,
    Propose(Vec<Host>),
    Done(Greeting),
    Answered,
}

/// How far it has come.
pub(super) enum Progress {
    /// It has more to say.
    Greeting,
    /// It has proposed a plan, or is perftest's.
    Proposed,
    /// It wanted to look only, and has got what there is to see.
    Answered,
}

impl Newcomer {
    pub(super) fn new(socket: TcpStream, from: SocketAddr) -> Result<Self> {
        let channel = TcpChannel::accept(socket, from)?;
        Ok(Self { channel, from, since: Instant::now(), stage: Stage::Preamble })
    }

    /// Whether it has not said a byte.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.stage, Stage::Preamble) && self.channel.is_silent()
    }

    /// Hears what it has said since, without waiting.
    ///
    /// # Errors
    /// Why it is to be turned away; it was told, where it could understand.
    pub(super) fn listen(&mut self, manners: &Manners) -> Result<Progress> {
        let heard = self.hear(manners);
        if let Err(error) = &heard
            && error.origin == Origin::Local
            && !matches!(self.stage, Stage::Preamble)
        {
            // It may be gone.
            let _ = self.channel.say(&Message::Abort { error: error.clone() });
        }
        heard.map_err(|error| error.fact("client", show_address(self.from)))
    }

    fn hear(&mut self, manners: &Manners) -> Result<Progress> {
        if matches!(self.stage, Stage::Preamble) {
            self.stage = match self.channel.answer_preamble(manners.protocol)? {
                None => Stage::Preamble,
                Some(Guest::Linkproof) => Stage::Hello,
                Some(Guest::Perftest(version)) => Stage::Done(Greeting::Perftest(version)),
            };
        }
        for _ in 0..AT_A_TIME {
            if matches!(self.stage, Stage::Preamble | Stage::Done(_) | Stage::Answered) {
                break;
            }
            match self.channel.receive_within(Duration::ZERO)? {
                Some(message) => self.heard(message, manners)?,
                None => break,
            }
        }
        match self.stage {
            Stage::Done(_) => Ok(Progress::Proposed),
            Stage::Answered => Ok(Progress::Answered),
            _ if self.since.elapsed() > GREETING_LIMIT => Err(self.too_slow()),
            _ => Ok(Progress::Greeting),
        }
    }

    fn heard(&mut self, message: Message, manners: &Manners) -> Result<()> {
        self.stage = match (std::mem::replace(&mut self.stage, Stage::Hello), message) {
            (_, Message::Abort { error }) => return Err(error.from_peer(&self.channel.peer())),
            (stage, Message::Progress { .. } | Message::Stop) => stage,
            (Stage::Propose(hosts), message @ Message::Propose { .. }) => {
                self.channel.put_back(vec![message]);
                Stage::Done(Greeting::Linkproof(hosts))
            }
            (Stage::Propose(_), other) => return Err(out_of_order("propose", &other)),
            (_, Message::Hello { tool, .. }) if tool == LOOKER => {
                let hello = Message::Hello { tool: manners.tool.to_owned(), host: (manners.host)() };
                self.channel.make_room(ROOM_FOR_A_NODE);
                self.channel.say(&hello)?;
                self.channel.say(&Message::Node { node: Box::new(to_show()) })?;
                Stage::Answered
            }
            (_, hello) => {
                let client = known_peer(hello, manners.tool, &self.channel.peer())?;
                let host = (manners.host)();
                self.channel.say(&Message::Hello { tool: manners.tool.to_owned(), host: host.clone() })?;
                Stage::Propose(vec![client, host])
            }
        };
        Ok(())
    }

    fn too_slow(&self) -> Error {
        let (peer, limit) = (self.channel.peer(), GREETING_LIMIT.as_secs());
        let what = match self.stage {
            Stage::Preamble if self.channel.is_silent() => {
                format!("{peer} made the connection but said nothing for {limit} s")
            }
            _ => format!("{peer} did not come to its proposal within {limit} s"),
        };
        Error::new(ErrorKind::PeerTimeout, what)
    }

    /// The client that it has become.
    pub(super) fn into_client(self) -> Option<Client> {
        match self.stage {
            Stage::Done(greeting) => Some(Client { channel: self.channel, from: self.from, greeting }),
            _ => None,
        }
    }
}

/// What anybody who can connect may see of this machine: what a result has of it as well, and nothing of the environment.
fn to_show() -> Node {
    Node { nccl: Default::default(), ..Node::of_files(&HostFiles::this_machine()) }
}
