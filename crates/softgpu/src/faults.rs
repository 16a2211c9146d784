//! Faults as they happen: each counts the calls that it is about, and strikes when its time has come.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::{FaultDescription, When};
use crate::failure::{Failure, Result};

/// The faults of a driver.
pub(crate) struct Faults(Vec<Armed>);

struct Armed {
    description: FaultDescription,
    seen: AtomicU64,
}

impl Armed {
    /// Counts one more call, and gives the failure where it strikes.
    fn count(&self) -> Option<Failure> {
        let time = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        let strikes = match self.description.when {
            When::Always => true,
            When::Once(number) => time == number,
            When::From(number) => time >= number,
        };
        strikes.then_some(self.description.with)
    }
}

impl Faults {
    pub(crate) fn new(descriptions: &[FaultDescription]) -> Self {
        let arm = |description: &FaultDescription| Armed {
            description: description.clone(),
            seen: AtomicU64::new(0),
        };
        Self(descriptions.iter().map(arm).collect())
    }

    /// Counts a call.
    ///
    /// # Errors
    /// That with which it is to fail.
    pub(crate) fn call(&self, name: &str) -> Result<()> {
        let mut failure = Ok(());
        for armed in self.0.iter().filter(|armed| armed.description.call == name) {
            // All of them count, also behind one that strikes.
            failure = failure.and(armed.count().map_or(Ok(()), Err));
        }
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_fault_strikes_once_or_from_its_time_on() {
        let text = "fail cuMemAlloc_v2@2 2; fail cuMemAlloc_v2@4+ 719; fail cuMemFree_v2 1";
        let faults = Faults::new(&Config::parse(text).unwrap().faults);
        let results: Vec<_> = (0..5).map(|_| faults.call("cuMemAlloc_v2").err().map(|it| it.0)).collect();
        assert_eq!(results, [None, Some(2), None, Some(719), Some(719)]);
        assert_eq!(faults.call("cuMemFree_v2"), Err(Failure::INVALID_VALUE));
        assert_eq!(faults.call("cuInit"), Ok(()));
    }
}
