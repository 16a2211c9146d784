//! What NCCL's own watch over a job (RAS, since NCCL 2.24) says where ranks wait for ever.
//!
//! One process of each host listens, by default at `localhost:28028`, and answers commands of one line in words that are
//! meant for people and differ from release to release: sections with a title that is underlined, of which `Errors` and
//! `Warnings` are there only if something is wrong. It is asked after a deadline has passed, never in a measured time.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use linkproof_common::error::{Error, ErrorKind};

/// Where it listens unless `NCCL_RAS_ADDR` says otherwise.
const DEFAULT_ADDRESS: &str = "localhost:28028";
/// It waits for processes that don't answer itself, some seconds.
const LIMIT: Duration = Duration::from_secs(8);
/// More is of no help in an error message.
const LINES: usize = 12;
const ANSWER_BYTES: u64 = 256 * 1024;

/// `error` with what RAS says, if the error is of ranks that wait and RAS answers. It answers for whichever job of this host
/// listens first, so the address stands beside what it says.
pub(super) fn asked_about(error: Error) -> Error {
    if !matches!(error.kind, ErrorKind::Stalled | ErrorKind::PeerTimeout) {
        return error;
    }
    let address = std::env::var("NCCL_RAS_ADDR").unwrap_or_else(|_| DEFAULT_ADDRESS.to_owned());
    let Some(answer) = ask(&address, LIMIT) else { return error };
    let name = format!("NCCL's RAS at {address}");
    findings(&answer).into_iter().fold(error, |error, line| error.fact(&name, line))
}

/// The answer to a request for the status, as far as it comes within `limit`.
fn ask(address: &str, limit: Duration) -> Option<String> {
    let deadline = Instant::now() + limit;
    let left = || deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
    let mut connection = address
        .to_socket_addrs()
        .ok()?
        .find_map(|address| TcpStream::connect_timeout(&address, left()?).ok())?;
    connection.write_all(b"verbose status\n").ok()?;
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    while let Some(left) = left()
        && (answer.len() as u64) < ANSWER_BYTES
    {
        connection.set_read_timeout(Some(left)).ok()?;
        match connection.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(count) => answer.extend_from_slice(&piece[..count]),
        }
    }
    Some(String::from_utf8_lossy(&answer).into_owned()).filter(|answer| !answer.trim().is_empty())
}

/// The lines of the sections on what is wrong; where there are none, that.
fn findings(answer: &str) -> Vec<String> {
    let lines: Vec<&str> = answer.lines().map(str::trim).collect();
    let mut found = Vec::new();
    let mut of_interest = false;
    for (index, line) in lines.iter().enumerate() {
        if lines.get(index + 1).is_some_and(|next| is_underline(next)) {
            of_interest = ["Errors", "Warnings"].contains(line);
        } else if of_interest && !line.is_empty() && !is_underline(line) {
            found.push((*line).to_owned());
        }
    }
    if found.is_empty() {
        return vec!["no errors and no warnings".to_owned()];
    }
    if found.len() > LINES {
        let more = found.len() - LINES;
        found.truncate(LINES);
        found.push(format!("and {more} lines more"));
    }
    found
}

fn is_underline(line: &str) -> bool {
    line.len() > 2 && line.bytes().all(|byte| byte == b'=')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// In the shape of NCCL 2.28's answer about a job of which a process was stopped.
    const STOPPED: &str = "\
NCCL version 2.28.3 compiled with CUDA 13.0

Job summary
===========

  Nodes  Processes
(total)   per node
      1          2

Communicators... (2.05s)
=============

Group     Comms    Status  Errors
    0         1   RUNNING  INCOMPLETE

Errors
======

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 1

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data
";

    #[test]
    fn the_sections_on_what_is_wrong_are_found() {
        let expected = [
            "#0-0 (cf264af53edbe986) INCOMPLETE",
            "Missing communicator data from 1 rank",
            "The missing rank: 1",
            "TIMEOUT",
            "Encountered 2 communication timeouts while gathering communicator data",
        ];
        assert_eq!(findings(STOPPED), expected);
        let well = STOPPED.split("Errors\n====").next().unwrap();
        assert_eq!(findings(well), ["no errors and no warnings"]);
    }

    #[test]
    fn a_long_answer_is_cut_and_says_so() {
        let ranks: String = (0..100).map(|rank| format!("Rank {rank} is late\n")).collect();
        let found = findings(&format!("Warnings\n========\n{ranks}"));
        assert_eq!(found.len(), LINES + 1);
        assert_eq!(found.last().unwrap(), "and 88 lines more");
    }

    /// Answers one request; with `stay` it does not end the connection.
    fn listener(answer: &'static str, stay: Option<Duration>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let mut request = [0; 15];
            connection.read_exact(&mut request).unwrap();
            assert_eq!(&request, b"verbose status\n");
            connection.write_all(answer.as_bytes()).unwrap();
            std::thread::sleep(stay.unwrap_or_default());
        });
        address
    }

    #[test]
    fn it_is_asked_over_tcp_and_waited_for_no_longer_than_the_limit() {
        assert_eq!(ask(&listener(STOPPED, None), LIMIT).as_deref(), Some(STOPPED));
        let begun = Instant::now();
        let held = listener("half an answer", Some(Duration::from_secs(5)));
        assert_eq!(ask(&held, Duration::from_millis(300)).as_deref(), Some("half an answer"));
        assert!(begun.elapsed() < Duration::from_secs(4));
    }

    #[test]
    fn nobody_and_silence_are_no_answer() {
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        assert_eq!(ask(&nobody, LIMIT), None);
        assert_eq!(ask("no such address", LIMIT), None);
        assert_eq!(ask(&listener("", None), LIMIT), None);
    }

    #[test]
    fn only_waiting_is_asked_about() {
        let error = Error::new(ErrorKind::Collective, "it failed");
        assert!(asked_about(error).facts.is_empty());
    }
}
