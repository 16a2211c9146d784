//! How fast an end writes.

use clap::Args;

use super::rates;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::MAX_TX_DEPTH;
use crate::rate::{Rate, RateLimit};

/// A limit to the rate of each end that writes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "The measurement (client only)")]
pub struct PaceArgs {
    /// Write no faster than this, each end, over all its queue pairs: 10Gb/s, 500MiB/s or 1.5Mpps [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = rates::rate)]
    pub rate_limit: Option<Rate>,
    /// Messages that may go at once under --rate-limit, to make up for time in which none went [default: --tx-depth]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_TX_DEPTH)))]
    pub burst_size: Option<u32>,
}

impl PaceArgs {
    /// The limit, if there is one.
    pub(super) fn limit(&self, tx_depth: u32) -> Result<Option<RateLimit>> {
        if self.rate_limit.is_none() && self.burst_size.is_some() {
            let what = "--burst-size is what may go at once under --rate-limit, and no limit is given";
            return Err(Error::new(ErrorKind::Usage, what)
                .hint("add --rate-limit, or leave out --burst-size; --tx-depth bounds what is outstanding"));
        }
        let burst_messages = self.burst_size.unwrap_or(tx_depth);
        Ok(self.rate_limit.map(|rate| RateLimit { rate, burst_messages }))
    }
}
