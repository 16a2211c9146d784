//! What the send buffers hold, what the receive buffers must hold afterwards, and how they are compared.
//!
//! Everything is a function of a seed, the rank and the place, so that any rank can say what any other should have
//! sent, and no expected result is ever stored. Moved bytes are pseudo-random (`bytes`); reduced elements are chosen
//! so that the result is exact whatever the order of the ranks (`values`).

mod bytes;
mod check;
mod recipe;
mod values;

pub use check::{Checked, WrongElement};
pub use recipe::{Numbers, Recipe};

use linkproof_common::error::{Error, ErrorKind, Result};

use crate::collective::{Call, Part, Source};
use crate::redop::RedOp;
use values::Rule;

/// Which data it is: another for each point, placement and round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// The seed of round `round` at point `point` of a run.
    pub fn of(point: u32, round: u32) -> Self {
        Self(bytes::mix((u64::from(point) << 32) | u64::from(round)))
    }
}

/// The data of one call.
pub struct Data {
    rule: Option<Box<dyn Rule>>,
    call: Call,
}

impl Data {
    /// The data of `call`.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] where no data would give an exact result: averages in 8-bit types over many ranks.
    pub fn of(call: &Call) -> Result<Self> {
        let rule = call.redop.map(|redop| values::rule(call.dtype, redop, call.n_ranks)).transpose();
        let rule = rule.map_err(|most| {
            let dtype = call.dtype.name();
            Error::new(
                ErrorKind::Usage,
                format!("avg of {dtype} over {} ranks can't be checked", call.n_ranks),
            )
            .fact("why", format!("the sum of {dtype} is exact up to {most}, less than one for each rank"))
            .hint("leave the check out (-c 0), or use a wider type")
        })?;
        Ok(Self { rule, call: call.clone() })
    }

    /// Data to move that nobody will look at: any will do for a reduction whose result can't be foretold.
    pub fn unchecked(call: &Call) -> Self {
        let rule_of = |redop| values::rule(call.dtype, redop, call.n_ranks).ok();
        let rule = call.redop.and_then(|redop| rule_of(redop).or_else(|| rule_of(RedOp::Sum)));
        Self { rule, call: call.clone() }
    }

    /// What `rank` sends: the bytes of its send buffer from `offset`, a multiple of 16.
    pub fn input(&self, seed: Seed, rank: u32, offset: u64, out: &mut [u8]) {
        match &self.rule {
            Some(rule) => rule.input(seed, rank, self.index(offset), out),
            None => bytes::fill(seed, rank, offset, out),
        }
    }

    /// What `part` of a result must be: its bytes from `offset` in it, a multiple of 16.
    pub fn expected(&self, seed: Seed, part: &Part, offset: u64, out: &mut [u8]) {
        match (part.source, &self.rule) {
            (Source::Reduction { offset: begin }, Some(rule)) => {
                rule.expected(seed, self.index(begin + offset), out);
            }
            (Source::Rank { rank, offset: begin }, _) => bytes::fill(seed, rank, begin + offset, out),
            (Source::Reduction { .. }, None) => unreachable!("what is reduced has a rule"),
        }
    }

    /// The same with every bit turned: what memory holds before, so that a byte that never comes is wrong.
    pub fn poison(&self, seed: Seed, part: &Part, offset: u64, out: &mut [u8]) {
        self.expected(seed, part, offset, out);
        out.iter_mut().for_each(|byte| *byte = !*byte);
    }

    /// Compares `found`, the bytes of `part` from `offset` in it; `scratch` is as long.
    pub fn check(&self, seed: Seed, part: &Part, offset: u64, found: &[u8], scratch: &mut [u8]) -> Checked {
        self.expected(seed, part, offset, scratch);
        check::compare(self.call.dtype, part, offset, scratch, found)
    }

    fn index(&self, offset: u64) -> u64 {
        offset / self.call.dtype.bytes()
    }
}

#[cfg(test)]
mod tests;
