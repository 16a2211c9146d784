//! Rates as users give them, with their unit, and the limit that posting is held to (`--rate-limit`).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::{Bandwidth, ByteSize};

/// A rate in the unit in which it was given, so that messages and the document have the user's own number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Rate {
    /// 10⁹ bits a second.
    #[serde(rename = "gbit_per_sec")]
    Gbit(f64),
    /// 2²⁰ bytes a second.
    #[serde(rename = "mib_per_sec")]
    Mib(f64),
    /// 10⁶ messages a second.
    #[serde(rename = "msg_rate_mpps")]
    Mpps(f64),
}

impl Rate {
    /// The number, in the rate's own unit.
    pub fn value(self) -> f64 {
        match self {
            Self::Gbit(value) | Self::Mib(value) | Self::Mpps(value) => value,
        }
    }

    /// Messages of `size` bytes in a second.
    pub fn messages_per_sec(self, size: u64) -> f64 {
        let size = size.max(1) as f64;
        match self {
            Self::Gbit(gbit) => Bandwidth::from_gbit_per_sec(gbit).bytes_per_sec() / size,
            Self::Mib(mib) => mib * ByteSize::MIB as f64 / size,
            Self::Mpps(mpps) => mpps * 1e6,
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Gbit(_) => "Gb/s",
            Self::Mib(_) => "MiB/s",
            Self::Mpps(_) => "Mpps",
        }
    }
}

impl fmt::Display for Rate {
    /// As the command line takes it: `10Gb/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.value(), self.unit())
    }
}

/// How fast an end may write, over all its queue pairs, and how much of it at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateLimit {
    /// The limit.
    #[serde(flatten)]
    pub rate: Rate,
    /// Messages that may go at once, to make up for time in which none went. By default the depth of a queue: what an
    /// end without a limit has outstanding all the time, so that a burst asks for nothing that it doesn't.
    pub burst_messages: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_so_many_messages_of_a_size() {
        assert_eq!(Rate::Gbit(8.0).messages_per_sec(1000), 1e6);
        assert_eq!(Rate::Mib(50.0).messages_per_sec(65536), 800.0);
        assert_eq!(Rate::Mpps(1.5).messages_per_sec(1 << 20), 1.5e6);
    }

    #[test]
    fn a_rate_is_shown_as_it_is_typed() {
        let shown = [Rate::Gbit(10.0), Rate::Mib(0.5), Rate::Mpps(1.5)].map(|rate| rate.to_string());
        assert_eq!(shown, ["10Gb/s", "0.5MiB/s", "1.5Mpps"]);
    }

    #[test]
    fn the_document_names_the_unit() {
        let limit = RateLimit { rate: Rate::Mpps(1.5), burst_messages: 16 };
        let json = serde_json::to_string(&limit).unwrap();
        assert_eq!(json, r#"{"msg_rate_mpps":1.5,"burst_messages":16}"#);
        assert_eq!(serde_json::from_str::<RateLimit>(&json).unwrap(), limit);
    }
}
