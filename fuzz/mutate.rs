// A corpus and its mutations, the same in each run: what the tests on the stable toolchain go by. They stand two folders
// below the root, as crates do.

/// Numbers without pattern, the same in each run (splitmix64).
pub struct Random(pub u64);

impl Random {
    /// The next of them.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One below `limit`, or 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// What JSON, sizes and frames are sensitive to.
const TOKENS: [&str; 14] = [
    "\0\0\0\0",
    "\0\0\0\u{7f}",
    "[[[[[[[[",
    "{\"a\":",
    "null",
    "-1",
    "1e308",
    "1e-400",
    "18446744073709551616",
    "\"message\":\"propose\"",
    "\\ud800",
    "\u{202e}",
    "G",
    "\0",
];

/// `file` with a few edits, some of them pieces of `other`.
fn mutated(file: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let to = at + random.below(bytes.len() - at + 1);
        match random.below(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at),
            2 => drop(bytes.drain(at..to)),
            3 => drop(bytes.splice(at..to, TOKENS[random.below(TOKENS.len())].bytes())),
            4 => drop(bytes.splice(at..at, file[..to.min(file.len())].iter().copied())),
            _ => drop(bytes.splice(at.., other[random.below(other.len() + 1)..].iter().copied())),
        }
    }
    // Half of them with the first length put right: most would not come past it.
    if bytes.len() > 4 && random.below(2) == 0 {
        let length = (bytes.len() - 4) as u32;
        bytes[..4].copy_from_slice(&length.to_be_bytes());
    }
    bytes
}

/// A number that the environment may set.
pub fn number_from(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// The committed files of a target.
pub fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = folder.read_dir().expect("the corpus is committed").flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    // The order of a folder is not the same everywhere.
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("it can be read")).collect()
}

/// Has `try_one` take each of `files`, and so many mutations of each.
pub fn each_mutated(files: &[Vec<u8>], mutations: u64, random: &mut Random, try_one: impl Fn(&[u8])) {
    files.iter().for_each(|file| try_one(file));
    for file in files {
        for _ in 0..mutations {
            let other = &files[random.below(files.len())];
            try_one(&mutated(file, other, random));
        }
    }
}
