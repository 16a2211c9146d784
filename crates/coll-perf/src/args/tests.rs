use super::*;
use crate::dtype::DataType;
use crate::redop::RedOp;
use linkproof_common::args::{Parse, parse_knowing};
use std::ffi::OsString;

fn parsed(line: &str) -> Result<Args> {
    match parse_knowing::<Args>(line.split_whitespace().map(OsString::from), way_out)? {
        Parse::Run(parsed) => Ok(parsed.args),
        Parse::Text(text) => panic!("no run but a text: {text}"),
    }
}

fn plan(line: &str) -> Plan {
    parsed(line).and_then(|args| args.plan(4)).unwrap_or_else(|error| panic!("{line}: {}", error.render("")))
}

fn refusal(line: &str) -> Error {
    let error = parsed(line).and_then(|args| args.plan(4)).err().unwrap_or_else(|| panic!("{line} is taken"));
    assert_eq!(error.kind, ErrorKind::Usage, "{line}");
    error
}

#[test]
fn each_example_of_the_help_is_understood() {
    for Example { line, .. } in EXAMPLES {
        let own = &line[line.find("coll-perf").unwrap()..];
        assert!(parsed(own).and_then(|args| args.plan(4)).is_ok(), "{line}");
    }
}

#[test]
fn the_defaults() {
    let plan = plan("coll-perf");
    assert_eq!(plan.collectives, [Kind::AllReduce]);
    assert_eq!(plan.sizes_bytes, [1, 2, 4, 8, 16, 32].map(|mib| mib * ByteSize::MIB));
    assert_eq!(
        (plan.rounds, plan.iterations, plan.calls_per_iteration, plan.warmup_iterations),
        (3, 20, 1, 5)
    );
    assert_eq!((plan.dtypes, plan.redops, plan.roots), (vec![DataType::Float], vec![RedOp::Sum], vec![0]));
    assert_eq!((plan.pacing, plan.check, plan.timeout_seconds), (Pacing::Pipelined, true, 60.0));
    assert!(parsed("coll-perf").unwrap().n_ranks() >= 2);
    assert_eq!(parsed("coll-perf --ranks 1").unwrap().n_ranks(), 1);
}

#[test]
fn sizes_by_nccl_tests_letters() {
    assert_eq!(plan("coll-perf -b 8 -e 64").sizes_bytes, [8, 16, 32, 64]);
    assert_eq!(plan("coll-perf -b 1K -e 3K -i 1K").sizes_bytes, [1024, 2048, 3072]);
    assert_eq!(plan("coll-perf -b 1K -e 20K -f 4").sizes_bytes, [1024, 4096, 16384]);
    assert_eq!(plan("coll-perf -b 64M").sizes_bytes, [64 * ByteSize::MIB]);
    assert_eq!(plan("coll-perf -e 64K").sizes_bytes, [65536]);
    assert_eq!(plan("coll-perf --minbytes 4 --maxbytes 8 --stepfactor 2").sizes_bytes, [4, 8]);
}

#[test]
fn lists_and_all() {
    assert_eq!(plan("coll-perf --op all").collectives.len(), 11);
    assert_eq!(parsed("coll-perf --op all").unwrap().op.kinds(3).len(), 10, "3 ranks are no hypercube");
    assert_eq!(plan("coll-perf --op alltoall,bcast").collectives, [Kind::Alltoall, Kind::Broadcast]);
    assert_eq!(plan("coll-perf -d half,bf16").dtypes, [DataType::Half, DataType::Bfloat16]);
    assert_eq!(plan("coll-perf -d all -o all").redops.len(), 5);
    assert_eq!(plan("coll-perf -r -1").roots, [0, 1, 2, 3]);
    assert_eq!(plan("coll-perf --root all").roots, [0, 1, 2, 3]);
}

#[test]
fn pacing_and_checks() {
    assert_eq!(plan("coll-perf -z 3").pacing, Pacing::Aligned);
    assert_eq!(plan("coll-perf --aligned").pacing, Pacing::Aligned);
    assert!(!plan("coll-perf -c 0").check);
}

#[test]
fn nothing_is_replaced_silently() {
    for (line, what) in [
        ("coll-perf --op alltoallw", "is no collective; there are all_reduce"),
        ("coll-perf --op sum", "sum is a reduction: use -o sum"),
        ("coll-perf -o alltoall", "alltoall is a collective: use --op alltoall"),
        ("coll-perf -o mulsum", "does not have"),
        ("coll-perf -d floaty", "\"floaty\" is no type"),
        ("coll-perf -d half,fp16", "fp16 is there twice"),
        ("coll-perf -r 4", "there is no rank 4"),
        ("coll-perf -b 64K -e 4K", "larger than the largest"),
        ("coll-perf -b 0", "nothing to measure"),
        ("coll-perf -i 0", "would never end"),
        ("coll-perf -f 1", "1 is not in 2.."),
        ("coll-perf -i 8 -f 2", "cannot be used with"),
        ("coll-perf -b 8 -e 256M -i 8", "more than 1000 sizes"),
        ("coll-perf -n 0", "0 is not in 1.."),
        ("coll-perf --ranks 0", "0 is not in 1.."),
        ("coll-perf -z 1", "would time the barrier"),
        ("coll-perf -z 7", "means nothing"),
        ("coll-perf -c 5", "more runs to be checked"),
        ("coll-perf -b 1Q", "no unit of size"),
        ("coll-perf --matrix x", "--matrix is for alltoallv alone"),
        ("coll-perf --op alltoallv --matrix /nowhere/x", "cannot read the matrix /nowhere/x"),
        ("coll-perf --op alltoall -b 8", "rounds to 0 elements"),
        ("coll-perf --op alltoall --placement in", "in place has no meaning"),
    ] {
        let error = refusal(line);
        assert!(error.what.contains(what), "{line}: {}", error.what);
    }
}

#[test]
fn options_of_nccl_tests_that_are_missing_say_why() {
    for (line, why) in [
        ("coll-perf -t 2", "--ranks N"),
        ("coll-perf --stream_null 1", "a stream of its own"),
        ("coll-perf -M 1", "-R 1"),
        ("coll-perf -J x.json", "--json=FILE"),
    ] {
        assert!(refusal(line).hint.unwrap().contains(why), "{line}");
    }
    assert!(refusal("coll-perf --frobnicate").hint.unwrap().contains("docs/compatibility.md"));
}
