//! Who sends how much to whom in an alltoallv: weighted by distance, or from a file.

use std::path::Path;

use linkproof_common::error::{Error, ErrorKind, Result, show_io_error};

/// Bytes from each rank to each, whole multiples of 16, as in nccl-tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    n_ranks: u32,
    /// Row by row: what rank i sends to rank j stands at i·n + j.
    bytes: Vec<u64>,
}

/// Blocks are rounded down to it.
const ALIGN: u64 = 16;

impl Traffic {
    /// nccl-tests' own pattern: of the `total_bytes` that a rank sends, each other rank gets a share in proportion to
    /// its distance (j − i) mod n, and the rank itself nothing. All send and receive the same.
    pub fn weighted_by_distance(n_ranks: u32, total_bytes: u64) -> Self {
        let n = u64::from(n_ranks);
        let distances = n * (n - 1) / 2;
        let share = |i: u64, j: u64| match (j + n - i) % n {
            _ if n == 1 => total_bytes,
            distance => (u128::from(distance) * u128::from(total_bytes) / u128::from(distances)) as u64,
        };
        let bytes = (0..n * n).map(|cell| share(cell / n, cell % n)).map(|bytes| bytes - bytes % ALIGN);
        Self { n_ranks, bytes: bytes.collect() }
    }

    /// The least total of [`Traffic::weighted_by_distance`] with which anything is sent at all.
    pub fn least_weighted_bytes(n_ranks: u32) -> u64 {
        let n = u64::from(n_ranks);
        // The farthest rank, n − 1 of n(n−1)/2, gets the most: a share of 2/n.
        if n == 1 { ALIGN } else { (ALIGN * n).div_ceil(2) }
    }

    /// From a file of n lines of n numbers of bytes, blank between numbers; what follows a `#` is a remark. A number
    /// may have a fraction (`1e6`, `1.5e6`), as in nccl-tests.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] with the place in the file.
    pub fn read(path: &Path, n_ranks: u32) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let what = format!("cannot read the matrix {}: {}", path.display(), show_io_error(&error));
            Error::new(ErrorKind::Usage, what)
        })?;
        Self::parse(&text, n_ranks).map_err(|why| {
            Error::new(ErrorKind::Usage, format!("the matrix {} can't be used: {why}", path.display()))
                .hint("one line a sending rank, one number of bytes a receiving rank, blanks between them")
        })
    }

    fn parse(text: &str, n_ranks: u32) -> std::result::Result<Self, String> {
        let lines = text.lines().enumerate().map(|(number, line)| {
            let line = line.split('#').next().unwrap_or_default();
            (number + 1, line.split_whitespace().collect::<Vec<_>>())
        });
        let rows: Vec<(usize, Vec<&str>)> = lines.filter(|(_, words)| !words.is_empty()).collect();
        if rows.len() != n_ranks as usize {
            return Err(format!("it has {} rows, and there are {n_ranks} ranks", rows.len()));
        }
        let mut bytes = Vec::with_capacity(rows.len() * rows.len());
        for (line, words) in rows {
            if words.len() != n_ranks as usize {
                return Err(format!(
                    "line {line} has {} numbers, and there are {n_ranks} ranks",
                    words.len()
                ));
            }
            for word in words {
                bytes.push(
                    cell(word).ok_or_else(|| format!("line {line} has \"{word}\", no number of bytes"))?,
                );
            }
        }
        Ok(Self { n_ranks, bytes })
    }

    /// From what [`Traffic::rows`] gave.
    pub fn from_rows(rows: &[Vec<u64>]) -> Self {
        Self { n_ranks: rows.len() as u32, bytes: rows.concat() }
    }

    /// The number of ranks.
    pub fn n_ranks(&self) -> u32 {
        self.n_ranks
    }

    /// What `from` sends to `to`.
    pub fn bytes(&self, from: u32, to: u32) -> u64 {
        self.bytes[from as usize * self.n_ranks as usize + to as usize]
    }

    /// Where in `from`'s send buffer its block for `to` begins.
    pub fn offset(&self, from: u32, to: u32) -> u64 {
        (0..to).map(|before| self.bytes(from, before)).sum()
    }

    /// All that `rank` sends.
    pub fn sent_by(&self, rank: u32) -> u64 {
        self.offset(rank, self.n_ranks)
    }

    /// All that `rank` receives.
    pub fn received_by(&self, rank: u32) -> u64 {
        (0..self.n_ranks).map(|from| self.bytes(from, rank)).sum()
    }

    /// The most that any rank sends or receives: what nccl-tests takes for the size.
    pub fn busiest_bytes(&self) -> u64 {
        let most = |rank| self.sent_by(rank).max(self.received_by(rank));
        (0..self.n_ranks).map(most).max().unwrap_or(0)
    }

    /// The largest block.
    pub fn largest_block(&self) -> u64 {
        self.bytes.iter().copied().max().unwrap_or(0)
    }

    /// Whether nothing is sent at all.
    pub fn is_empty(&self) -> bool {
        self.largest_block() == 0
    }

    /// The rows, for the document.
    pub fn rows(&self) -> Vec<Vec<u64>> {
        self.bytes.chunks(self.n_ranks as usize).map(<[u64]>::to_vec).collect()
    }
}

