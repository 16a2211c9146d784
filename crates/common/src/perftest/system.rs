//! What the ends tell each other of their machines: the page size and the cache line, of which both take the larger, and
//! the MTU, of which both take the smaller.

use crate::plan::PATH_MTUS;

/// Bytes of a number.
pub const NUMBER_LEN: usize = 4;
/// Bytes of an MTU.
pub const MTU_LEN: usize = 2;

/// A number as it goes.
pub fn encode_number(number: u32) -> [u8; NUMBER_LEN] {
    number.to_be_bytes()
}

/// The number in a message; `None` where it is none that a page or a cache line can have.
pub fn decode_number(bytes: [u8; NUMBER_LEN]) -> Option<u32> {
    let number = u32::from_be_bytes(bytes);
    (number.is_power_of_two() && number <= MOST).then_some(number)
}

/// Pages of 16 GiB exist, which these four bytes can't say; of what can be said a page in use has far less.
const MOST: u32 = 1 << 30;

/// An MTU in bytes, as it goes: a digit and a zero. One that does not exist goes as the next smaller, or the smallest.
pub fn encode_mtu(bytes: u32) -> [u8; MTU_LEN] {
    let place = PATH_MTUS.iter().rposition(|&mtu| mtu <= bytes).unwrap_or(0);
    [b'1' + place as u8, 0]
}

/// The MTU in a message, in bytes.
pub fn decode_mtu(bytes: [u8; MTU_LEN]) -> Option<u32> {
    match bytes {
        [digit @ b'1'..=b'5', 0] => PATH_MTUS.get(usize::from(digit - b'1')).copied(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_path_mtu_is_a_digit() {
        for (mtu, digit) in PATH_MTUS.into_iter().zip(b'1'..) {
            assert_eq!(encode_mtu(mtu), [digit, 0]);
            assert_eq!(decode_mtu([digit, 0]), Some(mtu));
        }
        assert_eq!([b"0\0", b"6\0", b"10", b"\0\0"].map(|bytes| decode_mtu(*bytes)), [None; 4]);
    }

    #[test]
    fn a_page_is_a_power_of_two() {
        assert_eq!(encode_number(4096), [0, 0, 16, 0]);
        assert_eq!(decode_number(encode_number(65536)), Some(65536));
        assert_eq!([0, 4095, u32::MAX].map(|number| decode_number(encode_number(number))), [None; 3]);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(number in any::<[u8; 4]>(), mtu in any::<[u8; 2]>(), bytes in any::<u32>()) {
            let _ = decode_number(number);
            let _ = decode_mtu(mtu);
            prop_assert!(decode_mtu(encode_mtu(bytes)).is_some());
        }
    }
}
