//! Rates on the command line. The unit is part of the number: one without it would mean another thing with
//! --report-gbits than without.

use crate::rate::Rate;

/// `90Gb/s` or `11000MiB/s`.
pub(super) fn bandwidth(text: &str) -> Result<Rate, String> {
    parsed(text, "bandwidth", "Gb/s or MiB/s, for instance 90Gb/s", bandwidth_unit)
}

/// `1.5Mpps`.
pub(super) fn message_rate(text: &str) -> Result<Rate, String> {
    parsed(text, "message rate", "Mpps, for instance 1.5Mpps", message_unit)
}

/// Any of them.
pub(super) fn rate(text: &str) -> Result<Rate, String> {
    let unit = |unit: &str| bandwidth_unit(unit).or_else(|| message_unit(unit));
    parsed(text, "rate", "Gb/s, MiB/s or Mpps, for instance 10Gb/s", unit)
}

type Unit = fn(f64) -> Rate;

fn bandwidth_unit(unit: &str) -> Option<Unit> {
    match unit {
        "Gb/s" | "Gb/sec" | "Gb" => Some(Rate::Gbit),
        "MiB/s" | "MiB/sec" | "MiB" => Some(Rate::Mib),
        _ => None,
    }
}

fn message_unit(unit: &str) -> Option<Unit> {
    (unit == "Mpps").then_some(Rate::Mpps)
}

fn parsed(text: &str, of: &str, units: &str, unit_of: impl Fn(&str) -> Option<Unit>) -> Result<Rate, String> {
    let (number, unit) = split(text, units)?;
    let rate =
        unit_of(unit).ok_or_else(|| format!("\"{unit}\" is no unit of {of}; give a number with {units}"))?;
    Ok(rate(number))
}

/// A number above 0, and what stands behind it.
pub(super) fn split<'a>(text: &'a str, units: &str) -> Result<(f64, &'a str), String> {
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
    fn a_rate_has_its_unit() {
        for text in ["90Gb/s", "90.0Gb/sec", "90Gb"] {
            assert_eq!(bandwidth(text), Ok(Rate::Gbit(90.0)), "{text}");
            assert_eq!(rate(text), Ok(Rate::Gbit(90.0)), "{text}");
        }
        assert_eq!(bandwidth("0.5MiB/s"), Ok(Rate::Mib(0.5)));
        assert_eq!(message_rate("1.5Mpps"), Ok(Rate::Mpps(1.5)));
        assert_eq!(rate("1.5Mpps"), Ok(Rate::Mpps(1.5)));
    }

    #[test]
    fn anything_else_is_refused_with_the_units() {
        for text in ["90", "90G", "90GB/s", "90MB/s", "90 Gb/s", "Gb/s", "0Gb/s", "-1Gb/s", "1.2.3Gb/s", ""] {
            assert!(bandwidth(text).unwrap_err().contains("Gb/s or MiB/s"), "{text}");
            assert!(rate(text).unwrap_err().contains("Gb/s, MiB/s or Mpps"), "{text}");
        }
        for text in ["1.5", "1.5M", "Mpps", "0Mpps", "1e9Mpps"] {
            assert!(message_rate(text).unwrap_err().contains("1.5Mpps"), "{text}");
        }
        assert!(bandwidth("1.5Mpps").is_err() && message_rate("1Gb/s").is_err());
    }
}
