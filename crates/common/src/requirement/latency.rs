//! Ceilings for the figures of a latency table.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::report::LatencyRow;

/// A figure of a latency table that can be held to a ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The mean.
    Avg,
    /// The median.
    P50,
    /// 99 % are not longer.
    P99,
    /// 99.9 % are not longer.
    P99_9,
    /// 99.99 % are not longer.
    P99_99,
    /// The longest.
    Max,
}

/// Every point, in the order in which they are told.
const POINTS: [Point; 6] = [Point::Avg, Point::P50, Point::P99, Point::P99_9, Point::P99_99, Point::Max];

impl Point {
    /// As options and messages have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Avg => "avg",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::P99_9 => "p99.9",
            Self::P99_99 => "p99.99",
            Self::Max => "max",
        }
    }

    /// The figure of a row.
    pub fn of(self, row: &LatencyRow) -> f64 {
        match self {
            Self::Avg => row.t_avg_usec,
            Self::P50 => row.t_typical_usec,
            Self::P99 => row.p99_usec,
            Self::P99_9 => row.p99_9_usec,
            Self::P99_99 => row.p99_99_usec,
            Self::Max => row.t_max_usec,
        }
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The column of the median is called so.
        if text == "typical" {
            return Ok(Self::P50);
        }
        POINTS.into_iter().find(|point| point.name() == text).ok_or_else(|| {
            format!(
                "\"{text}\" is no figure of the table; there are avg, p50 (or typical), p99, p99.9, p99.99 and max"
            )
        })
    }
}

/// The most that the figures of every size may be. Keys are those of `results[]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyCeilings {
    /// For the mean.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub t_avg_usec: Option<f64>,
    /// For the median.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub t_typical_usec: Option<f64>,
    /// For the 99th percentile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99_usec: Option<f64>,
    /// For the 99.9th percentile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99_9_usec: Option<f64>,
    /// For the 99.99th percentile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99_99_usec: Option<f64>,
    /// For the longest of all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub t_max_usec: Option<f64>,
}

impl LatencyCeilings {
    /// The ceiling of `point`, to be read or set.
    pub fn at(&mut self, point: Point) -> &mut Option<f64> {
        match point {
            Point::Avg => &mut self.t_avg_usec,
            Point::P50 => &mut self.t_typical_usec,
            Point::P99 => &mut self.p99_usec,
            Point::P99_9 => &mut self.p99_9_usec,
            Point::P99_99 => &mut self.p99_99_usec,
            Point::Max => &mut self.t_max_usec,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Every point that has one, with it.
    pub fn given(mut self) -> impl Iterator<Item = (Point, f64)> {
        POINTS.into_iter().filter_map(move |point| self.at(point).map(|most| (point, most)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_has_a_ceiling_and_a_figure_of_its_own() {
        let row = LatencyRow {
            size_bytes: 8,
            iterations: 1000,
            rounds: 3,
            t_min_usec: 0.0,
            t_max_usec: 6.0,
            t_typical_usec: 2.0,
            t_avg_usec: 1.0,
            t_stdev_usec: 0.0,
            p99_usec: 3.0,
            p99_9_usec: 4.0,
            p99_99_usec: 5.0,
            spread_percent: None,
            intervals: None,
            partial: false,
            checked_bytes: None,
            wrong_bytes: None,
        };
        let mut ceilings = LatencyCeilings::default();
        assert!(ceilings.is_empty());
        for (index, point) in POINTS.into_iter().enumerate() {
            assert_eq!(point.name().parse(), Ok(point));
            assert_eq!(point.of(&row), index as f64 + 1.0);
            *ceilings.at(point) = Some(index as f64);
        }
        assert_eq!(ceilings.given().map(|(point, _)| point).collect::<Vec<_>>(), POINTS);
        let keys = serde_json::to_value(ceilings).unwrap();
        let row = serde_json::to_value(row).unwrap();
        assert!(keys.as_object().unwrap().keys().all(|key| row.get(key).is_some()), "the table's keys");
    }

    #[test]
    fn other_points_are_refused_with_those_that_there_are() {
        assert_eq!("typical".parse(), Ok(Point::P50));
        for text in ["p95", "99", "p99_9", "min", "", "P99"] {
            assert!(text.parse::<Point>().unwrap_err().contains("p99.9, p99.99 and max"), "{text}");
        }
    }
}
