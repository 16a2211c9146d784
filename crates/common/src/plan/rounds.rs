//! The limits of what ends a round, and of the intervals that it is cut into.

use super::checks::{usage, within};
use super::{MAX_INTERVAL_SECONDS, MAX_SECONDS, MIN_INTERVAL_SECONDS, Plan, RoundLength};
use crate::error::Result;

impl Plan {
    pub(super) fn check_round_length(&self) -> Result<()> {
        match self.round_length {
            RoundLength::Iterations(iters) => within("--iters", iters, 1, u64::from(u32::MAX)),
            RoundLength::Seconds(seconds) if seconds > 0.0 && seconds <= MAX_SECONDS => Ok(()),
            RoundLength::Seconds(seconds) => Err(usage(format!(
                "--duration is {seconds} s a round; more than 0 s and at most {MAX_SECONDS} s can be measured"
            ))),
            RoundLength::UntilStopped => self.check_until_stopped(),
        }
    }

    /// Nothing comes after a round that only the user ends.
    fn check_until_stopped(&self) -> Result<()> {
        let sizes = self.sizes_bytes.len();
        if sizes > 1 {
            return Err(usage(format!("--run-infinitely measures one size, and there are {sizes}"))
                .hint("name one with -s"));
        }
        within("--rounds", self.rounds, 1, 1)?;
        match self.interval_seconds {
            Some(_) => Ok(()),
            None => Err(usage("--run-infinitely is shown in intervals, and the plan has none".to_owned())),
        }
    }

    pub(super) fn check_interval(&self) -> Result<()> {
        let Some(seconds) = self.interval_seconds else { return Ok(()) };
        if !(MIN_INTERVAL_SECONDS..=MAX_INTERVAL_SECONDS).contains(&seconds) {
            return Err(usage(format!(
                "--interval is {seconds} s; it can be {MIN_INTERVAL_SECONDS} to {MAX_INTERVAL_SECONDS} s"
            )));
        }
        match self.round_length {
            RoundLength::UntilStopped => Ok(()),
            RoundLength::Seconds(round) if round >= seconds => Ok(()),
            RoundLength::Seconds(round) => Err(usage(format!(
                "--interval is {seconds} s, and a round takes no more than {round} s: none would be whole"
            ))
            .hint(format!("-D is divided among {} rounds: raise it, or use --rounds 1", self.rounds))),
            RoundLength::Iterations(_) => {
                Err(usage("--interval cuts rounds by time, and -n ends them by number".to_owned())
                    .hint("give the length of the run in seconds, with -D, or none, with --run-infinitely"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;

    #[test]
    fn an_interval_fits_into_a_round_by_time() {
        let interval = |seconds, length| {
            let change = |p: &mut Plan| (p.interval_seconds, p.round_length) = (Some(seconds), length);
            let mut changed = plan();
            change(&mut changed);
            changed.check().map_err(|error| error.what)
        };
        let by_time = RoundLength::Seconds;
        assert_eq!(interval(1.0, by_time(10.0)), Ok(()));
        assert_eq!(interval(1.0, by_time(1.0)), Ok(()));
        for bad in [0.0, 0.09, 3601.0, f64::NAN] {
            assert!(
                interval(bad, by_time(10_000.0)).unwrap_err().ends_with("it can be 0.1 to 3600 s"),
                "{bad}"
            );
        }
        assert!(interval(2.0, by_time(1.0)).unwrap_err().contains("none would be whole"));
        assert!(interval(2.0, RoundLength::Iterations(5)).unwrap_err().contains("-n ends them by number"));
    }

    #[test]
    fn a_run_until_it_is_stopped_is_one_round_of_one_size_in_intervals() {
        let refused = |change: fn(&mut Plan)| {
            let mut changed = Plan {
                round_length: RoundLength::UntilStopped,
                rounds: 1,
                interval_seconds: Some(1.0),
                ..plan()
            };
            change(&mut changed);
            changed.check().err().map(|error| error.what)
        };
        assert_eq!(refused(|_| ()), None);
        assert!(refused(|p| p.sizes_bytes = vec![2, 4]).unwrap().ends_with("one size, and there are 2"));
        assert_eq!(refused(|p| p.rounds = 3).unwrap(), "--rounds is 3; it can be 1 to 1");
        assert!(refused(|p| p.interval_seconds = None).is_some());
    }
}
