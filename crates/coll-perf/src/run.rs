//! A run as every rank goes through it: the same points in the same order, and after each round what the ranks noted
//! comes together at rank 0.

use std::ops::Range;

use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::interrupt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::backend::nccl::Witness;
use crate::backend::{Backend, Carrier, Pacing, Side, Stretch};
use crate::collective::Part;
use crate::data::{Checked, Data, Recipe, Seed};
use crate::fault::Fault;
use crate::group::{ClockOffset, Group};
use crate::measure::{IterationLog, preemptions};
use crate::plan::{Plan, Point, largest_buffers};
use crate::report::RankHost;
use crate::summary::{RankLog, RoundSummary};

/// One point, measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What was measured.
    pub point: Point,
    /// How the backend did it.
    pub algorithm: String,
    /// How iterations began; aligned where the input had to be put back between them, whatever the plan says.
    pub pacing: Pacing,
    /// Its whole rounds: fewer than planned where the run was interrupted.
    pub rounds: Vec<RoundSummary>,
}

/// What rank 0 is told while the run goes on.
pub trait Observer {
    /// All ranks have met.
    fn met(&mut self, ranks: &[RankHost], carrier: &Carrier);
    /// Point number `index` of `of` begins.
    fn begins(&mut self, point: &Point, index: usize, of: usize);
    /// The log of what carries the bytes has been read.
    fn witnessed(&mut self, _: Witness) {}
    /// A round has ended.
    fn logs(&mut self, point: &Point, round: u32, logs: &[RankLog]);
    /// A point has been measured.
    fn measured(&mut self, measured: Measured);
}

/// Observes nothing: every rank but the first.
pub struct Silent;

impl Observer for Silent {
    fn met(&mut self, _: &[RankHost], _: &Carrier) {}
    fn begins(&mut self, _: &Point, _: usize, _: usize) {}
    fn logs(&mut self, _: &Point, _: u32, _: &[RankLog]) {}
    fn measured(&mut self, _: Measured) {}
}

/// What a rank notes in a round and sends to rank 0.
#[derive(Serialize, Deserialize)]
struct Note {
    starts_ns: Vec<u64>,
    stops_ns: Vec<u64>,
    batch_ns: Option<u64>,
    uncertainty_ns: u64,
    preemptions: u64,
    checked: Option<Checked>,
}

/// One rank of a run.
pub struct Rank<'a, B> {
    group: &'a mut dyn Group,
    backend: &'a mut B,
    plan: &'a Plan,
    host: RankHost,
    fault: Option<Fault>,
    clocks: Vec<ClockOffset>,
    /// Where contents are made before they are written, and what was read lies while it is compared.
    pieces: [Box<[u8]>; 2],
}

/// Data is filled in and compared in pieces that stay in the second-level cache.
const PIECE: usize = 64 << 10;

impl<'a, B: Backend> Rank<'a, B> {
    /// A rank on `machine` that will go through `plan`.
    pub fn new(
        group: &'a mut dyn Group,
        backend: &'a mut B,
        plan: &'a Plan,
        machine: &RankHost,
        fault: Option<Fault>,
    ) -> Self {
        let rank = group.rank();
        let (host, fault) = (machine.as_rank(rank), fault.filter(|fault| fault.rank() == rank));
        let piece = || vec![0; PIECE].into_boxed_slice();
        Self { group, backend, plan, host, fault, clocks: Vec::new(), pieces: [piece(), piece()] }
    }

    /// Goes through the plan; `observer` is told at rank 0 only.
    ///
    /// # Errors
    /// What any rank could not do; [`ErrorKind::Interrupted`] where a user asked to stop. All ranks end with an error
    /// then, and rank 0's observer has what was measured until there.
    pub fn run(mut self, observer: &mut dyn Observer) -> Result<()> {
        let points = self.plan.points()?;
        self.meet(observer)?;
        self.reserve(&points)?;
        for (index, point) in points.iter().enumerate() {
            if self.is_first() {
                observer.begins(point, index, points.len());
            }
            let stopped = self.measure(point, index as u32, observer)?;
            if stopped {
                return Err(Error::new(ErrorKind::Interrupted, "interrupted"));
            }
        }
        Ok(())
    }

