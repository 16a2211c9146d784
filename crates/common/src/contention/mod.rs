//! Who else wanted the cores while an end measured: the hypervisor, other tasks.
//!
//! An [`Observer`] looks before and after each round, and never in between: at the scheduler's account of the threads
//! that measure, each by itself ([`Observer::around`]), and at the ticks of the cores that they may run on. What it has
//! seen in all rounds is a [`Contention`]; warm-ups are left out.

mod account;

use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::affinity::Cores;
use crate::host::HostFiles;
use crate::report::DeviceKind;
use account::{CoreTicks, TICK_NS, ThreadAccount};

/// What the threads of an end that measured have had to share, in all rounds together. What is absent the kernel does
/// not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contention {
    /// Time in the measured stretches, of all threads together.
    pub thread_time_ns: u64,
    /// Of that, time in which a thread could have run and another task did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waited_ns: Option<u64>,
    /// Times that a thread was made to leave its core to another task.
    pub involuntary_switches: u64,
    /// Times that a thread left its core by itself, to wait for something.
    pub voluntary_switches: u64,
    /// Time in which the cores that the threads may use had work, in the rounds; to 10 ms.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cores_wanted_ns: Option<u64>,
    /// Of that, time in which the hypervisor ran something else.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cores_steal_ns: Option<u64>,
}

/// How busy a host was before the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Tasks that ran, wanted to run, or waited for a disk: the average of the last minute.
    pub average: f64,
    /// Cores that run.
    pub cores: u32,
}

impl Load {
    /// This host's, now; `None` where the kernel does not say.
    pub fn now(files: &HostFiles) -> Option<Self> {
        account::load(files).map(|(average, cores)| Self { average, cores })
    }

    /// In words: `load 1.1 on 2 cores before`.
    pub fn describe(self) -> String {
        format!("load {:.1} on {} cores before", self.average, self.cores)
    }

    /// Whether more tasks wanted to run than there are cores.
    pub fn is_high(self) -> bool {
        self.average > f64::from(self.cores)
    }
}

/// A share of time taken from the measuring threads that is worth a word: from here on it reaches the 99 % of a latency.
const WORTH_A_WORD: f64 = 0.01;
/// The same beside a device in software, whose threads are part of what is measured: Soft-RoCE's were seen to take 1 to
/// 12 % (kernel 6.1, two emulated processors), and another busy task takes half.
const WORTH_A_WORD_BESIDE_SOFTWARE: f64 = 0.25;
/// Steal below two ticks can be one that began long before.
const LEAST_STEAL_NS: u64 = 2 * TICK_NS;
/// Involuntary switches a second of a thread that shares its core. Tried on x86-64 with kernel 6.18: a thread that polls
/// alone on its core has 3 to 6 of them, from the kernel's own threads, and waits 0.4 % of its time at most; one
/// that shares it with another busy task has 125 to 130, and waits half of its time.
const SHARED_CORE_PER_SEC: f64 = 50.0;
/// The same where the kernel also says how long the thread has waited: then that decides, and this only tells waits for
/// another task from the moments that it takes to wake up.
const DISTURBED_PER_SEC: f64 = 10.0;
/// The mean wait of a thread that sleeps and is woken, from which on it is another task that it waits for. An idle core
/// of a server takes up to some tenths of a millisecond to wake from its deepest state (the tables of the kernel's
/// `intel_idle` driver); a busy task keeps its core for milliseconds.
const LONG_WAIT_NS: u64 = 500_000;
/// Fewer switches than this are no rate.
const LEAST_SWITCHES: u64 = 5;
/// With a high load, waits from here on are its work.
const WAITED_UNDER_LOAD: f64 = 0.001;

impl Contention {
    /// The share of the cores' work that the hypervisor held back, where it is worth a word.
    pub fn steal(&self) -> Option<f64> {
        let (steal, wanted) = (self.cores_steal_ns?, self.cores_wanted_ns?);
        let share = share(steal, wanted)?;
        (share >= WORTH_A_WORD && steal >= LEAST_STEAL_NS).then_some(share)
    }

    /// Whether other tasks have run on the cores of the threads, often or long enough to be worth a word. An end with a
    /// device in software (none over TCP) shares its cores with that in any case.
    pub fn cores_were_shared(&self, device: Option<DeviceKind>) -> bool {
        let worth_a_word = match device {
            Some(DeviceKind::Software) => WORTH_A_WORD_BESIDE_SOFTWARE,
            Some(DeviceKind::Adapter) | None => WORTH_A_WORD,
        };
        let preempted = |per_sec: f64| {
            let rate = self.involuntary_switches as f64 / (self.thread_time_ns as f64 / 1e9);
            self.involuntary_switches >= LEAST_SWITCHES && rate >= per_sec
        };
        match self.waited() {
            Some(waited) => {
                waited >= worth_a_word && (preempted(DISTURBED_PER_SEC) || self.waits_were_long())
            }
            None => preempted(SHARED_CORE_PER_SEC),
        }
    }

