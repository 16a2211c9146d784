//! What the user requires of every size: bounds that the result is held to (`--min-bw`, `--min-msgrate`,
//! `--max-latency`).

mod latency;

pub use latency::{LatencyCeilings, Point};

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::plan::Traffic;
use crate::report::ResultRow;
use crate::units::ByteSize;

/// Bounds for what the table shows. Floors are each in the unit in which they were given, so that the message has the
/// user's own number; ceilings are in the table's one unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requirements {
    /// Least `BW average`, in 10⁹ bits a second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub min_bw_gbit_per_sec: Option<f64>,
    /// Least `BW average`, in 2²⁰ bytes a second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub min_bw_mib_per_sec: Option<f64>,
    /// Least `MsgRate`, in 10⁶ messages a second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub min_msg_rate_mpps: Option<f64>,
    /// Longest half round trips.
    #[serde(skip_serializing_if = "LatencyCeilings::is_empty", default)]
    pub max_latency: LatencyCeilings,
}

/// What is held to a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    GbitPerSec,
    MibPerSec,
    Mpps,
    Latency(Point),
}

impl Figure {
    fn option(self) -> &'static str {
        match self {
            Self::GbitPerSec | Self::MibPerSec => "--min-bw",
            Self::Mpps => "--min-msgrate",
            Self::Latency(_) => "--max-latency",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::GbitPerSec => "Gb/s",
            Self::MibPerSec => "MiB/s",
            Self::Mpps => "Mpps",
            Self::Latency(_) => "usec",
        }
    }

    fn is_latency(self) -> bool {
        matches!(self, Self::Latency(_))
    }

    /// The figure of a row; `None` where the row has none of this kind.
    fn of(self, row: &ResultRow) -> Option<f64> {
        match (self, row) {
            (Self::Latency(point), ResultRow::Latency(row)) => Some(point.of(row)),
            (Self::GbitPerSec, ResultRow::Bandwidth(row)) => Some(row.bw_average_gbit_per_sec),
            (Self::MibPerSec, ResultRow::Bandwidth(row)) => Some(row.bw_average_mib_per_sec),
            (Self::Mpps, ResultRow::Bandwidth(row)) => Some(row.msg_rate_mpps),
            _ => None,
        }
    }
}

/// A floor, or the ceiling of a latency.
#[derive(Clone, Copy, Debug)]
struct Bound {
    figure: Figure,
    limit: f64,
}

impl Bound {
    /// As it stands on a command line.
    fn describe(&self) -> String {
        let Self { figure, limit } = self;
        match figure {
            Figure::Latency(point) => format!("{} {}={limit}us", figure.option(), point.name()),
            _ => format!("{} {limit}{}", figure.option(), figure.unit()),
        }
    }

    fn is_missed_by(&self, figure: f64) -> bool {
        if self.figure.is_latency() { figure > self.limit } else { figure < self.limit }
    }

    /// What `row` misses of it, in words.
    fn missed(&self, row: &ResultRow) -> Option<String> {
        let figure = self.figure.of(row).filter(|&figure| self.is_missed_by(figure))?;
        // As many decimals as it takes to see that it is missed; the table's own first.
        let decimals = if self.figure.is_latency() { [3, 4, 6] } else { [2, 4, 6] };
        let shown = decimals.map(|decimals| format!("{figure:.decimals$}"));
        let tells = |text: &&String| text.parse().is_ok_and(|value| self.is_missed_by(value));
        let shown = shown.iter().find(tells).cloned().unwrap_or_else(|| figure.to_string());
        let (unit, limit) = (self.figure.unit(), self.limit);
        Some(match self.figure {
            Figure::Latency(point) => {
                format!("{} {shown} {unit}, and at most {limit} was required", point.name())
            }
            _ => format!("{shown} {unit}, and {limit} was required"),
        })
    }
}

impl Requirements {
    fn bounds(&self) -> impl Iterator<Item = Bound> {
        let floors = [
            (Figure::GbitPerSec, self.min_bw_gbit_per_sec),
            (Figure::MibPerSec, self.min_bw_mib_per_sec),
            (Figure::Mpps, self.min_msg_rate_mpps),
        ];
        let floors = floors.into_iter().filter_map(|(figure, least)| Some((figure, least?)));
        let ceilings = self.max_latency.given().map(|(point, most)| (Figure::Latency(point), most));
        floors.chain(ceilings).map(|(figure, limit)| Bound { figure, limit })
    }

