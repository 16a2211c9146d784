// What the fuzzers do with bytes that anybody may have sent, as plain functions: the fuzz crate hands them to
// libFuzzer, crates/common/tests/fuzz.rs runs them over the corpus and a fixed number of mutations of it.
//
// A panic is a failure, an overflow too; so is memory out of proportion, which the two callers watch over.

use linkproof_common::exchange::Message;
use linkproof_common::exchange::frame::{FrameLimit, frame, take_frame};
use linkproof_common::exchange::message::{PREAMBLE_LEN, preamble_of, version_in_preamble};
use linkproof_common::plan::{BufferLayout, Role};
use linkproof_common::units::ByteSize;

/// The control channel after the preamble: bytes come in pieces, frames are taken off, messages are looked at.
pub fn frames(data: &[u8]) {
    for limit in [FrameLimit::Greeting, FrameLimit::Result] {
        let mut inbox = Vec::new();
        // The pieces that a socket gives are of any length; 7 falls into lengths and payloads alike.
        for piece in data.chunks(7.max(data.len() / 50)) {
            inbox.extend_from_slice(piece);
            loop {
                match take_frame(&mut inbox, limit) {
                    Ok(Some(message)) => look_at(&message),
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
        }
    }
}

fn look_at(message: &Message) {
    // What can be read can be written, and read again as the same.
    if let Ok(mut again) = frame(message) {
        assert_eq!(take_frame(&mut again, FrameLimit::Result).as_ref(), Ok(&Some(message.clone())));
        assert!(again.is_empty());
    }
    if let Message::Propose { plan, .. } = message
        && plan.check().is_ok()
    {
        for role in [Role::Client, Role::Server] {
            let _ = BufferLayout::new(plan, role).total_len();
        }
        let _ = (plan.completion_entries(), plan.round_duration());
    }
}

/// The first bytes of whoever connects: a version is taken in one spelling only.
pub fn preamble(data: &[u8]) {
    if let Some(bytes) = data.first_chunk::<PREAMBLE_LEN>()
        && let Some(version) = version_in_preamble(bytes)
    {
        assert_eq!(*bytes, preamble_of(version));
    }
}

/// A size on the command line.
pub fn size(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(size) = text.parse::<ByteSize>() {
        assert_eq!(size.bytes().to_string().parse(), Ok(size));
        assert!(!size.to_string().is_empty());
    }
}