    fn waits_were_long(&self) -> bool {
        let waits = self.involuntary_switches + self.voluntary_switches;
        self.waited_ns.is_some_and(|waited| waited >= waits * LONG_WAIT_NS)
    }

    /// Whether a high load can have had an effect on these threads: they waited, or nobody knows.
    pub fn may_suffer_from_load(&self) -> bool {
        self.waited().is_none_or(|waited| waited >= WAITED_UNDER_LOAD)
    }

    /// The share of their time that the threads waited for a core.
    pub fn waited(&self) -> Option<f64> {
        share(self.waited_ns?, self.thread_time_ns)
    }

    fn add_thread(&mut self, before: &ThreadAccount, after: &ThreadAccount) {
        let waited =
            after.waited_ns.zip(before.waited_ns).map(|(after, before)| after.saturating_sub(before));
        // One thread of which it is not known makes the sum unknown.
        let so_far = if self.thread_time_ns == 0 { Some(0) } else { self.waited_ns };
        self.waited_ns = so_far.zip(waited).map(|(sum, waited)| sum + waited);
        self.thread_time_ns += (after.at - before.at).as_nanos() as u64;
        self.involuntary_switches += after.involuntary.saturating_sub(before.involuntary);
        self.voluntary_switches += after.voluntary.saturating_sub(before.voluntary);
    }

    fn add_cores(&mut self, before: Option<CoreTicks>, after: Option<CoreTicks>) {
        let Some((before, after)) = before.zip(after) else { return };
        let add = |sum: &mut Option<u64>, before: u64, after: u64| {
            *sum = Some(sum.unwrap_or(0) + after.saturating_sub(before) * TICK_NS);
        };
        add(&mut self.cores_wanted_ns, before.wanted, after.wanted);
        add(&mut self.cores_steal_ns, before.steal, after.steal);
    }

    /// In words: `waited 0.02 % of 6.1 s for a core, 31 involuntary and 4 voluntary switches, steal 0.0 %`.
    pub fn describe(&self) -> String {
        let seconds = self.thread_time_ns as f64 / 1e9;
        let waited = match self.waited() {
            Some(waited) => format!("waited {:.2} % of {seconds:.1} s for a core", waited * 1e2),
            None => format!("measured {seconds:.1} s"),
        };
        let steal =
            self.cores_steal_ns.zip(self.cores_wanted_ns).and_then(|(steal, wanted)| share(steal, wanted));
        let steal = steal.map_or(String::new(), |steal| format!(", steal {:.1} %", steal * 1e2));
        format!(
            "{waited}, {} involuntary and {} voluntary switches{steal}",
            self.involuntary_switches, self.voluntary_switches
        )
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Looks at the contention of one end's measuring threads.
pub struct Observer {
    files: HostFiles,
    cores: Cores,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    in_round: bool,
    ticks: Option<CoreTicks>,
    total: Contention,
}

impl Observer {
    /// For threads that may run on `cores`.
    pub fn new(cores: Cores, files: HostFiles) -> Self {
        Self { files, cores, seen: Mutex::default() }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        // Nothing that holds the lock can leave it half changed.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A round is about to begin. To be called before the other end is told to start: looking takes some time.
    pub fn begin_round(&self) {
        let ticks = CoreTicks::now(&self.cores, &self.files);
        let mut seen = self.seen();
        seen.in_round = true;
        seen.ticks = ticks;
    }

    /// The round is over, if there was one.
    pub fn end_round(&self) {
        if !self.seen().in_round {
            return;
        }
        let now = CoreTicks::now(&self.cores, &self.files);
        let mut seen = self.seen();
        let before = seen.ticks.take();
        seen.total.add_cores(before, now);
        seen.in_round = false;
    }

    /// Runs `measure`, which is what the calling thread measures, and keeps account of the thread meanwhile.
    pub fn around<R>(&self, measure: impl FnOnce() -> R) -> R {
        let before = ThreadAccount::now(&self.files);
        let result = measure();
        let after = ThreadAccount::now(&self.files);
        let mut seen = self.seen();
        if seen.in_round {
            seen.total.add_thread(&before, &after);
        }
        result
    }

    /// What was seen in all rounds; `None` where no thread of this end has measured.
    pub fn total(&self) -> Option<Contention> {
        Some(self.seen().total).filter(|total| total.thread_time_ns > 0)
    }
}

#[cfg(test)]
mod tests;
