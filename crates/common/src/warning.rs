//! Everything the tools may caution about: what was seen, what it does to the number, and the way out.
//!
//! A warning never fires for something that the user asked for. It goes to stderr and into the JSON document.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::affinity::report::cores_named;
use crate::contention::{Contention, Load};
use crate::memory::GpuUse;
use crate::plan::{Role, Traffic};
use crate::units::{ByteSize, show_duration};

/// A caution beside a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Stable name for scripts.
    pub code: String,
    /// What was seen.
    pub seen: String,
    /// What it does to the number.
    pub effect: String,
    /// What one can do about it.
    pub hint: String,
}

/// A stretch of a round in which far less came than in the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowStretch {
    /// The message size.
    pub size_bytes: u64,
    /// What came in it, in per cent of what the others would have brought.
    pub percent: f64,
    /// How many intervals it is of.
    pub intervals: u64,
    /// The round that it was in, from 0.
    pub round: u32,
    /// When it began, from the beginning of that round.
    pub begin: Duration,
    /// How long it was.
    pub elapsed: Duration,
}

/// Rounds that differ by more than this share of their median are worth a word. Taste: on a quiet host rounds of
/// the same point agree within 1 to 3 %, so 10 % means that something else took part.
pub const SPREAD_WORTH_A_WORD_PERCENT: f64 = 10.0;

/// A round shorter than this is mostly start and end. Taste: filling and draining a window of 128 takes well
/// under 1 ms on a NIC, and scheduling noise of 1 ms would be 10 % of it.
pub const SHORTEST_TRUSTED_ROUND: Duration = Duration::from_millis(10);

/// A round of fewer messages than this on each queue pair says little, however long it takes. Of a bandwidth one message is more
/// than 5 % of it then, and filling and draining the queue, where messages are stored whole on their way, 10 %: what
/// [`SHORTEST_TRUSTED_ROUND`] allows. Of a latency the 95 % interval of the median reaches beyond the middle half of the samples:
/// from the 6th to the 15th of 20, by the binomial distribution.
pub const FEWEST_TRUSTED_MESSAGES: u64 = 20;

/// A rate limit of which less than this share was achieved was not what bounded the rate. The token bucket itself
/// is exact; the rest is the time that the last writes of a round take.
pub const RATE_LIMIT_REACHED_PERCENT: f64 = 98.0;

impl Warning {
    fn new(code: &str, seen: String, effect: &str, hint: &str) -> Self {
        Self { code: code.to_owned(), seen, effect: effect.to_owned(), hint: hint.to_owned() }
    }

    /// The device is an emulation in software.
    pub fn software_device(device: &str, driver: &str) -> Self {
        Self::new(
            "software-device",
            format!("{device} is emulated in software ({driver})"),
            "its speed is this host's CPU, not a link's",
            "quote equality, order and failures from it, never its bandwidth",
        )
    }

    /// The rounds of some sizes disagree: each size and its spread in per cent of the median.
    pub fn rounds_differ(points: &[(u64, f64)]) -> Option<Self> {
        let worst = points.iter().map(|point| point.1).fold(0.0, f64::max);
        let seen = format!("the rounds differ {}, by up to {worst:.0} % of their median", at_sizes(points)?);
        Some(Self::new(
            "rounds-differ",
            seen,
            "the medians there may not repeat",
            "raise --rounds, lengthen each with -n or -D, and look for other users of the link and the CPUs",
        ))
    }

    /// Rounds of some sizes were over too soon to be trusted: each size and its shortest round.
    pub fn short_rounds(points: &[(u64, Duration)]) -> Option<Self> {
        let shortest = points.iter().map(|point| point.1).min()?;
        Some(Self::new(
            "short-rounds",
            format!("rounds were short {}, down to {}", at_sizes(points)?, show_short(shortest)),
            "filling and draining the queue and one scheduling delay weigh in the bandwidth",
            "lengthen the rounds with -n or -D",
        ))
    }

    /// Rounds of some sizes had few messages: each size and the fewest that a queue pair had in a round.
    pub fn few_messages(traffic: Traffic, points: &[(u64, u64)]) -> Option<Self> {
        let fewest = points.iter().map(|point| point.1).min()?;
        let (of_what, effect) = match traffic {
            Traffic::PingPong => (
                "round trips",
                "the median is known to the middle half of them at best, and 99 % and all that follows are the largest"
                    .to_owned(),
            ),
            Traffic::Unidirectional | Traffic::Bidirectional => (
                "messages on each queue pair",
                format!(
                    "one message is {:.0} % of such a round: one that is late, or filling and draining the queue, weighs as much",
                    100.0 / fewest.max(1) as f64
                ),
            ),
        };
        let seen = format!("rounds had few {of_what} {}, down to {fewest}", at_sizes(points)?);
        Some(Self::new("few-messages", seen, &effect, "raise -n, or measure by time with -D"))
    }

