//! What goes over the connections between rank 0 and the others: a kind, a length, and so many bytes.
//!
//! Anybody may have sent them. A length is believed up to a limit, and memory is taken for what has come.

use linkproof_common::error::Error;
use serde::{Deserialize, Serialize};

/// What a connection begins with, so that a stranger is told from a rank.
pub(super) const PREAMBLE: &[u8; 16] = b"linkproof-coll/1";

/// The longest greeting: what is known of a rank, and what it was asked to measure.
pub(super) const GREETING_LIMIT: usize = 256 << 10;
/// The longest frame afterwards: the times of a million iterations.
pub(super) const FRAME_LIMIT: usize = 64 << 20;

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Frame {
    /// A rank says who it is ([`super::hello::Hello`]).
    Hello(Vec<u8>),
    /// All are there; who rank 0 is, in words.
    Welcome(String),
    /// A rank's part of a gathering.
    Blob(Vec<u8>),
    /// Everybody's, by rank.
    All(Vec<Vec<u8>>),
    /// A rank has ended the run.
    Abort(Abort),
    /// What is the time at rank 0?
    Ping,
    /// Nanoseconds of rank 0's monotonic clock.
    Pong(u64),
    /// The rank is done, and will close the connection.
    Bye,
}

/// Who ended the run, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Abort {
    /// The rank that tells its own failure; absent where rank 0 has found it.
    pub(super) by: Option<String>,
    /// The failure.
    pub(super) error: Error,
}

impl Frame {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Welcome(_) => 2,
            Self::Blob(_) => 3,
            Self::All(_) => 4,
            Self::Abort(_) => 5,
            Self::Ping => 6,
            Self::Pong(_) => 7,
            Self::Bye => 8,
        }
    }

    /// Its bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let payload = match self {
            Self::Hello(bytes) | Self::Blob(bytes) => bytes.clone(),
            Self::All(blobs) => encode_list(blobs),
            Self::Welcome(name) => name.clone().into_bytes(),
            Self::Abort(abort) => serde_json::to_vec(abort).unwrap_or_default(),
            Self::Pong(now) => now.to_be_bytes().to_vec(),
            Self::Ping | Self::Bye => Vec::new(),
        };
        let mut bytes = vec![self.kind()];
        bytes.extend((payload.len() as u32).to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    /// Takes the first one off `inbox`, if it is whole.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn take(inbox: &mut Vec<u8>, limit: usize) -> Result<Option<Self>, String> {
        let Some(&[kind, a, b, c, d]) = inbox.first_chunk::<5>() else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > limit {
            return Err(format!("a frame of {length} bytes, more than the {limit} allowed"));
        }
        if inbox.len() < 5 + length {
            return Ok(None);
        }
        let payload = inbox[5..5 + length].to_vec();
        inbox.drain(..5 + length);
        Self::decode(kind, payload).map(Some)
    }

    fn decode(kind: u8, payload: Vec<u8>) -> Result<Self, String> {
        let malformed = || format!("a frame of kind {kind} that can't be read");
        Ok(match kind {
            1 => Self::Hello(payload),
            2 => Self::Welcome(String::from_utf8(payload).map_err(|_| malformed())?),
            3 => Self::Blob(payload),
            4 => Self::All(decode_list(&payload).ok_or_else(malformed)?),
            5 => Self::Abort(serde_json::from_slice(&payload).map_err(|_| malformed())?),
            6 => Self::Ping,
            7 => Self::Pong(u64::from_be_bytes(payload.try_into().map_err(|_| malformed())?)),
            8 => Self::Bye,
            other => return Err(format!("a frame of unknown kind {other}")),
        })
    }
}

fn encode_list(blobs: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(blobs.iter().map(|blob| blob.len() + 4).sum());
    for blob in blobs {
        bytes.extend((blob.len() as u32).to_be_bytes());
        bytes.extend(blob);
    }
    bytes
}

fn decode_list(mut bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut blobs = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (blob, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        blobs.push(blob.to_vec());
        bytes = rest;
    }
    Some(blobs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkproof_common::error::ErrorKind;
    use proptest::prelude::*;

    #[test]
    fn every_frame_comes_back_and_leaves_the_rest() {
        let error = Error::new(ErrorKind::Memory, "no memory");
        for frame in [
            Frame::Hello(b"{}".to_vec()),
            Frame::Welcome("rank 0 (host a, pid 1)".into()),
            Frame::Blob(vec![1, 2, 3]),
            Frame::All(vec![vec![], vec![7; 300], vec![1]]),
            Frame::Abort(Abort { by: Some("rank 1".into()), error }),
            Frame::Ping,
            Frame::Pong(u64::MAX),
            Frame::Bye,
        ] {
            let mut inbox = frame.encode();
            inbox.extend([9, 9]);
            assert_eq!(Frame::take(&mut inbox, FRAME_LIMIT), Ok(Some(frame)));
            assert_eq!(inbox, [9, 9]);
        }
    }

    #[test]
    fn a_length_is_not_believed_beyond_the_limit() {
        let mut inbox = vec![3, 0xff, 0xff, 0xff, 0xff];
        assert!(Frame::take(&mut inbox, FRAME_LIMIT).unwrap_err().contains("more than"));
        let mut inbox = vec![3, 0, 0, 0, 9, 1];
        assert_eq!(Frame::take(&mut inbox, FRAME_LIMIT), Ok(None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_frames_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut inbox = bytes;
            while let Ok(Some(_)) = Frame::take(&mut inbox, 100) {}
        }
    }
}
