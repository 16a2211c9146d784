//! Long runs: how they are followed while they go on, and what ends them.

use clap::Args;

use crate::error::{Error, ErrorKind, Result};
use crate::plan::RoundLength;
use crate::units::TimeSpan;

/// What is shown of a long run before it is over.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Long runs (client only)")]
pub struct LongRunArgs {
    /// Show what came in each interval as it ends, and the slowest of them with the result: 1s, 500ms, 1min
    #[arg(long, value_name = "TIME")]
    pub interval: Option<TimeSpan>,
    /// Measure one size until Ctrl-C, with a line for each --interval [default: 1s]; --json makes it a line of JSON
    #[arg(long, conflicts_with_all = ["iters", "rounds"])]
    pub run_infinitely: bool,
}

/// The interval of a run without end, in seconds. perftest has 5; a link that is gone for one second is to be seen.
const INTERVAL_SECONDS: f64 = 1.0;

impl LongRunArgs {
    /// The intervals of the plan.
    pub fn interval_seconds(&self) -> Option<f64> {
        let default = self.run_infinitely.then_some(INTERVAL_SECONDS);
        self.interval.map(TimeSpan::as_secs_f64).or(default)
    }

    /// What ends a round, and how many there are: `iters`, `duration` and `rounds` are what the options of these names
    /// say.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] where they contradict each other.
    pub fn rounds(&self, iters: u64, duration: Option<f64>, rounds: u32) -> Result<(RoundLength, u32)> {
        match (self.run_infinitely, duration) {
            (true, None) => Ok((RoundLength::UntilStopped, 1)),
            // perftest's users give both, and mean a line every so many seconds.
            (true, Some(seconds)) => {
                Err(Error::new(ErrorKind::Usage, "--duration ends a run, and --run-infinitely does not")
                    .hint(format!(
                        "for a line every {seconds} s, as -D has it in perftest: --interval {seconds}s"
                    )))
            }
            (false, Some(seconds)) => Ok((RoundLength::Seconds(seconds / f64::from(rounds)), rounds)),
            (false, None) => Ok((RoundLength::Iterations(iters), rounds)),
        }
    }
}
