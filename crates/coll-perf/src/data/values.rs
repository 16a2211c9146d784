//! Elements to reduce: chosen so that the result is exact, and the same in whatever order the ranks are taken.
//!
//! At each place the ranks are numbered anew, from a place of their own (`turn`), so that every rank plays every part:
//!
//! - **sum of integers**: differences of a pseudo-random sequence that begins at 0. They add up to its last member,
//!   modulo 2^bits, and modular addition has no order.
//! - **sum of floats**: whole numbers of one sign that add up to a total of at most [`Element::EXACT`]. Every partial
//!   sum is a whole number below that, and so exact. Each rank's share of the total is another, by a table of weights.
//! - **avg**: the same with a total that is a multiple of the number of ranks, in integers too: what wraps can't be
//!   divided.
//! - **prod**: one rank has 4, 5, 6 or 7 and one has 2, the others have 1; the signs are differences of a
//!   pseudo-random sequence of signs. Every partial product has at most three significant bits, which even 8-bit floats
//!   have.
//! - **max**, **min**: one rank has the extreme, all others something on the other side of it.

use std::marker::PhantomData;

use super::Seed;
use super::bytes::word;
use super::recipe::{RuleKind, RuleNumbers};
use crate::dtype::DataType;
use crate::element::{Element, to_bytes};
use crate::redop::RedOp;
use crate::with_element;

/// How the ranks' elements follow from the place, and what they reduce to.
pub(super) trait Rule: Send + Sync {
    /// The elements of `rank` from number `index`.
    fn input(&self, seed: Seed, rank: u32, index: u64, out: &mut [u8]);
    /// What they reduce to, over all ranks.
    fn expected(&self, seed: Seed, index: u64, out: &mut [u8]);
    /// The rule as numbers.
    fn numbers(&self) -> RuleNumbers;
    /// What goes with them.
    fn weights(&self) -> &[u32];
}

/// The rule of `redop` over elements of `dtype`.
///
/// # Errors
/// The largest exact sum, where it is too small to be divided among the ranks.
pub(super) fn rule(dtype: DataType, redop: RedOp, n_ranks: u32) -> Result<Box<dyn Rule>, i64> {
    Ok(with_element!(dtype, E => match redop {
        RedOp::Sum if E::WRAPS => by::<E, _>(n_ranks, Differences { n_ranks }),
        RedOp::Sum => by::<E, _>(n_ranks, Shares::new(n_ranks, E::EXACT, 1)),
        RedOp::Avg if i64::from(n_ranks) > E::EXACT => return Err(E::EXACT),
        RedOp::Avg => by::<E, _>(n_ranks, Shares::new(n_ranks, E::EXACT, i64::from(n_ranks))),
        RedOp::Prod => by::<E, _>(n_ranks, Factors { n_ranks }),
        RedOp::Max => by::<E, _>(n_ranks, Extremes { least: false }),
        RedOp::Min => by::<E, _>(n_ranks, Extremes { least: true }),
    }))
}

/// What one place holds: the part of the rank numbered `turn` there, and the result; whole numbers of type `E`.
trait Place: Send + Sync + 'static {
    fn part<E: Element>(&self, seed: Seed, index: u64, turn: u32) -> i64;
    fn result<E: Element>(&self, seed: Seed, index: u64) -> i64;
    fn numbers<E: Element>(&self) -> RuleNumbers;
    fn weights(&self) -> &[u32] {
        &[]
    }
}

struct By<E, P> {
    n_ranks: u32,
    place: P,
    element: PhantomData<fn() -> E>,
}

fn by<E: Element, P: Place>(n_ranks: u32, place: P) -> Box<dyn Rule> {
    Box::new(By::<E, P> { n_ranks, place, element: PhantomData })
}

impl<E: Element, P: Place> Rule for By<E, P> {
    fn input(&self, seed: Seed, rank: u32, index: u64, out: &mut [u8]) {
        each::<E>(out, index, |index| {
            let turn = (rank + below(word(seed, TURN, index), self.n_ranks.into()) as u32) % self.n_ranks;
            self.place.part::<E>(seed, index, turn)
        });
    }

