//! The stages of each collective.
//!
//! - What is only moved goes directly from the rank that has it to the rank that wants it, all at once: the shapes of
//!   the ranks' buffers say what that is. A large broadcast is cut: the root gives each rank a slice, and the ranks give
//!   them to each other, so that no rank sends everything to everybody.
//! - A reduction that is small goes everywhere whole and is reduced there: one stage. A large one is cut into slices, a
//!   slice a rank: each gets its slice of all inputs, reduces it, and gives it to those who want it. Chunk by chunk, so
//!   that what has come is reduced while it is in the cache, and the results of one chunk travel with the inputs of the
//!   next.
//! - A hypercube doubles what a rank has in each stage.

use std::sync::Arc;

use linkproof_common::error::Result;
use linkproof_common::memory::{Buffer, HostBuffer};

use super::{Local, Piece, Program, Stage};
use crate::backend::host::copy::Stores;
use crate::backend::host::fold::{Job, fold_of};
use crate::backend::host::memory::{Memory, whole_pages};
use crate::collective::{Call, Kind, Shape, Source};

/// Tests go through every way with little data.
const SCALE: u64 = if cfg!(test) { 256 } else { 1 };
/// Reductions up to this size go everywhere whole: a second stage costs more than the bytes.
const SMALL_REDUCTION: u64 = (16 << 10) / SCALE;
/// Bytes of all ranks' slices in one chunk of a large reduction.
const CHUNK: u64 = (1 << 20) / SCALE;
/// Broadcasts from this size on are cut into slices.
const LARGE_BROADCAST: u64 = (256 << 10) / SCALE;
/// Slices begin at lines.
const LINE: u64 = 64;

/// Where a rank's buffers are.
#[derive(Clone, Copy)]
struct Buffers {
    rank: u32,
    send: u64,
    recv: u64,
}