/// A number of bytes below 2⁵³, so that a fraction's double holds it exactly.
fn cell(word: &str) -> Option<u64> {
    let bytes: f64 = word.parse().ok()?;
    (0.0..9_007_199_254_740_992.0).contains(&bytes).then(|| bytes as u64 / ALIGN * ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_farther_a_rank_the_more_it_gets_and_all_get_the_same_in_all() {
        // 4 ranks, 6 parts: 0, 1, 2 and 3 of them.
        let traffic = Traffic::weighted_by_distance(4, 6 * 1024);
        assert_eq!(traffic.rows()[0], [0, 1024, 2048, 3072]);
        assert_eq!(traffic.rows()[1], [3072, 0, 1024, 2048]);
        assert!((0..4).all(|rank| traffic.sent_by(rank) == 6144 && traffic.received_by(rank) == 6144));
        assert_eq!(Traffic::weighted_by_distance(2, 1024).rows(), [[0, 1024], [1024, 0]]);
        assert_eq!(Traffic::weighted_by_distance(1, 1000).rows(), [[992]]);
    }

    #[test]
    fn blocks_are_rounded_down_to_16_bytes() {
        // 3 ranks, 3 parts of 333.3 bytes: 1 of them is 333, 2 are 666.
        assert_eq!(Traffic::weighted_by_distance(3, 1000).rows()[0], [0, 320, 656]);
        for n in 1..20 {
            let least = Traffic::least_weighted_bytes(n);
            assert!(!Traffic::weighted_by_distance(n, least).is_empty(), "{n} ranks, {least} bytes");
            assert!(Traffic::weighted_by_distance(n, least - 1).is_empty(), "{n} ranks, {least} bytes");
        }
    }

    #[test]
    fn a_matrix_says_who_sends_what_and_where_it_lies() {
        let traffic = Traffic::parse("# from 0\n 16 32 0\n 100 0 1e3\n\n 0 0 64 # itself\n", 3).unwrap();
        assert_eq!(traffic.rows(), [[16, 32, 0], [96, 0, 992], [0, 0, 64]]);
        assert_eq!((traffic.offset(1, 2), traffic.sent_by(1), traffic.received_by(2)), (96, 1088, 1056));
        assert_eq!((traffic.busiest_bytes(), traffic.largest_block()), (1088, 992));
    }

    #[test]
    fn what_is_wrong_with_a_matrix_is_said_with_its_line() {
        let refusal = |text| Traffic::parse(text, 2).unwrap_err();
        assert_eq!(refusal("1 2"), "it has 1 rows, and there are 2 ranks");
        assert_eq!(refusal("1 2\n3 4 5"), "line 2 has 3 numbers, and there are 2 ranks");
        assert_eq!(refusal("1 2\n3 x"), "line 2 has \"x\", no number of bytes");
        assert_eq!(refusal("1 2\n3 -4"), "line 2 has \"-4\", no number of bytes");
        assert_eq!(refusal("1 2\n3 1e30"), "line 2 has \"1e30\", no number of bytes");
    }
}
