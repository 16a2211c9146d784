//! A group of processes, on any machines: a star of TCP connections with rank 0 in the middle.
//!
//! Rank 0 takes everybody in, refuses who does not fit, and names who is missing (`meeting`). Afterwards a thread of
//! each rank reads its connections, so that the death of a rank is known to all within seconds whatever they are doing.
//! Rank 0 holds one connection and one short buffer for each rank; nothing grows with their square.

mod board;
mod frame;
mod hello;
mod link;
mod meeting;

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linkproof_common::error::{Error, ErrorKind, Result, show_io_error};
use linkproof_common::units::show_duration;

use self::board::Board;
use self::frame::{Abort, Frame};
use self::hello::Hello;
use self::link::{Link, Reader, tell_all};
use super::{Alarm, ClockOffset, Group};
use crate::launch::Launch;
use crate::measure::now_ns;
use crate::plan::Plan;

/// One rank's end.
pub struct TcpGroup {
    rank: u32,
    n_ranks: u32,
    name: String,
    limit: Duration,
    /// Rank 0: all others, by rank. The others: rank 0.
    links: Arc<Vec<Link>>,
    board: Arc<Board>,
    reader: Option<JoinHandle<()>>,
    wake: UnixStream,
}

/// Questions for rank 0's time; the one that is answered soonest says most.
const CLOCK_TRIES: u32 = 16;

/// How long a rank whose data connection has ended waits to be told why: rank 0 finds a closed connection at once, and
/// tells all.
const STORY_LIMIT: Duration = Duration::from_secs(2);

impl TcpGroup {
    /// Meets the other ranks of `launch`, which must have been asked for the same `plan`.
    ///
    /// # Errors
    /// Who is missing after the plan's time limit, who does not fit, what can't be reached.
    pub fn meet(launch: &Launch, plan: &Plan) -> Result<Self> {
        let limit = Duration::from_secs_f64(plan.timeout_seconds);
        let own = Hello::of(launch, plan);
        let links = match launch.rank {
            0 => meeting::gather_all(launch, &own, limit)?,
            _ => vec![meeting::join(launch, &own, limit)?],
        };
        Self::start(launch, own.name(), limit, links)
    }

    fn start(launch: &Launch, name: String, limit: Duration, links: Vec<Link>) -> Result<Self> {
        let defect = |error: std::io::Error| {
            Error::new(
                ErrorKind::Resource,
                format!("cannot make a pair of sockets: {}", show_io_error(&error)),
            )
        };
        let (wake, woken) = UnixStream::pair().map_err(defect)?;
        let (links, board) = (Arc::new(links), Arc::new(Board::new(launch.n_ranks as usize)));
        let reader = Reader {
            links: Arc::clone(&links),
            board: Arc::clone(&board),
            is_root: launch.rank == 0,
            wake: woken,
        };
        let reader =
            std::thread::Builder::new().name("ranks".into()).spawn(|| reader.run()).map_err(defect)?;
        let (rank, n_ranks) = (launch.rank, launch.n_ranks);
        Ok(Self { rank, n_ranks, name, limit, links, board, reader: Some(reader), wake })
    }

    /// Raised when the run is over.
    pub fn alarm(&self) -> Alarm {
        self.board.alarm.clone()
    }

    /// The address of this rank that rank 0 sees it by; `None` for rank 0, which each sees by another.
    pub fn own_ip(&self) -> Option<IpAddr> {
        let address = self.links.first().filter(|_| self.rank != 0)?.socket.local_addr().ok()?;
        Some(address.ip().to_canonical())
    }

    /// The address by which this rank sees rank 0; `None` for rank 0 itself.
    pub fn root_ip(&self) -> Option<IpAddr> {
        let address = self.links.first().filter(|_| self.rank != 0)?.socket.peer_addr().ok()?;
        Some(SocketAddr::ip(&address).to_canonical())
    }

    /// Why the run has ended for this rank, which itself knows `error`. One that only finds a connection closed or broken, or
    /// that the run is over, is told who is gone.
    pub fn explain(&self, error: Error) -> Error {
        match error.kind {
            ErrorKind::PeerLost | ErrorKind::Completion => {
                self.board.failure(Instant::now() + STORY_LIMIT).unwrap_or(error)
            }
            _ => error,
        }
    }

    fn next(&self, link: usize, deadline: Instant) -> Result<Frame> {
        let peer = &self.links[link].peer;
        self.board.next(link, peer, deadline)?.ok_or_else(|| {
            let limit = show_duration(self.limit);
            Error::new(ErrorKind::PeerTimeout, format!("{} has waited {limit} for {peer}", self.name))
                .hint("a longer limit is set with --timeout")
        })
    }

    fn expect_blob(&self, link: usize, deadline: Instant) -> Result<Vec<u8>> {
        match self.next(link, deadline)? {
            Frame::Blob(blob) => Ok(blob),
            other => Err(self.out_of_turn(link, &other)),
        }
    }