/// Stages, the memory that they receive into to reduce, and the name of the algorithm.
type Made = (Vec<Stage>, Option<Arc<HostBuffer>>, &'static str);

/// The program of `rank`, and the name of its algorithm.
///
/// # Errors
/// `memory` where there is none for what is received to be reduced.
pub(super) fn of(call: &Call, rank: u32, memory: &Memory) -> Result<(Program, &'static str)> {
    let buffers = Buffers { rank, send: memory.send_address(), recv: memory.recv_address() };
    let shape = call.shape(rank);
    let (stages, scratch, name) = stages(call, &shape, buffers)?;
    let restore = (memory.is_shared() && call.collective.reduces).then(|| Local::Copy {
        from: memory.input_address(),
        to: memory.send_address(),
        bytes: shape.send_bytes,
    });
    let fold = call.redop.map(|redop| fold_of(call.dtype, redop));
    Ok((Program { stages, fold, scratch, restore, shape }, name))
}

/// The bytes of the memory that `rank` receives into to reduce.
pub(super) fn scratch_bytes(call: &Call, rank: u32) -> u64 {
    if !call.collective.reduces {
        return 0;
    }
    let (count, bytes) = Reduction::new(call, Buffers { rank, send: 0, recv: 0 }).room();
    count * bytes
}

fn stages(call: &Call, shape: &Shape, buffers: Buffers) -> Result<Made> {
    let bytes = call.count_bytes();
    let moved = |stages, name| Ok((stages, None, name));
    match call.collective.kind {
        Kind::Hypercube => moved(doubling(call, buffers), "recursive doubling"),
        Kind::Broadcast if call.n_ranks > 2 && bytes >= LARGE_BROADCAST => {
            moved(scatter_all_gather(call, buffers), "scatter and all_gather")
        }
        Kind::ReduceScatter => Reduction::new(call, buffers).by_blocks(),
        Kind::Reduce | Kind::AllReduce if bytes <= SMALL_REDUCTION => Reduction::new(call, buffers).whole(),
        Kind::Reduce | Kind::AllReduce => Reduction::new(call, buffers).by_slices(),
        _ => moved(vec![direct(call, shape, buffers)], "direct exchange"),
    }
}

/// The peers in the order in which a rank turns to them: not all to the same one first.
fn by_distance(pieces: &mut [Piece], rank: u32, n_ranks: u32, backwards: bool) {
    pieces.sort_by_key(|piece| {
        let ahead = (piece.peer + n_ranks - rank) % n_ranks;
        if backwards { n_ranks - ahead } else { ahead }
    });
}

/// Everything that is only moved, from whom has it to whom wants it.
fn direct(call: &Call, shape: &Shape, buffers: Buffers) -> Stage {
    let mut stage = Stage::default();
    for part in shape.parts.iter().filter(|part| part.bytes > 0) {
        let Source::Rank { rank, offset } = part.source else { continue };
        let to = buffers.recv + part.at;
        if rank != buffers.rank {
            stage.recvs.push(Piece { peer: rank, address: to, bytes: part.bytes });
        } else if buffers.send + offset != to {
            stage.then.push(Local::Copy { from: buffers.send + offset, to, bytes: part.bytes });
        }
    }
    for peer in (0..call.n_ranks).filter(|peer| *peer != buffers.rank) {
        for part in call.shape(peer).parts.iter().filter(|part| part.bytes > 0) {
            if let Source::Rank { rank, offset } = part.source
                && rank == buffers.rank
            {
                stage.sends.push(Piece { peer, address: buffers.send + offset, bytes: part.bytes });
            }
        }
    }
    by_distance(&mut stage.sends, buffers.rank, call.n_ranks, false);
    by_distance(&mut stage.recvs, buffers.rank, call.n_ranks, true);
    stage
}

/// Where slice `index` of `count` begins in `bytes`, at a line.
fn edge(bytes: u64, index: u64, count: u64) -> u64 {
    if index == count { bytes } else { bytes / LINE * index / count * LINE }
}

/// The slices of a buffer, by rank: where each begins and how long it is.
fn slice(bytes: u64, rank: u32, n_ranks: u32) -> (u64, u64) {
    let (rank, n) = (u64::from(rank), u64::from(n_ranks));
    let begin = edge(bytes, rank, n);
    (begin, edge(bytes, rank + 1, n) - begin)
}

fn scatter_all_gather(call: &Call, buffers: Buffers) -> Vec<Stage> {
    let (bytes, root, rank) = (call.count_bytes(), call.root.unwrap_or(0), buffers.rank);
    let slice = |rank| slice(bytes, rank, call.n_ranks);
    let piece = |peer, base: u64, of| {
        let (begin, bytes) = slice(of);
        Piece { peer, address: base + begin, bytes }
    };
    let others = || (0..call.n_ranks).filter(|peer| *peer != rank);
    let (mut scatter, mut gather) = (Stage::default(), Stage::default());
    if rank == root {
        scatter.sends = others().map(|peer| piece(peer, buffers.send, peer)).collect();
        gather.sends = others().map(|peer| piece(peer, buffers.send, rank)).collect();
        if buffers.send != buffers.recv {
            gather.then.push(Local::Copy { from: buffers.send, to: buffers.recv, bytes });
        }
    } else {
        scatter.recvs = vec![piece(root, buffers.recv, rank)];
        // The root has everything.
        gather.sends =
            others().filter(|peer| *peer != root).map(|peer| piece(peer, buffers.recv, rank)).collect();
        gather.recvs = others().map(|peer| piece(peer, buffers.recv, peer)).collect();
    }
    for stage in [&mut scatter, &mut gather] {
        stage.sends.retain(|piece| piece.bytes > 0);
        stage.recvs.retain(|piece| piece.bytes > 0);
        by_distance(&mut stage.sends, rank, call.n_ranks, false);
        by_distance(&mut stage.recvs, rank, call.n_ranks, true);
    }
    vec![scatter, gather]
}

fn doubling(call: &Call, buffers: Buffers) -> Vec<Stage> {
    let (rank, block) = (buffers.rank, call.count_bytes());
    let at = |rank: u32| buffers.recv + u64::from(rank) * block;
    let mut first = Stage::default();
    if buffers.send != at(rank) {
        first.then.push(Local::Copy { from: buffers.send, to: at(rank), bytes: block });
    }
    let step = |bit: u32| {
        let peer = rank ^ (1 << bit);
        let range = |rank: u32| Piece { peer, address: at(rank >> bit << bit), bytes: block << bit };
        Stage { sends: vec![range(rank)], recvs: vec![range(peer)], then: Vec::new() }
    };
    std::iter::once(first).chain((0..call.n_ranks.trailing_zeros()).map(step)).collect()
}

/// What reductions have in common.
struct Reduction<'a> {
    call: &'a Call,
    buffers: Buffers,
    others: Vec<u32>,
}

