use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::backend::Pacing;
use crate::collective;
use crate::dtype::DataType;
use crate::group::in_process::group;
use crate::plan::{Plan, Point};
use crate::redop::RedOp;
use crate::report::RankHost;
use crate::run::{Measured, Observer, Rank, Silent};
use crate::summary::RankLog;

const LIMIT: Duration = Duration::from_secs(20);

/// Keeps how each point was done, and what was wrong with it.
#[derive(Default)]
struct Notes {
    algorithms: Vec<String>,
    wrong: Vec<String>,
}

impl Observer for Notes {
    fn met(&mut self, _: &[RankHost], _: &Carrier) {}
    fn begins(&mut self, _: &Point, _: usize, _: usize) {}
    fn logs(&mut self, _: &Point, _: u32, _: &[RankLog]) {}
    fn measured(&mut self, measured: Measured) {
        let first = measured.rounds.iter().find_map(|round| round.checked.as_ref()?.first_wrong.clone());
        self.wrong.extend(first.map(|first| format!("{}: {first:?}", measured.point.describe())));
        self.algorithms.push(measured.algorithm);
    }
}

/// Runs `plan` with ranks for which `cache_bytes` are all that caches hold: 0 has all results stored past them.
fn run(plan: &Plan, cache_bytes: u64) -> Notes {
    let mut notes = Notes::default();
    let mut ends = group(plan.n_ranks, LIMIT);
    let first = ends.remove(0);
    let world = &World::with_caches_of(cache_bytes, plan.n_ranks, LIMIT, first.alarm());
    let machine = &RankHost::this_machine();
    let rank = |mut end, observer: &mut dyn Observer| {
        let mut shm = Shm::join(world, Group::rank(&end)).unwrap();
        Rank::new(&mut end, &mut shm, plan, machine, None).run(observer).unwrap();
    };
    std::thread::scope(|scope| {
        ends.into_iter().for_each(|end| drop(scope.spawn(move || rank(end, &mut Silent))));
        rank(first, &mut notes);
    });
    notes
}

fn plan(op: &str, n_ranks: u32, sizes_bytes: Vec<u64>) -> Plan {
    let plan = crate::plan::tests::plan(&[op]);
    Plan { n_ranks, sizes_bytes, roots: vec![n_ranks - 1], rounds: 2, ..plan }
}

fn every_collective(n_ranks: u32) -> impl Iterator<Item = &'static str> {
    let takes = move |c: &&&collective::Collective| !c.power_of_two || n_ranks.is_power_of_two();
    collective::ALL.iter().filter(takes).map(|collective| collective.name)
}

#[test]
fn every_algorithm_gives_right_data_through_the_caches_and_past_them() {
    let mut seen = std::collections::BTreeSet::new();
    for n_ranks in [1, 2, 3, 4] {
        for op in every_collective(n_ranks) {
            for cache_bytes in [0, u64::MAX] {
                let notes = run(&plan(op, n_ranks, vec![256, 100_000]), cache_bytes);
                assert!(notes.wrong.is_empty(), "{n_ranks} ranks: {:?}", notes.wrong);
                seen.extend(notes.algorithms);
            }
        }
    }
    let all = ["direct pull", "direct push", "recursive doubling", "slices", "slots"];
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), all);
}

#[test]
fn small_and_large_calls_may_alternate() {
    let mut plan = plan("all_reduce", 3, vec![64, 8192, 128, 4096, 256]);
    plan.pacing = Pacing::Aligned;
    assert!(run(&plan, u64::MAX).wrong.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_size_type_reduction_and_number_of_ranks_is_right(
        n_ranks in 1_u32..7,
        op in 0_usize..11,
        size in 96_u64..50_000,
        dtype in 0_usize..12,
        redop in 0_usize..5,
        aligned: bool,
        streaming: bool,
    ) {
        let op = collective::ALL[op];
        prop_assume!(!op.power_of_two || n_ranks.is_power_of_two());
        let mut plan = plan(op.name, n_ranks, vec![size]);
        plan.dtypes = vec![DataType::ALL[dtype]];
        plan.redops = vec![RedOp::ALL[redop]];
        plan.pacing = if aligned { Pacing::Aligned } else { Pacing::Pipelined };
        let notes = run(&plan, if streaming { 0 } else { u64::MAX });
        prop_assert!(notes.wrong.is_empty(), "{:?}", notes.wrong);
    }
}
