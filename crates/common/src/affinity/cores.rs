//! Lists of cores (or of NUMA nodes), as people, the kernel and `taskset` write them: `2`, `2-5,8`.

use std::fmt;

/// Numbers from 0 to this, exclusive: the most processors that Linux can be built for on x86-64 and arm64 (`NR_CPUS`).
pub const MAX_CORES: u32 = 8192;

/// Cores by the kernel's numbers, in the order in which they were given, none twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cores(Vec<u32>);

impl Cores {
    /// The cores of `numbers`, of which none may be there twice.
    pub fn of(numbers: impl IntoIterator<Item = u32>) -> Self {
        Self(numbers.into_iter().collect())
    }

    /// The list that a user has written.
    ///
    /// # Errors
    /// What would have been understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut cores = Vec::new();
        for part in text.split(',') {
            for core in range(part)? {
                if cores.contains(&core) {
                    return Err(format!("core {core} is there twice"));
                }
                cores.push(core);
            }
        }
        Ok(Self(cores))
    }

    /// A list in a file of the kernel's, which is empty where there is none of its kind; `None` where it is no list.
    pub fn from_kernel(text: &str) -> Option<Self> {
        if text.trim().is_empty() { Some(Self::default()) } else { Self::parse(text.trim()).ok() }
    }

    /// Their numbers.
    pub fn numbers(&self) -> &[u32] {
        &self.0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether `core` is one of them.
    pub fn contains(&self, core: u32) -> bool {
        self.0.contains(&core)
    }

    /// Those that are in `others` too.
    pub fn among(&self, others: &Self) -> Self {
        Self(self.0.iter().copied().filter(|&core| others.contains(core)).collect())
    }

    /// Those that are not in `others`.
    pub fn not_among(&self, others: &Self) -> Self {
        Self(self.0.iter().copied().filter(|&core| !others.contains(core)).collect())
    }

    /// In words: `core 2`, `cores 2-5,8`.
    pub fn describe(&self) -> String {
        format!("core{} {self}", if self.len() == 1 { "" } else { "s" })
    }
}

/// `2` or `2-5`.
fn range(part: &str) -> Result<std::ops::RangeInclusive<u32>, String> {
    const FORMS: &str = "a list of cores is 2, 2-5 or 2-5,8";
    let number = |text: &str| {
        // Rust reads "+2" as well.
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>()
            .ok()
            .filter(|&core| digits && core < MAX_CORES)
            .ok_or_else(|| format!("{FORMS}, of numbers below {MAX_CORES}"))
    };
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let (first, last) = (number(first)?, number(last)?);
    if first > last { Err(format!("{FORMS}, and {first}-{last} runs backwards")) } else { Ok(first..=last) }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.0.as_slice();
        while let Some(&first) = left.first() {
            let run = left.iter().zip(first..).take_while(|(core, next)| *core == next).count();
            let comma = if left.len() == self.0.len() { "" } else { "," };
            match run {
                1 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{}", left[run - 1])?,
            }
            left = &left[run..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_read_in_their_order() {
        let numbers = |text: &str| Cores::parse(text).unwrap().numbers().to_vec();
        assert_eq!(numbers("2"), [2]);
        assert_eq!(numbers("2-5,8"), [2, 3, 4, 5, 8]);
        assert_eq!(numbers("8,2-3"), [8, 2, 3]);
        assert_eq!(Cores::parse("8,2-3").unwrap().to_string(), "8,2-3");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["", "a", "2-", "-2", "2,,3", "2 3", "+2", "8192", "4294967296", "0-8192", "1.5", "0-7:2"]
        {
            assert!(Cores::parse(text).unwrap_err().contains("2-5,8"), "{text}");
        }
        assert!(Cores::parse("5-2").unwrap_err().ends_with("5-2 runs backwards"));
        assert_eq!(Cores::parse("2-5,4").unwrap_err(), "core 4 is there twice");
    }

    #[test]
    fn the_kernels_lists_can_be_empty() {
        assert_eq!(Cores::from_kernel("\n"), Some(Cores::default()));
        assert_eq!(Cores::from_kernel("0-1\n"), Some(Cores::of([0, 1])));
        assert_eq!(Cores::from_kernel("(null)"), None);
    }

    #[test]
    fn cores_are_told_in_words() {
        assert_eq!(Cores::of([2]).describe(), "core 2");
        assert_eq!(Cores::of([2, 3, 9]).describe(), "cores 2-3,9");
        assert_eq!(Cores::of([0, 1, 2]).among(&Cores::of([2, 1, 7])), Cores::of([1, 2]));
        assert_eq!(Cores::of([0, 1, 2]).not_among(&Cores::of([2, 1, 7])), Cores::of([0]));
    }

    proptest! {
        #[test]
        fn a_list_that_is_shown_reads_as_itself(numbers in prop::collection::hash_set(0_u32..64, 1..30)) {
            let cores = Cores::of(numbers);
            prop_assert_eq!(Cores::parse(&cores.to_string()).unwrap(), cores);
        }
    }
}