    fn out_of_turn(&self, link: usize, frame: &Frame) -> Error {
        let words = format!("{frame:?}");
        let name = words.split(['(', ' ']).next().unwrap_or_default();
        Error::new(ErrorKind::Protocol, format!("{} sent \"{name}\" out of turn", self.links[link].peer))
    }

    /// Rank 0's own and everybody's.
    fn collect(&self, blob: &[u8]) -> Result<Vec<Vec<u8>>> {
        let deadline = Instant::now() + self.limit;
        let others = (0..self.links.len()).map(|link| self.expect_blob(link, deadline));
        std::iter::once(Ok(blob.to_vec())).chain(others).collect()
    }

    /// Sends `frame` to rank 0.
    fn send(&self, frame: &Frame) -> Result<()> {
        // A connection that is closed may have brought the reason, which the reader has not come to yet.
        self.links[0].send(frame).map_err(|error| self.explain(error))
    }

    /// Sends `frame` to all.
    fn tell(&self, frame: &Frame) -> Result<()> {
        let frame = frame.encode();
        self.links.iter().try_for_each(|link| link.send_encoded(&frame)).map_err(|error| self.explain(error))
    }

    fn deadline(&self) -> Instant {
        // Rank 0 gives up first: it knows who is missing.
        Instant::now() + self.limit + Duration::from_secs(2)
    }
}

impl Group for TcpGroup {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn n_ranks(&self) -> u32 {
        self.n_ranks
    }

    fn all_gather(&mut self, blob: &[u8]) -> Result<Vec<Vec<u8>>> {
        if self.rank == 0 {
            let all = Frame::All(self.collect(blob)?);
            self.tell(&all)?;
            let Frame::All(blobs) = all else { return Ok(Vec::new()) };
            return Ok(blobs);
        }
        self.send(&Frame::Blob(blob.to_vec()))?;
        match self.next(0, self.deadline())? {
            Frame::All(blobs) if blobs.len() == self.n_ranks as usize => Ok(blobs),
            other => Err(self.out_of_turn(0, &other)),
        }
    }

    fn gather(&mut self, blob: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        if self.rank == 0 {
            return self.collect(blob).map(Some);
        }
        self.send(&Frame::Blob(blob.to_vec())).map(|()| None)
    }

    fn barrier(&mut self) -> Result<()> {
        if self.rank == 0 {
            self.collect(&[])?;
            return self.tell(&Frame::Blob(Vec::new()));
        }
        self.send(&Frame::Blob(Vec::new()))?;
        self.expect_blob(0, self.deadline()).map(drop)
    }

    fn any(&mut self, so: bool) -> Result<bool> {
        let yes = |blob: &Vec<u8>| blob.first() == Some(&1);
        if self.rank == 0 {
            let answer = self.collect(&[u8::from(so)])?.iter().any(yes);
            self.tell(&Frame::Blob(vec![u8::from(answer)]))?;
            return Ok(answer);
        }
        self.send(&Frame::Blob(vec![u8::from(so)]))?;
        self.expect_blob(0, self.deadline()).map(|blob| yes(&blob))
    }

    /// The answer that came soonest was given in the middle of its question's way, give or take half of that.
    fn clock_offset(&mut self) -> Result<ClockOffset> {
        if self.rank == 0 {
            return Ok(ClockOffset::default());
        }
        let mut best = ClockOffset { ahead_ns: 0, uncertainty_ns: u64::MAX };
        for _ in 0..CLOCK_TRIES {
            let asked = now_ns();
            self.send(&Frame::Ping)?;
            let Frame::Pong(there) = self.next(0, self.deadline())? else {
                return Err(Error::new(ErrorKind::Protocol, "rank 0 did not say what time it is"));
            };
            let half_way = (now_ns() - asked) / 2;
            if half_way < best.uncertainty_ns {
                let ahead_ns = (asked + half_way).cast_signed() - there.cast_signed();
                best = ClockOffset { ahead_ns, uncertainty_ns: half_way };
            }
        }
        Ok(best)
    }

    fn abort(&mut self, error: &Error) {
        // What came from elsewhere is known there.
        if self.board.fail(error) {
            tell_all(&self.links, None, &Abort { by: Some(self.name.clone()), error: error.clone() });
        }
    }
}

impl Drop for TcpGroup {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let what = format!("{} ended in a defect of this program", self.name);
            self.abort(
                &Error::new(ErrorKind::PeerLost, what).hint("its words are above; please report them"),
            );
        }
        // The reader may be telling others of an end: it comes before the farewell.
        self.board.close();
        let _ = self.wake.write_all(&[1]);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        self.links.iter().for_each(|link| drop(link.send(&Frame::Bye)));
    }
}

#[cfg(test)]
mod tests;