    fn is_first(&self) -> bool {
        self.group.rank() == 0
    }

    fn meet(&mut self, observer: &mut dyn Observer) -> Result<()> {
        self.host.port = self.backend.port();
        let clock = self.group.clock_offset()?;
        if let Some(blobs) = self.group.gather(&encode(&(&self.host, clock))?)? {
            let all: Vec<(RankHost, ClockOffset)> =
                blobs.iter().map(|blob| decode(blob)).collect::<Result<_>>()?;
            let (ranks, clocks): (Vec<_>, Vec<_>) = all.into_iter().unzip();
            self.clocks = clocks;
            observer.met(&ranks, &self.backend.carrier());
        }
        Ok(())
    }

    fn reserve(&mut self, points: &[Point]) -> Result<()> {
        let (send, recv) = largest_buffers(points, self.group.rank());
        self.backend.reserve(send, recv)?;
        self.group.barrier()
    }

    /// Measures `point`; true where somebody asked to stop meanwhile.
    fn measure(&mut self, point: &Point, number: u32, observer: &mut dyn Observer) -> Result<bool> {
        let data = if self.plan.check { Data::of(&point.call)? } else { Data::unchecked(&point.call) };
        let algorithm = self.backend.set_up(self.group, &point.call, point.placement)?;
        let pacing = if point.consumes_input() { Pacing::Aligned } else { self.plan.pacing };
        let stretch = |iterations| Stretch {
            iterations,
            calls: self.plan.calls_per_iteration,
            pacing,
            delay: self.fault.and_then(Fault::delay),
        };
        let (warm_up, round) = (stretch(self.plan.warmup_iterations), stretch(self.plan.iterations));
        let mut measured =
            Measured { point: point.clone(), algorithm: algorithm.to_owned(), pacing, rounds: Vec::new() };
        self.fill(point, &data, Seed::of(number, 0));
        self.perform(&warm_up)?;
        let mut stopped = false;
        for index in 0..self.plan.rounds {
            let note = self.round(point, &data, Seed::of(number, index), &round)?;
            if let Some(blobs) = self.group.gather(&encode(&note)?)? {
                let (logs, checked) = self.collect(&blobs)?;
                observer.logs(point, index, &logs);
                measured.rounds.push(RoundSummary::of(&logs, pacing, round.calls, checked));
            }
            stopped = self.group.any(interrupt::requested())?;
            if stopped {
                break;
            }
        }
        if self.is_first() {
            observer.measured(measured);
        }
        Ok(stopped)
    }

    fn round(&mut self, point: &Point, data: &Data, seed: Seed, stretch: &Stretch) -> Result<Note> {
        if self.plan.check {
            self.fill(point, data, seed);
        }
        let before = preemptions();
        let log = self.perform(stretch)?;
        let preemptions = preemptions() - before;
        let checked = self.plan.check.then(|| {
            self.strike(point);
            self.check(point, data, seed)
        });
        // Nobody fills its buffers for the next round while another still looks at what came of this one.
        self.group.barrier()?;
        let IterationLog { starts_ns, stops_ns, batch_ns, uncertainty_ns } = log;
        Ok(Note { starts_ns, stops_ns, batch_ns, uncertainty_ns, preemptions, checked })
    }

    fn perform(&mut self, stretch: &Stretch) -> Result<IterationLog> {
        let mut log = IterationLog::with_room_for(stretch.iterations);
        self.group.barrier()?;
        self.backend.perform(stretch, &mut log)?;
        Ok(log)
    }

    /// Fills the input, and the memory of the result with what can't be mistaken for it. In place the result's comes
    /// first, since the input lies there too.
    fn fill(&mut self, point: &Point, data: &Data, seed: Seed) {
        let rank = self.group.rank();
        let shape = point.call.shape(rank);
        for part in shape.parts.iter().filter(|_| self.plan.check) {
            self.fill_buffer(
                Side::Recv,
                part.at,
                part.bytes,
                &data.recipe_of_poison(seed, part),
                |at, out| {
                    data.poison(seed, part, at, out);
                },
            );
        }
        self.fill_buffer(Side::Send, 0, shape.send_bytes, &data.recipe_of_input(seed, rank), |at, out| {
            data.input(seed, rank, at, out);
        });
    }

