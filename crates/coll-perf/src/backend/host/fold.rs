//! Reducing: the same range of several buffers to one, stored into several.
//!
//! A block at a time is reduced in the first-level cache and stored from there, so that each input is read once and
//! each output written once, however many there are. The loops are plain; the compiler makes vectors of them, of 32
//! bytes where the processor has them.
#![allow(unsafe_code, reason = "memory that other ranks write can't be a Rust slice")]

use super::copy::{Stores, copy};
use crate::dtype::DataType;
use crate::element::Element;
use crate::redop::RedOp;
use crate::with_element;

/// Reduces bytes `begin .. begin + bytes` of all inputs, and stores the result there in all outputs.
///
/// # Safety
/// The range is valid in all buffers and aligned for the element type. Nobody else writes it in any of them, and
/// nobody else reads it in the outputs. An output may be an input.
pub(super) type Fold = unsafe fn(job: &Job, scratch: &mut Scratch, begin: usize, bytes: usize);

/// What is reduced to where.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The begin of each input: at least one.
    pub(super) inputs: Vec<*const u8>,
    /// The begin of each output.
    pub(super) outputs: Vec<*mut u8>,
    /// How the outputs are stored.
    pub(super) stores: Stores,
}

/// Bytes of a block: half of a first-level cache of 32 KiB is left to the inputs. Measured on an EPYC 9005: 4 to 16
/// KiB make no difference.
const BLOCK: usize = 8192;

/// Memory for a block, aligned for every element and vector. A caller keeps it, since clearing it would take longer than
/// a small reduction does.
#[repr(align(64))]
pub(super) struct Scratch([u8; BLOCK]);

impl Scratch {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self([0; BLOCK]))
    }
}

trait Operation {
    const DIVIDES: bool = false;
    fn of<E: Element>(a: E, b: E) -> E;
}

struct Sum;
struct Prod;
struct Max;
struct Min;
struct Avg;

impl Operation for Sum {
    #[inline(always)]
    fn of<E: Element>(a: E, b: E) -> E {
        a.plus(b)
    }
}

impl Operation for Prod {
    #[inline(always)]
    fn of<E: Element>(a: E, b: E) -> E {
        a.times(b)
    }
}

impl Operation for Max {
    #[inline(always)]
    fn of<E: Element>(a: E, b: E) -> E {
        a.larger(b)
    }
}

impl Operation for Min {
    #[inline(always)]
    fn of<E: Element>(a: E, b: E) -> E {
        a.smaller(b)
    }
}

impl Operation for Avg {
    const DIVIDES: bool = true;
    #[inline(always)]
    fn of<E: Element>(a: E, b: E) -> E {
        a.plus(b)
    }
}

/// The fastest one for this processor.
pub(super) fn fold_of(dtype: DataType, redop: RedOp) -> Fold {
    with_element!(dtype, E => match redop {
        RedOp::Sum => fastest::<E, Sum>(),
        RedOp::Prod => fastest::<E, Prod>(),
        RedOp::Max => fastest::<E, Max>(),
        RedOp::Min => fastest::<E, Min>(),
        RedOp::Avg => fastest::<E, Avg>(),
    })
}

fn fastest<E: Element, O: Operation>() -> Fold {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        return fold_avx2::<E, O>;
    }
    fold::<E, O>
}

/// # Safety
/// As [`Fold`]; and the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn fold_avx2<E: Element, O: Operation>(job: &Job, scratch: &mut Scratch, begin: usize, bytes: usize) {
    // SAFETY: as the caller says.
    unsafe { fold::<E, O>(job, scratch, begin, bytes) };
}

