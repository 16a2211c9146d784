//! Where NCCL may be. Installers put it in many places, and the usual one, a Python wheel, is on no search path.

use std::path::{Path, PathBuf};

/// The names that the dynamic loader is asked for: NVIDIA's and AMD's.
pub const LIBRARY_NAMES: &[&str] = &["libnccl.so.2", "libnccl.so", "librccl.so.1", "librccl.so"];

/// The environment variable that names the library to open, as a path or a soname.
pub const LIBRARY_VARIABLE: &str = "LINKPROOF_NCCL";

/// Where a wheel keeps the library, below `site-packages`.
const IN_WHEEL: &str = "nvidia/nccl/lib/libnccl.so.2";

/// What to try to open, in order. With a name that was asked for that alone: nothing else is used instead.
pub fn candidates(asked_for: Option<&Path>) -> Vec<PathBuf> {
    match asked_for {
        Some(path) => vec![path.to_path_buf()],
        None => {
            let by_name = LIBRARY_NAMES.iter().map(PathBuf::from);
            by_name.chain(in_wheels(&python_folders())).collect()
        }
    }
}

/// The folders that hold a `lib/python3.*` with packages in it: an active environment, the `python3` that a shell would
/// run, the system's, the user's own.
fn python_folders() -> Vec<PathBuf> {
    let from_variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let of_python = std::env::split_paths(&path).find(|folder| folder.join("python3").exists());
    // A `python3` in an environment's bin folder is a link out of it: the folder counts, not the link's target.
    let of_python = of_python.and_then(|bin| bin.parent().map(Path::to_path_buf));
    let own = from_variable("HOME").map(|home| home.join(".local"));
    [from_variable("VIRTUAL_ENV"), from_variable("CONDA_PREFIX"), of_python, own]
        .into_iter()
        .flatten()
        .chain([PathBuf::from("/usr/local"), PathBuf::from("/usr")])
        .collect()
}

/// The library of each wheel below `folders`, without repetitions.
fn in_wheels(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in folders {
        for python in pythons(&folder.join("lib")) {
            for packages in ["site-packages", "dist-packages"] {
                let library = python.join(packages).join(IN_WHEEL);
                if library.exists() && !found.contains(&library) {
                    found.push(library);
                }
            }
        }
    }
    found
}

/// The `python3*` folders in `lib`, the newest release first.
fn pythons(lib: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(lib) else { return Vec::new() };
    let minor = |path: &PathBuf| {
        path.file_name()?.to_str()?.strip_prefix("python3")?.trim_start_matches('.').parse::<u32>().ok()
    };
    let is_python =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3"));
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_python).collect();
    found.sort_by_key(|path| std::cmp::Reverse(minor(path)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_was_asked_for_is_the_only_one_tried() {
        assert_eq!(candidates(Some(Path::new("/opt/x.so"))), [PathBuf::from("/opt/x.so")]);
        assert_eq!(candidates(None)[0], PathBuf::from("libnccl.so.2"));
    }

    #[test]
    fn wheels_are_found_newest_python_first() {
        let tree = tempfile::tempdir().unwrap();
        let make = |python: &str, packages: &str| {
            let library = tree.path().join("lib").join(python).join(packages).join(IN_WHEEL);
            std::fs::create_dir_all(library.parent().unwrap()).unwrap();
            std::fs::write(&library, "").unwrap();
            library
        };
        let old = make("python3.9", "site-packages");
        let new = make("python3.12", "site-packages");
        let distribution = make("python3", "dist-packages");
        std::fs::create_dir_all(tree.path().join("lib/python3.13/site-packages")).unwrap();
        let folder = tree.path().to_path_buf();
        assert_eq!(in_wheels(&[folder.clone(), folder]), [new, old, distribution]);
        assert!(in_wheels(&[PathBuf::from("/does/not/exist")]).is_empty());
    }
}
