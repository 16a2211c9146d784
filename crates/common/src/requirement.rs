//! What the user requires of every size: floors that the result is held to (`--min-bw`, `--min-msgrate`).

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::report::{BandwidthRow, ResultRow};
use crate::units::ByteSize;

/// Floors for what the table shows. Each is in the unit in which it was given, so that the message has the user's
/// own number.
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
}

/// One floor, and how a row stands to it.
struct Floor {
    option: &'static str,
    least: f64,
    unit: &'static str,
    figure: fn(&BandwidthRow) -> f64,
}

impl Requirements {
    fn floors(&self) -> impl Iterator<Item = Floor> {
        let floor = |option, least: Option<f64>, unit, figure: fn(&BandwidthRow) -> f64| {
            least.map(|least| Floor { option, least, unit, figure })
        };
        [
            floor("--min-bw", self.min_bw_gbit_per_sec, "Gb/s", |row| row.bw_average_gbit_per_sec),
            floor("--min-bw", self.min_bw_mib_per_sec, "MiB/s", |row| row.bw_average_mib_per_sec),
            floor("--min-msgrate", self.min_msg_rate_mpps, "Mpps", |row| row.msg_rate_mpps),
        ]
        .into_iter()
        .flatten()
    }

    /// Whether nothing is required.
    pub fn is_empty(&self) -> bool {
        self.floors().next().is_none()
    }

    /// Whether each floor is one that a row can be above or below.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`], naming the option.
    pub fn check(&self) -> Result<()> {
        match self.floors().find(|floor| !(floor.least > 0.0 && floor.least.is_finite())) {
            None => Ok(()),
            Some(Floor { option, least, unit, .. }) => Err(Error::new(
                ErrorKind::Usage,
                format!("{option} is {least} {unit}; it must be more than 0"),
            )),
        }
    }

    /// The failure that `rows` below a floor are. A row that stands on a round cut short is not held to it.
    pub fn unmet(&self, rows: &[ResultRow]) -> Option<Error> {
        let below = |row: &BandwidthRow| {
            let floors = self.floors().filter(|floor| (floor.figure)(row) < floor.least);
            floors.map(|floor| floor.missed(row)).collect::<Vec<_>>()
        };
        let whole: Vec<&BandwidthRow> =
            rows.iter().filter_map(ResultRow::bandwidth).filter(|row| !row.partial).collect();
        let missed: Vec<(u64, Vec<String>)> = whole
            .iter()
            .map(|row| (row.size_bytes, below(row)))
            .filter(|(_, missed)| !missed.is_empty())
            .collect();
        if missed.is_empty() {
            return None;
        }
        let required: Vec<String> = self.floors().map(|floor| floor.describe()).collect();
        let what = format!(
            "{} of {} sizes did not reach what was required: {}",
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

impl Floor {
    fn describe(&self) -> String {
        format!("{} {}{}", self.option, self.least, self.unit)
    }

    fn missed(&self, row: &BandwidthRow) -> String {
        let figure = (self.figure)(row);
        // As many decimals as it takes to see that it is less.
        let shown = [2, 4, 6].map(|decimals| format!("{figure:.decimals$}"));
        let less = |text: &&String| text.parse::<f64>().is_ok_and(|value| value < self.least);
        let figure = shown.iter().find(less).cloned().unwrap_or_else(|| figure.to_string());
        format!("{figure} {}, and {} was required", self.unit, self.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(error.what, "2 of 3 sizes did not reach what was required: --min-bw 90Gb/s");
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
            assert_eq!(required.check().unwrap_err().kind, ErrorKind::Usage);
        }
    }
}
