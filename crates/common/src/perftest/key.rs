//! The key message: where a queue pair and its memory are, in hexadecimal text.

use std::net::Ipv6Addr;

use crate::gid::Gid;
use crate::qp::{QpAddress, Qpn};

/// Bytes of one without a GID, the zero at its end included.
pub const SHORT_KEY_LEN: usize = 59;
/// Bytes of one with a GID.
pub const LONG_KEY_LEN: usize = 108;

/// What an end tells of one of its queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The port's local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The queue pair.
    pub qp: QpAddress,
    /// The key to its memory.
    pub rkey: u32,
    /// Where its memory begins.
    pub address: u64,
    /// The port's GID, where the ends use GIDs.
    pub gid: Option<Gid>,
}

/// Reads that may be outstanding; a test of writes has one and needs none.
const OUTSTANDING_READS: u32 = 1;
/// The number of a shared receive queue, of which there is none.
const NO_SHARED_QUEUE: u32 = 0;
const QPN_MASK: u32 = 0xff_ffff;

impl Key {
    /// The message, its closing zero included.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = format!(
            "{:04x}:{OUTSTANDING_READS:04x}:{:06x}:{:06x}:{:08x}:{:016x}:",
            self.lid,
            self.qp.qpn.0 & QPN_MASK,
            self.qp.sq_psn & QPN_MASK,
            self.rkey,
            self.address
        );
        if let Some(gid) = self.gid {
            gid.0.octets().iter().for_each(|byte| text.push_str(&format!("{byte:02x}:")));
        }
        text.push_str(&format!("{NO_SHARED_QUEUE:08x}"));
        // With a GID each field has a colon behind it, the last one too.
        if self.gid.is_some() {
            text.push(':');
        }
        text.push('\0');
        text.into_bytes()
    }

    /// How many bytes a message has whose first ones are these, as soon as that can be known.
    pub fn len_of(bytes: &[u8]) -> Option<usize> {
        match bytes.get(SHORT_KEY_LEN - 1)? {
            0 => Some(SHORT_KEY_LEN),
            _ => Some(LONG_KEY_LEN),
        }
    }

    /// The key in a message of either length; `None` where it is none. The number of outstanding reads and that of the
    /// shared receive queue may be any.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (text, has_gid) = match (bytes.len(), bytes.split_last()?) {
            (SHORT_KEY_LEN, (0, text)) => (text, false),
            (LONG_KEY_LEN, (0, text)) => (text.strip_suffix(b":")?, true),
            _ => return None,
        };
        let mut fields = text.split(|&byte| byte == b':');
        let mut number = |digits: usize| hexadecimal(fields.next()?, digits);
        let lid = number(4)?;
        number(4)?;
        let (qpn, psn, rkey, address) = (number(6)?, number(6)?, number(8)?, number(16)?);
        let mut octets = [0; 16];
        if has_gid {
            for octet in &mut octets {
                *octet = number(2)? as u8;
            }
        }
        number(8)?;
        if fields.next().is_some() {
            return None;
        }
        Some(Self {
            lid: lid as u16,
            qp: QpAddress { qpn: Qpn(qpn as u32), sq_psn: psn as u32 },
            rkey: rkey as u32,
            address,
            gid: has_gid.then(|| Gid(Ipv6Addr::from(octets))),
        })
    }
}

/// A number of exactly so many digits, 16 at most.
fn hexadecimal(field: &[u8], digits: usize) -> Option<u64> {
    if field.len() != digits {
        return None;
    }
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(u64::from);
    field.iter().try_fold(0, |number: u64, byte| Some(number << 4 | digit(byte)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(gid: Option<u128>) -> Key {
        Key {
            lid: 3,
            qp: QpAddress { qpn: Qpn(0x1a2b), sq_psn: 0xabcdef },
            rkey: 0x1234,
            address: 0x7f00_0000_1000,
            gid: gid.map(|bits| Gid(bits.into())),
        }
    }

    #[test]
    fn a_key_is_text_of_fixed_widths() {
        let short = key(None).encode();
        assert_eq!(short, b"0003:0001:001a2b:abcdef:00001234:00007f0000001000:00000000\0");
        assert_eq!(short.len(), SHORT_KEY_LEN);
        let long = key(Some(0xffff_0a00_0001)).encode();
        assert_eq!(
            long,
            b"0003:0001:001a2b:abcdef:00001234:00007f0000001000:\
              00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:00:01:00000000:\0"
        );
        assert_eq!(long.len(), LONG_KEY_LEN);
    }

    #[test]
    fn the_length_shows_at_the_end_of_the_short_form() {
        assert_eq!(Key::len_of(&key(None).encode()), Some(SHORT_KEY_LEN));
        assert_eq!(Key::len_of(&key(Some(1)).encode()[..SHORT_KEY_LEN]), Some(LONG_KEY_LEN));
        assert_eq!(Key::len_of(&[0; SHORT_KEY_LEN - 1]), None);
    }

    #[test]
    fn what_only_looks_like_a_key_is_none() {
        let good = key(Some(7)).encode();
        for (place, byte) in [(0, b'g'), (0, b'+'), (4, b'-'), (106, b'0'), (107, b' '), (12, b':')] {
            let mut bad = good.clone();
            bad[place] = byte;
            assert_eq!(Key::decode(&bad), None, "{place}");
        }
        assert_eq!(Key::decode(&good[..SHORT_KEY_LEN]), None);
        assert_eq!(Key::decode(&[]), None);
    }

    proptest! {
        #[test]
        fn a_key_survives_the_wire(
            lid in any::<u16>(), qpn in 0..=QPN_MASK, sq_psn in 0..=QPN_MASK, rkey in any::<u32>(),
            address in any::<u64>(), gid in any::<Option<u128>>(),
        ) {
            let gid = gid.map(|bits| Gid(bits.into()));
            let key = Key { lid, qp: QpAddress { qpn: Qpn(qpn), sq_psn }, rkey, address, gid };
            let bytes = key.encode();
            prop_assert_eq!(Key::len_of(&bytes), Some(bytes.len()));
            prop_assert_eq!(Key::decode(&bytes), Some(key));
        }

        #[test]
        fn a_flipped_byte_never_panics(place in 0..LONG_KEY_LEN, byte in any::<u8>()) {
            let mut bytes = key(Some(u128::MAX)).encode();
            bytes[place] = byte;
            let _ = Key::decode(&bytes);
        }
    }
}
