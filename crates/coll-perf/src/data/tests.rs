use super::*;
use crate::collective::Collective;
use crate::dtype::DataType;
use crate::element::{Element, from_bytes};
use crate::redop::RedOp;
use crate::with_element;
use proptest::prelude::*;

fn reduction(dtype: DataType, redop: RedOp, n_ranks: u32) -> Result<Data> {
    let call = Call::new(Collective::named("all_reduce").unwrap(), n_ranks, dtype, redop, 0, 4096).unwrap();
    Data::of(&call)
}

fn apply<E: Element>(redop: RedOp, a: E, b: E) -> E {
    match redop {
        RedOp::Sum | RedOp::Avg => a.plus(b),
        RedOp::Prod => a.times(b),
        RedOp::Max => a.larger(b),
        RedOp::Min => a.smaller(b),
    }
}

/// The elements of every rank, reduced in the order of `ranks`.
fn reduced<E: Element>(data: &Data, redop: RedOp, n_ranks: u32, ranks: &[u32]) -> Vec<E> {
    let elements = |rank: u32| -> Vec<E> {
        let mut bytes = vec![0; 512];
        data.input(Seed::of(3, 1), rank, 64, &mut bytes);
        bytes.chunks_exact(size_of::<E>()).map(from_bytes).collect()
    };
    let together = |a: Vec<E>, b: Vec<E>| a.iter().zip(&b).map(|(a, b)| apply(redop, *a, *b)).collect();
    let sum = ranks.iter().map(|rank| elements(*rank)).reduce(together).unwrap();
    let finish = |e: E| if redop == RedOp::Avg { e.divided_by(n_ranks) } else { e };
    sum.into_iter().map(finish).collect()
}

#[test]
fn reductions_are_exact_in_any_order_for_every_type_operation_and_number_of_ranks() {
    for (dtype, redop) in DataType::ALL.iter().flat_map(|t| RedOp::ALL.iter().map(move |op| (*t, *op))) {
        for n in [1, 2, 3, 5, 8, 40] {
            let Ok(data) = reduction(dtype, redop, n) else {
                assert!(redop == RedOp::Avg && dtype.bytes() == 1, "{dtype:?} {redop:?} {n}");
                continue;
            };
            let forward: Vec<u32> = (0..n).collect();
            let mut mixed = forward.clone();
            mixed.sort_by_key(|rank| bytes::mix(u64::from(*rank)));
            let part = Part { at: 0, bytes: 4096, source: Source::Reduction { offset: 64 } };
            let mut expected = vec![0; 512];
            data.expected(Seed::of(3, 1), &part, 0, &mut expected);
            with_element!(dtype, E => {
                let expected: Vec<E> = expected.chunks_exact(size_of::<E>()).map(from_bytes).collect();
                for ranks in [&forward, &mixed] {
                    let found = reduced::<E>(&data, redop, n, ranks);
                    assert!(found == expected, "{dtype:?} {redop:?} of {n}");
                }
            });
        }
    }
}

/// The reduction is not blind: leaving out a rank, or taking one twice, is seen.
#[test]
fn a_rank_left_out_or_taken_twice_changes_the_result() {
    for (dtype, redop) in DataType::ALL.iter().flat_map(|t| RedOp::ALL.iter().map(move |op| (*t, *op))) {
        for n in [2, 3, 8] {
            let Ok(data) = reduction(dtype, redop, n) else { continue };
            with_element!(dtype, E => {
                let all: Vec<u32> = (0..n).collect();
                let whole = reduced::<E>(&data, redop, n, &all);
                for rank in 0..n {
                    let without: Vec<u32> = all.iter().copied().filter(|other| *other != rank).collect();
                    assert!(reduced::<E>(&data, redop, n, &without) != whole, "{dtype:?} {redop:?} without {rank}");
                    let idempotent = matches!(redop, RedOp::Max | RedOp::Min);
                    let twice: Vec<u32> = all.iter().copied().chain([rank]).collect();
                    let changed = reduced::<E>(&data, redop, n, &twice) != whole;
                    // A sum of 8 is as far as this type counts: 9 is rounded back to it.
                    if (dtype, redop, n) == (DataType::F8e5m2, RedOp::Avg, 8) {
                        continue;
                    }
                    assert!(changed != idempotent, "{dtype:?} {redop:?} with {rank} twice");
                }
            });
        }
    }
}