    /// The two directions of some sizes did not overlap: each size and how much longer one of them ran.
    pub fn directions_apart(points: &[(u64, Duration)]) -> Option<Self> {
        let most = points.iter().map(|point| point.1).max()?;
        Some(Self::new(
            "directions-apart",
            format!(
                "one direction was busy for longer than the other {}, by up to {}",
                at_sizes(points)?,
                show_short(most)
            ),
            "part of the time only one direction was busy: the sum is higher than the link carried at once",
            "use -D, so that both directions run for the same time",
        ))
    }

    /// The rate limit was not reached at some sizes: each size and how much of it was, in per cent.
    pub fn below_rate_limit(points: &[(u64, f64)]) -> Option<Self> {
        let least = points.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
        Some(Self::new(
            "rate-limit-not-reached",
            format!("--rate-limit was not reached {}: as little as {least:.1} % of it", at_sizes(points)?),
            "something else bounded the rate: the link, this host, the depth of the queues, or the time that the last \
             writes of a short round take",
            "lower --rate-limit, lengthen the rounds with -n or -D, or raise --tx-depth or --burst-size",
        ))
    }

    /// Of some sizes an interval, or several in a row, carried far less than the others: the slowest stretch of each size.
    pub fn slow_intervals(stretches: &[SlowStretch]) -> Option<Self> {
        let worst = stretches.iter().min_by(|a, b| a.percent.total_cmp(&b.percent))?;
        let sizes: Vec<(u64, f64)> = stretches.iter().map(|slow| (slow.size_bytes, slow.percent)).collect();
        let who = match worst.intervals {
            1 => "an interval".to_owned(),
            count => format!("{count} intervals in a row"),
        };
        Some(Self::new(
            "slow-intervals",
            format!(
                "{who} {} carried {:.0} % of what the others did: {}, from {} of round {} on",
                at_sizes(&sizes)?,
                worst.percent,
                show_duration(worst.elapsed),
                show_duration(worst.begin),
                worst.round + 1
            ),
            "for a while the path carried much less, or nothing, which the average of the round hides",
            "compare the time of the slow intervals with the ports' counters and the switches' logs: a link that flaps or \
             retrains looks like this, and so does a host that was stopped",
        ))
    }

    /// The adapter of one end has counted trouble during the run.
    pub fn counters_moved(role: Role, source: &str, trouble: &str) -> Self {
        Self::new(
            "counters-moved",
            format!("on the {}, {source} counted {trouble}", role.name()),
            "packets were lost, repeated or held back: the figures are this path's under trouble, not its best",
            "--interval 1s (on a slow link with a small --tx-depth) shows whether it comes in bursts, as from a path that was \
             gone for a while; compare MTU, flow control and cabling of both ends; other traffic on the port counts as well",
        )
    }

    /// The measuring threads could not be bound to the device's NUMA node, and may run on another.
    pub fn threads_far_from_device(role: Role, node: u32, cores: &str, refusal: Option<&str>) -> Self {
        let why = refusal.map_or("none of its cores may be used".to_owned(), str::to_owned);
        Self::new(
            "threads-far-from-device",
            format!(
                "the {} is not bound to NUMA node {node}, which its device is on: {why}; it runs on {}",
                role.name(),
                cores_named(cores)
            ),
            "each doorbell and each look at what has arrived crosses to another socket: latency is higher than it could be",
            "let it use cores of that node (taskset, the cpuset of its container or job), or say --numa none",
        )
    }

    /// The device is farther from the GPU than another of the machine.
    pub fn gpu_far_from_device(role: Role, gpu: &GpuUse) -> Option<Self> {
        let distance = gpu.distance.filter(|_| !gpu.nearer.is_empty())?;
        Some(Self::new(
            "gpu-far-from-device",
            format!(
                "on the {}, GPU {} ({}) is {} from the device: {}",
                role.name(),
                gpu.ordinal,
                gpu.pci_address,
                distance.word(),
                distance.meaning()
            ),
            "GPUDirect may be slower than the link, or than staging, and loads the processors' interconnect",
            &format!("nearer to it: {} (-d there)", gpu.nearer.join(", ")),
        ))
    }

    /// More threads post on an end than it has cores for them.
    pub fn oversubscribed(role: Role, threads: u32, cores: &str) -> Self {
        Self::new(
            "oversubscribed",
            format!("{threads} threads post on the {}, which has cores {cores} for them", role.name()),
            "while one polls another waits: more of them than cores are not faster, and hold each other up",
            "fewer --threads, or more cores with --cores",
        )
    }

