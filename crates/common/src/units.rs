//! Sizes and bandwidths, and the words in which they are read and shown.
//!
//! Decimal and binary never share a name: GB/s is 10⁹ bytes a second, Gb/s 10⁹ bits a second, MiB/s 2²⁰ bytes
//! a second. Sizes on the command line are binary, as perftest's and nccl-tests' are: K, M and G are powers of
//! 1024. This module knows nothing of verbs.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A number of bytes. Parses `4096`, `64K`, `1M`, `2G`; shows `64 KiB` where the size is a whole number of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByteSize(pub u64);

/// Why a size was not understood; the text says what would have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseSizeError {
    /// No digit at the start.
    #[error("a size starts with a digit, for instance 4096, 64K or 1M")]
    NoDigits,
    /// Something other than K, M or G follows the number.
    #[error("\"{0}\" is no unit of size; use K, M or G (powers of 1024)")]
    UnknownUnit(String),
    /// The number of bytes does not fit in 64 bits.
    #[error("the size does not fit in 64 bits")]
    TooLarge,
}

impl ByteSize {
    /// 2¹⁰ bytes.
    pub const KIB: u64 = 1 << 10;
    /// 2²⁰ bytes.
    pub const MIB: u64 = 1 << 20;
    /// 2³⁰ bytes.
    pub const GIB: u64 = 1 << 30;

    /// The number of bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(ParseSizeError::NoDigits);
        }
        let scale = match unit {
            "" => 1,
            "K" | "k" => Self::KIB,
            "M" | "m" => Self::MIB,
            "G" | "g" => Self::GIB,
            other => return Err(ParseSizeError::UnknownUnit(other.to_owned())),
        };
        let number: u64 = number.parse().map_err(|_| ParseSizeError::TooLarge)?;
        number.checked_mul(scale).map(ByteSize).ok_or(ParseSizeError::TooLarge)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        for (scale, unit) in [(Self::GIB, "GiB"), (Self::MIB, "MiB"), (Self::KIB, "KiB")] {
            if bytes >= scale && bytes.is_multiple_of(scale) {
                return write!(f, "{} {unit}", bytes / scale);
            }
            // A size that is no whole number of units keeps one decimal once it is too long to read in bytes.
            if bytes >= 100 * scale {
                return write!(f, "{:.1} {unit}", bytes as f64 / scale as f64);
            }
        }
        write!(f, "{bytes} B")
    }
}

/// Bytes moved in one second. The one conversion from bytes and time to every unit that is shown.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Bandwidth {
    bytes_per_sec: f64,
}

impl Bandwidth {
    /// The bandwidth of `bytes` moved in `elapsed`; zero where no time has passed, since nothing was measured.
    pub fn of(bytes: u64, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64();
        Self { bytes_per_sec: if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 } }
    }

    /// From bytes a second.
    pub fn from_bytes_per_sec(bytes_per_sec: f64) -> Self {
        Self { bytes_per_sec }
    }

    /// From 10⁹ bits a second, the unit of link rates.
    pub fn from_gbit_per_sec(gbit: f64) -> Self {
        Self { bytes_per_sec: gbit * 1e9 / 8.0 }
    }

    /// Bytes a second.
    pub fn bytes_per_sec(self) -> f64 {
        self.bytes_per_sec
    }

    /// 10⁹ bits a second.
    pub fn gbit_per_sec(self) -> f64 {
        self.bytes_per_sec * 8.0 / 1e9
    }

    /// 2²⁰ bytes a second.
    pub fn mib_per_sec(self) -> f64 {
        self.bytes_per_sec / ByteSize::MIB as f64
    }

    /// The sum of two directions.
    pub fn plus(self, other: Self) -> Self {
        Self { bytes_per_sec: self.bytes_per_sec + other.bytes_per_sec }
    }
}

/// A length of time on the command line. Parses `500ms`, `1s`, `2min`, `1.5s`, and a bare number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeSpan(pub Duration);

/// Why a length of time was not understood; the text says what would have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseTimeSpanError {
    /// No number at the start.
    #[error("a time starts with a number, for instance 500ms, 1s or 2min")]
    NoNumber,
    /// Something other than a unit follows the number.
    #[error("\"{0}\" is no unit of time; use ms, s or min, or none for seconds")]
    UnknownUnit(String),
    /// It does not fit.
    #[error("the time is too long")]
    TooLong,
}

impl TimeSpan {
    /// As seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0.as_secs_f64()
    }
}

