//! What the user may tell a queue pair, with the defaults and the ranges.

use serde::{Deserialize, Serialize};

/// The time after which an unacknowledged packet is sent again: 4.096 µs × 2¹⁸ = 1.07 s. perftest's 14 (67 ms) gives
/// up on a peer that is merely slow: Soft-RoCE on a busy host retransmitted needlessly, and then failed, with it
/// (2026-11-29, two emulated VMs, 4 queue pairs). Losses on a live path are mended sooner, by the peer's NAK.
pub const DEFAULT_ACK_TIMEOUT: u8 = 18;
/// How often it is sent again before the write fails. Not 7, the field's largest value, which Soft-RoCE takes for
/// "for ever" (as the specification has it for RNR only): a dead path would then never be told.
pub const DEFAULT_RETRY_COUNT: u8 = 6;
/// The largest exponent of the acknowledgement timeout, a field of five bits (2.4 h). 0 would be "for ever".
pub const MAX_ACK_TIMEOUT: u8 = 31;
/// The largest retry count, a field of three bits.
pub const MAX_RETRY_COUNT: u8 = 7;
/// The largest service level, a field of four bits.
pub const MAX_SERVICE_LEVEL: u8 = 15;
/// Inline data that can be asked for: more than any adapter takes (mlx5 about 1000 bytes, Soft-RoCE about 500).
pub const MAX_INLINE_BYTES: u32 = 4096;

/// What a queue pair is told at its creation and on its way to RTS, beyond where its peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpAttributes {
    /// Writes of up to so many bytes are copied into the work request, and the adapter need not fetch them.
    pub inline_bytes: u32,
    /// Whether a device that takes less than that is refused; otherwise each end has as much as its device takes.
    pub inline_fixed: bool,
    /// The service level; on RoCE the driver makes a VLAN priority of it.
    pub service_level: u8,
    /// The traffic class in the global route header; on RoCE v2 the DSCP and ECN bits of the IP header.
    pub traffic_class: u8,
    /// A packet that is not acknowledged within 4.096 µs × 2ⁿ is sent again.
    pub ack_timeout: u8,
    /// How often it is sent again before the write fails.
    pub retry_count: u8,
}

impl Default for QpAttributes {
    fn default() -> Self {
        Self {
            inline_bytes: 0,
            inline_fixed: false,
            service_level: 0,
            traffic_class: 0,
            ack_timeout: DEFAULT_ACK_TIMEOUT,
            retry_count: DEFAULT_RETRY_COUNT,
        }
    }
}

impl QpAttributes {
    /// What differs from the default, in words; `None` where nothing does. Inline data is each end's own matter.
    pub fn describe(&self) -> Option<String> {
        let default = Self::default();
        let mut words = Vec::new();
        if self.service_level != default.service_level {
            words.push(format!("service level {}", self.service_level));
        }
        if self.traffic_class != default.traffic_class {
            words.push(format!("traffic class {} (DSCP {})", self.traffic_class, self.traffic_class >> 2));
        }
        if self.ack_timeout != default.ack_timeout {
            let seconds = 4.096e-6 * f64::from(1_u32 << self.ack_timeout.min(MAX_ACK_TIMEOUT));
            words.push(format!("acknowledgement timeout {} ({seconds:.3} s)", self.ack_timeout));
        }
        if self.retry_count != default.retry_count {
            words.push(format!("{} retries", self.retry_count));
        }
        (!words.is_empty()).then(|| words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_attributes_that_differ_from_the_default_are_described() {
        assert_eq!(QpAttributes::default().describe(), None);
        let attributes = QpAttributes { traffic_class: 106, ack_timeout: 14, ..QpAttributes::default() };
        assert_eq!(
            attributes.describe().unwrap(),
            "traffic class 106 (DSCP 26), acknowledgement timeout 14 (0.067 s)"
        );
        let more = QpAttributes { service_level: 3, retry_count: 2, ..QpAttributes::default() };
        assert_eq!(more.describe().unwrap(), "service level 3, 2 retries");
    }
}
