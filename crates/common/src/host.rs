//! Reading what the kernel tells about this machine, below a root path: `/` in use, a recorded tree in tests.
//!
//! Read-only, and never a failure: what can't be read is unknown, and the caller says so.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// No file of `/sys` and `/proc` that is read here has more; what is longer is damaged, and unknown.
const LONGEST_TEXT: u64 = 1 << 20;

/// Folders of `/sys` have a few thousand entries on the largest machines; a damaged tree may have any number.
const MOST_NAMES: usize = 1 << 16;

/// The files under `/sys` and `/proc`, seen from a root.
#[derive(Clone, Debug)]
pub struct HostFiles {
    root: PathBuf,
}

impl HostFiles {
    /// This machine's own.
    pub fn this_machine() -> Self {
        Self::below("/")
    }

    /// A recorded tree.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where `path` (absolute, as on a live system) lies.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The trimmed text of a file; `None` where it can't be read, is no text, or is longer than any of the kernel's.
    pub fn text(&self, path: &str) -> Option<String> {
        let text = String::from_utf8(self.bytes(path)?).ok()?;
        Some(text.trim().to_owned())
    }

    /// The bytes of a file; `None` where it can't be read or is longer than any of the kernel's.
    pub fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        let path = self.path(path);
        // A pipe in a damaged tree would be waited for.
        fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        let mut bytes = Vec::new();
        File::open(path).ok()?.take(LONGEST_TEXT + 1).read_to_end(&mut bytes).ok()?;
        (bytes.len() as u64 <= LONGEST_TEXT).then_some(bytes)
    }

    /// The same as [`text`](Self::text), where the file says anything.
    pub fn words(&self, path: &str) -> Option<String> {
        self.text(path).filter(|text| !text.is_empty())
    }

    /// A file that holds one number.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// The last component of what a link points to, a driver's name for instance.
    pub fn link_name(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// Where `path` really is, links followed, as on a live system; `None` where it is nowhere, or outside the root.
    pub fn real(&self, path: &str) -> Option<String> {
        let root = fs::canonicalize(&self.root).ok()?;
        let real = fs::canonicalize(self.path(path)).ok()?;
        let inside = real.strip_prefix(root).ok()?;
        Some(Path::new("/").join(inside).to_str()?.to_owned())
    }

    /// Whether this is a recorded tree and not the machine that runs.
    pub fn is_recorded(&self) -> bool {
        self.root != Path::new("/")
    }

    /// The root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether `path` exists.
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The names in a folder, sorted; empty where there is none.
    pub fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .take(MOST_NAMES)
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// The value behind `key:` in a file of such lines, `/proc/meminfo` or `/proc/self/status` for instance.
    pub fn value_of(&self, path: &str, key: &str) -> Option<String> {
        let text = self.text(path)?;
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':'))?;
        Some(value.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_below_its_root_and_never_fails() {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir_all(tree.path().join("proc")).unwrap();
        fs::write(tree.path().join("proc/meminfo"), "MemTotal:  10 kB\nMemAvailable:   7 kB\n").unwrap();
        let files = HostFiles::below(tree.path());
        assert_eq!(files.value_of("/proc/meminfo", "MemAvailable").as_deref(), Some("7 kB"));
        assert_eq!(files.value_of("/proc/meminfo", "Mem"), None);
        assert_eq!(files.number("/proc/none"), None);
        assert_eq!(files.names("/proc"), ["meminfo"]);
        assert!(files.names("/nowhere").is_empty());
    }
}
