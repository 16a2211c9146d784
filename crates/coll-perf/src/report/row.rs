//! Lines of the table, and rounds.

use linkproof_common::stats::RoundStats;
use linkproof_common::units::ByteSize;
use serde::{Deserialize, Serialize};

use crate::backend::{Pacing, Placement};
use crate::collective::Kind;
use crate::data::Checked;
use crate::dtype::DataType;
use crate::redop::RedOp;
use crate::run::Measured;
use crate::summary::{RankRound, RoundSummary, Spread, quantile};

/// One line of the table: a collective of one size, type, reduction, root and placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultRow {
    /// What was called.
    pub collective: Kind,
    /// The larger of the send and the receive buffer of the rank that has the most.
    pub size_bytes: u64,
    /// Elements as the call counts them.
    pub count: u64,
    /// What one rank sends to one other; absent where the whole buffer goes everywhere.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub per_peer_bytes: Option<u64>,
    /// The elements' type.
    pub dtype: DataType,
    /// The reduction; absent where nothing is reduced.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub redop: Option<RedOp>,
    /// The root; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub root: Option<u32>,
    /// Where the result went.
    pub placement: Placement,
    /// How the backend did it.
    pub algorithm: String,
    /// How iterations began.
    pub pacing: Pacing,
    /// Rounds that the figures stand on.
    pub rounds: u32,
    /// Iterations of a round.
    pub iterations: u32,
    /// Time of one call: the median of the rounds' times.
    pub time_usec: f64,
    /// Bandwidth of the algorithm in 10⁹ bytes a second.
    pub alg_bw_gbyte_per_sec: f64,
    /// Bandwidth over the bus in 10⁹ bytes a second; absent for one rank.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bus_bw_gbyte_per_sec: Option<f64>,
    /// The slowest rank's duration of one call, over all iterations.
    pub slowest: Spread,
    /// From the first arrival to the last, over all iterations.
    pub skew: Spread,
    /// From the last arrival to the last end, of one call, over all iterations.
    pub transfer: Spread,
    /// Range of the rounds' times in per cent of their median; absent for one round.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spread_percent: Option<f64>,
    /// Elements checked; absent where nothing was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub checked_elements: Option<u64>,
    /// Elements of those that were wrong.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wrong_elements: Option<u64>,
    /// What each rank did.
    pub ranks: Vec<RankRow>,
}

/// What one rank did at one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankRow {
    /// Which rank.
    pub rank: u32,
    /// Its time of one call: the median of the rounds' times.
    pub time_usec: f64,
    /// Iterations to which it came last.
    pub last_to_arrive: u32,
    /// How far behind the last but one it was then, the median; absent where it never was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub behind_usec: Option<f64>,
    /// Iterations that it ended last.
    pub last_to_finish: u32,
    /// How often the scheduler gave its processor to another thread, in all rounds.
    pub preemptions: u64,
}

/// One round of one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The line of the table, from 0.
    pub result: u32,
    /// Counts from 0 for each line.
    pub round: u32,
    /// Its time of one call.
    pub time_usec: f64,
    /// Each rank's time of one call, by rank.
    pub rank_time_usec: Vec<f64>,
    /// What was found in the results; absent where nothing was checked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub checked: Option<Checked>,
}

/// Median over the rounds of what `value` says of each.
fn median(rounds: &[RoundSummary], value: impl Fn(&RoundSummary) -> f64) -> Option<RoundStats> {
    RoundStats::of(&rounds.iter().map(value).collect::<Vec<_>>())
}

impl ResultRow {
    /// The line of a measured point; `None` where it has no round.
    pub fn of(measured: &Measured) -> Option<Self> {
        let rounds = &measured.rounds;
        let call = &measured.point.call;
        let time = median(rounds, |round| round.call_ns)?;
        let seconds = time.median / 1e9;
        let all = |values: fn(&RoundSummary) -> &Vec<f64>| {
            Spread::of_ns(&rounds.iter().flat_map(values).copied().collect::<Vec<_>>())
        };
        let checked = || rounds.iter().filter_map(|round| round.checked.as_ref());
        let is_checked = checked().next().is_some();
        let n_ranks = rounds.first().map_or(0, |round| round.ranks.len());
        Some(Self {
            collective: call.collective.kind,
            size_bytes: call.size_bytes(),
            count: call.count,
            per_peer_bytes: call.per_peer_bytes(),
            dtype: call.dtype,
            redop: call.redop,
            root: call.root,
            placement: measured.point.placement,
            algorithm: measured.algorithm.clone(),
            pacing: measured.pacing,
            rounds: rounds.len() as u32,
            iterations: rounds.first().map_or(0, |round| round.slowest_ns.len() as u32),
            time_usec: time.median / 1e3,
            alg_bw_gbyte_per_sec: call.alg_bw(seconds) / 1e9,
            bus_bw_gbyte_per_sec: call.bus_bw(seconds).map(|bw| bw / 1e9),
            slowest: all(|round| &round.slowest_ns),
            skew: all(|round| &round.skew_ns),
            transfer: all(|round| &round.transfer_ns),
            spread_percent: time.spread_percent(rounds.len()),
            checked_elements: is_checked.then(|| checked().map(|checked| checked.checked_elements).sum()),
            wrong_elements: is_checked.then(|| checked().map(|checked| checked.wrong_elements).sum()),
            ranks: (0..n_ranks).filter_map(|rank| RankRow::of(rounds, rank)).collect(),
        })
    }

    /// In words: `all_reduce of 1 MiB, float sum, in place`.
    pub fn describe(&self) -> String {
        let redop = self.redop.map_or(String::new(), |redop| format!(" {}", redop.name()));
        let root = self.root.map_or(String::new(), |root| format!(", root {root}"));
        let place = if self.placement == Placement::InPlace { ", in place" } else { "" };
        let name = crate::collective::Collective::of(self.collective).name;
        format!("{name} of {}, {}{redop}{root}{place}", ByteSize(self.size_bytes), self.dtype.name())
    }
}

impl RankRow {
    fn of(rounds: &[RoundSummary], rank: usize) -> Option<Self> {
        let of_rank = |round: &RoundSummary| round.ranks.get(rank).cloned();
        let own: Vec<RankRound> = rounds.iter().filter_map(of_rank).collect();
        let behind: Vec<f64> = own.iter().flat_map(|round| round.behind_ns.iter().copied()).collect();
        let times: Vec<f64> = own.iter().map(|round| round.call_ns).collect();
        Some(Self {
            rank: rank as u32,
            time_usec: RoundStats::of(&times)?.median / 1e3,
            last_to_arrive: own.iter().map(|round| round.last_to_arrive).sum(),
            behind_usec: (!behind.is_empty()).then(|| quantile(&behind, 0.5) / 1e3),
            last_to_finish: own.iter().map(|round| round.last_to_finish).sum(),
            preemptions: own.iter().map(|round| round.preemptions).sum(),
        })
    }
}

impl Round {
    /// The rounds of line `result`.
    pub fn all_of(measured: &Measured, result: u32) -> impl Iterator<Item = Self> {
        measured.rounds.iter().enumerate().map(move |(number, round)| Self {
            result,
            round: number as u32,
            time_usec: round.call_ns / 1e3,
            rank_time_usec: round.ranks.iter().map(|rank| rank.call_ns / 1e3).collect(),
            checked: round.checked.clone(),
        })
    }
}
