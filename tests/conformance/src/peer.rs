//! The other end of a connection in a process of its own, which does what it is told over its stdin.
//!
//! Neither side needs deadlines here: the verbs that the other process calls have them, and both processes have an
//! alarm set.

use std::io::{self, BufRead, BufReader, Write};
use std::ops::Range;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;

use nix::unistd::alarm;
use serde::{Deserialize, Serialize};

use crate::fact::{Obstacle, Outcome};
use crate::objects::{
    Address, Bench, Channel, Completion, Cq, CqEvent, End, Qp, Receive, Remote, Request, Shape, Terms,
    memory_arguments,
};
use crate::run::LIMIT;
use crate::shown::{Errno, State};

/// What the process is told.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    /// Connect to this queue pair.
    Connect { qpn: u32, address: Address },
    /// Post a receive with this number for these bytes of the region.
    Receive { id: u64, part: Range<usize> },
    /// Write these bytes to the beginning of the region.
    Put { bytes: Vec<u8> },
    /// Read these bytes of the region.
    Get { part: Range<usize> },
    /// Write the region's first bytes to the peer.
    Write { len: usize, remote: Remote },
    /// Take a completion.
    Take,
    /// Ask for an event at the next completion.
    Arm,
    /// Sleep for the event.
    Sleep,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Ready { qpn: u32, remote: Remote },
    Done,
    Bytes(Vec<u8>),
    Completion(Completion),
    Obstacle(String),
}

/// The process, from the outside.
pub(crate) struct Peer {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    qpn: u32,
    remote: Remote,
}

