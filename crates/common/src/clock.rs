//! The clocks of the measured loops.
//!
//! Latency needs a reading for every message, so [`TscClock`] reads the processor's time stamp counter where it
//! runs at one rate on all processors and in all power states, calibrated against the kernel's clock. Bandwidth needs one reading for each batch of completions, tens of microseconds apart, so the kernel's
//! monotonic clock (about 25 ns a reading through the vDSO on bare metal) is exact enough. The loop is generic over [`Clock`], so that tests run on a clock of their own.

use std::time::Instant;

/// A monotonic source of nanoseconds.
pub trait Clock {
    /// Nanoseconds since some fixed moment.
    fn now_ns(&self) -> u64;
}

/// `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    origin: Instant,
}

impl MonotonicClock {
    /// A clock that starts at zero now.
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Clock for MonotonicClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        // 64 bits of nanoseconds last 584 years.
        self.origin.elapsed().as_nanos() as u64
    }
}

/// The processor's time stamp counter, scaled to nanoseconds.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub struct TscClock {
    origin: u64,
    /// Nanoseconds for one tick, in units of 2⁻³².
    scale: u64,
}

/// How long a calibration watches both clocks. The reading of each end is uncertain by some 50 ns, so that 20 ms
/// give the rate to 5 parts in a million, well below what a latency shows.
#[cfg(target_arch = "x86_64")]
const CALIBRATION: std::time::Duration = std::time::Duration::from_millis(20);
/// Two calibrations that differ by more than this share mean that one of the clocks was disturbed.
#[cfg(target_arch = "x86_64")]
const CALIBRATION_TOLERANCE: f64 = 1e-4;

#[cfg(target_arch = "x86_64")]
impl TscClock {
    /// A clock that starts at zero now; `None` where the counter can't be trusted: neither does the kernel keep its
    /// own time with it, nor does the processor promise one rate in all power states; or two calibrations disagree.
    pub fn start(files: &crate::host::HostFiles) -> Option<Self> {
        if !(kernel_keeps_time_with_tsc(files) || processor_promises_one_rate(files)) {
            return None;
        }
        let (first, second) = (ns_per_tick(), ns_per_tick());
        let agree = (first - second).abs() <= first * CALIBRATION_TOLERANCE;
        let scale = (f64::midpoint(first, second) * 2_f64.powi(32)) as u64;
        agree.then(|| Self { origin: read_tsc(), scale })
    }
}

#[cfg(target_arch = "x86_64")]
impl Clock for TscClock {
    #[inline(always)]
    fn now_ns(&self) -> u64 {
        let ticks = read_tsc().wrapping_sub(self.origin);
        ((u128::from(ticks) * u128::from(self.scale)) >> 32) as u64
    }
}

/// The kernel watches the counter, and stops using it when it drifts or differs between processors.
#[cfg(target_arch = "x86_64")]
fn kernel_keeps_time_with_tsc(files: &crate::host::HostFiles) -> bool {
    let source = files.text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    source.as_deref() == Some("tsc")
}

/// In a guest the kernel has a clock of the hypervisor's, whose base is the same counter.
#[cfg(target_arch = "x86_64")]
fn processor_promises_one_rate(files: &crate::host::HostFiles) -> bool {
    let flags = files.value_of("/proc/cpuinfo", "flags").unwrap_or_default();
    let has = |wanted: &str| flags.split_whitespace().any(|flag| flag == wanted);
    has("constant_tsc") && has("nonstop_tsc")
}

/// The counter, read no earlier than the instructions before it are done: a reading that slips ahead of the load
/// that sees a message arrive would be short by a cache miss.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[allow(unsafe_code, reason = "processor instructions without a safe name")]
fn read_tsc() -> u64 {
    // SAFETY: every x86-64 processor has both instructions, and they touch no memory.
    unsafe {
        std::arch::x86_64::_mm_lfence();
        std::arch::x86_64::_rdtsc()
    }
}

#[cfg(target_arch = "x86_64")]
fn ns_per_tick() -> f64 {
    let (begin, first) = (Instant::now(), read_tsc());
    while begin.elapsed() < CALIBRATION {
        std::hint::spin_loop();
    }
    let (elapsed, last) = (begin.elapsed(), read_tsc());
    elapsed.as_nanos() as f64 / (last - first) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_runs_backwards() {
        let clock = MonotonicClock::start();
        let first = clock.now_ns();
        assert!(clock.now_ns() >= first);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_counter_agrees_with_the_kernels_clock_where_it_is_trusted() {
        // Without the flags there is nothing to compare; the tool then uses the kernel's clock.
        let Some(tsc) = TscClock::start(&crate::host::HostFiles::this_machine()) else { return };
        let begin = Instant::now();
        let first = tsc.now_ns();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let (ticks, kernel) = ((tsc.now_ns() - first) as f64, begin.elapsed().as_nanos() as f64);
        assert!((ticks / kernel - 1.0).abs() < 0.01, "{ticks} against {kernel}");
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_counter_that_stops_in_power_states_is_not_used() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir(tree.path().join("proc")).unwrap();
        std::fs::write(tree.path().join("proc/cpuinfo"), "flags\t\t: fpu tsc constant_tsc\n").unwrap();
        let files = crate::host::HostFiles::below(tree.path());
        assert!(!processor_promises_one_rate(&files) && TscClock::start(&files).is_none());
        let source = tree.path().join("sys/devices/system/clocksource/clocksource0");
        std::fs::create_dir_all(&source).unwrap();
        std::fs::write(source.join("current_clocksource"), "hpet\n").unwrap();
        assert!(!kernel_keeps_time_with_tsc(&files));
        std::fs::write(source.join("current_clocksource"), "tsc\n").unwrap();
        assert!(kernel_keeps_time_with_tsc(&files));
    }
}
