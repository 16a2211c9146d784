//! Tables in the shapes that the tools print, and what is left of them after damage.

mod nccl;

use super::*;
use crate::recording::{Figure, Key};

const BANDWIDTH: &str = include_str!("../../../../fuzz/corpus/imports/perftest-bandwidth.txt");

const LATENCY: &str = include_str!("../../../../fuzz/corpus/imports/perftest-latency.txt");

const NCCL: &str = include_str!("../../../../fuzz/corpus/imports/nccl-tests.txt");

/// Every sample, with whose it is.
const SAMPLES: &[(Format, &str)] = &[
    (Format::Perftest, BANDWIDTH),
    (Format::Perftest, LATENCY),
    (Format::Perftest, include_str!("../../../../fuzz/corpus/imports/perftest-duration.txt")),
    (Format::Perftest, ALL_SIZES),
    (Format::Perftest, OLD_JSON),
    (Format::Perftest, NEW_JSON),
    (Format::Perftest, LATENCY_JSON),
    (Format::NcclTests, NCCL),
    (Format::NcclTests, PER_ITERATION),
    (Format::NcclTests, NCCL_H200),
    (Format::NcclTests, NCCL_JSON),
    (Format::NcclTests, NCCL_REDUCE),
    (Format::NcclTests, NCCL_REDUCE_JSON),
    (Format::NcclTests, NCCL_ALL_GATHER),
    (Format::NcclTests, NCCL_SENDRECV),
    (Format::Osu, OSU_BANDWIDTH),
    (Format::Osu, OSU_ALLREDUCE),
    (Format::Osu, include_str!("../../../../fuzz/corpus/imports/osu-old.txt")),
    (Format::Osu, include_str!("../../../../fuzz/corpus/imports/osu-tail.txt")),
    (Format::Osu, include_str!("../../../../fuzz/corpus/imports/osu-barrier.txt")),
    (Format::Imb, IMB),
];

/// As ib_write_bw 6.06 -a -n 5 printed it over Soft-RoCE between two emulated processors.
const ALL_SIZES: &str = include_str!("../../../../fuzz/corpus/imports/perftest-all-sizes.txt");
const OLD_JSON: &str = include_str!("../../../../fuzz/corpus/imports/perftest-old.json");
const NEW_JSON: &str = include_str!("../../../../fuzz/corpus/imports/perftest-new.json");
const LATENCY_JSON: &str = include_str!("../../../../fuzz/corpus/imports/perftest-latency.json");
const PER_ITERATION: &str = include_str!("../../../../fuzz/corpus/imports/nccl-tests-per-iteration.txt");
/// As alltoall_perf of nccl-tests 2.19.6 printed it with NCCL 2.28.3, two ranks on one H200.
const NCCL_H200: &str = include_str!("../../../../fuzz/corpus/imports/nccl-tests-h200.txt");
/// The table and the JSON of one run of reduce_perf there, and tables of all_gather_perf of a lone rank, which begins with a row of
/// nothing, and of sendrecv_perf -N 3.
const NCCL_REDUCE: &str = include_str!("../../../../fuzz/corpus/imports/nccl-tests-reduce.txt");
const NCCL_REDUCE_JSON: &str = include_str!("../../../../fuzz/corpus/imports/nccl-tests-reduce.json");
const NCCL_ALL_GATHER: &str = include_str!("../../../../fuzz/corpus/imports/nccl-tests-all-gather.txt");
const NCCL_SENDRECV: &str = include_str!("../../../../fuzz/corpus/imports/nccl-tests-sendrecv.txt");
const NCCL_JSON: &str = include_str!("../../../../fuzz/corpus/imports/nccl-tests.json");
const OSU_BANDWIDTH: &str = include_str!("../../../../fuzz/corpus/imports/osu-bandwidth.txt");
const OSU_ALLREDUCE: &str = include_str!("../../../../fuzz/corpus/imports/osu-allreduce.txt");
const IMB: &str = include_str!("../../../../fuzz/corpus/imports/imb.txt");

fn read(format: Format, text: &str) -> Recording {
    text_of("x", text, format, None).unwrap()
}

