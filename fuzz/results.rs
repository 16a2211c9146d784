// What the fuzzers do with files that another tool, or anybody, may have written: a result to compare, the output of another
// tool to import, a log of training steps. The fuzz crate hands them to libFuzzer, crates/perf-compare/tests/fuzz.rs runs
// them over the corpus and a fixed number of mutations of it.

use perf_compare::import::{Format, text_of};
use perf_compare::source::parse;
use perf_compare::steps;

/// Whose output a file is does not follow from it: every importer sees all of them.
pub fn imports(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for format in [Format::Perftest, Format::NcclTests, Format::Osu, Format::Imb] {
        match text_of("fuzz", &text, format, Some("all_reduce")) {
            // What was taken can be written, and read again as the same.
            Ok(recording) => {
                let json = serde_json::to_vec(&recording).expect("a recording is JSON");
                assert_eq!(parse("fuzz", &json).as_deref(), Ok(&[recording][..]));
            }
            Err(what) => shown_safely(&what),
        }
    }
    for kind in [steps::Kind::Running, steps::Kind::Single] {
        if let Err(what) = steps::parse(&text, kind) {
            shown_safely(&what);
        }
    }
}

/// The tools' own documents, and what `import` wrote.
pub fn documents(data: &[u8]) {
    match parse("fuzz", data) {
        Ok(recordings) => assert!(recordings.iter().all(|recording| recording.check().is_ok())),
        Err(trouble) => shown_safely(&trouble.what),
    }
}

/// A message says something, and nothing in it moves the cursor.
fn shown_safely(what: &str) {
    assert!(!what.is_empty() && !what.contains(char::is_control), "{what:?}");
}
