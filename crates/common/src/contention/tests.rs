//! What is worth a word and what is not, by figures that were seen; and the observer on a recorded machine.

use std::fs;
use std::time::{Duration, Instant};

use super::*;

const SECOND: u64 = 1_000_000_000;

/// Two seconds of a thread.
fn two_seconds(involuntary: u64, waited_ns: Option<u64>) -> Contention {
    Contention {
        thread_time_ns: 2 * SECOND,
        waited_ns,
        involuntary_switches: involuntary,
        voluntary_switches: 3,
        cores_wanted_ns: Some(2 * SECOND),
        cores_steal_ns: Some(0),
    }
}

#[test]
fn a_thread_that_shares_its_core_is_told_of_and_the_kernels_own_threads_are_not() {
    // Seen on an idle core, and on one with another busy task: see SHARED_CORE_PER_SEC.
    assert!(!two_seconds(11, Some(7_100_000)).cores_were_shared(None));
    assert!(!two_seconds(11, None).cores_were_shared(None));
    assert!(two_seconds(261, Some(1_002_662_929)).cores_were_shared(None));
    assert!(two_seconds(261, None).cores_were_shared(None));
}

#[test]
fn many_switches_that_cost_nothing_are_no_contention() {
    assert!(!two_seconds(200, Some(1_000_000)).cores_were_shared(None));
}

#[test]
fn a_thread_that_sleeps_waits_long_for_a_busy_core_and_shortly_for_a_sleeping_one() {
    // Seen of a receiver over TCP on a host with a load of 16 on 2 cores.
    let receiver = |waited_ns| Contention { voluntary_switches: 1500, ..two_seconds(8, Some(waited_ns)) };
    assert!(receiver(1_020_000_000).cores_were_shared(None));
    // 50 us each time.
    assert!(!receiver(75_000_000).cores_were_shared(None));
}

#[test]
fn the_threads_of_a_device_in_software_are_not_told_of_and_another_task_is() {
    let beside = |device, waited_ns| two_seconds(100, Some(waited_ns)).cores_were_shared(Some(device));
    assert!(!beside(DeviceKind::Software, 240_000_000) && beside(DeviceKind::Software, 1_000_000_000));
    assert!(beside(DeviceKind::Adapter, 240_000_000));
}

#[test]
fn a_few_switches_of_a_short_run_are_no_rate() {
    let short = Contention { thread_time_ns: SECOND / 100, waited_ns: None, ..two_seconds(4, None) };
    assert!(!short.cores_were_shared(None));
    assert!(Contention { involuntary_switches: 5, ..short }.cores_were_shared(None));
}

#[test]
fn steal_is_told_from_one_per_cent_and_two_ticks_on() {
    let steal = |steal: u64, wanted: u64| {
        let seen =
            Contention { cores_wanted_ns: Some(wanted), cores_steal_ns: Some(steal), ..two_seconds(0, None) };
        seen.steal()
    };
    assert_eq!(steal(SECOND / 50, 2 * SECOND), Some(0.01));
    assert_eq!(steal(SECOND / 100, 2 * SECOND), None);
    assert_eq!(steal(SECOND / 100, SECOND / 10), None, "one tick");
    assert_eq!(steal(0, 0), None);
    assert_eq!(Contention { cores_steal_ns: None, ..two_seconds(0, None) }.steal(), None);
}

#[test]
fn a_high_load_matters_where_threads_waited_or_nobody_knows() {
    assert!(two_seconds(0, None).may_suffer_from_load());
    assert!(two_seconds(0, Some(SECOND / 100)).may_suffer_from_load());
    assert!(!two_seconds(0, Some(100_000)).may_suffer_from_load());
    assert!(Load { average: 2.1, cores: 2 }.is_high() && !Load { average: 2.0, cores: 2 }.is_high());
}

#[test]
fn contention_is_told_with_its_figures() {
    let seen = Contention { cores_steal_ns: Some(SECOND / 10), ..two_seconds(31, Some(400_000)) };
    assert_eq!(
        seen.describe(),
        "waited 0.02 % of 2.0 s for a core, 31 involuntary and 3 voluntary switches, steal 5.0 %"
    );
    let unknown = Contention { waited_ns: None, cores_steal_ns: None, ..seen };
    assert_eq!(unknown.describe(), "measured 2.0 s, 31 involuntary and 3 voluntary switches");
}

fn account(at: Instant, involuntary: u64, waited_ns: Option<u64>) -> ThreadAccount {
    ThreadAccount { at, voluntary: 1, involuntary, waited_ns }
}

#[test]
fn threads_add_up_and_one_that_is_unknown_makes_the_wait_unknown() {
    let begin = Instant::now();
    let end = begin + Duration::from_secs(1);
    let mut sum = Contention::default();
    sum.add_thread(&account(begin, 1, Some(5)), &account(end, 4, Some(7)));
    sum.add_thread(&account(begin, 1, Some(5)), &account(end, 2, Some(8)));
    assert_eq!((sum.thread_time_ns, sum.involuntary_switches, sum.waited_ns), (2 * SECOND, 4, Some(5)));
    sum.add_thread(&account(begin, 1, None), &account(end, 2, Some(8)));
    sum.add_thread(&account(begin, 1, Some(5)), &account(end, 2, Some(8)));
    assert_eq!((sum.thread_time_ns, sum.waited_ns), (4 * SECOND, None));
}

#[test]
fn only_rounds_count_and_each_adds_its_ticks() {
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir_all(tree.path().join("proc")).unwrap();
    let ticks = |user: u64, steal: u64| {
        let line = format!("cpu1 {user} 0 0 50 0 0 0 {steal} 0 0");
        fs::write(tree.path().join("proc/stat"), format!("cpu 1 1 1 1 1 1 1 1\n{line}\nintr 0\n")).unwrap();
    };
    let observer = Observer::new(Cores::of([1]), HostFiles::below(tree.path()));
    ticks(100, 10);
    assert_eq!(observer.around(|| 7), 7);
    assert_eq!(observer.total(), None, "a warm-up");
    for round in 1..=2 {
        observer.begin_round();
        observer.around(|| std::thread::sleep(Duration::from_millis(1)));
        ticks(100 + 30 * round, 10 + 2 * round);
        observer.end_round();
        // Between the rounds: nobody's.
        ticks(100 + 30 * round + 5, 10 + 2 * round);
        ticks(100 + 30 * round, 10 + 2 * round);
    }
    observer.end_round();
    let total = observer.total().unwrap();
    assert!(total.thread_time_ns >= 2_000_000 && total.voluntary_switches >= 2, "{total:?}");
    assert_eq!((total.cores_wanted_ns, total.cores_steal_ns), (Some(64 * TICK_NS), Some(4 * TICK_NS)));
    assert_eq!(total.waited_ns, None, "the tree has no account of threads");
}