impl FromStr for TimeSpan {
    type Err = ParseTimeSpanError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: f64 = number.parse().map_err(|_| ParseTimeSpanError::NoNumber)?;
        let seconds = match unit {
            "ms" => number / 1e3,
            "" | "s" => number,
            "min" => number * 60.0,
            other => return Err(ParseTimeSpanError::UnknownUnit(other.to_owned())),
        };
        Duration::try_from_secs_f64(seconds).map(TimeSpan).map_err(|_| ParseTimeSpanError::TooLong)
    }
}

/// Shows a duration in the unit that keeps it short: `950 ms`, `2 s`, `1.5 s`.
pub fn show_duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 1.0 {
        format!("{:.0} ms", seconds * 1e3)
    } else if (seconds - seconds.round()).abs() < 1e-9 {
        format!("{seconds:.0} s")
    } else {
        format!("{seconds:.1} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Result<u64, ParseSizeError> {
        text.parse::<ByteSize>().map(ByteSize::bytes)
    }

    #[test]
    fn size_suffixes_are_powers_of_1024() {
        assert_eq!(parsed("1"), Ok(1));
        assert_eq!(parsed("64K"), Ok(65536));
        assert_eq!(parsed("1M"), Ok(1 << 20));
        assert_eq!(parsed("2g"), Ok(2 << 30));
    }

    #[test]
    fn anything_after_the_size_is_refused() {
        assert_eq!(parsed("2Q"), Err(ParseSizeError::UnknownUnit("Q".into())));
        assert_eq!(parsed("64KB"), Err(ParseSizeError::UnknownUnit("KB".into())));
        assert_eq!(parsed("64 K"), Err(ParseSizeError::UnknownUnit(" K".into())));
        assert_eq!(parsed("1.5M"), Err(ParseSizeError::UnknownUnit(".5M".into())));
        assert_eq!(parsed(""), Err(ParseSizeError::NoDigits));
        assert_eq!(parsed("-1"), Err(ParseSizeError::NoDigits));
    }

    #[test]
    fn a_size_beyond_64_bits_is_refused() {
        assert_eq!(parsed("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parsed("18446744073709551616"), Err(ParseSizeError::TooLarge));
        assert_eq!(parsed("17179869184G"), Err(ParseSizeError::TooLarge));
    }

    #[test]
    fn sizes_are_shown_in_whole_units() {
        assert_eq!(ByteSize(2).to_string(), "2 B");
        assert_eq!(ByteSize(65536).to_string(), "64 KiB");
        assert_eq!(ByteSize(1 << 20).to_string(), "1 MiB");
        assert_eq!(ByteSize(1500).to_string(), "1500 B");
        assert_eq!(ByteSize(1_000_000).to_string(), "976.6 KiB");
    }

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        let parsed = |text: &str| text.parse::<TimeSpan>().map(|span| span.0.as_micros());
        assert_eq!(parsed("500ms"), Ok(500_000));
        assert_eq!([parsed("1s"), parsed("2"), parsed("0.5")], [Ok(1_000_000), Ok(2_000_000), Ok(500_000)]);
        assert_eq!(parsed("1.5min"), Ok(90_000_000));
        assert_eq!(parsed("1m"), Err(ParseTimeSpanError::UnknownUnit("m".into())));
        assert_eq!(parsed("1 s"), Err(ParseTimeSpanError::UnknownUnit(" s".into())));
        for text in ["", "s", "-1s", "1.2.3s", "."] {
            assert_eq!(parsed(text), Err(ParseTimeSpanError::NoNumber), "{text}");
        }
        assert_eq!(parsed("99999999999999999999999s"), Err(ParseTimeSpanError::TooLong));
    }

    #[test]
    fn one_bandwidth_in_every_unit() {
        let bandwidth = Bandwidth::of(125_000_000, Duration::from_secs(1));
        assert!((bandwidth.gbit_per_sec() - 1.0).abs() < 1e-12);
        assert!((bandwidth.mib_per_sec() - 119.209_289_550_781_25).abs() < 1e-9);
    }

    #[test]
    fn no_time_means_no_bandwidth() {
        assert_eq!(Bandwidth::of(1, Duration::ZERO).bytes_per_sec(), 0.0);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in ".*") {
            let _ = parsed(&text);
        }

        #[test]
        fn a_plain_number_is_itself(bytes: u64) {
            prop_assert_eq!(parsed(&bytes.to_string()), Ok(bytes));
        }
    }
}
