use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::*;
use crate::dtype::DataType;
use crate::group::in_process::group;
use crate::plan::Plan;
use crate::redop::RedOp;
use crate::report::RankHost;
use crate::run::{Measured, Observer, Rank};
use crate::summary::RankLog;

/// Mail between the threads of a test: what each has sent to each, byte by byte.
#[derive(Default)]
struct Office {
    boxes: Mutex<Vec<VecDeque<u8>>>,
    changed: Condvar,
}

struct Mail {
    office: Arc<Office>,
    rank: u32,
    n_ranks: u32,
}

impl Mail {
    fn of(&self, from: u32, to: u32) -> usize {
        (from * self.n_ranks + to) as usize
    }
}

impl Exchange for Mail {
    fn carrier(&self) -> Carrier {
        Carrier { backend: "host".into(), transport: "mail".into(), note: "a test".into() }
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn n_ranks(&self) -> u32 {
        self.n_ranks
    }

    unsafe fn exchange(&mut self, sends: &[Piece], recvs: &[Piece]) -> Result<()> {
        let mut boxes = self.office.boxes.lock().unwrap();
        for piece in sends {
            assert_ne!((piece.peer, piece.bytes == 0), (self.rank, true));
            // SAFETY: as the caller says.
            let bytes = unsafe { std::slice::from_raw_parts(pointer(piece.address), piece.bytes as usize) };
            boxes[self.of(self.rank, piece.peer)].extend(bytes);
        }
        self.office.changed.notify_all();
        for piece in recvs {
            let from = self.of(piece.peer, self.rank);
            while boxes[from].len() < piece.bytes as usize {
                let (waited, timeout) =
                    self.office.changed.wait_timeout(boxes, Duration::from_secs(20)).unwrap();
                assert!(!timeout.timed_out(), "rank {} waits for {piece:?}", self.rank);
                boxes = waited;
            }
            let bytes: Vec<u8> = boxes[from].drain(..piece.bytes as usize).collect();
            // SAFETY: as the caller says.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer(piece.address), bytes.len()) };
        }
        Ok(())
    }
}

/// Keeps what was wrong.
#[derive(Default)]
struct Notes(Vec<String>, usize);

impl Observer for Notes {
    fn met(&mut self, _: &[RankHost], _: &Carrier) {}
    fn begins(&mut self, _: &crate::plan::Point, _: usize, _: usize) {}
    fn logs(&mut self, _: &crate::plan::Point, _: u32, _: &[RankLog]) {}
    fn measured(&mut self, measured: Measured) {
        for round in &measured.rounds {
            let checked = round.checked.clone().unwrap_or_default();
            self.1 += checked.checked_elements as usize;
            if checked.wrong_elements > 0 {
                self.0.push(format!("{} ({}): {checked:?}", measured.point.describe(), measured.algorithm));
            }
        }
    }
}

fn wrong_results(plan: &Plan) -> Vec<String> {
    let n_ranks = plan.n_ranks;
    let office = Arc::new(Office::default());
    office.boxes.lock().unwrap().resize_with((n_ranks * n_ranks) as usize, VecDeque::new);
    let mut notes = Notes::default();
    std::thread::scope(|scope| {
        let one = |(rank, mut end): (u32, crate::group::in_process::InProcess)| {
            let office = Arc::clone(&office);
            scope.spawn(move || {
                let mut notes = Notes::default();
                let mut backend = Messages::over(Mail { office, rank, n_ranks }).unwrap();
                Rank::new(&mut end, &mut backend, plan, &RankHost::this_machine(), None)
                    .run(&mut notes)
                    .unwrap();
                notes
            })
        };
        let ends = group(n_ranks, Duration::from_secs(30));
        let threads: Vec<_> = (0..n_ranks).zip(ends).map(one).collect();
        for (rank, thread) in threads.into_iter().enumerate() {
            let of_rank = thread.join().unwrap();
            if rank == 0 {
                notes = of_rank;
            }
        }
    });
    assert!(notes.1 > 0, "something was checked");
    notes.0
}

#[test]
fn every_collective_gives_the_right_result_at_every_size_for_any_number_of_ranks() {
    for n_ranks in [1_u32, 2, 3, 4, 5, 8] {
        let mut plan = crate::plan::tests::plan(&[]);
        plan.collectives = crate::collective::ALL
            .iter()
            .filter(|collective| !collective.power_of_two || n_ranks.is_power_of_two())
            .map(|collective| collective.kind)
            .collect();
        // Below and above each threshold, and odd.
        plan.sizes_bytes = vec![256, 1220, 13_012];
        plan.roots = vec![n_ranks - 1];
        (plan.n_ranks, plan.iterations, plan.rounds) = (n_ranks, 2, 2);
        assert_eq!(wrong_results(&plan), Vec::<String>::new(), "{n_ranks} ranks");
    }
}

#[test]
fn every_type_and_operation_is_reduced_right() {
    let mut plan = crate::plan::tests::plan(&["all_reduce", "reduce_scatter", "reduce"]);
    plan.dtypes = DataType::ALL.to_vec();
    plan.redops = RedOp::ALL.to_vec();
    plan.sizes_bytes = vec![96, 4000];
    (plan.n_ranks, plan.iterations, plan.rounds) = (3, 1, 1);
    assert_eq!(wrong_results(&plan), Vec::<String>::new());
}
