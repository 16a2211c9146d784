//! Long runs: how they are followed while they go on.

use clap::Args;

use crate::units::TimeSpan;

/// What is shown of a long run before it is over.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Long runs (client only)")]
pub struct LongRunArgs {
    /// Show what came in each interval of a -D run as it ends, and the slowest of them with the result: 1s, 500ms, 1min
    #[arg(long, value_name = "TIME")]
    pub interval: Option<TimeSpan>,
}

impl LongRunArgs {
    /// The intervals of the plan.
    pub fn interval_seconds(&self) -> Option<f64> {
        self.interval.map(TimeSpan::as_secs_f64)
    }
}
