use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::collective::{Call, Collective};
use crate::redop::RedOp;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/gpu");

/// `gpu/data.cu` as a program of this machine.
struct Mirror(PathBuf);

impl Mirror {
    fn compiled() -> Self {
        // Each test has its own, as they run side by side.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let program = std::env::temp_dir().join(format!("linkproof-data-{}-{number}", std::process::id()));
        let source = Path::new(FOLDER).join("data.cu");
        // The linker that Rust needs is a compiler of C everywhere this runs.
        let made =
            Command::new("cc").args(["-x", "c", "-O2", "-o"]).arg(&program).arg(source).status().unwrap();
        assert!(made.success(), "gpu/data.cu is C as well");
        Self(program)
    }

    /// What it makes of each recipe, so many elements of each.
    fn elements(&self, recipes: &[Recipe<'_>], count: u64) -> Vec<u8> {
        let mut child = Command::new(&self.0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let question: Vec<u8> = recipes.iter().flat_map(|recipe| question(recipe, count)).collect();
        let writer = std::thread::spawn(move || stdin.write_all(&question).unwrap());
        let mut answer = Vec::new();
        stdout.read_to_end(&mut answer).unwrap();
        writer.join().unwrap();
        assert!(child.wait().unwrap().success());
        answer
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[allow(unsafe_code, reason = "plain numbers without padding, as bytes")]
fn question(recipe: &Recipe<'_>, count: u64) -> Vec<u8> {
    // SAFETY: the struct has no padding (6 × 8 + 10 × 4 bytes), and any byte of it may be read.
    let numbers =
        unsafe { std::slice::from_raw_parts((&raw const recipe.numbers).cast::<u8>(), size_of::<Numbers>()) };
    assert_eq!(numbers.len(), 88);
    let weights = recipe.weights.iter().flat_map(|weight| weight.to_ne_bytes());
    let mut bytes = numbers.to_vec();
    bytes.extend((recipe.weights.len() as u64).to_ne_bytes());
    bytes.extend(weights);
    bytes.extend(count.to_ne_bytes());
    bytes
}

fn data_of(collective: &str, dtype: DataType, redop: RedOp, n_ranks: u32) -> Option<Data> {
    let call = Call::new(Collective::named(collective).unwrap(), n_ranks, dtype, redop, 0, 1 << 20).unwrap();
    Data::of(&call).ok()
}

#[test]
fn a_gpu_makes_the_same_data_for_every_type_operation_and_number_of_ranks() {
    const COUNT: u64 = 200;
    let mirror = Mirror::compiled();
    for (dtype, redop) in DataType::ALL.iter().flat_map(|t| RedOp::ALL.iter().map(move |op| (*t, *op))) {
        for n in [1, 2, 3, 8, 40] {
            let Some(data) = data_of("all_reduce", dtype, redop, n) else { continue };
            let (seed, bytes) = (Seed::of(3, 1), (COUNT * dtype.bytes()) as usize);
            let part = Part { at: 0, bytes: bytes as u64, source: Source::Reduction { offset: 4096 } };
            let mut expected = vec![0; bytes * (n as usize + 2)];
            let (inputs, results) = expected.split_at_mut(bytes * n as usize);
            let mut recipes = Vec::new();
            for (rank, input) in (0..n).zip(inputs.chunks_mut(bytes)) {
                data.input(seed, rank, 0, input);
                recipes.push(data.recipe_of_input(seed, rank));
            }
            data.expected(seed, &part, 0, &mut results[..bytes]);
            data.poison(seed, &part, 0, &mut results[bytes..]);
            recipes.extend([data.recipe_of_part(seed, &part), data.recipe_of_poison(seed, &part)]);
            assert!(mirror.elements(&recipes, COUNT) == expected, "{redop:?} of {dtype:?} over {n} ranks");
        }
    }
}

#[test]
fn a_gpu_makes_the_same_moved_bytes() {
    const COUNT: u64 = 1001;
    let mirror = Mirror::compiled();
    for dtype in DataType::ALL {
        let data = data_of("alltoall", *dtype, RedOp::Sum, 4).unwrap();
        let (seed, bytes) = (Seed::of(7, 2), COUNT * dtype.bytes());
        let part = Part { at: 64, bytes, source: Source::Rank { rank: 3, offset: 4128 } };
        let mut expected = vec![0; 2 * bytes as usize];
        let (input, result) = expected.split_at_mut(bytes as usize);
        data.input(seed, 2, 0, input);
        data.expected(seed, &part, 0, result);
        let recipes = [data.recipe_of_input(seed, 2), data.recipe_of_part(seed, &part)];
        assert!(mirror.elements(&recipes, COUNT) == expected, "{dtype:?}");
    }
}

#[test]
fn the_kernels_are_made_from_the_source() {
    let read = |name| std::fs::read_to_string(Path::new(FOLDER).join(name)).unwrap();
    let digest = read("data.cu").bytes().fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let first = format!("// Made by gpu/compile from data.cu of FNV-1a {digest:016x}.\n");
    assert!(read("data.ptx").starts_with(&first), "data.cu has changed: run gpu/compile");
}
