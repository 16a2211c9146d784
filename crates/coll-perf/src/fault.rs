//! Faults on demand, to see that they are found: for tests of this program and of what reads its results. A hidden
//! option (`--inject-fault`) asks for one; nothing of it is on the measured path unless it does.

use std::str::FromStr;
use std::time::Duration;

/// A fault of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `flip:RANK:OFFSET`: after each round a bit of that byte of the rank's result is turned.
    Flip {
        /// Whose.
        rank: u32,
        /// Which byte of the receive buffer.
        offset: u64,
    },
    /// `delay:RANK:MICROSECONDS`: the rank comes so much later to each iteration.
    Delay {
        /// Who.
        rank: u32,
        /// How much.
        by: Duration,
    },
}

impl Fault {
    /// Whose it is.
    pub fn rank(self) -> u32 {
        match self {
            Self::Flip { rank, .. } | Self::Delay { rank, .. } => rank,
        }
    }

    /// The byte that is to be wrong.
    pub fn flipped_byte(self) -> Option<u64> {
        match self {
            Self::Flip { offset, .. } => Some(offset),
            Self::Delay { .. } => None,
        }
    }

    /// How late the rank is to be.
    pub fn delay(self) -> Option<Duration> {
        match self {
            Self::Delay { by, .. } => Some(by),
            Self::Flip { .. } => None,
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split(':').collect();
        let number = |word: &str| word.parse::<u64>().map_err(|_| format!("\"{word}\" is no number"));
        let rank = |word: &str| word.parse::<u32>().map_err(|_| format!("\"{word}\" is no rank"));
        match words[..] {
            ["flip", of, offset] => Ok(Self::Flip { rank: rank(of)?, offset: number(offset)? }),
            ["delay", of, by] => Ok(Self::Delay { rank: rank(of)?, by: Duration::from_micros(number(by)?) }),
            _ => Err("flip:RANK:OFFSET or delay:RANK:MICROSECONDS".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_one_of_a_rank() {
        assert_eq!("flip:1:4096".parse(), Ok(Fault::Flip { rank: 1, offset: 4096 }));
        assert_eq!("delay:0:250".parse(), Ok(Fault::Delay { rank: 0, by: Duration::from_micros(250) }));
        assert!("flip:1".parse::<Fault>().is_err() && "flip:x:1".parse::<Fault>().is_err());
    }
}
