//! The report of a bandwidth test: five numbers, of which each is exchanged by itself.

use crate::units::ByteSize;

/// Bytes of each of the five.
pub const FIELD_LEN: usize = 8;
/// How many there are.
const FIELDS: usize = 5;
/// By how much a bandwidth may differ from what the message rate says, to be in that unit. The two units differ by 119.
const SAME: f64 = 0.05;

/// What an end reports of its writes. The bandwidths are in the unit that its user asked for, which it does not name.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Bytes of a message.
    pub size: u64,
    /// Messages, of all queue pairs.
    pub iterations: u64,
    /// The highest bandwidth.
    pub peak: f64,
    /// The average bandwidth.
    pub average: f64,
    /// 10⁶ messages a second.
    pub message_rate: f64,
}

impl Report {
    /// The five, in order.
    pub fn encode(&self) -> [[u8; FIELD_LEN]; FIELDS] {
        [
            self.size.to_be_bytes(),
            self.iterations.to_be_bytes(),
            self.peak.to_be_bytes(),
            self.average.to_be_bytes(),
            self.message_rate.to_be_bytes(),
        ]
    }

    /// The report in the five.
    pub fn decode(fields: [[u8; FIELD_LEN]; FIELDS]) -> Self {
        let [size, iterations, peak, average, message_rate] = fields;
        Self {
            size: u64::from_be_bytes(size),
            iterations: u64::from_be_bytes(iterations),
            peak: f64::from_be_bytes(peak),
            average: f64::from_be_bytes(average),
            message_rate: f64::from_be_bytes(message_rate),
        }
    }

    /// Messages a second and, where it reports one, the highest rate of them; `None` where the numbers are none.
    pub fn rates(&self) -> Option<(f64, Option<f64>)> {
        let per_sec = self.message_rate * 1e6;
        if !(per_sec.is_finite() && per_sec > 0.0) || self.size == 0 || self.iterations == 0 {
            return None;
        }
        // The peak has the average's unit, whichever it is.
        let peak = per_sec * self.peak / self.average;
        Some((per_sec, (peak.is_finite() && peak >= per_sec).then_some(peak)))
    }

    /// Whether the bandwidths are in Gb/s, by what the message rate says; `None` where it says neither that nor MiB/s.
    pub fn is_in_gbits(&self) -> Option<bool> {
        let bytes_per_sec = self.message_rate * 1e6 * self.size as f64;
        let is = |unit: f64| (self.average * unit / bytes_per_sec - 1.0).abs() < SAME;
        match (is(ByteSize::MIB as f64), is(1e9 / 8.0)) {
            (true, _) => Some(false),
            (_, true) => Some(true),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REPORT: Report =
        Report { size: 65536, iterations: 5000, peak: 1100.0, average: 1000.0, message_rate: 0.016 };

    #[test]
    fn numbers_go_big_endian() {
        let fields = REPORT.encode();
        assert_eq!(fields[0], [0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(fields[3], 1000_f64.to_be_bytes());
    }

    #[test]
    fn the_unit_is_known_by_the_message_rate() {
        assert_eq!(REPORT.is_in_gbits(), Some(false));
        let gbits = Report { average: 16000.0 * 65536.0 * 8.0 / 1e9, ..REPORT };
        assert_eq!(gbits.is_in_gbits(), Some(true));
        assert_eq!(Report { average: 1.0, ..REPORT }.is_in_gbits(), None);
    }

    #[test]
    fn rates_are_numbers_or_nothing() {
        assert_eq!(REPORT.rates(), Some((16000.0, Some(17600.0))));
        assert_eq!(Report { peak: 0.0, ..REPORT }.rates(), Some((16000.0, None)));
        for message_rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Report { message_rate, ..REPORT }.rates(), None);
        }
        assert_eq!(Report::default().rates(), None);
    }

    proptest! {
        #[test]
        fn a_report_survives_the_wire(fields in any::<[[u8; FIELD_LEN]; FIELDS]>()) {
            let report = Report::decode(fields);
            prop_assert_eq!(report.encode(), fields);
            let _ = (report.rates(), report.is_in_gbits());
        }
    }
}