fn refusal(text: &str, format: Format) -> String {
    text_of("x", text, format, None).unwrap_err()
}

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
fn perftests_json_has_one_unit_or_the_other_and_its_rate_tells_which() {
    let at = key("", 65536, Figure::Bandwidth);
    let old = read(Format::Perftest, OLD_JSON);
    assert!((value(&old, &at) - 405.12 * 1_048_576.0 * 8.0 / 1e9).abs() < 1e-12);
    assert_eq!(
        (old.operation.as_str(), old.conditions["plan.traffic"].as_str()),
        ("write bandwidth", "unidirectional")
    );
    let new = read(Format::Perftest, NEW_JSON);
    // 181.35, with one more digit by the rate.
    assert!((value(&new, &at) - 0.345_898e6 * 65536.0 * 8.0 / 1e9).abs() < 1e-9);
    assert_eq!(
        (new.operation.as_str(), new.conditions["plan.traffic"].as_str()),
        ("write bandwidth", "bidirectional")
    );
    let neither = refusal(&NEW_JSON.replace("0.345898", "0.000000"), Format::Perftest);
    assert!(neither.starts_with("BW_average 181.35 is in neither MiB/s nor Gb/s by MsgRate 0"), "{neither}");
}

#[test]
fn perftests_small_messages_have_their_digits_in_the_message_rate() {
    let recording = read(Format::Perftest, ALL_SIZES);
    let of = |size| value(&recording, &key("", size, Figure::Bandwidth));
    assert_eq!(recording.points.len(), 23);
    // 0.00 and 0.39 MB/sec, by 0.000273 and 0.006400 million messages a second; 19.54 by a rate that has fewer digits.
    let by_rate = |million: f64, size: f64| million * 1e6 * size * 8.0 / 1e9;
    assert!((of(2) - by_rate(0.000_273, 2.0)).abs() < 1e-12);
    assert!((of(64) - by_rate(0.006_400, 64.0)).abs() < 1e-12);
    assert!((of(2_097_152) - 14.39 * 1_048_576.0 * 8.0 / 1e9).abs() < 1e-12);
    // A rate that contradicts the average does not replace it.
    let other = read(Format::Perftest, &ALL_SIZES.replace("0.006400", "0.006600"));
    assert!((value(&other, &key("", 64, Figure::Bandwidth)) - 0.39 * 1_048_576.0 * 8.0 / 1e9).abs() < 1e-12);
}

#[test]
fn perftests_runs_in_which_nothing_was_completed_have_nothing_to_compare() {
    // Of ib_write_bw -D 1 -s 65536 over an emulated path, where the first acknowledgement comes later than that.
    let table = BANDWIDTH.split(" 2          5000").next().unwrap();
    let table =
        format!("{table} 65536      0                0.00               0.00               0.000000\n");
    let json = OLD_JSON.replace("405.12", "0.00").replace("MsgRate: 0.006482", "MsgRate: 0.000000");
    for text in [&table, &json] {
        assert_eq!(refusal(text, Format::Perftest), perftest::NOTHING, "{text}");
    }
}

#[test]
fn perftests_json_has_the_conditions_of_its_table() {
    let table = read(Format::Perftest, BANDWIDTH).conditions;
    let json = read(Format::Perftest, &OLD_JSON.replace("soft0", "rxe0")).conditions;
    // A tab stands before the colon of this one.
    assert_eq!(read(Format::Perftest, ALL_SIZES).conditions["perftest.rdma_cm QPs"], "OFF");
    let shared = table.iter().filter(|(name, value)| json.get(*name) == Some(value)).count();
    assert_eq!(shared, table.len(), "{table:#?} {json:#?}");
}

#[test]
fn perftests_latencies_in_json_and_of_a_duration() {
    let json = read(Format::Perftest, LATENCY_JSON);
    assert_eq!(value(&json, &key("", 8, Figure::Typical)), 1.52);
    assert_eq!(value(&json, &key("", 8, Figure::P99)), 1.98);
    assert_eq!(json.conditions["plan.traffic"], "ping_pong");
    let (_, table) = SAMPLES[2];
    assert_eq!(value(&read(Format::Perftest, table), &key("", 64, Figure::Mean)), 12.1);
}