    /// Pages of the measured memory are on another NUMA node than the device: so many of those looked at.
    pub fn memory_far_from_device(
        role: Role,
        node: u32,
        elsewhere: u64,
        all: u64,
        refusal: Option<&str>,
    ) -> Self {
        let why = refusal.map_or(String::new(), |refusal| format!(": {refusal}"));
        Self::new(
            "memory-far-from-device",
            format!(
                "on the {}, {elsewhere} of {all} pages looked at are not on NUMA node {node}, which its device is on{why}",
                role.name()
            ),
            "the adapter reads and writes across sockets: bandwidth may be lower and latency higher than it could be",
            "see with numactl --hardware whether the node has free memory, or name a node with --numa",
        )
    }

    /// The hypervisor kept this share of their work from the cores that the measuring threads may use.
    pub fn cpu_steal(role: Role, cores: &str, share: f64) -> Self {
        Self::new(
            "cpu-steal",
            format!(
                "on the {}, the hypervisor ran something else in {:.1} % of the time in which {} had work",
                role.name(),
                share * 1e2,
                cores_named(cores)
            ),
            "what is measured stood still meanwhile: the slowest latencies are the hypervisor's, and bandwidth is lower",
            "give the virtual machine cores of its own, or measure on the host itself",
        )
    }

    /// Other tasks have run on the cores of the measuring threads.
    pub fn cores_shared(role: Role, cores: &str, seen: &Contention, load: Option<Load>) -> Self {
        let load = load.map_or(String::new(), |load| format!("; {}", load.describe()));
        Self::new(
            "cores-shared",
            format!(
                "on the {}, other tasks ran on {}: {}{load}",
                role.name(),
                cores_named(cores),
                seen.describe()
            ),
            "what is measured stood still meanwhile: the slowest latencies are other tasks' turns, and bandwidth is lower",
            "stop the other work, or give each end cores that nobody else uses with --cores, the other end included",
        )
    }

    /// The host was busy, and whether the measuring threads had to wait is not known or it shows.
    pub fn host_busy(role: Role, load: Load) -> Self {
        Self::new(
            "host-busy",
            format!("the {}'s host was busy: {}", role.name(), load.describe()),
            "the measuring threads may have had to share cores and caches: the figures may not repeat",
            "stop the other work, or give this end cores that nobody else uses with --cores",
        )
    }

    /// Some ends did not get the huge pages that were tried for.
    pub fn base_pages(ends: &[Role]) -> Option<Self> {
        let (who, whose) = match ends {
            [] => return None,
            [one] => (format!("the {}", one.name()), "its"),
            _ => ("both ends".to_owned(), "their"),
        };
        let have = if ends.len() == 1 { "has" } else { "have" };
        Some(Self::new(
            "base-pages",
            format!(
                "{who} {have} memory in pages of the base size: {whose} kernel's pool has too few of 2 MiB"
            ),
            "an adapter looks up more addresses for the same bytes: with much memory the figures may be lower",
            "fill the pool (nr_hugepages) on both hosts, and use --hugepages without =try to be sure",
        ))
    }

    /// As it goes to stderr.
    pub fn render(&self, tool: &str) -> String {
        format!("{tool}: warning: {}\n  effect: {}\n  hint: {}", self.seen, self.effect, self.hint)
    }
}

/// `at 64 KiB`, or `at 17 sizes from 2 B to 1 MiB`; `None` where there is no size.
fn at_sizes<T>(points: &[(u64, T)]) -> Option<String> {
    let least = points.iter().map(|point| point.0).min()?;
    let most = points.iter().map(|point| point.0).max()?;
    Some(match points.len() {
        1 => format!("at {}", ByteSize(least)),
        count => format!("at {count} sizes from {} to {}", ByteSize(least), ByteSize(most)),
    })
}

fn show_short(duration: Duration) -> String {
    if duration < Duration::from_millis(10) {
        format!("{:.2} ms", duration.as_secs_f64() * 1e3)
    } else {
        show_duration(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_speaks_once_for_all_sizes() {
        assert_eq!(Warning::rounds_differ(&[]), None);
        assert_eq!(
            Warning::rounds_differ(&[(65536, 12.0)]).unwrap().seen,
            "the rounds differ at 64 KiB, by up to 12 % of their median"
        );
        let many = [(2, Duration::from_millis(3)), (4096, Duration::from_micros(500))];
        assert_eq!(
            Warning::short_rounds(&many).unwrap().seen,
            "rounds were short at 2 sizes from 2 B to 4 KiB, down to 0.50 ms"
        );
    }
}
