//! Bounds that the result is held to.

use std::str::FromStr;

use clap::Args;

use super::rates;
use crate::error::{Error, ErrorKind, Result as Checked};
use crate::rate::Rate;
use crate::requirement::{LatencyCeilings, Point, Requirements};

/// What every size must reach; one that does not ends the run with exit status 1.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Requirements (client only)")]
pub struct GateArgs {
    /// Least BW average of every size, with its unit: 90Gb/s or 11000MiB/s; below it the exit status is 1
    #[arg(long, value_name = "BW", value_parser = rates::bandwidth)]
    pub min_bw: Option<Rate>,
    /// Least MsgRate of every size, with its unit: 1.5Mpps; below it the exit status is 1
    #[arg(long, value_name = "RATE", value_parser = rates::message_rate)]
    pub min_msgrate: Option<Rate>,
}

impl GateArgs {
    /// What is required.
    pub(super) fn requirements(&self) -> Requirements {
        [self.min_bw, self.min_msgrate].into_iter().flatten().fold(Requirements::default(), with)
    }
}

/// What no size may exceed; one that does ends the run with exit status 1.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Requirements (client only)")]
pub struct LatencyGateArgs {
    /// Longest half round trip of every size at a figure of the table (avg, p50, p99, p99.9, p99.99, max), with its
    /// unit (ns, us, ms): p99=5us, or several; above it the exit status is 1
    #[arg(long, value_name = "POINT=TIME,…", value_delimiter = ',')]
    pub max_latency: Vec<Ceiling>,
}

impl LatencyGateArgs {
    /// What is required.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] where a point is there twice.
    pub fn requirements(&self) -> Checked<Requirements> {
        let mut max_latency = LatencyCeilings::default();
        for &Ceiling { point, most_usec } in &self.max_latency {
            if max_latency.at(point).replace(most_usec).is_some() {
                let what = format!("--max-latency has {} twice", point.name());
                return Err(Error::new(ErrorKind::Usage, what));
            }
        }
        Ok(Requirements { max_latency, ..Requirements::default() })
    }
}

/// One `POINT=TIME`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling {
    point: Point,
    most_usec: f64,
}

impl FromStr for Ceiling {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (point, time) =
            text.split_once('=').ok_or("a figure and its ceiling, for instance p99=5us".to_owned())?;
        Ok(Self { point: point.parse()?, most_usec: parse_usec(time)? })
    }
}

/// Microseconds. Scaled in decimal: 0.3 ms are 300 us, not a hair more.
fn parse_usec(text: &str) -> Result<f64, String> {
    const UNITS: &str = "ns, us or ms, for instance 5us";
    let (_, unit) = rates::split(text, UNITS)?;
    let exponent = match unit {
        "ns" => "e-3",
        "us" | "usec" => "",
        "ms" => "e3",
        _ => return Err(format!("\"{unit}\" is no unit of time; give a number with {UNITS}")),
    };
    let number = &text[..text.len() - unit.len()];
    format!("{number}{exponent}").parse().map_err(|_| format!("a number above 0 with its unit, {UNITS}"))
}

fn with(required: Requirements, floor: Rate) -> Requirements {
    match floor {
        Rate::Gbit(gbit) => Requirements { min_bw_gbit_per_sec: Some(gbit), ..required },
        Rate::Mib(mib) => Requirements { min_bw_mib_per_sec: Some(mib), ..required },
        Rate::Mpps(mpps) => Requirements { min_msg_rate_mpps: Some(mpps), ..required },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_floor_is_required_in_its_own_unit() {
        assert!(GateArgs::default().requirements().is_empty());
        let args = GateArgs { min_bw: Some(Rate::Mib(0.5)), min_msgrate: Some(Rate::Mpps(1.5)) };
        let wanted = Requirements {
            min_bw_mib_per_sec: Some(0.5),
            min_msg_rate_mpps: Some(1.5),
            ..Requirements::default()
        };
        assert_eq!(args.requirements(), wanted);
    }

    fn required(texts: &[&str]) -> Checked<Requirements> {
        let ceilings = texts.iter().map(|text| text.parse().unwrap()).collect();
        LatencyGateArgs { max_latency: ceilings }.requirements()
    }

    #[test]
    fn ceilings_have_a_point_and_a_time_with_its_unit() {
        let wanted = LatencyCeilings {
            t_avg_usec: Some(4.1),
            t_typical_usec: Some(0.7),
            p99_9_usec: Some(300.0),
            t_max_usec: Some(1005.0),
            ..LatencyCeilings::default()
        };
        let given = ["p50=700ns", "avg=4.1us", "p99.9=0.3ms", "max=1.005ms"];
        assert_eq!(required(&given).unwrap().max_latency, wanted);
        assert_eq!(required(&["typical=5usec"]).unwrap().max_latency.t_typical_usec, Some(5.0));
        assert!(required(&[]).unwrap().is_empty());
    }

    #[test]
    fn a_point_has_one_ceiling() {
        let error = required(&["p50=3us", "p99=5us", "typical=4us"]).unwrap_err();
        assert_eq!((error.kind, error.what.as_str()), (ErrorKind::Usage, "--max-latency has p50 twice"));
    }

    #[test]
    fn what_is_no_ceiling_is_refused_with_what_would_be() {
        let refusal = |text: &str| text.parse::<Ceiling>().unwrap_err();
        for text in ["p99", "", "5us"] {
            assert!(refusal(text).contains("p99=5us"), "{text}");
        }
        for text in [
            "p99=5",
            "p99=5s",
            "p99=us",
            "p99=0us",
            "p99=-1us",
            "p99=5 us",
            "p99=",
            "p99=1.2.3us",
            "p99=5us=",
        ] {
            assert!(refusal(text).contains("ns, us or ms"), "{text}: {}", refusal(text));
        }
        assert!(refusal("p95=5us").contains("\"p95\" is no figure of the table"));
    }
}
