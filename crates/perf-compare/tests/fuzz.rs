//! The fuzz targets of files on the stable toolchain: the committed corpus, and a fixed number of mutations of it, the same
//! in each run. `fuzz/README.md` has the rest.

#[path = "../../../fuzz/mutate.rs"]
#[allow(unreachable_pub, reason = "a module of two tests")]
mod mutate;
#[path = "../../../fuzz/results.rs"]
#[allow(unreachable_pub, reason = "a module of the fuzz crate")]
mod results;

use std::path::Path;

use mutate::{Random, mutated};

/// Mutations of each file: a second or two for all of them, unoptimised.
const MUTATIONS: u64 = 500;

fn number_from(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = folder.read_dir().expect("the corpus is committed").flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    // The order of a folder is not the same everywhere.
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("it can be read")).collect()
}

fn run_all(name: &str, target: fn(&[u8])) {
    let mutations = number_from("LINKPROOF_FUZZ_MUTATIONS", MUTATIONS);
    let mut random = Random(number_from("LINKPROOF_FUZZ_SEED", 1));
    let files = corpus(name);
    assert!(files.len() > 4, "the corpus of {name} is there");
    let try_one = |input: &[u8]| {
        let outcome = std::panic::catch_unwind(|| target(input));
        assert!(outcome.is_ok(), "{name} panics at \"{}\"", input.escape_ascii());
    };
    for file in &files {
        try_one(file);
        for _ in 0..mutations {
            let other = &files[random.below(files.len())];
            try_one(&mutated(file, other, &mut random));
        }
    }
}

#[test]
fn no_output_of_another_tool_makes_an_importer_panic() {
    run_all("imports", results::imports);
}

#[test]
fn no_file_makes_the_reader_of_results_panic() {
    run_all("documents", results::documents);
}
