//! What was read from one run, whatever tool made it: points with their rounds, and the conditions.

use std::collections::BTreeMap;

use linkproof_common::compare::{BANDWIDTH_THRESHOLD, Goal, LATENCY_THRESHOLD, TAIL_THRESHOLD};
use linkproof_common::units::ByteSize;
use serde::{Deserialize, Serialize};

use crate::words;

/// The shape of a recording in JSON: what `import` writes and a baseline keeps.
pub const SCHEMA: &str = "linkproof/recording.v1";

/// More rounds of a point than any of the tools measures are refused: the estimate takes the square of them.
pub const MOST_ROUNDS: usize = 1000;
/// The same of points: every size, type, reduction and root of a large sweep.
pub const MOST_POINTS: usize = 20_000;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// [`SCHEMA`].
    pub schema: String,
    /// Where it was read.
    pub source: String,
    /// What was measured; only the same is compared.
    pub operation: String,
    /// When the run began, in UTC; sorts as text. Absent where the file does not say.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started: Option<String>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub finished: Option<String>,
    /// Under which conditions, by the names of the document: `link.client.gid.type`.
    pub conditions: BTreeMap<String, String>,
    /// Why its figures may be wrong; empty where nothing is known to be.
    pub faults: Vec<String>,
    /// What was measured, each point with its rounds.
    pub points: Vec<Point>,
    /// Of collectives, how often each rank was the last to arrive; not kept in files.
    #[serde(skip)]
    pub stragglers: Vec<Straggler>,
}

/// How a rank kept the others waiting.
#[derive(Clone, Debug, PartialEq)]
pub struct Straggler {
    /// The rank.
    pub rank: u32,
    /// Calls to which it came last, over all points.
    pub times_last: u64,
    /// How far behind the last but one it was then, in microseconds: the largest of the points' medians.
    pub behind_usec: f64,
}

/// One figure of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// What it is of, and the figure.
    #[serde(flatten)]
    pub key: Key,
    /// The value of each round, in the figure's unit.
    pub rounds: Vec<f64>,
}

/// What two points must share to be compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// What besides the size tells points apart: `all_reduce float sum`; empty for links.
    pub what: String,
    /// The size in bytes.
    pub size_bytes: u64,
    /// The figure.
    pub figure: Figure,
}

impl Key {
    /// In words: `64 KiB`, `all_reduce float sum 1 MiB`, `2 B p99`.
    pub fn describe(&self) -> String {
        let size = ByteSize(self.size_bytes);
        let tail = if self.figure == Figure::P99 { " p99" } else { "" };
        if self.what.is_empty() { format!("{size}{tail}") } else { format!("{} {size}{tail}", self.what) }
    }
}

/// What is measured of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Bytes completed / time, in 10⁹ bits a second, both directions added.
    Bandwidth,
    /// A collective's bytes / time of one call, in 10⁹ bytes a second.
    AlgBandwidth,
    /// The median half round trip, in microseconds.
    Typical,
    /// A mean time of a half round trip or a call, in microseconds: all that some tools tell.
    Mean,
    /// The 99th percentile of half round trips, in microseconds.
    P99,
}

impl Figure {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bandwidth => "average bandwidth",
            Self::AlgBandwidth => "algbw",
            Self::Typical => "median latency",
            Self::Mean => "mean time",
            Self::P99 => "99th percentile",
        }
    }

    /// Of the values.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Bandwidth => "Gb/s",
            Self::AlgBandwidth => "GB/s",
            Self::Typical | Self::Mean | Self::P99 => "µs",
        }
    }

    /// Which values are good.
    pub fn goal(self) -> Goal {
        match self {
            Self::Bandwidth | Self::AlgBandwidth => Goal::Higher,
            Self::Typical | Self::Mean | Self::P99 => Goal::Lower,
        }
    }

    /// The smallest change worth acting on, as a fraction, unless the user says another.
    pub fn threshold(self) -> f64 {
        match self {
            Self::Bandwidth | Self::AlgBandwidth => BANDWIDTH_THRESHOLD,
            Self::Typical | Self::Mean => LATENCY_THRESHOLD,
            Self::P99 => TAIL_THRESHOLD,
        }
    }

    /// Whether the primary figure of a run is made of it: a tail is too unsteady for that.
    pub fn is_primary(self) -> bool {
        self != Self::P99
    }
}

impl Recording {
    /// An empty one.
    pub fn new(source: &str, operation: &str) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            source: source.to_owned(),
            operation: operation.to_owned(),
            started: None,
            finished: None,
            conditions: BTreeMap::new(),
            faults: Vec::new(),
            points: Vec::new(),
            stragglers: Vec::new(),
        }
    }

    /// Sets its points.
    pub fn set_points(&mut self, points: BTreeMap<Key, Vec<f64>>) {
        self.points = points.into_iter().map(|(key, rounds)| Point { key, rounds }).collect();
    }

    /// The point `key`. Points are in order of their keys.
    pub fn point(&self, key: &Key) -> Option<&Point> {
        self.points.binary_search_by(|point| point.key.cmp(key)).ok().map(|index| &self.points[index])
    }

    /// Whether every value can be a measurement.
    ///
    /// # Errors
    /// What can't be, in words.
    pub fn check(&self) -> Result<(), String> {
        if self.points.is_empty() {
            return Err("it has no measured point".to_owned());
        }
        if self.points.len() > MOST_POINTS {
            return Err(format!("it has {} points, more than {MOST_POINTS}", self.points.len()));
        }
        if let Some(pair) = self.points.windows(2).find(|pair| pair[0].key >= pair[1].key) {
            let at = words::printable(&pair[1].key.describe());
            return Err(format!("{at} is there twice"));
        }
        for Point { key, rounds } in &self.points {
            let at = words::printable(&key.describe());
            if rounds.is_empty() || rounds.len() > MOST_ROUNDS {
                return Err(format!("{at} has {} rounds, not 1 to {MOST_ROUNDS}", rounds.len()));
            }
            if let Some((round, value)) =
                rounds.iter().enumerate().find(|(_, value)| !(value.is_finite() && **value > 0.0))
            {
                return Err(format!("round {} of {at} is {value}, not a number above 0", round + 1));
            }
        }
        Ok(())
    }

    /// Makes every text of it safe to show, and puts its points in order.
    #[must_use]
    pub fn printable(mut self) -> Self {
        let text = |text: &String| words::printable(text);
        self.source = text(&self.source);
        self.operation = text(&self.operation);
        self.started = self.started.as_ref().map(text);
        self.finished = self.finished.as_ref().map(text);
        self.faults = self.faults.iter().map(text).collect();
        self.conditions = self.conditions.iter().map(|(name, value)| (text(name), text(value))).collect();
        self.points.iter_mut().for_each(|point| point.key.what = text(&point.key.what));
        self.points.sort_by(|a, b| a.key.cmp(&b.key));
        self
    }
}