impl<'a> Reduction<'a> {
    fn new(call: &'a Call, buffers: Buffers) -> Self {
        // From the next rank on, so that no two send to the same one first.
        let others = (1..call.n_ranks).map(|distance| (buffers.rank + distance) % call.n_ranks).collect();
        Self { call, buffers, others }
    }

    /// How many pieces there is room for, and for how many bytes each: a multiple of lines.
    fn room(&self) -> (u64, u64) {
        let (bytes, others) = (self.call.count_bytes(), self.others.len() as u64);
        let (count, bytes) = match self.call.collective.kind {
            Kind::ReduceScatter => (others, bytes),
            _ if bytes <= SMALL_REDUCTION => {
                (others, if self.is_wanted(self.buffers.rank) { bytes } else { 0 })
            }
            // A rank that does not want the result has it aside, until it is sent with the inputs of the next chunk.
            _ => (others + 1, CHUNK.div_ceil(u64::from(self.call.n_ranks)) + 2 * LINE),
        };
        (count, bytes.next_multiple_of(LINE))
    }

    /// That room, and where each piece begins.
    fn scratch(&self) -> Result<(Option<Arc<HostBuffer>>, Vec<u64>)> {
        let (count, bytes) = self.room();
        let scratch = match count * bytes {
            0 => None,
            all => Some(whole_pages(all)?),
        };
        let base = scratch.as_ref().map_or(0, |scratch| scratch.address());
        Ok((scratch, (0..count).map(|index| base + index * bytes).collect()))
    }

    fn is_wanted(&self, rank: u32) -> bool {
        self.call.collective.kind == Kind::AllReduce || self.call.root.unwrap_or(0) == rank
    }

    /// Reduces `bytes` from `begin` of the own input and of what has come to `places`, to `output`.
    fn reduce(&self, places: &[u64], begin: u64, bytes: u64, output: u64) -> Local {
        let input = |address: u64| super::pointer(address).cast_const();
        let begin_of = |place: &u64| input(*place).wrapping_sub(begin as usize);
        let inputs = std::iter::once(input(self.buffers.send)).chain(places.iter().map(begin_of)).collect();
        let outputs = vec![super::pointer(output).wrapping_sub(begin as usize)];
        let job = Job { inputs, outputs, stores: Stores::Cached };
        Local::Reduce { job, begin: begin as usize, bytes: bytes as usize }
    }

    /// Whole inputs to everybody who wants the result.
    fn whole(self) -> Result<Made> {
        let bytes = self.call.count_bytes();
        let own = self.is_wanted(self.buffers.rank);
        let (scratch, places) = self.scratch()?;
        let mut stage = Stage::default();
        let wanting = self.others.iter().filter(|peer| self.is_wanted(**peer));
        stage.sends = wanting.map(|peer| Piece { peer: *peer, address: self.buffers.send, bytes }).collect();
        if own {
            let from = self.others.iter().zip(&places);
            stage.recvs = from.map(|(peer, place)| Piece { peer: *peer, address: *place, bytes }).collect();
            stage.then.push(self.reduce(&places, 0, bytes, self.buffers.recv));
        }
        Ok((vec![stage], scratch, "gather and reduce"))
    }

