//! The lines of the tables.

use serde::{Deserialize, Serialize};

use super::{BandwidthIntervals, LatencyIntervals};

/// One line of the table: one message size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ResultRow {
    /// Of a bandwidth tool.
    Bandwidth(BandwidthRow),
    /// Of a latency tool.
    Latency(LatencyRow),
}

impl ResultRow {
    /// The message size.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Self::Bandwidth(row) => row.size_bytes,
            Self::Latency(row) => row.size_bytes,
        }
    }

    /// Whether it stands on a round that was cut short.
    pub fn partial(&self) -> bool {
        match self {
            Self::Bandwidth(row) => row.partial,
            Self::Latency(row) => row.partial,
        }
    }

    /// The range of the rounds in per cent of their median.
    pub fn spread_percent(&self) -> Option<f64> {
        match self {
            Self::Bandwidth(row) => row.spread_percent,
            Self::Latency(row) => row.spread_percent,
        }
    }

    /// What was achieved of the plan's rate limit, in per cent; `None` without a limit.
    pub fn rate_limit_percent(&self) -> Option<f64> {
        match self {
            Self::Bandwidth(row) => row.rate_limit_percent,
            Self::Latency(_) => None,
        }
    }

    /// Bytes checked, and bytes of those that were wrong; `None` where nothing was checked.
    pub fn checked(&self) -> Option<(u64, u64)> {
        match self {
            Self::Bandwidth(row) => row.checked_bytes.zip(row.wrong_bytes),
            Self::Latency(row) => row.checked_bytes.zip(row.wrong_bytes),
        }
    }
}

/// One line of a bandwidth table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BandwidthRow {
    /// The message size.
    pub size_bytes: u64,
    /// Messages in a round and direction, over all queue pairs; the median where rounds end by time.
    pub iterations: u64,
    /// Whole rounds that the figures stand on.
    pub rounds: u32,
    /// The median of the rounds' peaks, both directions added.
    pub bw_peak_mib_per_sec: f64,
    /// The same in 10⁹ bits a second.
    pub bw_peak_gbit_per_sec: f64,
    /// The median of the rounds, both directions added.
    pub bw_average_mib_per_sec: f64,
    /// The same in 10⁹ bits a second.
    pub bw_average_gbit_per_sec: f64,
    /// 10⁶ messages a second, the median of the rounds, both directions added.
    pub msg_rate_mpps: f64,
    /// The range of the rounds in per cent of their median; absent for a single round.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spread_percent: Option<f64>,
    /// The average in per cent of the slower port's rate, times two where both directions run; absent where no
    /// rate is known or it is an emulation's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line_rate_percent: Option<f64>,
    /// What was achieved of the plan's rate limit, in per cent, both directions of twice it; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate_limit_percent: Option<f64>,
    /// The intervals of each direction; none where the plan has no intervals.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub intervals: Vec<BandwidthIntervals>,
    /// Whether it stands on a round that was cut short.
    pub partial: bool,
    /// Bytes checked over all rounds; absent where nothing was checked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub checked_bytes: Option<u64>,
    /// Bytes of those that were wrong.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wrong_bytes: Option<u64>,
}

/// One line of a latency table: half round trips, each the median over the rounds of that figure of a round, but for
/// the shortest and the longest, which are those of all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyRow {
    /// The message size.
    pub size_bytes: u64,
    /// Round trips in a round; the median where rounds end by time.
    pub iterations: u64,
    /// Whole rounds that the figures stand on.
    pub rounds: u32,
    /// The shortest of all.
    pub t_min_usec: f64,
    /// The longest of all.
    pub t_max_usec: f64,
    /// The median of the rounds' medians.
    pub t_typical_usec: f64,
    /// The median of the rounds' means.
    pub t_avg_usec: f64,
    /// The median of the rounds' standard deviations.
    pub t_stdev_usec: f64,
    /// The median of the rounds' 99th percentiles.
    pub p99_usec: f64,
    /// The median of the rounds' 99.9th percentiles.
    pub p99_9_usec: f64,
    /// The median of the rounds' 99.99th percentiles.
    pub p99_99_usec: f64,
    /// The range of the rounds' medians in per cent of their median; absent for a single round.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spread_percent: Option<f64>,
    /// The intervals; absent where the plan has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub intervals: Option<LatencyIntervals>,
    /// Whether it stands on a round that was cut short.
    pub partial: bool,
    /// Bytes checked over all rounds, at both ends; absent where nothing was checked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub checked_bytes: Option<u64>,
    /// Bytes of those that were wrong.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wrong_bytes: Option<u64>,
}