/// # Safety
/// As [`Fold`].
#[inline(always)]
unsafe fn fold<E: Element, O: Operation>(job: &Job, scratch: &mut Scratch, begin: usize, bytes: usize) {
    let block = scratch.0.as_mut_ptr();
    let mut at = begin;
    while at < begin + bytes {
        let length = (begin + bytes - at).min(BLOCK);
        let count = length / size_of::<E>();
        // SAFETY: the block is aligned for every element and as long as this, and any bits are an element.
        let result = unsafe { std::slice::from_raw_parts_mut(block.cast::<E>(), count) };
        // SAFETY: the caller says that the range is valid, aligned, and nobody else's to write; what this call writes
        // itself, further below, it writes when no slice of it is left.
        let input = |from: &*const u8| unsafe { std::slice::from_raw_parts(from.add(at).cast::<E>(), count) };
        reduce_block::<E, O>(result, job.inputs.len(), |index| input(&job.inputs[index]));
        for to in &job.outputs {
            // SAFETY: as the caller says; the block is no one else's.
            unsafe { copy(to.add(at), block, length, job.stores) };
        }
        at += length;
    }
}

#[inline(always)]
fn reduce_block<'a, E: Element, O: Operation>(
    result: &mut [E],
    n_inputs: usize,
    input: impl Fn(usize) -> &'a [E],
) {
    if n_inputs == 1 {
        result.copy_from_slice(input(0));
    } else {
        for ((result, a), b) in result.iter_mut().zip(input(0)).zip(input(1)) {
            *result = O::of(*a, *b);
        }
    }
    for index in 2..n_inputs {
        for (result, other) in result.iter_mut().zip(input(index)) {
            *result = O::of(*result, *other);
        }
    }
    if O::DIVIDES {
        for result in result.iter_mut() {
            *result = result.divided_by(n_inputs as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{from_bytes, to_bytes};

    fn folded<E: Element>(redop: RedOp, values: &[i64], count: usize) -> Vec<E> {
        let buffers: Vec<Vec<E>> = values.iter().map(|value| vec![E::of(*value); count]).collect();
        let mut outputs = vec![vec![E::of(0); count]; 2];
        let job = Job {
            inputs: buffers.iter().map(|buffer| buffer.as_ptr().cast()).collect(),
            outputs: outputs.iter_mut().map(|buffer| buffer.as_mut_ptr().cast()).collect(),
            stores: Stores::Streaming,
        };
        // SAFETY: the buffers belong to this test and are as long as the range.
        unsafe { fold_of(E::TYPE, redop)(&job, &mut Scratch::new(), 0, count * size_of::<E>()) };
        super::super::copy::fence(Stores::Streaming);
        assert!(outputs[0] == outputs[1]);
        outputs.remove(0)
    }

    #[test]
    fn every_operation_on_every_type_whatever_the_length() {
        for dtype in DataType::ALL {
            with_element!(*dtype, E => {
                for count in [1, 3, 1000, 8192, 8195] {
                    let all_are = |redop, values: &[i64], expected: i64| {
                        let result = folded::<E>(redop, values, count);
                        assert!(result.iter().all(|e| *e == E::of(expected)), "{dtype:?} {redop:?} {count}");
                    };
                    all_are(RedOp::Sum, &[1, 2, 4], 7);
                    all_are(RedOp::Prod, &[2, 3], 6);
                    all_are(RedOp::Max, &[1, 5, 3], 5);
                    all_are(RedOp::Min, &[6, 1, 3, 2], 1);
                    all_are(RedOp::Avg, &[1, 3, 2], 2);
                    all_are(RedOp::Sum, &[5], 5);
                }
            });
        }
    }

    #[test]
    fn an_output_may_be_an_input_and_only_the_range_is_touched() {
        let mut a = vec![1_f32; 5000];
        let b = vec![2_f32; 5000];
        let job = Job {
            inputs: vec![a.as_ptr().cast(), b.as_ptr().cast()],
            outputs: vec![a.as_mut_ptr().cast()],
            stores: Stores::Cached,
        };
        // SAFETY: the buffers belong to this test and are longer than the range.
        unsafe { fold_of(DataType::Float, RedOp::Sum)(&job, &mut Scratch::new(), 400, 12_000) };
        let expected = |index| if (100..3100).contains(&index) { 3.0 } else { 1.0 };
        assert!(a.iter().enumerate().all(|(index, value)| *value == expected(index)));
    }

    #[test]
    fn elements_go_to_bytes_and_back() {
        let mut bytes = [0; 9];
        to_bytes(-2.5_f64, &mut bytes[1..]);
        assert_eq!(from_bytes::<f64>(&bytes[1..]), -2.5);
    }
}