    fn expected(&self, seed: Seed, index: u64, out: &mut [u8]) {
        each::<E>(out, index, |index| self.place.result::<E>(seed, index));
    }

    fn numbers(&self) -> RuleNumbers {
        self.place.numbers::<E>()
    }

    fn weights(&self) -> &[u32] {
        self.place.weights()
    }
}

#[inline(always)]
fn each<E: Element>(out: &mut [u8], first: u64, value: impl Fn(u64) -> i64) {
    for (index, bytes) in out.chunks_exact_mut(size_of::<E>()).enumerate() {
        to_bytes(E::of(value(first + index as u64)), bytes);
    }
}

/// Streams of words: the numbering, the totals, and from [`STEPS`] on one for each number in turn.
const TURN: u64 = 0;
const TOTAL: u64 = 1;
const STEPS: u64 = 2;

/// A number below `limit`, by the upper half of the product: no division.
#[inline(always)]
fn below(word: u64, limit: u64) -> u64 {
    ((u128::from(word) * u128::from(limit)) >> 64) as u64
}

/// Sums of integers.
struct Differences {
    n_ranks: u32,
}

impl Differences {
    #[inline(always)]
    fn member(seed: Seed, index: u64, number: u32) -> i64 {
        if number == 0 { 0 } else { word(seed, STEPS + u64::from(number), index) as i64 }
    }
}

impl Place for Differences {
    #[inline(always)]
    fn part<E: Element>(&self, seed: Seed, index: u64, turn: u32) -> i64 {
        Self::member(seed, index, turn + 1).wrapping_sub(Self::member(seed, index, turn))
    }

    #[inline(always)]
    fn result<E: Element>(&self, seed: Seed, index: u64) -> i64 {
        Self::member(seed, index, self.n_ranks)
    }

    fn numbers<E: Element>(&self) -> RuleNumbers {
        RuleNumbers::of(RuleKind::Differences)
    }
}

/// Sums of floats, and averages: shares of a total.
struct Shares {
    /// What the numbers in turn up to each have together, in 65536ths: from 0 to 65536.
    weights: Vec<u32>,
    exact: i64,
    /// The total is a multiple of it, and the result the total divided by it.
    divisor: i64,
}

/// Totals are below 2⁴⁶ ([`Element::EXACT`]), so that a total times a weight fits in 64 bits.
const WEIGHT_BITS: u32 = 16;

impl Shares {
    fn new(n_ranks: u32, exact: i64, divisor: i64) -> Self {
        let weight = |turn: u32| 1 + below(word(Seed(0), STEPS, turn.into()), 8);
        let all: u64 = (0..n_ranks).map(weight).sum();
        let mut sum = 0;
        let up_to = (0..n_ranks).map(|turn| {
            sum += weight(turn);
            ((sum << WEIGHT_BITS) / all) as u32
        });
        Self { weights: std::iter::once(0).chain(up_to).collect(), exact, divisor }
    }

    /// The result, without its sign.
    #[inline(always)]
    fn quotient(&self, seed: Seed, index: u64) -> i64 {
        below(word(seed, TOTAL, index), self.choices()) as i64
    }

    #[inline(always)]
    fn choices(&self) -> u64 {
        (self.exact / self.divisor + 1) as u64
    }

    #[inline(always)]
    fn signed<E: Element>(seed: Seed, index: u64, value: i64) -> i64 {
        if E::SIGNED && word(seed, TOTAL, index) & 1 == 1 { -value } else { value }
    }
}

impl Place for Shares {
    #[inline(always)]
    fn part<E: Element>(&self, seed: Seed, index: u64, turn: u32) -> i64 {
        let total = self.quotient(seed, index) * self.divisor;
        let up_to = |turn: u32| (total * i64::from(self.weights[turn as usize])) >> WEIGHT_BITS;
        Self::signed::<E>(seed, index, up_to(turn + 1) - up_to(turn))
    }

    #[inline(always)]
    fn result<E: Element>(&self, seed: Seed, index: u64) -> i64 {
        Self::signed::<E>(seed, index, self.quotient(seed, index))
    }

