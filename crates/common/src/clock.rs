//! The clocks of the measured loops.
//!
//! Latency needs a reading for every message, so [`TscClock`] reads the processor's time stamp counter where it
//! runs at one rate on all processors and in all power states, calibrated against the kernel's clock ([`FineClock`]).
//! Bandwidth needs one reading for each batch of completions, tens of microseconds apart, so the kernel's monotonic
//! clock (about 25 ns a reading through the vDSO on bare metal) is exact enough. The loop is generic over [`Clock`], so
//! that tests run on a clock of their own; the report names the one that was used ([`ClockUse`]).

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::host::HostFiles;

/// Which clock has taken times, and why that one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockUse {
    /// The clock.
    pub source: ClockSource,
    /// Its rate by calibration; absent for the kernel's clock, which counts nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tick_hz: Option<f64>,
    /// Why it and not the other one.
    pub why: String,
}

/// A clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockSource {
    /// The processor's time stamp counter.
    Tsc,
    /// The kernel's `CLOCK_MONOTONIC`.
    ClockMonotonic,
}

impl ClockUse {
    /// The kernel's clock, because of `why`.
    pub fn monotonic(why: &str) -> Self {
        Self { source: ClockSource::ClockMonotonic, tick_hz: None, why: why.to_owned() }
    }

    /// In words: `TSC at 2.100 GHz (the kernel keeps its time with it)`.
    pub fn describe(&self) -> String {
        let rate = self.tick_hz.map_or(String::new(), |hz| format!(" at {:.3} GHz", hz / 1e9));
        let name = match self.source {
            ClockSource::Tsc => "TSC",
            ClockSource::ClockMonotonic => "CLOCK_MONOTONIC",
        };
        format!("{name}{rate} ({})", self.why)
    }
}

/// The clock for a reading a message: whoever measures matches on it once, before the loop.
#[derive(Clone, Copy, Debug)]
pub enum FineClock {
    /// The processor's counter.
    #[cfg(target_arch = "x86_64")]
    Tsc(TscClock),
    /// The kernel's clock.
    Monotonic(MonotonicClock),
}

impl FineClock {
    /// The processor's counter where it can be trusted, else the kernel's clock; and why.
    pub fn best(files: &HostFiles) -> (Self, ClockUse) {
        match Self::tsc(files) {
            Ok(chosen) => chosen,
            Err(why_not) => {
                let why = format!("not the TSC: {why_not}");
                (Self::Monotonic(MonotonicClock::start()), ClockUse::monotonic(&why))
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn tsc(files: &HostFiles) -> Result<(Self, ClockUse), String> {
        let why = tsc_is_trusted(files)?.to_owned();
        let clock = TscClock::calibrated()?;
        let tick_hz = Some(2_f64.powi(32) * 1e9 / clock.scale as f64);
        Ok((Self::Tsc(clock), ClockUse { source: ClockSource::Tsc, tick_hz, why }))
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn tsc(_: &HostFiles) -> Result<(Self, ClockUse), String> {
        Err("this processor has another counter".to_owned())
    }
}

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
    /// A clock that starts at zero now, by two calibrations; or how far they are apart.
    fn calibrated() -> Result<Self, String> {
        let (first, second) = (ns_per_tick(), ns_per_tick());
        let apart = (first - second).abs() / first;
        if apart > CALIBRATION_TOLERANCE {
            return Err(format!("two calibrations differ by {:.3} %", apart * 1e2));
        }
        let scale = (f64::midpoint(first, second) * 2_f64.powi(32)) as u64;
        Ok(Self { origin: read_tsc(), scale })
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

/// Why the counter is trusted, or why not. The kernel watches it, and stops using it when it drifts or differs between
/// processors. In a guest the kernel has a clock of the hypervisor's, whose base is the same counter: there the
/// processor's promise has to do.
#[cfg(target_arch = "x86_64")]
fn tsc_is_trusted(files: &HostFiles) -> Result<&'static str, String> {
    let source = files.text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    if source.as_deref() == Some("tsc") {
        return Ok("the kernel keeps its time with it");
    }
    let flags = files.value_of("/proc/cpuinfo", "flags").unwrap_or_default();
    let has = |wanted: &str| flags.split_whitespace().any(|flag| flag == wanted);
    if has("constant_tsc") && has("nonstop_tsc") {
        return Ok("the processor promises one rate");
    }
    let source = source.as_deref().unwrap_or("another clock");
    Err(format!("the kernel keeps its time with {source}, and the processor does not promise one rate"))
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
        let (FineClock::Tsc(tsc), chosen) = FineClock::best(&HostFiles::this_machine()) else { return };
        assert_eq!(chosen.source, ClockSource::Tsc);
        assert!(chosen.tick_hz.is_some_and(|hz| (1e8..1e11).contains(&hz)), "{chosen:?}");
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
        let files = HostFiles::below(tree.path());
        let (FineClock::Monotonic(_), chosen) = FineClock::best(&files) else { panic!("not trusted") };
        assert_eq!(
            chosen.describe(),
            "CLOCK_MONOTONIC (not the TSC: the kernel keeps its time with another clock, and the processor does not \
             promise one rate)"
        );
        std::fs::write(tree.path().join("proc/cpuinfo"), "flags\t\t: nonstop_tsc constant_tsc\n").unwrap();
        assert_eq!(tsc_is_trusted(&files), Ok("the processor promises one rate"));
        std::fs::write(tree.path().join("proc/cpuinfo"), "flags\t\t: fpu\n").unwrap();
        let source = tree.path().join("sys/devices/system/clocksource/clocksource0");
        std::fs::create_dir_all(&source).unwrap();
        std::fs::write(source.join("current_clocksource"), "hpet\n").unwrap();
        assert!(tsc_is_trusted(&files).unwrap_err().contains("with hpet,"));
        std::fs::write(source.join("current_clocksource"), "tsc\n").unwrap();
        assert_eq!(tsc_is_trusted(&files), Ok("the kernel keeps its time with it"));
    }
}
