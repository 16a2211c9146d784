//! Time against size: a latency α and a bandwidth B.
//!
//! T = s·α + f·S/B, with s steps one after the other and the share f of the size that each rank's link carries: 1 and 1
//! between two hosts, 2(n−1) and 2(n−1)/n for an all-reduce in a ring of n ranks (α–β model; nccl-tests' busbw factors).
//! Relative errors are squared, so that a point of 8 bytes counts like one of 8 MiB.

use std::collections::BTreeMap;

use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::units::{Bandwidth, ByteSize};
use serde::Serialize;

use crate::args::FitArgs;
use crate::arm::{Arm, median};
use crate::done::Done;
use crate::recording::{Figure, Key};
use crate::show::grid::grid;
use crate::words::{self, number, percent};

/// The shape of the document.
pub const SCHEMA: &str = "linkproof/fit.v1";

/// A point that the model misses by more is marked. Taste: three times what rounds of a quiet link scatter.
const MISSED: f64 = 0.10;

/// How often α and how much of S/B is in a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    steps: f64,
    share: f64,
}

impl Model {
    /// Of what the points are of (the first word is the collective; empty for links), over `n_ranks`. `None` where
    /// there is no model, or the number of ranks is not known.
    pub fn of(what: &str, n_ranks: Option<f64>) -> Option<Self> {
        let ring = |times: f64| {
            let n = n_ranks.filter(|&n| n >= 2.0)?;
            Some(Self { steps: times * (n - 1.0), share: times * (n - 1.0) / n })
        };
        match what.split_whitespace().next() {
            None | Some("sendrecv" | "PingPong") => Some(Self { steps: 1.0, share: 1.0 }),
            Some("all_reduce") => ring(2.0),
            Some("all_gather" | "reduce_scatter" | "alltoall") => ring(1.0),
            Some(_) => None,
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// α, in seconds.
    pub latency: f64,
    /// B.
    pub bandwidth: Bandwidth,
    /// Of each point the relative error of the model's time.
    pub residuals: Vec<f64>,
}

impl Fit {
    /// Through `points`, sizes in bytes and times in seconds; `None` below two sizes, and where time does not grow with
    /// size. A latency below zero is no latency: then the line goes through the origin.
    pub fn through(points: &[(f64, f64)], model: Model) -> Option<Self> {
        let terms = points.iter().map(|(size, time)| (model.steps / time, model.share * size / time));
        let (mut xx, mut xy, mut yy, mut x, mut y) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (of_latency, of_size) in terms {
            xx += of_latency * of_latency;
            xy += of_latency * of_size;
            yy += of_size * of_size;
            x += of_latency;
            y += of_size;
        }
        let determinant = xx * yy - xy * xy;
        if points.len() < 2 || determinant <= f64::EPSILON * xx * yy {
            return None;
        }
        let (mut latency, mut per_byte) = ((x * yy - y * xy) / determinant, (y * xx - x * xy) / determinant);
        if latency < 0.0 {
            (latency, per_byte) = (0.0, y / yy);
        }
        let time = |size: f64| model.steps * latency + model.share * size * per_byte;
        (per_byte > 0.0).then(|| Self {
            latency,
            bandwidth: Bandwidth::from_bytes_per_sec(1.0 / per_byte),
            residuals: points.iter().map(|(size, measured)| time(*size) / measured - 1.0).collect(),
        })
    }
}

/// Seconds that a message or call of `key` takes, from its figure.
fn seconds(key: &Key, value: f64) -> Option<f64> {
    let size = key.size_bytes as f64;
    match key.figure {
        Figure::Bandwidth => Some(size * 8.0 / (value * 1e9)),
        Figure::AlgBandwidth => Some(size / (value * 1e9)),
        Figure::Typical | Figure::Mean => Some(value / 1e6),
        Figure::P99 => None,
    }
}

/// What came of all operations.
#[derive(Serialize)]
pub struct Fitted {
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    line_rate_gbit_per_sec: Option<f64>,
    fits: Vec<FitOut>,
}

#[derive(Serialize)]
struct FitOut {
    #[serde(skip_serializing_if = "String::is_empty")]
    what: String,
    latency_usec: f64,
    bandwidth_gbit_per_sec: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    line_rate_percent: Option<f64>,
    points: Vec<PointOut>,
}

#[derive(Serialize)]
struct PointOut {
    size_bytes: u64,
    measured_usec: f64,
    model_usec: f64,
    off_percent: f64,
    missed: bool,
}

/// Fits what the results of `args` have, and says where the model fails. What does not reach the gate is a failure.
///
/// # Errors
/// [`ErrorKind::Usage`] where nothing can be fitted.
pub fn fit(args: &FitArgs) -> Result<Done<Fitted>> {
    let arm = Arm::from_word(&args.results)?;
    let n_ranks = arm.runs[0].conditions.get("plan.n_ranks").and_then(|n| n.parse().ok());
    let mut groups: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for key in arm.keys() {
        let value = arm.rounds(&key).map(|rounds| median(&rounds));
        if let Some(time) = value.and_then(|value| seconds(&key, value)) {
            groups.entry(key.what.clone()).or_default().push((key.size_bytes as f64, time));
        }
    }
    let fitted = |(what, points): (&String, &Vec<(f64, f64)>)| {
        let fit = Fit::through(points, Model::of(what, n_ranks)?)?;
        Some((what.clone(), points.clone(), fit))
    };
    let fits: Vec<_> = groups.iter().filter_map(fitted).collect();
    if fits.is_empty() {
        return Err(Error::new(ErrorKind::Usage, "nothing can be fitted")
            .fact("needed", "two sizes or more whose time grows, of a link or of all_reduce, all_gather, reduce_scatter, alltoall, sendrecv"));
    }
    let text = fits.iter().map(|(what, points, fit)| describe(what, points, fit, args.line_rate)).collect();
    let failures = fits.iter().filter_map(|(what, _, fit)| unmet(what, fit, args)).collect();
    let body = Fitted {
        source: words::printable(&args.results),
        line_rate_gbit_per_sec: args.line_rate,
        fits: fits.iter().map(|(what, points, fit)| fit_out(what, points, fit, args.line_rate)).collect(),
    };
    Ok(Done { text, body, failures })
}

fn fit_out(what: &str, points: &[(f64, f64)], fit: &Fit, line_rate: Option<f64>) -> FitOut {
    let gbit = fit.bandwidth.gbit_per_sec();
    let point = |((size, time), off): (&(f64, f64), &f64)| PointOut {
        size_bytes: *size as u64,
        measured_usec: time * 1e6,
        model_usec: time * (1.0 + off) * 1e6,
        off_percent: off * 100.0,
        missed: off.abs() > MISSED,
    };
    FitOut {
        what: what.to_owned(),
        latency_usec: fit.latency * 1e6,
        bandwidth_gbit_per_sec: gbit,
        line_rate_percent: line_rate.map(|line| gbit / line * 100.0),
        points: points.iter().zip(&fit.residuals).map(point).collect(),
    }
}

fn describe(what: &str, points: &[(f64, f64)], fit: &Fit, line_rate: Option<f64>) -> String {
    let gbit = fit.bandwidth.gbit_per_sec();
    let share =
        line_rate.map_or(String::new(), |line| format!(", {} of the line rate", percent(gbit / line)));
    let of = if what.is_empty() { "between the two ends" } else { what };
    let mut text = format!(
        " {of}\n Latency      : {} µs\n Bandwidth    : {} Gb/s ({} GB/s){share}\n",
        number(fit.latency * 1e6),
        number(gbit),
        number(gbit / 8.0)
    );
    let header = ["size", "measured[µs]", "model[µs]", "off[%]", ""].map(str::to_owned);
    let row = |((size, time), off): (&(f64, f64), &f64)| {
        let mark = if off.abs() > MISSED { "the model fails here" } else { "" };
        let model = number(time * (1.0 + off) * 1e6);
        let off = format!("{:+.1}", off * 100.0);
        vec![ByteSize(*size as u64).to_string(), number(time * 1e6), model, off, mark.to_owned()]
    };
    let rows: Vec<Vec<String>> = points.iter().zip(&fit.residuals).map(row).collect();
    text.push_str(&grid(&header, &rows, 4));
    text
}

/// The gate: the fitted bandwidth against a share of the line rate.
fn unmet(what: &str, fit: &Fit, args: &FitArgs) -> Option<Error> {
    let (line, required) = args.line_rate.zip(args.require)?;
    let share = fit.bandwidth.gbit_per_sec() / line;
    (share < required).then(|| {
        let what =
            if what.is_empty() { "the bandwidth".to_owned() } else { format!("the bandwidth of {what}") };
        Error::new(ErrorKind::RequirementNotMet, format!("{what} is {} of the line rate", percent(share)))
            .fact("required", format!("{} of {} Gb/s", percent(required), number(line)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Model = Model { steps: 1.0, share: 1.0 };

    fn points(latency: f64, per_byte: f64, model: Model) -> Vec<(f64, f64)> {
        let time = |size: f64| model.steps * latency + model.share * size * per_byte;
        [8.0, 4096.0, 1e6, 1e8].map(|size| (size, time(size))).to_vec()
    }

    #[test]
    fn what_was_put_in_comes_out() {
        let eight_ranks = Model::of("all_reduce float sum", Some(8.0)).unwrap();
        // 2 × 7 steps, and 2 × 7/8 of the size.
        assert_eq!(eight_ranks, Model { steps: 14.0, share: 1.75 });
        for model in [LINK, eight_ranks, Model::of("alltoall float", Some(4.0)).unwrap()] {
            let fit = Fit::through(&points(2e-6, 1.0 / 12.5e9, model), model).unwrap();
            assert!((fit.latency - 2e-6).abs() < 1e-12, "{fit:?}");
            assert!((fit.bandwidth.gbit_per_sec() - 100.0).abs() < 1e-6);
            assert!(fit.residuals.iter().all(|off| off.abs() < 1e-9));
        }
    }

    #[test]
    fn a_point_that_is_off_shows_in_its_residual() {
        let mut points = points(2e-6, 1.0 / 12.5e9, LINK);
        points[2].1 *= 1.5;
        let fit = Fit::through(&points, LINK).unwrap();
        let worst = fit.residuals.iter().map(|off| off.abs()).fold(0.0, f64::max);
        assert_eq!(fit.residuals[2].abs(), worst);
        assert!(worst > MISSED);
    }

    #[test]
    fn what_has_no_line_has_no_fit() {
        assert_eq!(Fit::through(&[(8.0, 1e-6)], LINK), None);
        assert_eq!(Fit::through(&[(8.0, 1e-6), (8.0, 1e-6)], LINK), None);
        assert_eq!(Fit::through(&[(8.0, 1e-3), (1e6, 1e-6)], LINK), None);
        // Growing faster than its size: a line through the origin.
        assert_eq!(Fit::through(&[(8.0, 1e-9), (1e6, 1e-3)], LINK).map(|fit| fit.latency), Some(0.0));
        assert_eq!(Model::of("broadcast float", Some(8.0)), None);
        assert_eq!(Model::of("all_reduce float", None), None);
        assert_eq!(Model::of("all_reduce float", Some(1.0)), None);
    }
}
