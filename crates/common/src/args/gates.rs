//! Floors that the result is held to.

use clap::Args;

use crate::requirement::Requirements;

/// What every size must reach; one that does not ends the run with exit status 1.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Requirements (client only)")]
pub struct GateArgs {
    /// Least BW average of every size, with its unit: 90Gb/s or 11000MiB/s; below it the exit status is 1
    #[arg(long, value_name = "BW", value_parser = parse_bandwidth)]
    pub min_bw: Option<Requirements>,
    /// Least MsgRate of every size, with its unit: 1.5Mpps; below it the exit status is 1
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub min_msgrate: Option<f64>,
}

impl GateArgs {
    /// What is required.
    pub(super) fn requirements(&self) -> Requirements {
        Requirements { min_msg_rate_mpps: self.min_msgrate, ..self.min_bw.unwrap_or_default() }
    }
}

/// The unit is part of the number: a floor without one would mean another thing with --report-gbits than without.
fn parse_bandwidth(text: &str) -> Result<Requirements, String> {
    let (number, unit) = split(text, "Gb/s or MiB/s, for instance 90Gb/s")?;
    match unit {
        "Gb/s" | "Gb/sec" | "Gb" => {
            Ok(Requirements { min_bw_gbit_per_sec: Some(number), ..Requirements::default() })
        }
        "MiB/s" | "MiB/sec" | "MiB" => {
            Ok(Requirements { min_bw_mib_per_sec: Some(number), ..Requirements::default() })
        }
        _ => Err(format!(
            "\"{unit}\" is no unit of bandwidth; give a number with Gb/s or MiB/s, for instance 90Gb/s"
        )),
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let (number, unit) = split(text, "Mpps, for instance 1.5Mpps")?;
    match unit {
        "Mpps" => Ok(number),
        _ => Err(format!(
            "\"{unit}\" is no unit of message rate; give a number with Mpps, for instance 1.5Mpps"
        )),
    }
}

fn split<'a>(text: &'a str, units: &str) -> Result<(f64, &'a str), String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    match number.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok((number, unit)),
        _ => Err(format!("a number above 0 with its unit, {units}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bandwidth_has_its_unit() {
        for text in ["90Gb/s", "90.0Gb/sec", "90Gb"] {
            assert_eq!(parse_bandwidth(text).unwrap().min_bw_gbit_per_sec, Some(90.0), "{text}");
        }
        assert_eq!(parse_bandwidth("0.5MiB/s").unwrap().min_bw_mib_per_sec, Some(0.5));
        assert_eq!(parse_rate("1.5Mpps"), Ok(1.5));
    }

    #[test]
    fn anything_else_is_refused_with_the_units() {
        for text in ["90", "90G", "90GB/s", "90MB/s", "90 Gb/s", "Gb/s", "0Gb/s", "-1Gb/s", "1.2.3Gb/s", ""] {
            assert!(parse_bandwidth(text).unwrap_err().contains("Gb/s or MiB/s"), "{text}");
        }
        for text in ["1.5", "1.5M", "Mpps", "0Mpps", "1e9Mpps"] {
            assert!(parse_rate(text).unwrap_err().contains("1.5Mpps"), "{text}");
        }
    }
}
