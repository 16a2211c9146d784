//! Tables in the shapes that the tools print, and what is left of them after damage.

use super::*;
use crate::recording::{Figure, Key};

const BANDWIDTH: &str = "\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : rxe0
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 Mtu             : 1024[B]
 Link type       : Ethernet
 GID index       : 1
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x0011 PSN 0x2f9c7 RKey 0x000208 VAddr 0x007f0000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:77:00:02
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 2          5000             0.05               0.04               0.021000
 65536      5000             40.12              39.98              0.000640
---------------------------------------------------------------------------------------
";

const LATENCY: &str = "\
                    RDMA_Write Latency Test
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 2       1000          8.90           42.10        10.20              10.90          1.00            23.00                  39.00
";

const NCCL: &str = "\
# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 4194304 step: 4(factor) warmup iters: 5 iters: 20
#
# Using devices
#  Rank  0 Group  0 Pid   1000 on      gpu-a device  0 [0000:01:00] NVIDIA H200
#  Rank  1 Group  0 Pid   1001 on      gpu-a device  1 [0000:02:00] NVIDIA H200
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    20.10   52.17   52.17      0    20.30   51.65   51.65      0
     4194304       1048576     float     sum      -1    39.20  107.00  107.00      0    39.00  107.55  107.55    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 79.6
";

fn key(what: &str, size_bytes: u64, figure: Figure) -> Key {
    Key { what: what.into(), size_bytes, figure }
}

fn value(recording: &Recording, key: &Key) -> f64 {
    recording.point(key).unwrap_or_else(|| panic!("{key:?}: {:?}", recording.points)).rounds[0]
}

#[test]
fn perftests_bandwidth_in_both_units() {
    let recording = text_of("x", BANDWIDTH, Format::Perftest, None).unwrap();
    assert_eq!(recording.operation, "write bandwidth");
    let large = key("", 65536, Figure::Bandwidth);
    // What is called MB is 2^20 bytes.
    assert!((value(&recording, &large) - 39.98 * 1_048_576.0 * 8.0 / 1e9).abs() < 1e-12);
    assert_eq!(recording.conditions["perftest.Mtu"], "1024[B]");
    assert_eq!(recording.conditions["perftest.Device"], "rxe0");
    assert!(!recording.conditions.keys().any(|name| name.contains("GID") || name.contains("address")));
    assert_eq!(recording.conditions["plan.traffic"], "unidirectional");
    let newer = BANDWIDTH.replace("MB/sec", "MiB/sec");
    assert_eq!(text_of("x", &newer, Format::Perftest, None).unwrap().points, recording.points);
    let gbit = BANDWIDTH.replace("MB/sec", "Gb/sec").replace("BW Test", "Bidirectional BW Test");
    let recording = text_of("x", &gbit, Format::Perftest, None).unwrap();
    assert_eq!(value(&recording, &large), 39.98);
    assert_eq!(recording.conditions["plan.traffic"], "bidirectional");
}

#[test]
fn perftests_latency_has_median_and_tail() {
    let recording = text_of("x", LATENCY, Format::Perftest, None).unwrap();
    assert_eq!(recording.operation, "write latency");
    assert_eq!(value(&recording, &key("", 2, Figure::Typical)), 10.2);
    assert_eq!(value(&recording, &key("", 2, Figure::P99)), 23.0);
}

#[test]
fn nccl_tests_rows_out_of_place_and_in_place() {
    let recording = text_of("x", NCCL, Format::NcclTests, None).unwrap();
    let of = |what: &str, size| value(&recording, &key(what, size, Figure::AlgBandwidth));
    assert!((of("all_reduce float sum", 1 << 20) - 1_048_576.0 / 20.10 / 1e3).abs() < 1e-12);
    assert!((of("all_reduce float sum in place", 4 << 20) - 4_194_304.0 / 39.0 / 1e3).abs() < 1e-12);
    assert_eq!(recording.conditions["plan.n_ranks"], "2");
    assert!(recording.faults.is_empty(), "{:?}", recording.faults);
}

#[test]
fn more_columns_are_found_by_the_heading() {
    let wider = NCCL
        .replace("busbw #wrong", "busbw #wrong i_min i_max i_p99 i_cv%")
        .replace("52.17      0", "52.17      0 19.0 25.0 25.0 3.1")
        .replace("51.65      0", "51.65      0 19.0 25.0 25.0 3.1")
        .replace("107.00      0", "107.00      0 19.0 25.0 25.0 3.1")
        .replace("107.55    N/A", "107.55    N/A 19.0 25.0 25.0 3.1");
    assert_eq!(
        text_of("x", &wider, Format::NcclTests, None).unwrap().points,
        text_of("x", NCCL, Format::NcclTests, None).unwrap().points
    );
}

#[test]
fn wrong_elements_and_runs_cut_short_are_faults() {
    let faults = |text: &str| text_of("x", text, Format::NcclTests, None).unwrap().faults;
    assert_eq!(faults(&NCCL.replace("52.17      0", "52.17      3")), ["wrong-data: 3 elements were wrong"]);
    let torn = NCCL.split("# Out of bounds").next().unwrap();
    assert_eq!(faults(torn), ["it ends before its summary: the run was cut short"]);
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    let refusal = |text: &str, format| text_of("x", text, format, None).unwrap_err();
    assert!(refusal("", Format::Perftest).starts_with("it has no title"));
    assert!(
        refusal(BANDWIDTH.split(" #bytes").next().unwrap(), Format::Perftest)
            .contains("no line begins with #bytes")
    );
    let torn = BANDWIDTH.replace("39.98              0.000640", "39.");
    assert!(
        refusal(&torn, Format::Perftest).starts_with("line 15: expected size, iterations, peak, average")
    );
    assert!(refusal(BANDWIDTH, Format::NcclTests).contains("--op all_reduce"));
    let torn = NCCL.replace("107.55    N/A", "");
    assert!(refusal(&torn, Format::NcclTests).starts_with("line 13: expected 13 columns"));
    let zero = BANDWIDTH.replace("39.98 ", "0.00 ");
    assert!(refusal(&zero, Format::Perftest).contains("is 0, not a number above 0"));
}

#[test]
fn a_recording_goes_to_json_and_back() {
    for (text, format) in
        [(BANDWIDTH, Format::Perftest), (LATENCY, Format::Perftest), (NCCL, Format::NcclTests)]
    {
        let recording = text_of("x", text, format, None).unwrap();
        let json = serde_json::to_vec_pretty(&recording).unwrap();
        assert_eq!(crate::source::parse("y", &json).unwrap(), [recording]);
    }
}

#[test]
fn any_mutation_of_a_table_is_read_or_refused() {
    let mut state = 7_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below.max(1)
    };
    for (text, format) in
        [(BANDWIDTH, Format::Perftest), (LATENCY, Format::Perftest), (NCCL, Format::NcclTests)]
    {
        for _ in 0..1000 {
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..=next(5) {
                let at = next(bytes.len());
                match next(3) {
                    0 => bytes[at] = next(256) as u8,
                    1 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, b" \n#.-9e\x1b\xff\t"[next(10)]),
                }
            }
            if let Err(what) = text_of("x", &String::from_utf8_lossy(&bytes), format, None) {
                assert!(!what.contains('\x1b'), "{what:?}");
            }
        }
    }
}
