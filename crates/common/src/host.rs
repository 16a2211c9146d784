//! Reading what the kernel tells about this machine, below a root path: `/` in use, a recorded tree in tests.
//!
//! Read-only, and never a failure: what can't be read is unknown, and the caller says so.

use std::fs;
use std::path::PathBuf;

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

    /// The trimmed text of a file; `None` where it can't be read.
    pub fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok().map(|text| text.trim().to_owned())
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

    /// Whether `path` exists.
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The names in a folder, sorted; empty where there is none.
    pub fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
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