impl Peer {
    /// Starts it on the same device, connected to `qp`, which stays as it is.
    pub(crate) fn start(bench: &Bench, qp: &Qp) -> Result<Self, Obstacle> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["-d", bench.device().name(), "--peer"])
            .args(memory_arguments(1))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let no_pipe = || Obstacle("no pipe to the other process".into());
        let orders = process.stdin.take().ok_or_else(no_pipe)?;
        let answers = BufReader::new(process.stdout.take().ok_or_else(no_pipe)?);
        let mut peer = Self { process, orders, answers, qpn: 0, remote: Remote::default() };
        match peer.answer()? {
            Answer::Ready { qpn, remote } => (peer.qpn, peer.remote) = (qpn, remote),
            other => return Err(unexpected(&other)),
        }
        peer.order(&Order::Connect { qpn: qp.qpn(), address: bench.address() })?;
        Ok(peer)
    }

    /// Starts it, connected to a new end of this process, and that to it.
    pub(crate) fn pair(bench: &Bench, shape: &Shape) -> Result<(End, Self), Obstacle> {
        let end = bench.end(shape)?;
        let peer = Self::start(bench, &end.qp)?;
        end.qp.take_to(State::RTS, &bench.connection(peer.qpn, shape.terms))?;
        Ok((end, peer))
    }

    /// The first byte of its memory, open to everything.
    pub(crate) fn remote(&self) -> Remote {
        self.remote
    }

    pub(crate) fn receive(&mut self, id: u64, part: Range<usize>) -> Outcome {
        self.order(&Order::Receive { id, part })
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> Outcome {
        self.order(&Order::Put { bytes: bytes.to_vec() })
    }

    pub(crate) fn get(&mut self, part: Range<usize>) -> Result<Vec<u8>, Obstacle> {
        match self.ask(&Order::Get { part })? {
            Answer::Bytes(bytes) => Ok(bytes),
            other => Err(unexpected(&other)),
        }
    }

    /// Lets it write its first `len` bytes to `remote`, here.
    pub(crate) fn write(&mut self, len: usize, remote: Remote) -> Outcome {
        self.order(&Order::Write { len, remote })
    }

    /// Its next completion.
    pub(crate) fn take(&mut self) -> Result<Completion, Obstacle> {
        match self.ask(&Order::Take)? {
            Answer::Completion(completion) => Ok(completion),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn arm(&mut self) -> Outcome {
        self.order(&Order::Arm)
    }

    /// Tells it to sleep for its event, and does not wait: the answer comes by [`Peer::woken`].
    pub(crate) fn sleep(&mut self) -> Outcome {
        self.tell(&Order::Sleep)
    }

    /// Waits until it has woken.
    pub(crate) fn woken(&mut self) -> Outcome {
        done(self.answer()?)
    }

    /// Kills it: none of its objects is destroyed by it.
    pub(crate) fn kill(&mut self) -> Outcome {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    fn order(&mut self, order: &Order) -> Outcome {
        done(self.ask(order)?)
    }

    fn ask(&mut self, order: &Order) -> Result<Answer, Obstacle> {
        self.tell(order)?;
        self.answer()
    }

    fn tell(&mut self, order: &Order) -> Outcome {
        Ok(write_line(&mut self.orders, order)?)
    }

    fn answer(&mut self) -> Result<Answer, Obstacle> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        match serde_json::from_str(&line) {
            Ok(Answer::Obstacle(what)) => Err(Obstacle(format!("in the other process: {what}"))),
            Ok(answer) => Ok(answer),
            Err(_) => Err(Obstacle(format!("the other process ended, or said {line:?}"))),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn done(answer: Answer) -> Outcome {
    if let Answer::Done = answer { Ok(()) } else { Err(unexpected(&answer)) }
}

fn unexpected(answer: &Answer) -> Obstacle {
    Obstacle(format!("the other process answered {answer:?}"))
}

fn write_line<T: Serialize>(to: &mut dyn Write, value: &T) -> io::Result<()> {
    writeln!(to, "{}", serde_json::to_string(value)?)?;
    to.flush()
}

/// The process itself: does what it is told until its stdin ends.
pub(crate) fn serve(device: &str) -> io::Result<()> {
    alarm::set(LIMIT);
    let mut out = io::stdout();
    let end = match OtherEnd::new(device) {
        Ok(end) => end,
        Err(Obstacle(what)) => return write_line(&mut out, &Answer::Obstacle(what)),
    };
    write_line(&mut out, &Answer::Ready { qpn: end.end.qp.qpn(), remote: end.end.remote(0) })?;
    for line in io::stdin().lock().lines() {
        let order = serde_json::from_str(&line?)?;
        let answer = end.obey(&order).unwrap_or_else(|Obstacle(what)| Answer::Obstacle(what));
        write_line(&mut out, &answer)?;
    }
    Ok(())
}

/// What it has.
struct OtherEnd {
    end: End,
    channel: Rc<Channel>,
    bench: Bench,
}

impl OtherEnd {
    fn new(device: &str) -> Result<Self, Obstacle> {
        let bench = Bench::open(device)?;
        let channel = bench.channel()?;
        Ok(Self { end: bench.end_with(&channel, 0)?, channel, bench })
    }

    fn cq(&self) -> &Cq {
        &self.end.cq
    }

    fn obey(&self, order: &Order) -> Result<Answer, Obstacle> {
        match order {
            Order::Connect { qpn, address } => {
                let mut to = self.bench.connection(*qpn, Terms::default());
                to.peer = *address;
                self.end.qp.take_to(State::RTS, &to)?;
            }
            Order::Receive { id, part } => {
                self.end.qp.must_receive(&[Receive::new(*id, &[self.end.sge(part.clone())])])?;
            }
            Order::Put { bytes } => self.end.region.put(0, bytes),
            Order::Get { part } => return Ok(Answer::Bytes(self.end.region.get(part.clone()))),
            Order::Write { len, remote } => {
                self.end.qp.must_post(&[Request::write(1, &[self.end.sge(0..*len)], *remote)])?;
            }
            Order::Take => return Ok(Answer::Completion(self.cq().one()?)),
            Order::Arm => match self.cq().arm(CqEvent::Any) {
                Errno::DONE => {}
                errno => return Err(Obstacle(format!("ibv_req_notify_cq: {errno}"))),
            },
            Order::Sleep => {
                self.channel.next()?;
                self.cq().acknowledge(1);
            }
        }
        Ok(Answer::Done)
    }
}