    /// Each rank reduces its block: a reduce_scatter.
    fn by_blocks(self) -> Result<Made> {
        let (block, rank) = (self.call.count_bytes(), u64::from(self.buffers.rank));
        let (scratch, places) = self.scratch()?;
        let at = |peer: u32| self.buffers.send + u64::from(peer) * block;
        let stage = Stage {
            sends: self.others.iter().map(|&peer| Piece { peer, address: at(peer), bytes: block }).collect(),
            recvs: self
                .others
                .iter()
                .zip(&places)
                .map(|(&peer, &address)| Piece { peer, address, bytes: block })
                .collect(),
            then: vec![self.reduce(&places, rank * block, block, self.buffers.recv)],
        };
        Ok((vec![stage], scratch, "direct exchange and reduce"))
    }

    /// Chunk by chunk: everybody gets its slice of all inputs and reduces it; with the inputs of the next chunk the
    /// results go to those who want them.
    fn by_slices(self) -> Result<Made> {
        let bytes = self.call.count_bytes();
        let chunks = bytes.div_ceil(CHUNK);
        let (scratch, mut places) = self.scratch()?;
        let aside = places.pop().unwrap_or_default();
        let mut stages: Vec<Stage> = Vec::new();
        for chunk in 0..=chunks {
            let mut stage = Stage::default();
            // Results first, on both ends.
            if chunk > 0 {
                self.give_results(&mut stage, (chunk - 1, chunks), aside);
            }
            if chunk < chunks {
                self.get_inputs(&mut stage, (chunk, chunks), &places, aside);
            }
            stages.push(stage);
        }
        Ok((stages, scratch, "reduce_scatter and all_gather"))
    }

    /// The slice of `rank` in a chunk of so many.
    fn slice(&self, (chunk, chunks): (u64, u64), rank: u32) -> (u64, u64) {
        let bytes = self.call.count_bytes();
        let begin = edge(bytes, chunk, chunks);
        let (at, length) = slice(edge(bytes, chunk + 1, chunks) - begin, rank, self.call.n_ranks);
        (begin + at, length)
    }

    fn get_inputs(&self, stage: &mut Stage, chunk: (u64, u64), places: &[u64], aside: u64) {
        let (begin, length) = self.slice(chunk, self.buffers.rank);
        for (&peer, &place) in self.others.iter().zip(places) {
            let (theirs, bytes) = self.slice(chunk, peer);
            push(&mut stage.sends, Piece { peer, address: self.buffers.send + theirs, bytes });
            push(&mut stage.recvs, Piece { peer, address: place, bytes: length });
        }
        if length > 0 {
            let output = if self.is_wanted(self.buffers.rank) { self.buffers.recv + begin } else { aside };
            stage.then.push(self.reduce(places, begin, length, output));
        }
    }

    fn give_results(&self, stage: &mut Stage, chunk: (u64, u64), aside: u64) {
        let (begin, length) = self.slice(chunk, self.buffers.rank);
        let own = self.is_wanted(self.buffers.rank);
        for &peer in &self.others {
            if self.is_wanted(peer) {
                let address = if own { self.buffers.recv + begin } else { aside };
                push(&mut stage.sends, Piece { peer, address, bytes: length });
            }
            if own {
                let (theirs, bytes) = self.slice(chunk, peer);
                push(&mut stage.recvs, Piece { peer, address: self.buffers.recv + theirs, bytes });
            }
        }
    }
}

fn push(pieces: &mut Vec<Piece>, piece: Piece) {
    if piece.bytes > 0 {
        pieces.push(piece);
    }
}
