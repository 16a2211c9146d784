//! Numbers with a unit behind them.

use std::time::Duration;

/// A whole number of bytes or things, with K, M or G for powers of 1024.
pub(super) fn count(text: &str) -> Option<u64> {
    let shift = match text.chars().last()? {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// A rate in Gb/s: `100G`.
pub(super) fn rate_gbit(text: &str) -> Option<u32> {
    text.strip_suffix('G')?.parse().ok().filter(|&rate| rate > 0)
}

/// A time: a whole number with ns, us, ms or s behind it.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let nanoseconds: u64 = match &text[digits.len()..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(nanoseconds).map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024_and_nothing_else_follows() {
        assert_eq!(count("7"), Some(7));
        assert_eq!(count("4K"), Some(4096));
        assert_eq!(count("2G"), Some(2 << 30));
        for bad in ["", "K", "4k", "4KB", "-1", "+1", "1.5K", "99999999999999999999", "17179869184G"] {
            assert_eq!(count(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_have_a_unit() {
        assert_eq!(duration("250ns"), Some(Duration::from_nanos(250)));
        assert_eq!(duration("2us"), Some(Duration::from_micros(2)));
        assert_eq!(duration("3s"), Some(Duration::from_secs(3)));
        for bad in ["2", "us", "2 us", "2m", "1.5s", "-1s", "99999999999999999999s"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn rates_are_in_gigabits() {
        assert_eq!(rate_gbit("400G"), Some(400));
        for bad in ["400", "0G", "G", "1.5G", "400g"] {
            assert_eq!(rate_gbit(bad), None, "{bad}");
        }
    }
}
