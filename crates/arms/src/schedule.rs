//! The order of the runs.

/// Which arm each of the runs is of: `rounds` runs of each of `arms`, there and back in turn (A B B A …), so that what
/// drifts over the whole does not favour one of them.
pub(crate) fn in_turn(arms: usize, rounds: u32) -> impl Iterator<Item = usize> {
    (0..rounds).flat_map(move |round| {
        (0..arms).map(move |place| if round % 2 == 0 { place } else { arms - 1 - place })
    })
}

#[cfg(test)]
mod tests {
    use super::in_turn;

    #[test]
    fn there_and_back() {
        assert_eq!(in_turn(2, 4).collect::<Vec<_>>(), [0, 1, 1, 0, 0, 1, 1, 0]);
        assert_eq!(in_turn(3, 2).collect::<Vec<_>>(), [0, 1, 2, 2, 1, 0]);
    }
}
