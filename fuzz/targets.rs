// What the fuzzers do with bytes that anybody may have sent, as plain functions: the fuzz crate hands them to
// libFuzzer, crates/common/tests/fuzz.rs runs them over the corpus and a fixed number of mutations of it.
//
// A panic is a failure, an overflow too; so is memory out of proportion, which the two callers watch over.

use linkproof_common::exchange::Message;
use linkproof_common::exchange::frame::{FrameLimit, frame, take_frame};
use linkproof_common::exchange::message::{PREAMBLE_LEN, preamble_of, version_in_preamble};
use linkproof_common::perftest::{
    FIELD_LEN, Key, MTU_LEN, NUMBER_LEN, Report, Version, announcement_of, decode_mtu, decode_number,
    linkproof_in,
};
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

/// perftest's messages: its version, and what else comes as bytes of a length that both ends know.
pub fn perftest(data: &[u8]) {
    if let Some(bytes) = data.first_chunk::<PREAMBLE_LEN>() {
        if let Some(version) = Version::decode(bytes) {
            assert_eq!(Version::decode(&version.encode()), Some(version));
            let _ = version.check();
        }
        if let Some(version) = linkproof_in(bytes) {
            assert_eq!(*bytes, announcement_of(version));
        }
    }
    if let Some(len) = Key::len_of(data)
        && let Some(key) = data.get(..len).and_then(Key::decode)
    {
        assert_eq!(Key::decode(&key.encode()), Some(key));
    }
    if let Some(fields) = data.first_chunk::<{ 5 * FIELD_LEN }>() {
        let mut report = [[0; FIELD_LEN]; 5];
        report
            .iter_mut()
            .zip(fields.chunks(FIELD_LEN))
            .for_each(|(field, bytes)| field.copy_from_slice(bytes));
        let decoded = Report::decode(report);
        assert_eq!(decoded.encode(), report);
        let _ = (decoded.rates(), decoded.is_in_gbits());
    }
    let _ = data.first_chunk::<NUMBER_LEN>().map(|bytes| decode_number(*bytes));
    let _ = data.first_chunk::<MTU_LEN>().map(|bytes| decode_mtu(*bytes));
}

/// A size on the command line.
pub fn size(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(size) = text.parse::<ByteSize>() {
        assert_eq!(size.bytes().to_string().parse(), Ok(size));
        assert!(!size.to_string().is_empty());
    }
}