#[test]
fn averages_of_8_bit_floats_over_many_ranks_are_refused_with_the_reason() {
    let error = reduction(DataType::F8e5m2, RedOp::Avg, 9).err().unwrap();
    assert_eq!(error.what, "avg of f8e5m2 over 9 ranks can't be checked");
    assert!(error.facts[0].value.contains("exact up to 8"));
    assert!(reduction(DataType::F8e5m2, RedOp::Avg, 8).is_ok());
}

#[test]
fn moved_bytes_depend_on_seed_rank_and_place_and_not_on_the_piece() {
    let call = Call::new(Collective::named("alltoall").unwrap(), 2, DataType::Int8, RedOp::Sum, 0, 4096);
    let data = Data::of(&call.unwrap()).unwrap();
    let bytes = |round, rank, offset, length| {
        let mut out = vec![0; length];
        data.input(Seed::of(0, round), rank, offset, &mut out);
        out
    };
    let whole = bytes(0, 0, 0, 101);
    assert_eq!(whole[16..], bytes(0, 0, 16, 85));
    let same = |other: Vec<u8>| whole.iter().zip(&other).filter(|(a, b)| a == b).count();
    for other in [bytes(1, 0, 0, 101), bytes(0, 1, 0, 101), bytes(0, 0, 16, 101)] {
        assert!(same(other) < 10, "of 101 bytes, 0.4 are the same by chance");
    }
}

#[test]
fn a_wrong_element_is_found_with_its_place_and_values() {
    let call = Call::new(Collective::named("alltoall").unwrap(), 2, DataType::Float, RedOp::Sum, 0, 4096);
    let call = call.unwrap();
    let (data, seed) = (Data::of(&call).unwrap(), Seed::of(1, 2));
    let part = call.shape(1).parts[1];
    let (mut found, mut scratch) = (vec![0; 512], vec![0; 512]);
    data.expected(seed, &part, 1024, &mut found);
    assert_eq!(data.check(seed, &part, 1024, &found, &mut scratch).wrong_elements, 0);
    found[101] ^= 1;
    found[511] ^= 1;
    let checked = data.check(seed, &part, 1024, &found, &mut scratch);
    assert_eq!((checked.checked_elements, checked.wrong_elements), (128, 2));
    let first = checked.first_wrong.unwrap();
    assert_eq!((first.offset_bytes, first.from_rank), (2048 + 1024 + 100, Some(1)));
    assert_ne!(first.expected, first.found);
    data.poison(seed, &part, 1024, &mut found);
    assert_eq!(data.check(seed, &part, 1024, &found, &mut scratch).wrong_elements, 128);
}

proptest! {
    #[test]
    fn any_flipped_bit_of_any_result_is_found_where_it_is(
        dtype in 0_usize..12,
        redop in prop::option::of(0_usize..5),
        bit in 0_usize..1000 * 8,
        piece in 0_u64..10,
    ) {
        let dtype = DataType::ALL[dtype];
        let name = if redop.is_some() { "all_reduce" } else { "all_gather" };
        let op = RedOp::ALL[redop.unwrap_or(0)];
        let call = Call::new(Collective::named(name).unwrap(), 3, dtype, op, 0, 1 << 20).unwrap();
        let (data, part) = (Data::of(&call).unwrap(), *call.shape(2).parts.last().unwrap());
        let (mut found, mut scratch) = (vec![0; 1000], vec![0; 1000]);
        let (seed, offset) = (Seed::of(7, 0), piece * 4096);
        data.expected(seed, &part, offset, &mut found);
        found[bit / 8] ^= 1 << (bit % 8);
        let checked = data.check(seed, &part, offset, &found, &mut scratch);
        prop_assert_eq!(checked.wrong_elements, 1);
        let element = (bit as u64 / 8) / dtype.bytes() * dtype.bytes();
        prop_assert_eq!(checked.first_wrong.unwrap().offset_bytes, part.at + offset + element);
    }
}
