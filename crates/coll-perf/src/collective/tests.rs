use super::*;
use crate::traffic::Traffic;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn call_of(name: &str, n_ranks: u32, dtype: DataTypeName, size: u64) -> Result<Call, CallError> {
    let dtype = crate::dtype::DataType::named(dtype).unwrap();
    Call::new(Collective::named(name).unwrap(), n_ranks, dtype, crate::redop::RedOp::Sum, 0, size)
}

type DataTypeName = &'static str;

fn call(name: &str, n_ranks: u32) -> Call {
    call_of(name, n_ranks, "float", MIB).unwrap()
}

/// What nccl-tests shows for 1 MiB of float and 1 ms a call: count, size column, algbw and busbw in GB/s.
/// Worked out by hand: 262 144 elements, in blocks of 131 072, 87 380 (a multiple of 4), 65 536, 32 768 and 16 384.
#[test]
fn counts_sizes_and_bandwidths_of_1_mib_of_float() {
    let whole = |bus: [f64; 5]| {
        [(2, bus[0]), (3, bus[1]), (4, bus[2]), (8, bus[3]), (16, bus[4])]
            .map(|(n, factor)| (n, 262_144, 1_048_576, 1.048_576, 1.048_576 * factor))
    };
    let blocks = [
        (2, 131_072, 1_048_576, 1.048_576, 0.524_288),
        (3, 87_380, 1_048_560, 1.048_56, 0.699_04),
        (4, 65_536, 1_048_576, 1.048_576, 0.786_432),
        (8, 32_768, 1_048_576, 1.048_576, 0.917_504),
        (16, 16_384, 1_048_576, 1.048_576, 0.983_04),
    ];
    let ones = whole([1.0; 5]);
    let cases = [
        ("all_reduce", whole([1.0, 4.0 / 3.0, 1.5, 1.75, 1.875])),
        ("broadcast", ones),
        ("reduce", ones),
        ("sendrecv", ones),
        ("all_gather", blocks),
        ("reduce_scatter", blocks),
        ("alltoall", blocks),
        ("gather", blocks),
        ("scatter", blocks),
    ];
    for (name, rows) in cases {
        for (n, count, size, alg_bw, bus_bw) in rows {
            let call = call(name, n);
            assert_eq!((call.count, call.size_bytes()), (count, size), "{name} of {n}");
            assert!((call.alg_bw(1e-3) / 1e9 - alg_bw).abs() < 1e-12, "{name} of {n}");
            assert!((call.bus_bw(1e-3).unwrap() / 1e9 - bus_bw).abs() < 1e-12, "{name} of {n}");
        }
    }
}

/// Its algorithm bandwidth has the share of the others' blocks in it: 1/2, 3/4, 7/8 and 15/16 of 1 MiB.
#[test]
fn a_hypercube_counts_the_others_blocks() {
    for (n, count, others) in
        [(2, 131_072, 524_288.0), (4, 65_536, 786_432.0), (8, 32_768, 917_504.0), (16, 16_384, 983_040.0)]
    {
        let call = call("hypercube", n);
        assert_eq!((call.count, call.size_bytes()), (count, 1_048_576));
        assert!((call.alg_bw(1.0) - others).abs() < 1e-6 && call.bus_bw(1.0) == Some(call.alg_bw(1.0)));
    }
    assert_eq!(call_of("hypercube", 3, "float", MIB), Err(CallError::NotAPowerOfTwo));
}

/// By distance: of 262 144 bytes × n, the neighbour gets 1 part of n(n−1)/2, the farthest n−1 of them.
#[test]
fn an_alltoallv_counts_what_the_busiest_rank_sends() {
    let call = call("alltoallv", 4);
    // 1 MiB in 6 parts of 174 762.67 bytes: 174 752, 349 520 and 524 288 bytes in whole 16s.
    assert_eq!(call.size_bytes(), 174_752 + 349_520 + 524_288);
    assert_eq!(call.per_peer_bytes(), Some(524_288));
    assert!((call.bus_bw(1.0).unwrap() - 1_048_560.0 * 0.75).abs() < 1e-6);
    let pair = call_of("alltoallv", 2, "int8", 100).unwrap();
    assert_eq!((pair.size_bytes(), pair.per_peer_bytes()), (96, Some(96)));
}

#[test]
fn blocks_are_whole_16_bytes_whatever_the_type() {
    for (dtype, count) in [("int8", 349_520), ("half", 174_760), ("float", 87_380), ("double", 43_690)] {
        let call = call_of("alltoall", 3, dtype, MIB).unwrap();
        assert_eq!((call.count, call.size_bytes()), (count, 1_048_560), "{dtype}");
        assert_eq!(call.per_peer_bytes(), Some(349_520));
    }
}

