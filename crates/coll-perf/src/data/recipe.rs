//! The rules of the data as numbers, for a GPU that fills and checks buffers by itself (`gpu/data.cu`).

use super::{Data, Seed};
use crate::collective::{Part, Source};
use crate::dtype::DataType;
use crate::with_element;

/// Which rule: numbered as in `gpu/data.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum RuleKind {
    /// Moved bytes.
    Bytes,
    /// Sums of integers.
    Differences,
    /// Sums of floats, and averages.
    Shares,
    /// Products.
    Factors,
    /// The largest or the smallest.
    Extremes,
}

/// What one rule needs beyond the type; what it does not need is 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleNumbers {
    pub(super) kind: RuleKind,
    /// Totals that a place can have, divided by `divisor`.
    pub(super) choices: u64,
    pub(super) divisor: i64,
    pub(super) range: u64,
    pub(super) shift: u64,
    pub(super) least: bool,
}

impl RuleNumbers {
    pub(super) fn of(kind: RuleKind) -> Self {
        Self { kind, choices: 0, divisor: 0, range: 0, shift: 0, least: false }
    }
}

/// `struct Recipe` of `gpu/data.cu`, field by field.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Numbers {
    seed: u64,
    first: u64,
    choices: u64,
    divisor: i64,
    range: u64,
    shift: u64,
    rule: u32,
    n_ranks: u32,
    rank: u32,
    is_result: u32,
    element_bytes: u32,
    exponent_bits: u32,
    fraction_bits: u32,
    is_signed: u32,
    least: u32,
    flipped: u32,
}

/// What a stretch of memory is to hold.
#[derive(Clone, Copy, Debug)]
pub struct Recipe<'a> {
    /// By value to the kernel.
    pub numbers: Numbers,
    /// In the GPU's memory, where there are any.
    pub weights: &'a [u32],
}

impl Recipe<'_> {
    /// Bytes of one element.
    pub fn element_bytes(&self) -> u64 {
        self.numbers.element_bytes.into()
    }

    fn flipped(mut self) -> Self {
        self.numbers.flipped = 1;
        self
    }
}

impl Data {
    /// [`Data::input`] from the begin of `rank`'s send buffer.
    pub fn recipe_of_input(&self, seed: Seed, rank: u32) -> Recipe<'_> {
        self.recipe(seed, rank, 0, self.rule.is_some(), false)
    }

    /// [`Data::expected`] from the begin of `part`.
    pub fn recipe_of_part(&self, seed: Seed, part: &Part) -> Recipe<'_> {
        match part.source {
            Source::Rank { rank, offset } => self.recipe(seed, rank, offset, false, false),
            Source::Reduction { offset } => self.recipe(seed, 0, offset, true, true),
        }
    }

    /// [`Data::poison`] from the begin of `part`.
    pub fn recipe_of_poison(&self, seed: Seed, part: &Part) -> Recipe<'_> {
        self.recipe_of_part(seed, part).flipped()
    }

    fn recipe(&self, seed: Seed, rank: u32, offset: u64, ruled: bool, is_result: bool) -> Recipe<'_> {
        let rule = self.rule.as_ref().filter(|_| ruled);
        let of_rule = rule.map_or(RuleNumbers::of(RuleKind::Bytes), |rule| rule.numbers());
        let dtype = self.call.dtype;
        let (exponent_bits, fraction_bits) = layout(dtype);
        let numbers = Numbers {
            seed: seed.0,
            first: self.index(offset),
            choices: of_rule.choices,
            divisor: of_rule.divisor,
            range: of_rule.range,
            shift: of_rule.shift,
            rule: of_rule.kind as u32,
            n_ranks: self.call.n_ranks,
            rank,
            is_result: is_result.into(),
            element_bytes: dtype.bytes() as u32,
            exponent_bits,
            fraction_bits,
            is_signed: with_element!(dtype, E => <E as crate::element::Element>::SIGNED).into(),
            least: of_rule.least.into(),
            flipped: 0,
        };
        Recipe { numbers, weights: rule.map_or(&[], |rule| rule.weights()) }
    }
}

/// Bits of exponent and of fraction; none for integers.
fn layout(dtype: DataType) -> (u32, u32) {
    match dtype {
        DataType::Half => (5, 10),
        DataType::Float => (8, 23),
        DataType::Double => (11, 52),
        DataType::Bfloat16 => (8, 7),
        DataType::F8e4m3 => (4, 3),
        DataType::F8e5m2 => (5, 2),
        DataType::Int8
        | DataType::Uint8
        | DataType::Int32
        | DataType::Uint32
        | DataType::Int64
        | DataType::Uint64 => (0, 0),
    }
}

#[cfg(test)]
mod tests;