    fn fill_buffer(
        &mut self,
        side: Side,
        at: u64,
        bytes: u64,
        recipe: &Recipe<'_>,
        contents: impl Fn(u64, &mut [u8]),
    ) {
        if self.backend.fill(side, at, bytes, recipe) {
            return;
        }
        let [piece, _] = &mut self.pieces;
        each_piece(bytes, |offset, bytes| {
            contents(offset, &mut piece[..bytes]);
            self.backend.write(side, at + offset, &piece[..bytes]);
        });
    }

    fn check(&mut self, point: &Point, data: &Data, seed: Seed) -> Checked {
        let shape = point.call.shape(self.group.rank());
        let mut checked = Checked::default();
        for part in &shape.parts {
            checked.merge(self.check_part(data, seed, part));
        }
        if let Some(wrong) = checked.first_wrong.as_mut() {
            wrong.rank = self.group.rank();
        }
        checked
    }

    fn check_part(&mut self, data: &Data, seed: Seed, part: &Part) -> Checked {
        let recipe = data.recipe_of_part(seed, part);
        let element = recipe.element_bytes();
        let Some(found) = self.backend.compare(part.at, part.bytes, &recipe) else {
            return self.check_range(data, seed, part, 0..part.bytes);
        };
        let clean = Checked { checked_elements: part.bytes / element, ..Checked::default() };
        if found.wrong_elements == 0 {
            return clean;
        }
        // Where it is and what it should be is said in words once; the pieces begin at multiples of 16 bytes.
        let begin = found.first * element / 16 * 16;
        let first = self.check_range(data, seed, part, begin..part.bytes.min(begin + 16));
        Checked { wrong_elements: found.wrong_elements, first_wrong: first.first_wrong, ..clean }
    }

    fn check_range(&mut self, data: &Data, seed: Seed, part: &Part, range: Range<u64>) -> Checked {
        let [found, scratch] = &mut self.pieces;
        let mut checked = Checked::default();
        each_piece(range.end - range.start, |offset, bytes| {
            let offset = range.start + offset;
            self.backend.read(Side::Recv, part.at + offset, &mut found[..bytes]);
            checked.merge(data.check(seed, part, offset, &found[..bytes], &mut scratch[..bytes]));
        });
        checked
    }

    /// For tests: turns a bit of the result, as bad memory would.
    fn strike(&mut self, point: &Point) {
        let recv_bytes = point.call.shape(self.group.rank()).recv_bytes;
        let offset = self.fault.and_then(Fault::flipped_byte).filter(|offset| *offset < recv_bytes);
        if let Some(offset) = offset {
            let mut byte = [0];
            self.backend.read(Side::Recv, offset, &mut byte);
            self.backend.write(Side::Recv, offset, &[byte[0] ^ 1]);
        }
    }

    fn collect(&self, blobs: &[Vec<u8>]) -> Result<(Vec<RankLog>, Option<Checked>)> {
        let mut logs = Vec::with_capacity(blobs.len());
        let mut all: Option<Checked> = None;
        for (blob, clock) in blobs.iter().zip(&self.clocks) {
            let Note { starts_ns, stops_ns, batch_ns, uncertainty_ns, preemptions, checked } = decode(blob)?;
            let log = IterationLog { starts_ns, stops_ns, batch_ns, uncertainty_ns };
            logs.push(RankLog { log, clock: *clock, preemptions });
            if let Some(checked) = checked {
                all.get_or_insert_default().merge(checked);
            }
        }
        Ok((logs, all))
    }
}

/// Visits `bytes` in pieces: offset and length of each.
fn each_piece(bytes: u64, mut visit: impl FnMut(u64, usize)) {
    for offset in (0..bytes).step_by(PIECE) {
        visit(offset, PIECE.min((bytes - offset) as usize));
    }
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| unreadable(&error))
}

fn decode<T: DeserializeOwned>(blob: &[u8]) -> Result<T> {
    serde_json::from_slice(blob).map_err(|error| unreadable(&error))
}

fn unreadable(error: &serde_json::Error) -> Error {
    Error::new(ErrorKind::Protocol, format!("what a rank has noted can't be read: {error}"))
}
