//! What a run reveals of the options of a perftest at the other end, which does not tell them.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::perftest::Report;
use crate::plan::Plan;
use crate::session::Session;

/// How much of its time this end has to have measured when a perftest leaves by its own clock, which runs ahead by what this
/// end takes to begin, and was told the same time. perftest's own figures stand for half of that, unless it is short.
const LEAST_SHARE: f64 = 0.75;

/// Whether a perftest has stopped where this end did. One that goes by time sends another message before it leaves, and its own
/// figures are of a wait.
pub(super) fn check_last_message(session: &Session) -> Result<()> {
    let plan = session.plan();
    let Some(messages) = plan.round_iterations() else { return Ok(()) };
    if session.last_mark(plan.slots(plan.largest()))? == messages as u8 {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::PerftestPeer,
        format!("perftest went on after the {messages} messages of this end: it measures by time"),
    )
    .hint("give the same -n, or -D, on both ends"))
}

/// Whether a perftest that ends by its own clock has measured for about as long as this end.
pub(super) fn check_length(measured: Duration, plan: &Plan) -> Result<()> {
    let Some(wanted) = plan.round_duration() else { return Ok(()) };
    if measured >= wanted.mul_f64(LEAST_SHARE) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::PerftestPeer,
        format!(
            "perftest has left {:.2} s after its first message, and this end would measure for {:.2} s",
            measured.as_secs_f64(),
            wanted.as_secs_f64()
        ),
    )
    .hint("give the same -D on both ends; where they are the same, see why it left in its own output"))
}

/// What a report reveals of the other end's options.
pub(super) fn check_report(ours: &Report, theirs: &Report, plan: &Plan) -> Result<()> {
    let differs = |what: &str, ours: u64, theirs: u64, option: &str| {
        Err(Error::new(
            ErrorKind::PerftestPeer,
            format!(
                "perftest has written {theirs} {what} and this end {ours}: the sum would be of two tests"
            ),
        )
        .hint(format!("give the same {option} on both ends")))
    };
    // A perftest that has not written reports whatever stood in its memory.
    if theirs.rates().is_none() || theirs.is_in_gbits().is_none() {
        return Err(Error::new(
            ErrorKind::PerftestPeer,
            "perftest reports a bandwidth that is not its size times its message rate: it has not measured",
        )
        .hint("give -b on both ends or on neither"));
    }
    if theirs.size != ours.size {
        return differs("bytes in each message", ours.size, theirs.size, "--size");
    }
    match plan.round_iterations().map(|iters| iters * u64::from(plan.qps)) {
        Some(messages) if messages != theirs.iterations => {
            differs("messages", messages, theirs.iterations, "--iters and --qp")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::RoundLength;
    use crate::plan::tests::plan;
    use crate::units::ByteSize;

    /// 10⁵ messages a second, in MiB/s.
    fn of(size: u64, iterations: u64) -> Report {
        let average = 1e5 * size as f64 / ByteSize::MIB as f64;
        Report { size, iterations, peak: 0.0, average, message_rate: 0.1 }
    }

    #[test]
    fn a_perftest_that_left_early_had_another_time() {
        let plan = Plan { round_length: RoundLength::Seconds(2.0), ..plan() };
        let after = |millis| check_length(Duration::from_millis(millis), &plan);
        assert!(after(2000).is_ok() && after(1600).is_ok());
        let error = after(1010).unwrap_err();
        assert_eq!(error.kind, ErrorKind::PerftestPeer);
        assert!(error.what.contains("1.01 s") && error.what.contains("2.00 s"), "{}", error.what);
    }

    #[test]
    fn another_size_or_count_is_another_test() {
        let plan = Plan { qps: 2, round_length: RoundLength::Iterations(50), ..plan() };
        let ours = of(65536, 100);
        let none = check_report(&ours, &Report::default(), &plan).unwrap_err();
        assert!(none.hint.unwrap().contains("-b"));
        assert!(check_report(&ours, &ours, &plan).is_ok());
        let size = check_report(&ours, &of(8, 100), &plan).unwrap_err();
        assert!(size.what.contains("8 bytes") && size.hint.unwrap().contains("--size"));
        let count = check_report(&ours, &of(65536, 50), &plan).unwrap_err();
        assert!(count.what.contains("50 messages"));
        let by_time = Plan { round_length: RoundLength::Seconds(1.0), ..plan };
        assert!(check_report(&ours, &of(65536, 50), &by_time).is_ok());
    }
}
