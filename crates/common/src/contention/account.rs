//! What the kernel has on record of a thread and of cores, at one moment.

use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};

use crate::affinity::Cores;
use crate::host::HostFiles;

/// A unit of time in `/proc/stat`, in nanoseconds: `USER_HZ` is 100 on every architecture that RDMA adapters are
/// built into.
pub(super) const TICK_NS: u64 = 10_000_000;

/// The scheduler's account of the calling thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadAccount {
    pub(super) at: Instant,
    pub(super) voluntary: u64,
    pub(super) involuntary: u64,
    /// Time in which it could have run and another task did.
    pub(super) waited_ns: Option<u64>,
}

impl ThreadAccount {
    /// Of the calling thread, now.
    pub(super) fn now(files: &HostFiles) -> Self {
        let count = |switches: Option<i64>| switches.and_then(|count| count.try_into().ok()).unwrap_or(0);
        // It fails for no thread that asks about itself.
        let usage = getrusage(UsageWho::RUSAGE_THREAD).ok();
        Self {
            at: Instant::now(),
            voluntary: count(usage.map(|usage| usage.voluntary_context_switches())),
            involuntary: count(usage.map(|usage| usage.involuntary_context_switches())),
            waited_ns: files.text("/proc/thread-self/schedstat").as_deref().and_then(waited_ns),
        }
    }
}

/// The second of three numbers: time on a core, time waiting for one, turns. A kernel that keeps no such account has
/// no file, or zeros.
fn waited_ns(schedstat: &str) -> Option<u64> {
    let numbers: Vec<u64> = schedstat.split_whitespace().map_while(|number| number.parse().ok()).collect();
    match numbers[..] {
        [_, waited, turns] if turns > 0 => Some(waited),
        _ => None,
    }
}

/// What cores have done since the machine was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CoreTicks {
    /// Anything but idle, steal included.
    pub(super) wanted: u64,
    /// The hypervisor ran something else though the core had work.
    pub(super) steal: u64,
}

impl CoreTicks {
    /// Of all `cores` together; `None` where the kernel does not say, or has counted nothing at all.
    pub(super) fn now(cores: &Cores, files: &HostFiles) -> Option<Self> {
        let text = files.text("/proc/stat")?;
        let mut sum = Self::default();
        let mut counted = 0;
        for line in text.lines().take_while(|line| line.starts_with("cpu")) {
            let Some((core, ticks)) = Self::of_line(line) else { continue };
            if cores.contains(core) {
                sum = Self { wanted: sum.wanted + ticks.wanted, steal: sum.steal + ticks.steal };
                counted += 1;
            }
        }
        (counted > 0 && sum.wanted > 0).then_some(sum)
    }

    /// `cpu3 user nice system idle iowait irq softirq steal guest guest_nice`; guests' time is in user and nice as
    /// well. The line that begins with `cpu` alone is the sum.
    fn of_line(line: &str) -> Option<(u32, Self)> {
        let (name, counts) = line.split_once(' ')?;
        let core = name.strip_prefix("cpu")?.parse().ok()?;
        let counts: Vec<u64> = counts.split_whitespace().map_while(|count| count.parse().ok()).collect();
        let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = counts[..] else { return None };
        Some((core, Self { wanted: user + nice + system + irq + softirq + steal, steal }))
    }
}

/// The load average of the last minute, and the cores that run.
pub(super) fn load(files: &HostFiles) -> Option<(f64, u32)> {
    let average = files.text("/proc/loadavg")?.split_whitespace().next()?.parse().ok()?;
    let cores = Cores::from_kernel(&files.text("/sys/devices/system/cpu/online")?)?;
    (!cores.is_empty()).then_some((average, cores.len() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, HostFiles) {
        let tree = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = tree.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let below = HostFiles::below(tree.path());
        (tree, below)
    }

    const STAT: &str = "cpu  45 0 11 75 7 0 7 3 0 0\ncpu0 21 1 4 39 2 3 1 1 9 9\ncpu1 23 0 6 35 5 0 6 2 0 0\ncpu10 9 9 9 9 9 9 9 9 0 0\nintr 3 1 2\n";

    #[test]
    fn ticks_are_of_the_cores_asked_for_and_idle_is_not_wanted() {
        let (_tree, files) = tree(&[("proc/stat", STAT)]);
        let ticks = |cores: &[u32]| CoreTicks::now(&Cores::of(cores.iter().copied()), &files);
        assert_eq!(ticks(&[0]), Some(CoreTicks { wanted: 31, steal: 1 }));
        assert_eq!(ticks(&[1]), Some(CoreTicks { wanted: 37, steal: 2 }));
        assert_eq!(ticks(&[1, 0]), Some(CoreTicks { wanted: 68, steal: 3 }));
        assert_eq!(ticks(&[5]), None);
    }

    #[test]
    fn a_kernel_that_counts_nothing_is_unknown() {
        let (_tree, files) = tree(&[("proc/stat", "cpu 0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")]);
        assert_eq!(CoreTicks::now(&Cores::of([0]), &files), None);
        let (_tree, files) = tree(&[]);
        assert_eq!(CoreTicks::now(&Cores::of([0]), &files), None);
        assert!(ThreadAccount::now(&files).waited_ns.is_none());
        assert_eq!(["0 0 0", "", "1 2", "a b c"].map(waited_ns), [None, None, None, None]);
    }

    #[test]
    fn the_wait_for_a_core_is_the_second_number() {
        assert_eq!(waited_ns("602855 17 1"), Some(17));
        let (_tree, files) = tree(&[("proc/thread-self/schedstat", "602855 9 1\n")]);
        assert_eq!(ThreadAccount::now(&files).waited_ns, Some(9));
    }

    #[test]
    fn the_load_is_that_of_the_last_minute() {
        let (_tree, files) = tree(&[
            ("proc/loadavg", "1.08 0.84 0.50 1/94 18024\n"),
            ("sys/devices/system/cpu/online", "0-1\n"),
        ]);
        assert_eq!(load(&files), Some((1.08, 2)));
        let (_tree, files) = tree(&[("proc/loadavg", "1.08 0.84 0.50 1/94 18024\n")]);
        assert_eq!(load(&files), None);
    }

    #[test]
    fn switches_of_this_thread_are_counted() {
        let files = HostFiles::this_machine();
        let before = ThreadAccount::now(&files);
        std::thread::sleep(std::time::Duration::from_millis(1));
        let after = ThreadAccount::now(&files);
        assert!(after.voluntary > before.voluntary, "{before:?} {after:?}");
    }
}
