//! Who was last, how often, and by how much.

use super::{Document, ResultRow};
use crate::backend::Pacing;
use crate::collective::Collective;
use crate::summary::quantile;

/// One rank over all points of a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tally {
    pub(super) rank: u32,
    /// Iterations to which it came last.
    pub(super) last_to_arrive: u32,
    /// Median over the points of how far behind it was then.
    pub(super) behind_usec: f64,
    /// Iterations that it ended last.
    pub(super) last_to_finish: u32,
}

/// Where being late says something of the rank. Between the iterations of a pipelined collective with a root, the root
/// or the others are held up by what the collective is: a gather's root ends last, and so comes last to the next.
pub(super) fn tells(row: &ResultRow) -> bool {
    row.pacing == Pacing::Aligned || !Collective::of(row.collective).rooted
}

/// Every rank's tally.
pub(super) fn tallies(document: &Document) -> Vec<Tally> {
    let rows = || document.results.iter().filter(|row| tells(row));
    let tally = |rank: usize| {
        let own = || rows().filter_map(move |row| row.ranks.get(rank));
        let behind: Vec<f64> = own().filter_map(|row| row.behind_usec).collect();
        Tally {
            rank: rank as u32,
            last_to_arrive: own().map(|row| row.last_to_arrive).sum(),
            behind_usec: quantile(&behind, 0.5),
            last_to_finish: own().map(|row| row.last_to_finish).sum(),
        }
    };
    (0..document.hosts.len()).map(tally).collect()
}

/// Iterations that the tallies stand on.
pub(super) fn iterations(document: &Document) -> u32 {
    document.results.iter().filter(|row| tells(row)).map(|row| row.rounds * row.iterations).sum()
}
