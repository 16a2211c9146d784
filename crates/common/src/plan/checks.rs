//! The limits of a plan: every range and every conflict of its fields, each refused with the option's name.

use std::time::Duration;

use super::{
    MAX_MSG_SIZE, MAX_QPS, MAX_ROUNDS, MAX_SIZES, MAX_THREADS, MAX_TX_DEPTH, MAX_WORKING_SET, PATH_MTUS,
    Plan, RoundLength, Traffic, Transport, whole_lists,
};
use crate::error::{Error, ErrorKind, Result};
use crate::qp;
use crate::units::{ByteSize, show_duration};

/// Seconds between two completions at most under a limited rate: well within the time after which a run in which
/// nothing completes has come to a standstill ([`crate::watch::STALL_LIMIT`]).
const MOST_SECONDS_APART: f64 = 5.0;
/// Posts in a round by time at least under a limited rate. Fewer are no measurement of a rate.
const LEAST_POSTS_PER_ROUND: u32 = 10;

impl Plan {
    /// Checks every limit; both ends call it, each on the plan that it holds.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`], naming the option and its range.
    pub fn check(&self) -> Result<()> {
        self.check_sizes()?;
        within("--qp", self.qps, 1, MAX_QPS)?;
        within("--tx-depth", self.tx_depth, 1, MAX_TX_DEPTH)?;
        self.check_threads()?;
        self.check_posting()?;
        self.check_queue_pair()?;
        self.check_gpu()?;
        self.check_working_set()?;
        self.check_rate_limit()?;
        self.requirements.check(self.traffic)?;
        within("--rounds", self.rounds, 1, MAX_ROUNDS)?;
        within("--warmup", self.warmup_iterations, 0, u64::from(u32::MAX))?;
        self.check_round_length()?;
        self.check_interval()?;
        match self.path_mtu_bytes {
            Some(mtu) if !PATH_MTUS.contains(&mtu) => Err(usage(format!(
                "--mtu is {mtu}; a path MTU is one of 256, 512, 1024, 2048 and 4096 bytes"
            ))),
            Some(_) if self.transport == Transport::Tcp => Err(usage(
                "--mtu sets the path MTU of a queue pair, which --transport tcp does not have".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    fn check_threads(&self) -> Result<()> {
        let (threads, qps) = (self.threads, self.qps);
        within("--threads", threads, 1, MAX_THREADS)?;
        if threads > qps {
            let what =
                format!("--threads is {threads} and --qp {qps}: each thread posts on queue pairs of its own");
            return Err(usage(what).hint(format!("--qp {threads} or more, or --threads {qps} or fewer")));
        }
        Ok(())
    }

    fn check_posting(&self) -> Result<()> {
        let (list, depth, every) = (self.post_list, self.tx_depth, self.signal_every);
        within("--post-list", list, 1, depth)?;
        within("--cq-mod", every, 1, depth)?;
        if depth % list != 0 {
            let error = usage(format!(
                "--post-list is {list}, and a queue of {depth} writes holds no whole number of such lists"
            ));
            return Err(error.hint(format!(
                "--tx-depth {}, or a --post-list that divides {depth}",
                depth - depth % list
            )));
        }
        if every % list != 0 {
            let error = usage(format!(
                "--cq-mod is {every} and --post-list {list}: a signal is on the last write of a list"
            ));
            return Err(
                error.hint(format!("--cq-mod {} is a whole number of lists", whole_lists(every, list)))
            );
        }
        Ok(())
    }

    fn check_queue_pair(&self) -> Result<()> {
        let attributes = &self.queue_pair;
        within("--inline-size", attributes.inline_bytes, 0, qp::MAX_INLINE_BYTES)?;
        within("--sl", attributes.service_level, 0, qp::MAX_SERVICE_LEVEL)?;
        within("--qp-timeout", attributes.ack_timeout, 1, qp::MAX_ACK_TIMEOUT)?;
        within("--retry-count", attributes.retry_count, 0, qp::MAX_RETRY_COUNT)?;
        if self.mr_per_qp && self.transport == Transport::Tcp {
            return Err(usage("--mr-per-qp registers memory, which --transport tcp does not do".to_owned()));
        }
        Ok(())
    }

    /// With room for one message there would be no turns.
    fn check_working_set(&self) -> Result<()> {
        let Some(room) = self.working_set_bytes else { return Ok(()) };
        if self.traffic == Traffic::PingPong {
            return Err(usage(
                "--working-set is for bandwidth: ends that write in turn do it in one place".to_owned(),
            ));
        }
        let slots = self.slots(self.largest());
        if slots.count < 2 || room > MAX_WORKING_SET {
            let what = format!(
                "--working-set is {}; it can be twice the largest message, here {}, to {}",
                ByteSize(room),
                ByteSize(2 * slots.stride),
                ByteSize(MAX_WORKING_SET)
            );
            return Err(usage(what));
        }
        Ok(())
    }

    /// A limit has to let through what a measurement is made of, and not look like a standstill.
    fn check_rate_limit(&self) -> Result<()> {
        let Some(limit) = self.rate_limit else { return Ok(()) };
        let (rate, list) = (limit.rate, self.post_list);
        if !(rate.value() > 0.0 && rate.value().is_finite()) {
            return Err(usage(format!("--rate-limit is {rate}; it must be more than 0")));
        }
        within("--burst-size", limit.burst_messages, list, MAX_TX_DEPTH)?;
        let size = self.largest();
        let per_sec = rate.messages_per_sec(size);
        // Queue pairs take turns, so all of them come to their next signal at about the same time.
        let before = u64::from(self.signal_every(size) - list) * u64::from(self.qps) + u64::from(list);
        let apart = before as f64 / per_sec;
        if apart > MOST_SECONDS_APART {
            let error = usage(format!(
                "--rate-limit {rate} would have completions of {} messages {apart:.1} s apart, and more than \
                 {MOST_SECONDS_APART} s could be a standstill",
                ByteSize(size)
            ));
            return Err(error.hint("a higher --rate-limit, a smaller --size, --post-list, --cq-mod or --qp"));
        }
        let least = f64::from(LEAST_POSTS_PER_ROUND * list);
        match self.round_length {
            RoundLength::Seconds(seconds) if seconds * per_sec < least => Err(usage(format!(
                "--rate-limit {rate} lets {:.1} messages of {} through in a round of {}; it needs {least}",
                seconds * per_sec,
                ByteSize(size),
                show_duration(Duration::from_secs_f64(seconds))
            ))
            .hint("a longer --duration, fewer --rounds, a higher --rate-limit or a smaller --size")),
            _ => Ok(()),
        }
    }

    fn check_sizes(&self) -> Result<()> {
        if self.sizes_bytes.is_empty() || self.sizes_bytes.len() > MAX_SIZES {
            return Err(usage(format!(
                "{} message sizes; a run has 1 to {MAX_SIZES}",
                self.sizes_bytes.len()
            )));
        }
        if let Some(size) = repeated(&self.sizes_bytes) {
            return Err(usage(format!("--size has {} twice", ByteSize(size))));
        }
        self.sizes_bytes.iter().try_for_each(|&size| within("--size", size, 1, MAX_MSG_SIZE))
    }
}

/// A size that is there twice: its lines and rounds could not be told apart.
fn repeated(sizes: &[u64]) -> Option<u64> {
    let before = |index: usize, size: &u64| sizes[..index].contains(size);
    sizes.iter().enumerate().find_map(|(index, size)| before(index, size).then_some(*size))
}

pub(super) fn usage(what: String) -> Error {
    Error::new(ErrorKind::Usage, what).hint("--help lists every option with its range")
}

pub(super) fn within<T: PartialOrd + std::fmt::Display>(
    name: &str,
    value: T,
    least: T,
    most: T,
) -> Result<()> {
    if value < least || value > most {
        return Err(usage(format!("{name} is {value}; it can be {least} to {most}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;
    use crate::rate::{Rate, RateLimit};

    fn refused(change: impl FnOnce(&mut Plan)) -> String {
        let mut plan = plan();
        change(&mut plan);
        let error = plan.check().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Usage);
        error.what
    }

    #[test]
    fn every_limit_is_named_with_its_range() {
        assert!(plan().check().is_ok());
        assert_eq!(refused(|p| p.sizes_bytes = vec![0]), "--size is 0; it can be 1 to 2147483648");
        assert_eq!(
            refused(|p| p.sizes_bytes = vec![1 << 32]),
            "--size is 4294967296; it can be 1 to 2147483648"
        );
        assert_eq!(refused(|p| p.qps = 100_000), "--qp is 100000; it can be 1 to 16384");
        assert_eq!(refused(|p| p.tx_depth = 0), "--tx-depth is 0; it can be 1 to 16384");
        assert_eq!(refused(|p| p.rounds = 0), "--rounds is 0; it can be 1 to 1000");
        assert!(refused(|p| p.round_length = RoundLength::Iterations(0)).starts_with("--iters is 0;"));
        assert!(refused(|p| p.round_length = RoundLength::Seconds(0.0)).starts_with("--duration is 0 s"));
        assert!(
            refused(|p| p.round_length = RoundLength::Seconds(f64::NAN)).starts_with("--duration is NaN")
        );
        assert!(refused(|p| p.path_mtu_bytes = Some(1500)).starts_with("--mtu is 1500"));
        assert!(refused(|p| p.sizes_bytes.clear()).starts_with("0 message sizes"));
        assert_eq!(refused(|p| p.sizes_bytes = vec![8, 64, 8]), "--size has 8 B twice");
        assert!(refused(|p| p.signal_every = 129).starts_with("--cq-mod is 129;"));
    }

    #[test]
    fn each_thread_has_a_queue_pair() {
        let refused_with = |threads, qps| refused(|p| (p.threads, p.qps) = (threads, qps));
        assert_eq!(refused_with(0, 1), "--threads is 0; it can be 1 to 256");
        assert_eq!(refused_with(257, 512), "--threads is 257; it can be 1 to 256");
        assert_eq!(
            refused_with(4, 3),
            "--threads is 4 and --qp 3: each thread posts on queue pairs of its own"
        );
    }

    #[test]
    fn a_rate_limit_lets_enough_through_to_be_measured() {
        let limited = |rate| move |p: &mut Plan| p.rate_limit = Some(RateLimit { rate, burst_messages: 8 });
        let what = refused(limited(Rate::Gbit(0.0)));
        assert_eq!(what, "--rate-limit is 0Gb/s; it must be more than 0");
        // 64 KiB at 10 KiB/s: each is signalled, and takes 6.4 s.
        let what = refused(limited(Rate::Mib(10.0 / 1024.0)));
        assert!(what.contains("completions of 64 KiB messages 6.4 s apart"), "{what}");
        let what = refused(|p| {
            limited(Rate::Mib(1.0))(p);
            p.round_length = RoundLength::Seconds(0.5);
        });
        assert!(what.starts_with("--rate-limit 1MiB/s lets 8.0 messages of 64 KiB through"), "{what}");
        let what = refused(|p| {
            limited(Rate::Mpps(0.001))(p);
            (p.signal_every, p.signal_fixed, p.qps) = (128, true, 64);
        });
        assert!(what.contains("8.1 s apart"), "{what}");
        let what = refused(|p| {
            p.rate_limit = Some(RateLimit { rate: Rate::Gbit(1.0), burst_messages: 4 });
            (p.post_list, p.signal_every) = (8, 32);
        });
        assert_eq!(what, "--burst-size is 4; it can be 8 to 16384");
        let mut good = plan();
        limited(Rate::Mib(50.0))(&mut good);
        assert!(good.check().is_ok());
    }

    #[test]
    fn a_working_set_has_room_for_turns() {
        let holds = |bytes| move |p: &mut Plan| p.working_set_bytes = Some(bytes);
        let what = refused(holds(64 << 10));
        assert_eq!(
            what,
            "--working-set is 64 KiB; it can be twice the largest message, here 128 KiB, to 1024 GiB"
        );
        assert!(refused(holds(1 << 41)).contains("to 1024 GiB"));
        let what = refused(|p| (p.working_set_bytes, p.traffic) = (Some(1 << 20), Traffic::PingPong));
        assert!(what.starts_with("--working-set is for bandwidth"), "{what}");
        let mut good = plan();
        holds(128 << 10)(&mut good);
        assert!(good.check().is_ok());
    }

    #[test]
    fn tcp_registers_no_memory() {
        let what = refused(|p| (p.transport, p.mr_per_qp) = (Transport::Tcp, true));
        assert!(what.starts_with("--mr-per-qp "), "{what}");
    }

    #[test]
    fn tcp_has_no_path_mtu() {
        let what = refused(|p| {
            p.transport = Transport::Tcp;
            p.path_mtu_bytes = Some(1024);
        });
        assert!(what.contains("--transport tcp"), "{what}");
    }

    #[test]
    fn lists_fill_the_queue_and_end_with_a_signal() {
        assert!(refused(|p| p.post_list = 129).starts_with("--post-list is 129;"));
        assert!(refused(|p| p.post_list = 3).contains("no whole number of such lists"));
        let what = refused(|p| (p.post_list, p.signal_every) = (4, 6));
        assert_eq!(what, "--cq-mod is 6 and --post-list 4: a signal is on the last write of a list");
    }

    #[test]
    fn the_fields_of_a_queue_pair_have_their_ranges() {
        assert!(refused(|p| p.queue_pair.inline_bytes = 4097).starts_with("--inline-size is 4097;"));
        assert!(refused(|p| p.queue_pair.service_level = 16).starts_with("--sl is 16;"));
        assert!(refused(|p| p.queue_pair.ack_timeout = 0).starts_with("--qp-timeout is 0;"));
        assert!(refused(|p| p.queue_pair.ack_timeout = 32).starts_with("--qp-timeout is 32;"));
        assert!(refused(|p| p.queue_pair.retry_count = 8).starts_with("--retry-count is 8;"));
    }
}
