//! The fuzz targets of files on the stable toolchain: the committed corpus, and a fixed number of mutations of it, the same
//! in each run. `fuzz/README.md` has the rest.

#[path = "../../../fuzz/mutate.rs"]
#[allow(unreachable_pub, reason = "a module of two tests")]
mod mutate;
#[path = "../../../fuzz/results.rs"]
#[allow(unreachable_pub, reason = "a module of the fuzz crate")]
mod results;

use mutate::{Random, corpus, each_mutated, number_from};

/// Mutations of each file: a second or two for all of them, unoptimised.
const MUTATIONS: u64 = 500;

fn run_all(name: &str, target: fn(&[u8])) {
    let mutations = number_from("LINKPROOF_FUZZ_MUTATIONS", MUTATIONS);
    let mut random = Random(number_from("LINKPROOF_FUZZ_SEED", 1));
    let files = corpus(name);
    assert!(files.len() > 4, "the corpus of {name} is there");
    let try_one = |input: &[u8]| {
        let outcome = std::panic::catch_unwind(|| target(input));
        assert!(outcome.is_ok(), "{name} panics at \"{}\"", input.escape_ascii());
    };
    each_mutated(&files, mutations, &mut random, try_one);
}

#[test]
fn no_output_of_another_tool_makes_an_importer_panic() {
    run_all("imports", results::imports);
}

#[test]
fn no_file_makes_the_reader_of_results_panic() {
    run_all("documents", results::documents);
}
