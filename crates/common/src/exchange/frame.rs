//! Frames: how messages are cut out of a stream of bytes that anybody may have sent.
//!
//! Pure: bytes in, messages out. What a frame says of its own length is believed only up to a limit, which grows
//! with what the two ends know of each other, and memory is taken for what has come, never for what is announced.

use super::Message;
use crate::error::{Error, ErrorKind, Result};

/// How long a frame may be, by how far the two ends are.
///
/// Reading a frame takes memory in proportion: a hostile one, all brackets and commas, some twenty times its
/// length for as long as it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameLimit {
    /// The server does not know yet whom it talks to, and may talk to many: `hello` and `propose`. The longest
    /// thing in them is a table of GIDs, with 150 bytes an entry and 256 entries on today's adapters.
    Greeting,
    /// Both hold the same plan. 16384 queue pairs, the most of a plan, take 1 MiB in `connect`.
    Run,
    /// The result is to come. 64 sizes × 1000 rounds × 2 directions would not fit, but no run of that length has
    /// ever been sensible; a real one has some kilobytes.
    Result,
}

impl FrameLimit {
    /// The longest payload.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Greeting => 128 << 10,
            Self::Run => 4 << 20,
            Self::Result => 32 << 20,
        }
    }
}

/// Takes the first frame off `inbox`, if it is whole.
///
/// # Errors
/// What is wrong with it, in words: too long, or no message.
pub fn take_frame(inbox: &mut Vec<u8>, limit: FrameLimit) -> std::result::Result<Option<Message>, String> {
    let Some(length) = inbox.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if length > limit.bytes() {
        return Err(format!("a frame of {length} bytes, more than the {} allowed", limit.bytes()));
    }
    let Some(payload) = inbox.get(4..4 + length) else { return Ok(None) };
    let message = serde_json::from_slice(payload);
    inbox.drain(..4 + length);
    message.map(Some).map_err(|error| format!("a frame that can't be read: {error}"))
}

/// The frame of `message`.
///
/// # Errors
/// [`ErrorKind::Protocol`] where it is longer than a peer takes.
pub fn frame(message: &Message) -> Result<Vec<u8>> {
    let payload = serde_json::to_vec(message).map_err(|error| {
        Error::new(ErrorKind::Protocol, format!("cannot encode \"{}\": {error}", message.name()))
    })?;
    let limit = match message {
        Message::Hello { .. } | Message::Propose { .. } => FrameLimit::Greeting,
        Message::Result { .. } => FrameLimit::Result,
        _ => FrameLimit::Run,
    };
    let length = u32::try_from(payload.len())
        .ok()
        .filter(|&length| length as usize <= limit.bytes())
        .ok_or_else(|| {
            let (name, length) = (message.name(), payload.len());
            Error::new(
                ErrorKind::Protocol,
                format!("\"{name}\" has {length} bytes, more than the {} that can be sent", limit.bytes()),
            )
        })?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend(payload);
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_as_its_message_and_leaves_the_rest() {
        let mut inbox = frame(&Message::Ready).unwrap();
        inbox.extend([0, 0]);
        assert_eq!(take_frame(&mut inbox, FrameLimit::Greeting), Ok(Some(Message::Ready)));
        assert_eq!(inbox, [0, 0]);
        assert_eq!(take_frame(&mut inbox, FrameLimit::Greeting), Ok(None));
    }

    #[test]
    fn what_is_too_long_depends_on_how_far_the_ends_are() {
        for (limit, over) in [
            (FrameLimit::Greeting, (128 << 10) + 1),
            (FrameLimit::Run, (4 << 20) + 1),
            (FrameLimit::Result, (32 << 20) + 1),
        ] {
            let refused = take_frame(&mut u32::to_be_bytes(over).to_vec(), limit).unwrap_err();
            assert!(refused.contains("more than the"), "{refused}");
            assert_eq!(take_frame(&mut u32::to_be_bytes(over - 1).to_vec(), limit), Ok(None));
        }
    }

    #[test]
    fn the_most_queue_pairs_of_a_plan_fit_into_a_frame() {
        use crate::exchange::message::EndInfo;
        let qps = 16384;
        let end = serde_json::from_value(serde_json::json!({
            "transport": "rdma", "rkeys": vec![u32::MAX; qps], "memory": { "kind": "host", "bytes": u64::MAX },
            "qps": vec![serde_json::json!({ "qpn": 0xff_ffff, "sq_psn": 0xff_ffff }); qps],
            "sinks": vec![u64::MAX; qps],
            "end": {
                "device": "rxe0", "device_kind": "software", "port_num": 1, "link_layer": "Ethernet", "lid": 0,
                "active_mtu_bytes": 1024,
                "qpns": vec![0xff_ffff; qps], "posting": "ibv_wr", "inline_bytes": 4096,
            },
        }));
        let end: EndInfo = end.unwrap();
        assert!(frame(&Message::Connect { end }).unwrap().len() < FrameLimit::Run.bytes());
    }
}