#[test]
fn a_size_that_rounds_to_nothing_is_refused_with_the_least_that_does_not() {
    for (name, n, dtype, size, least) in [
        ("all_reduce", 3, "double", 7, 8),
        ("alltoall", 3, "float", 47, 48),
        ("all_gather", 5, "int8", 79, 80),
        ("alltoallv", 4, "float", 31, 32),
    ] {
        assert_eq!(call_of(name, n, dtype, size), Err(CallError::TooSmall { least_bytes: least }));
        assert!(call_of(name, n, dtype, least).is_ok(), "{name}");
    }
}

#[test]
fn one_rank_has_no_bus() {
    assert!(ALL.iter().all(|collective| collective.bus_factor.of(1).is_none()));
    assert_eq!(call("all_reduce", 1).bus_bw(1.0), None);
    assert_eq!(call("alltoallv", 1).size_bytes(), MIB);
}

#[test]
fn the_spellings_people_type_are_understood() {
    for (word, name) in [
        ("all-to-all", "alltoall"),
        ("alltoall_perf", "alltoall"),
        ("AllToAllv", "alltoallv"),
        ("all_reduce", "all_reduce"),
        ("allreduce", "all_reduce"),
        ("all_reduce_perf", "all_reduce"),
        ("AllGather", "all_gather"),
        ("reduce-scatter", "reduce_scatter"),
        ("bcast", "broadcast"),
        ("send_recv", "sendrecv"),
        ("hypercube_perf", "hypercube"),
    ] {
        assert_eq!(Collective::named(word).map(|c| c.name), Some(name), "{word}");
    }
    assert!(Collective::named("alltoallw").is_none() && Collective::named("").is_none());
    assert!(ALL.iter().all(|collective| Collective::named(collective.name).unwrap().kind == collective.kind));
}

/// Each part of each result lies in the receive buffer, overlaps no other, and comes from inside a send buffer.
#[test]
fn shapes_fit_their_buffers() {
    for collective in ALL {
        for n in [1, 2, 3, 4, 5, 8] {
            let Ok(call) = call_of(collective.name, n, "float", 4096) else { continue };
            let shapes: Vec<Shape> = (0..n).map(|rank| call.shape(rank)).collect();
            for shape in &shapes {
                let mut end = 0;
                for part in &shape.parts {
                    assert!(part.at >= end && part.at + part.bytes <= shape.recv_bytes);
                    end = part.at + part.bytes;
                    let fits = |rank: u32, offset| offset + part.bytes <= shapes[rank as usize].send_bytes;
                    assert!(match part.source {
                        Source::Rank { rank, offset } => fits(rank, offset),
                        Source::Reduction { offset } => (0..n).all(|rank| fits(rank, offset)),
                    });
                }
            }
        }
    }
}

#[test]
fn alltoall_gives_each_rank_its_block_of_each() {
    let parts = call("alltoall", 2).shape(1).parts;
    let half = MIB / 2;
    assert_eq!(parts[0], Part { at: 0, bytes: half, source: Source::Rank { rank: 0, offset: half } });
    assert_eq!(parts[1], Part { at: half, bytes: half, source: Source::Rank { rank: 1, offset: half } });
}

#[test]
fn a_matrix_decides_an_alltoallv() {
    let traffic = Arc::new(Traffic::weighted_by_distance(3, 480));
    let call = Call::of_traffic(Arc::clone(&traffic), crate::dtype::DataType::Int8).unwrap();
    assert_eq!((call.n_ranks, call.size_bytes(), call.count), (3, 480, 160));
    let shape = call.shape(0);
    // From rank 1 at distance 2, from rank 2 at distance 1; rank 0's block is the second of 1 and the first of 2.
    assert_eq!(shape.parts[0], Part { at: 0, bytes: 320, source: Source::Rank { rank: 1, offset: 0 } });
    assert_eq!(shape.parts[1], Part { at: 320, bytes: 160, source: Source::Rank { rank: 2, offset: 0 } });
}

#[test]
fn only_the_root_receives_what_is_gathered_or_reduced() {
    for name in ["reduce", "gather"] {
        let call = Call::new(
            Collective::named(name).unwrap(),
            4,
            crate::dtype::DataType::Float,
            crate::redop::RedOp::Max,
            2,
            MIB,
        );
        let call = call.unwrap();
        assert!((0..4).all(|rank| call.shape(rank).parts.is_empty() == (rank != 2)), "{name}");
    }
}
