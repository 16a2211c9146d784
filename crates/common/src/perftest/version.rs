//! The sixteen bytes that both ends begin with: a version in decimal, filled up with zeros. perftest reads the number
//! and passes over whatever follows it, so there is room for a word from one of our ends to another.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};
use crate::exchange::message::{PREAMBLE_LEN, PROTOCOL_VERSION};

/// A perftest's version as it announces it, `6.06` for instance, in hundredths as it compares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u32);

/// The version whose dialect this is: release 4.5-0.17. What came later is only sent to ends that announce it.
const SPOKEN: Version = Version(606);
/// perftest itself leaves where the other end is older.
const OLDEST: Version = Version(570);
/// The one version (release 26.01.5) that sends its options whoever the other end is; the next asks first.
const UNCONDITIONAL: Version = Version(628);
/// What our own ends say behind the number.
const MARK: &str = " lproof/";

impl Version {
    /// The version in a peer's first bytes; `None` where there is none.
    pub fn decode(bytes: &[u8; PREAMBLE_LEN]) -> Option<Self> {
        let text = text_of(bytes)?;
        let number = text.split(' ').next()?;
        let (major, minor) = number.split_once('.')?;
        let digits = |text: &str, most: usize| {
            let all = (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
            all.then(|| text.parse::<u32>().ok()).flatten()
        };
        // As a decimal fraction: 6.1 is 6.10.
        let scale = if minor.len() == 1 { 10 } else { 1 };
        Some(Self(digits(major, 3)? * 100 + digits(minor, 2)? * scale))
    }

    /// The same bytes as perftest sends for this version.
    pub fn encode(self) -> [u8; PREAMBLE_LEN] {
        padded(&self.to_string())
    }

    /// Whether this end can talk to one of this version.
    ///
    /// # Errors
    /// [`ErrorKind::PeerVersion`] with the way out.
    pub fn check(self) -> Result<()> {
        let cannot = |why: &str| {
            Error::new(ErrorKind::PeerVersion, format!("cannot measure against perftest {self}: {why}"))
                .fact("can", format!("{OLDEST} to 6.27, and 6.29 and newer"))
        };
        if self < OLDEST {
            return Err(cannot("it is too old for perftest's own newer versions as well")
                .hint("install perftest 4.4-0.29 or newer there, or this tool"));
        }
        if self == UNCONDITIONAL {
            return Err(cannot("it sends its options to every peer, in a form that no other version reads")
                .hint("install perftest 26.04 (it announces 6.29) or 25.10 there, or this tool"));
        }
        Ok(())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

/// What a client of ours says first, to whomever: a version that perftest accepts, and behind it who it really is.
pub fn announcement() -> [u8; PREAMBLE_LEN] {
    announcement_of(PROTOCOL_VERSION)
}

/// What one of that version of our own protocol says. A number of more than three digits is cut off.
pub fn announcement_of(version: u32) -> [u8; PREAMBLE_LEN] {
    padded(&format!("{SPOKEN}{MARK}{version}"))
}

/// What an end says first that wants perftest's protocol only.
pub fn plain() -> [u8; PREAMBLE_LEN] {
    SPOKEN.encode()
}

/// The version of our own protocol in an announcement; `None` where it is none, to the last byte.
pub fn linkproof_in(bytes: &[u8; PREAMBLE_LEN]) -> Option<u32> {
    let version = text_of(bytes)?.split_once(MARK)?.1.parse().ok()?;
    (announcement_of(version) == *bytes).then_some(version)
}

/// What stands before the zeros; at least one has to be there, and nothing but zeros behind the first.
fn text_of(bytes: &[u8; PREAMBLE_LEN]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?.trim_end_matches('\0');
    (text.len() < PREAMBLE_LEN && !text.contains('\0')).then_some(text)
}

/// The last byte stays zero: perftest may read the field as a string.
fn padded(text: &str) -> [u8; PREAMBLE_LEN] {
    let mut bytes = [0; PREAMBLE_LEN];
    bytes.iter_mut().take(PREAMBLE_LEN - 1).zip(text.bytes()).for_each(|(byte, of_text)| *byte = of_text);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(text: &str) -> Option<String> {
        Version::decode(&padded(text)).map(|version| version.to_string())
    }

    #[test]
    fn a_version_is_read_as_perftest_reads_it() {
        assert_eq!(decoded("6.06").as_deref(), Some("6.06"));
        assert_eq!(decoded("6.1").as_deref(), Some("6.10"));
        assert_eq!(decoded("6.20 with words").as_deref(), Some("6.20"));
        for nonsense in ["", "6", "6.", ".06", "6.123", "+6.06", "HTTP/1.1 400", "linkproof/1", "1234.00"] {
            assert_eq!(decoded(nonsense), None, "{nonsense}");
        }
        assert_eq!(Version::decode(b"6.06\0garbage\0\0\0\0"), None);
    }

    #[test]
    fn only_versions_that_can_be_talked_to_are_taken() {
        let check = |text: &str| Version::decode(&padded(text)).unwrap().check();
        for good in ["5.70", "5.92", "6.06", "6.27", "6.29", "7.00"] {
            assert!(check(good).is_ok(), "{good}");
        }
        let error = check("6.28").unwrap_err();
        assert_eq!(error.kind, ErrorKind::PeerVersion);
        assert!(error.what.contains("6.28") && error.hint.unwrap().contains("26.04"));
        assert!(check("5.69").unwrap_err().what.contains("too old"));
    }

    #[test]
    fn our_announcement_is_a_version_that_perftest_takes_without_its_options() {
        assert_eq!(&announcement(), b"6.06 lproof/1\0\0\0");
        assert_eq!(Version::decode(&announcement()), Some(SPOKEN));
        assert!(SPOKEN.check().is_ok() && SPOKEN < UNCONDITIONAL);
        assert_eq!(linkproof_in(&announcement()), Some(PROTOCOL_VERSION));
        assert_eq!(linkproof_in(&plain()), None);
        for another_spelling in ["6.06 lproof/01", "6.06 lproof/+1", "6.07 lproof/1", "6.06  lproof/1"] {
            assert_eq!(linkproof_in(&padded(another_spelling)), None, "{another_spelling}");
        }
    }

    proptest! {
        #[test]
        fn a_version_survives_the_wire(hundredths in 0_u32..100_000) {
            let version = Version(hundredths);
            prop_assert_eq!(Version::decode(&version.encode()), Some(version));
        }

        #[test]
        fn an_announcement_survives_the_wire(version in 0_u32..1000) {
            prop_assert_eq!(linkproof_in(&announcement_of(version)), Some(version));
            prop_assert!(Version::decode(&announcement_of(version)).is_some());
        }
    }
}