#[test]
fn osu_tables_by_their_headings() {
    let recording = read(Format::Osu, OSU_BANDWIDTH);
    assert_eq!(
        (recording.operation.as_str(), recording.conditions["version"].as_str()),
        ("MPI bandwidth", "v7.5")
    );
    assert_eq!(value(&recording, &key("", 65536, Figure::Bandwidth)), 812.5 * 8.0 / 1e3);
    assert_eq!(recording.points.len(), 2, "what was rounded to nothing is left out: {:?}", recording.points);
    let collective = read(Format::Osu, OSU_ALLREDUCE);
    assert_eq!(value(&collective, &key("allreduce", 1 << 20, Figure::Mean)), 412.75);
    assert_eq!(collective.conditions["osu.datatype"], "MPI_INT");
    let of_other = |index: usize| read(Format::Osu, SAMPLES[index].1);
    assert_eq!(value(&of_other(17), &key("", 8, Figure::Mean)), 1.31);
    assert_eq!(value(&of_other(18), &key("", 8, Figure::P99)), 2.1);
    assert_eq!(value(&of_other(19), &key("barrier", 0, Figure::Mean)), 3.42);
    let torn = refusal(&OSU_ALLREDUCE.replace("412.75 ", "412.75.1 "), Format::Osu);
    assert!(torn.starts_with("line 6: expected a number for each column, found 1048576"), "{torn}");
    assert!(refusal("", Format::Osu).starts_with("it has no title"));
    assert!(refusal("# OSU MPI Latency Test v7\n", Format::Osu).contains("no line begins with # Size"));
}

#[test]
fn imb_has_a_table_for_each_benchmark() {
    let recording = read(Format::Imb, IMB);
    assert_eq!(value(&recording, &key("PingPong over 2 ranks", 65536, Figure::Mean)), 14.3);
    assert_eq!(value(&recording, &key("Allreduce over 4 ranks", 65536, Figure::Mean)), 63.0);
    assert_eq!(value(&recording, &key("Barrier over 4 ranks", 0, Figure::Mean)), 2.2);
    assert_eq!(recording.conditions["imb.reduction"], "MPI_SUM");
    assert!(recording.faults.len() == 1 && recording.faults[0].starts_with("line 24: 1073741824 out-of-mem"));
    let torn = IMB.split("# All processes").next().unwrap();
    assert_eq!(read(Format::Imb, torn).faults[1], "it ends before its last line: the run was cut short");
    assert!(refusal(BANDWIDTH, Format::Imb).contains("# Benchmarking PingPong"));
    assert!(
        refusal(&IMB.replace("63.00", ""), Format::Imb).starts_with("line 23: expected a number for each")
    );
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
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
    let zero = LATENCY.replace("10.20", "0.00");
    assert!(refusal(&zero, Format::Perftest).contains("is 0, not a number above 0"));
}

#[test]
fn a_recording_goes_to_json_and_back() {
    for (format, text) in SAMPLES {
        let recording = read(*format, text);
        let json = serde_json::to_vec_pretty(&recording).unwrap();
        assert_eq!(crate::source::parse("y", &json).unwrap(), [recording]);
    }
}

#[test]
fn a_text_cut_anywhere_is_read_or_refused() {
    for (format, text) in SAMPLES {
        for end in (0..text.len()).filter(|&end| text.is_char_boundary(end)) {
            if let Err(what) = text_of("x", &text[..end], *format, None) {
                assert!(!what.is_empty() && !what.contains(char::is_control), "{what:?}");
            }
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 200, ..Default::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
        for format in [Format::Perftest, Format::NcclTests, Format::Osu, Format::Imb] {
            for begin in ["", "{"] {
                let text = format!("{begin}{}", String::from_utf8_lossy(&bytes));
                if let Err(what) = text_of("x", &text, format, Some("alltoall")) {
                    proptest::prop_assert!(!what.is_empty() && !what.contains(char::is_control), "{:?}", what);
                }
            }
        }
    }

    #[test]
    fn any_mutation_of_a_sample_is_read_or_refused(
        sample in 0..SAMPLES.len(),
        edits in proptest::collection::vec((proptest::prelude::any::<proptest::sample::Index>(), 0..3_u8, proptest::prelude::any::<u8>()), 1..6),
    ) {
        let (format, text) = SAMPLES[sample];
        let mut bytes = text.as_bytes().to_vec();
        for (place, kind, byte) in edits {
            let at = place.index(bytes.len() + 1);
            match kind {
                0 if at < bytes.len() => bytes[at] = byte,
                1 => bytes.truncate(at),
                _ => bytes.insert(at, b" \n#.-9e\x1b\xff\t{}\":,"[usize::from(byte) % 15]),
            }
        }
        match text_of("x", &String::from_utf8_lossy(&bytes), format, None) {
            // What was taken can be written, and read again as the same.
            Ok(recording) => {
                let json = serde_json::to_vec(&recording).unwrap();
                proptest::prop_assert_eq!(crate::source::parse("y", &json).unwrap(), [recording]);
            }
            Err(what) => proptest::prop_assert!(!what.is_empty() && !what.contains(char::is_control), "{:?}", what),
        }
    }
}
