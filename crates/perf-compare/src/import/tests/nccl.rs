//! nccl-tests' tables and JSON.

use super::*;

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
fn nccl_tests_parameters_are_conditions_of_their_own() {
    let recording = read(Format::NcclTests, NCCL_H200);
    let of = |what: &str| value(&recording, &key(what, 64 << 20, Figure::AlgBandwidth));
    assert!((of("alltoall float") - 67_108_864.0 / 26_097.3 / 1e3).abs() < 1e-12);
    assert!((of("alltoall float in place") - 67_108_864.0 / 25_946.0 / 1e3).abs() < 1e-12);
    let all: Vec<String> =
        recording.conditions.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(
        all,
        [
            "nccl-tests.aggregated_iterations=1",
            "nccl-tests.graph=0",
            "nccl-tests.iterations=60",
            "nccl-tests.nccl_version=22803",
            "nccl-tests.ngpus=1",
            "nccl-tests.nthreads=1",
            "nccl-tests.unalign=0",
            "nccl-tests.validation=0",
            "nccl-tests.warmup_iters=5",
            "plan.n_ranks=2",
            "tool=nccl-tests",
            "version=nccl-tests version 2.19.6 nccl-headers=22803 nccl-library=22803",
        ]
    );
    // Those that the JSON has, too, have the same names there.
    let json = read(Format::NcclTests, NCCL_JSON).conditions;
    let missing: Vec<&String> =
        recording.conditions.keys().filter(|name| !json.contains_key(*name)).collect();
    assert_eq!(missing, ["nccl-tests.unalign", "version"]);
}

#[test]
fn nccl_tests_table_and_json_of_one_run_are_the_same() {
    let [table, json] = [NCCL_REDUCE, NCCL_REDUCE_JSON].map(|text| read(Format::NcclTests, text));
    assert_eq!((table.operation.as_str(), table.points.len(), table.faults.len()), ("collectives", 6, 0));
    assert_eq!((&table.operation, &table.faults), (&json.operation, &json.faults));
    for (of_table, of_json) in table.points.iter().zip(&json.points) {
        assert_eq!(of_table.key, of_json.key);
        assert!(of_table.key.what.starts_with("reduce float sum root 0"), "{:?}", of_table.key);
        // The table's times have two decimals, the JSON's four.
        let apart = (of_table.rounds[0] / of_json.rounds[0] - 1.0).abs();
        assert!(apart < 0.005 / 490.0, "{of_table:?} {of_json:?}");
    }
    for (name, value) in &json.conditions {
        assert!(
            name.ends_with("blocking_collectives") || table.conditions.get(name) == Some(value),
            "{name}"
        );
    }
}

#[test]
fn nccl_tests_rows_of_nothing_are_left_out_and_repeats_are_rounds() {
    let lone = read(Format::NcclTests, NCCL_ALL_GATHER);
    assert_eq!((lone.points.len(), lone.conditions["plan.n_ranks"].as_str()), (10, "1"));
    let at = key("all_gather float in place", 8192, Figure::AlgBandwidth);
    assert!((value(&lone, &at) - 8192.0 / 0.28 / 1e3).abs() < 1e-12);
    let again = read(Format::NcclTests, NCCL_SENDRECV);
    let rounds: Vec<usize> = again.points.iter().map(|point| point.rounds.len()).collect();
    assert_eq!(rounds, [3, 3]);
    assert_eq!(again.points[0].rounds[1], 1_048_576.0 / 2367.15 / 1e3);
}

#[test]
fn errors_that_nccl_tests_noted_are_faults() {
    let noted = NCCL_REDUCE_JSON.replace("\"errors\":[\"\"]", "\"errors\":[\"\",\"rank 1: timed out\"]");
    assert_eq!(read(Format::NcclTests, &noted).faults, ["an error was noted: rank 1: timed out"]);
}

#[test]
fn columns_of_each_iteration_are_passed_over() {
    let recording = read(Format::NcclTests, PER_ITERATION);
    let of = |what: &str| value(&recording, &key(what, 1 << 20, Figure::AlgBandwidth));
    assert!((of("alltoall float") - 1_048_576.0 / 24.40 / 1e3).abs() < 1e-12);
    assert!((of("alltoall float in place") - 1_048_576.0 / 24.60 / 1e3).abs() < 1e-12);
    // That it was slower than asked for says nothing against the figures.
    assert!(recording.faults.is_empty(), "{:?}", recording.faults);
}

#[test]
fn nccl_tests_json_has_what_its_table_has() {
    let recording = read(Format::NcclTests, NCCL_JSON);
    let of = |what: &str, size| value(&recording, &key(what, size, Figure::AlgBandwidth));
    assert!((of("all_reduce float sum", 1 << 20) - 1_048_576.0 / 31.25 / 1e3).abs() < 1e-12);
    assert!((of("all_reduce float sum in place", 4 << 20) - 4_194_304.0 / 81.0 / 1e3).abs() < 1e-12);
    // Two processes of two GPUs, of which it lists the first only.
    assert_eq!(recording.conditions["plan.n_ranks"], "4");
    assert!(recording.faults.is_empty(), "{:?}", recording.faults);
    let faults = |from: &str, to: &str| read(Format::NcclTests, &NCCL_JSON.replace(from, to)).faults;
    assert_eq!(faults("\"nwrong\":0.0", "\"nwrong\":2.0"), ["wrong-data: 4 elements were wrong"]);
    assert_eq!(faults("\"count\":0,\"okay\"", "\"count\":1,\"okay\""), ["wrong-data: 0 elements were wrong"]);
    assert_eq!(faults("\"end_time\"", "\"x\""), ["it ends before its summary: the run was cut short"]);
    let torn = refusal(&NCCL_JSON[..NCCL_JSON.len() / 2], Format::NcclTests);
    assert!(
        torn.starts_with("line 1: expected a document of its -J option") && torn.contains("cut short"),
        "{torn}"
    );
    let nan = refusal(&NCCL_JSON.replace("\"time\":31.25", "\"time\":\"nan\""), Format::NcclTests);
    assert!(nan.starts_with("row 1 of \"results\": expected a time"), "{nan}");
}

#[test]
fn wrong_elements_and_runs_cut_short_are_faults() {
    let faults = |text: &str| text_of("x", text, Format::NcclTests, None).unwrap().faults;
    assert_eq!(faults(&NCCL.replace("52.17      0", "52.17      3")), ["wrong-data: 3 elements were wrong"]);
    let torn = NCCL.split("# Out of bounds").next().unwrap();
    assert_eq!(faults(torn), ["it ends before its summary: the run was cut short"]);
}