    fn numbers<E: Element>(&self) -> RuleNumbers {
        RuleNumbers { choices: self.choices(), divisor: self.divisor, ..RuleNumbers::of(RuleKind::Shares) }
    }

    fn weights(&self) -> &[u32] {
        &self.weights
    }
}

/// Products.
struct Factors {
    n_ranks: u32,
}

impl Factors {
    #[inline(always)]
    fn is_negative<E: Element>(seed: Seed, index: u64, number: u32) -> bool {
        E::SIGNED && number > 0 && word(seed, STEPS + u64::from(number), index) & 1 == 1
    }

    #[inline(always)]
    fn significand(seed: Seed, index: u64) -> i64 {
        4 + (word(seed, TOTAL, index) & 3) as i64
    }
}

impl Place for Factors {
    #[inline(always)]
    fn part<E: Element>(&self, seed: Seed, index: u64, turn: u32) -> i64 {
        let value = match turn {
            0 => Self::significand(seed, index),
            1 => 2,
            _ => 1,
        };
        let negative =
            Self::is_negative::<E>(seed, index, turn) != Self::is_negative::<E>(seed, index, turn + 1);
        if negative { -value } else { value }
    }

    #[inline(always)]
    fn result<E: Element>(&self, seed: Seed, index: u64) -> i64 {
        let value = Self::significand(seed, index) * if self.n_ranks > 1 { 2 } else { 1 };
        if Self::is_negative::<E>(seed, index, self.n_ranks) { -value } else { value }
    }

    fn numbers<E: Element>(&self) -> RuleNumbers {
        RuleNumbers::of(RuleKind::Factors)
    }
}

/// The largest or the smallest.
struct Extremes {
    least: bool,
}

impl Extremes {
    /// Numbers from 0 to here take part, shifted so that both signs do, or so that the uppermost bit of an unsigned
    /// integer is used.
    #[inline(always)]
    fn range<E: Element>() -> (i64, i64) {
        match (E::WRAPS, E::SIGNED, size_of::<E>()) {
            (true, true, 1) => (254, -127),
            (true, true, 4) => ((1 << 32) - 2, 1 - (1 << 31)),
            (true, true, _) => (1 << 62, -(1 << 61)),
            // From 2⁶² to beyond 2⁶³.
            (true, false, 8) => (i64::MAX - 1, 1 << 62),
            (true, false, _) => (E::EXACT, 0),
            (false, ..) => (E::EXACT, -E::EXACT / 2),
        }
    }

    /// How far the extreme is from its end of the range: at most half of it.
    #[inline(always)]
    fn margin(seed: Seed, index: u64, range: i64) -> i64 {
        below(word(seed, TOTAL, index), range as u64 / 2 + 1) as i64
    }

    #[inline(always)]
    fn place<E: Element>(&self, from_end: i64) -> i64 {
        let (range, shift) = Self::range::<E>();
        let value = if self.least { from_end } else { range - from_end };
        value.wrapping_add(shift)
    }
}

impl Place for Extremes {
    #[inline(always)]
    fn part<E: Element>(&self, seed: Seed, index: u64, turn: u32) -> i64 {
        let (range, _) = Self::range::<E>();
        let margin = Self::margin(seed, index, range);
        let behind = || 1 + below(word(seed, STEPS + u64::from(turn), index), (range - margin) as u64) as i64;
        self.place::<E>(if turn == 0 { margin } else { margin + behind() })
    }

    #[inline(always)]
    fn result<E: Element>(&self, seed: Seed, index: u64) -> i64 {
        let (range, _) = Self::range::<E>();
        self.place::<E>(Self::margin(seed, index, range))
    }

    fn numbers<E: Element>(&self) -> RuleNumbers {
        let (range, shift) = Self::range::<E>();
        RuleNumbers {
            range: range.cast_unsigned(),
            shift: shift.cast_unsigned(),
            least: self.least,
            ..RuleNumbers::of(RuleKind::Extremes)
        }
    }
}
