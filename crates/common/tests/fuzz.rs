//! The fuzz targets on the stable toolchain: the committed corpus, and a fixed number of mutations of it, the same in
//! each run. `fuzz/README.md` has the rest.
#![allow(unsafe_code, reason = "an allocator that counts")]

#[path = "../../../fuzz/mutate.rs"]
#[allow(unreachable_pub, reason = "a module of two tests")]
mod mutate;
#[path = "../../../fuzz/targets.rs"]
#[allow(unreachable_pub, reason = "a library in the fuzz crate")]
mod targets;

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use mutate::{Random, corpus, each_mutated, number_from};

/// Mutations of each file: a few seconds for all of them, unoptimised.
const MUTATIONS: u64 = 2000;
/// What a byte of input may take at most. JSON is read into 32 bytes for each value, of which two bytes of input make
/// one, in a vector that doubles as it grows.
const PER_BYTE: usize = 64;
/// What any input may take: error texts, small vectors.
const SLACK: usize = 64 << 10;

type Target = fn(&[u8]);

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator as it is; the counters do not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `target`; panics, with the input, where it does or takes too much memory.
fn try_one(name: &str, target: Target, input: &[u8]) {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let outcome = std::panic::catch_unwind(|| target(input));
    let taken = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    let shown = input.escape_ascii();
    assert!(outcome.is_ok(), "{name} panics at \"{shown}\"");
    assert!(taken <= PER_BYTE * input.len() + SLACK, "{name} takes {taken} bytes for \"{shown}\"");
}

/// The messages of the corpus can be read, with the fields that they have today: else the fuzzer would start from
/// nonsense.
fn has_messages() {
    use linkproof_common::exchange::frame::{FrameLimit, take_frame};
    let names = "abort agree begin begun client-whole connect connect-rdma end evidence finish goodbye hello outcome \
                 progress propose ready result server-whole stop wait";
    for name in names.split_whitespace() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/frames").join(name);
        let mut bytes = std::fs::read(path).expect("it is committed");
        while !bytes.is_empty() {
            let message = take_frame(&mut bytes, FrameLimit::Result);
            assert!(
                matches!(message, Ok(Some(_))),
                "corpus/frames/{name} (see fuzz/record-corpus): {message:?}"
            );
        }
    }
}

/// One test for all: the counters are the process's.
#[test]
fn no_input_makes_a_parser_panic_or_take_memory_out_of_proportion() {
    let mutations = number_from("LINKPROOF_FUZZ_MUTATIONS", MUTATIONS);
    let mut random = Random(number_from("LINKPROOF_FUZZ_SEED", 1));
    has_messages();
    let all: [(&str, Target); 4] = [
        ("frames", targets::frames),
        ("preamble", targets::preamble),
        ("perftest", targets::perftest),
        ("size", targets::size),
    ];
    for (name, target) in all {
        let files = corpus(name);
        assert!(files.len() > 10, "the corpus of {name} is there");
        // Two bytes a value, as far as a frame of a stranger may go.
        let dense = [&(128_u32 << 10).to_be_bytes()[..], b"{\"a\":[", &b"0,".repeat(65_532), b"0]}"].concat();
        try_one(name, target, &dense);
        each_mutated(&files, mutations, &mut random, |input| try_one(name, target, input));
    }
}