    /// Whether nothing is required.
    pub fn is_empty(&self) -> bool {
        self.bounds().next().is_none()
    }

    /// Whether each bound is one that a row of this kind of run can be above or below.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`], naming the option.
    pub fn check(&self, traffic: Traffic) -> Result<()> {
        let refused = |what| Err(Error::new(ErrorKind::Usage, what));
        for bound in self.bounds() {
            let (option, limit) = (bound.figure.option(), bound.limit);
            if !(limit > 0.0 && limit.is_finite()) {
                return refused(format!(
                    "{option} is {limit} {}; it must be more than 0",
                    bound.figure.unit()
                ));
            }
            if bound.figure.is_latency() != (traffic == Traffic::PingPong) {
                return refused(format!("{option} is given, and this run measures no such figure"));
            }
        }
        Ok(())
    }

    /// The failure that `rows` beyond a bound are. A row that stands on a round cut short is not held to it.
    pub fn unmet(&self, rows: &[ResultRow]) -> Option<Error> {
        let missed_by =
            |row: &ResultRow| self.bounds().filter_map(|bound| bound.missed(row)).collect::<Vec<_>>();
        let whole: Vec<&ResultRow> = rows.iter().filter(|row| !row.partial()).collect();
        let missed: Vec<(u64, Vec<String>)> = whole
            .iter()
            .map(|row| (row.size_bytes(), missed_by(row)))
            .filter(|(_, missed)| !missed.is_empty())
            .collect();
        if missed.is_empty() {
            return None;
        }
        let required: Vec<String> = self.bounds().map(|bound| bound.describe()).collect();
        let what = format!(
            "{} of {} sizes did not meet what was required: {}",
            missed.len(),
            whole.len(),
            required.join(", ")
        );
        Some(
            missed
                .into_iter()
                .fold(Error::new(ErrorKind::RequirementNotMet, what), |error, (size, missed)| {
                    error.fact(&format!("at {}", ByteSize(size)), missed.join("; "))
                }),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{BandwidthRow, LatencyRow};

    fn row(size_bytes: u64, gbit: f64, mpps: f64) -> ResultRow {
        ResultRow::Bandwidth(bandwidth(size_bytes, gbit, mpps))
    }

    fn bandwidth(size_bytes: u64, gbit: f64, mpps: f64) -> BandwidthRow {
        BandwidthRow {
            size_bytes,
            iterations: 1,
            rounds: 3,
            bw_peak_mib_per_sec: 0.0,
            bw_peak_gbit_per_sec: 0.0,
            bw_average_mib_per_sec: gbit * 1e9 / 8.0 / 1_048_576.0,
            bw_average_gbit_per_sec: gbit,
            msg_rate_mpps: mpps,
            spread_percent: None,
            line_rate_percent: None,
            rate_limit_percent: None,
            intervals: Vec::new(),
            partial: false,
            checked_bytes: None,
            wrong_bytes: None,
        }
    }

    #[test]
    fn each_point_below_a_floor_is_named_with_its_figure_and_the_floor() {
        let required = Requirements { min_bw_gbit_per_sec: Some(90.0), ..Requirements::default() };
        let rows = [row(64, 5.0, 9.8), row(65536, 89.999, 0.17), row(1 << 20, 90.0, 0.01)];
        let error = required.unmet(&rows).unwrap();
        assert_eq!(error.kind, ErrorKind::RequirementNotMet);
        assert_eq!(error.what, "2 of 3 sizes did not meet what was required: --min-bw 90Gb/s");
        let facts: Vec<(&str, &str)> =
            error.facts.iter().map(|fact| (fact.label.as_str(), fact.value.as_str())).collect();
        assert_eq!(
            facts,
            [
                ("at 64 B", "5.00 Gb/s, and 90 was required"),
                ("at 64 KiB", "89.9990 Gb/s, and 90 was required")
            ]
        );
        assert_eq!(required.unmet(&rows[2..]), None);
    }

    #[test]
    fn both_floors_of_a_size_are_told_together() {
        let required = Requirements {
            min_bw_mib_per_sec: Some(1000.0),
            min_msg_rate_mpps: Some(1.5),
            ..Requirements::default()
        };
        let error = required.unmet(&[row(64, 0.5, 1.0)]).unwrap();
        assert_eq!(
            error.facts[0].value,
            "59.60 MiB/s, and 1000 was required; 1.00 Mpps, and 1.5 was required"
        );
        assert!(error.what.ends_with("--min-bw 1000MiB/s, --min-msgrate 1.5Mpps"));
    }

    #[test]
    fn a_row_cut_short_is_not_held_to_a_floor_and_nothing_is_required_by_default() {
        let required = Requirements { min_msg_rate_mpps: Some(1.5), ..Requirements::default() };
        assert_eq!(
            required
                .unmet(&[ResultRow::Bandwidth(BandwidthRow { partial: true, ..bandwidth(64, 1.0, 1.0) })]),
            None
        );
        assert!(Requirements::default().is_empty() && !required.is_empty());
        assert_eq!(Requirements::default().unmet(&[row(64, 0.0, 0.0)]), None);
    }

    #[test]
    fn a_floor_is_a_positive_number() {
        for least in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let required = Requirements { min_bw_gbit_per_sec: Some(least), ..Requirements::default() };
            assert_eq!(required.check(Traffic::Unidirectional).unwrap_err().kind, ErrorKind::Usage);
        }
    }

    fn latency(size_bytes: u64, t_typical_usec: f64, p99_usec: f64) -> LatencyRow {
        LatencyRow {
            size_bytes,
            iterations: 1000,
            rounds: 3,
            t_min_usec: 0.5,
            t_max_usec: 9.0,
            t_typical_usec,
            t_avg_usec: t_typical_usec,
            t_stdev_usec: 0.1,
            p99_usec,
            p99_9_usec: 8.0,
            p99_99_usec: 8.5,
            spread_percent: None,
            intervals: None,
            partial: false,
            checked_bytes: None,
            wrong_bytes: None,
        }
    }

    fn ceilings(given: &[(Point, f64)]) -> Requirements {
        let mut max_latency = LatencyCeilings::default();
        given.iter().for_each(|&(point, most)| *max_latency.at(point) = Some(most));
        Requirements { max_latency, ..Requirements::default() }
    }

    #[test]
    fn each_size_above_a_ceiling_is_named_with_every_point_that_it_missed() {
        let required = ceilings(&[(Point::P99, 5.0), (Point::P50, 3.0), (Point::Max, 9.0)]);
        let rows = [latency(8, 3.0, 5.000_04), latency(64, 2.5, 5.0), latency(4096, 3.25, 7.0)];
        let rows = rows.map(ResultRow::Latency);
        let error = required.unmet(&rows).unwrap();
        assert_eq!(
            error.what,
            "2 of 3 sizes did not meet what was required: --max-latency p50=3us, --max-latency p99=5us, \
             --max-latency max=9us"
        );
        let facts: Vec<(&str, &str)> =
            error.facts.iter().map(|fact| (fact.label.as_str(), fact.value.as_str())).collect();
        assert_eq!(
            facts,
            [
                ("at 8 B", "p99 5.000040 usec, and at most 5 was required"),
                (
                    "at 4 KiB",
                    "p50 3.250 usec, and at most 3 was required; p99 7.000 usec, and at most 5 was required"
                ),
            ]
        );
        assert_eq!(required.unmet(&rows[1..2]), None, "equal is enough");
        let partial = LatencyRow { partial: true, ..latency(8, 30.0, 50.0) };
        assert_eq!(required.unmet(&[ResultRow::Latency(partial)]), None);
    }

    #[test]
    fn a_bound_is_for_the_runs_that_have_its_figure() {
        let ceiling = ceilings(&[(Point::P99, 5.0)]);
        assert!(ceiling.check(Traffic::PingPong).is_ok());
        let what = ceiling.check(Traffic::Bidirectional).unwrap_err().what;
        assert_eq!(what, "--max-latency is given, and this run measures no such figure");
        let floor = Requirements { min_msg_rate_mpps: Some(1.0), ..Requirements::default() };
        assert!(floor.check(Traffic::Unidirectional).is_ok());
        assert!(floor.check(Traffic::PingPong).is_err());
        assert_eq!(
            ceilings(&[(Point::P99, f64::NAN)]).check(Traffic::PingPong).unwrap_err().kind,
            ErrorKind::Usage
        );
    }
}
