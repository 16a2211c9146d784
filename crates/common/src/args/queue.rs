//! How writes are posted, and what the queue pairs are told: only over RDMA.

use clap::Args;

use crate::error::{Error, ErrorKind, Result};
use crate::plan::{MAX_TX_DEPTH, Transport};
use crate::qp::{self, QpAttributes};

/// How writes are posted. Absent options have the defaults of [`crate::plan::signal_every`].
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "The queue pairs (client only, not over TCP)")]
pub struct QueueArgs {
    /// Ask for a completion every N writes [default: a quarter of --tx-depth, and at least one a MiB]
    #[arg(short = 'Q', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_TX_DEPTH)))]
    pub cq_mod: Option<u32>,
    /// Hand N writes to the adapter at once; must divide --tx-depth, and --cq-mod if that is given [default: 1]
    #[arg(short = 'l', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_TX_DEPTH)))]
    pub post_list: Option<u32>,
    /// Register each queue pair's memory by itself, with keys of its own, instead of all of it at once
    #[arg(long)]
    pub mr_per_qp: bool,
    /// What the queue pairs are told.
    #[command(flatten)]
    pub qp: QpArgs,
}

/// What the queue pairs are told, of both tools.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "The queue pairs (client only, not over TCP)")]
pub struct QpArgs {
    /// Copy writes of up to BYTES into the work request instead of having the adapter fetch them [default: write-bw 0,
    /// write-lat 220 or what the device takes]
    #[arg(short = 'I', long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(..=i64::from(qp::MAX_INLINE_BYTES)))]
    pub inline_size: Option<u32>,
    /// Service level, 0 to 15 [default: 0]
    #[arg(short = 'S', long, value_name = "N", value_parser = clap::value_parser!(u8).range(..=i64::from(qp::MAX_SERVICE_LEVEL)))]
    pub sl: Option<u8>,
    /// Traffic class: on RoCE v2 the DSCP, times 4 [default: 0]
    #[arg(long, value_name = "N")]
    pub tclass: Option<u8>,
    /// Send a packet again after 4.096 µs × 2ᴺ without acknowledgement, N being 1 to 31 [default: 18, 1.07 s]
    #[arg(short = 'u', long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(qp::MAX_ACK_TIMEOUT)))]
    pub qp_timeout: Option<u8>,
    /// Times to send it again before the write fails, 0 to 7; 7 is for ever on Soft-RoCE [default: 6]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(..=i64::from(qp::MAX_RETRY_COUNT)))]
    pub retry_count: Option<u8>,
}

impl QueueArgs {
    /// Sockets have none of it.
    pub(super) fn check(&self, transport: Transport) -> Result<()> {
        let given = [
            ("--cq-mod", self.cq_mod.is_some()),
            ("--post-list", self.post_list.is_some()),
            ("--mr-per-qp", self.mr_per_qp),
        ];
        refuse_over_tcp(&given, transport)?;
        self.qp.check(transport)
    }
}

impl QpArgs {
    /// What the queue pairs are told; as much inline data as `inline_bytes` or as the device takes, unless another
    /// size was asked for.
    pub fn attributes(&self, inline_bytes: u32) -> QpAttributes {
        let default = QpAttributes::default();
        QpAttributes {
            inline_bytes: self.inline_size.unwrap_or(inline_bytes),
            inline_fixed: self.inline_size.is_some(),
            service_level: self.sl.unwrap_or(default.service_level),
            traffic_class: self.tclass.unwrap_or(default.traffic_class),
            ack_timeout: self.qp_timeout.unwrap_or(default.ack_timeout),
            retry_count: self.retry_count.unwrap_or(default.retry_count),
        }
    }

    /// Sockets have none of it.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`], naming the option.
    pub fn check(&self, transport: Transport) -> Result<()> {
        let given = [
            ("--inline-size", self.inline_size.is_some()),
            ("--sl", self.sl.is_some()),
            ("--tclass", self.tclass.is_some()),
            ("--qp-timeout", self.qp_timeout.is_some()),
            ("--retry-count", self.retry_count.is_some()),
        ];
        refuse_over_tcp(&given, transport)
    }
}

fn refuse_over_tcp(options: &[(&str, bool)], transport: Transport) -> Result<()> {
    match options.iter().find(|(_, given)| *given) {
        Some((option, _)) if transport == Transport::Tcp => Err(Error::new(
            ErrorKind::Usage,
            format!("{option} is about queue pairs, which --transport tcp does not have"),
        )
        .hint(format!("leave {option} out, or measure over RDMA"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_given_is_the_default() {
        assert_eq!(QpArgs::default().attributes(0), QpAttributes::default());
        let args = QpArgs { sl: Some(3), qp_timeout: Some(14), ..QpArgs::default() };
        let wanted = QpAttributes { service_level: 3, ack_timeout: 14, ..QpAttributes::default() };
        assert_eq!(args.attributes(0), wanted);
    }

    #[test]
    fn inline_data_is_fixed_only_where_it_was_asked_for() {
        let inline = |asked| {
            let attributes = QpArgs { inline_size: asked, ..QpArgs::default() }.attributes(220);
            (attributes.inline_bytes, attributes.inline_fixed)
        };
        assert_eq!([None, Some(64), Some(0)].map(inline), [(220, false), (64, true), (0, true)]);
    }

    #[test]
    fn sockets_have_no_queue_pairs() {
        let args = QpArgs { tclass: Some(0), ..QpArgs::default() };
        assert!(args.check(Transport::Rdma).is_ok());
        assert!(args.check(Transport::Tcp).unwrap_err().what.starts_with("--tclass is about queue pairs"));
        assert!(QueueArgs::default().check(Transport::Tcp).is_ok());
    }
}
