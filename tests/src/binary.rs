//! Where the built tools are.
//!
//! They belong to other packages, so cargo neither builds them for these tests nor names them in the environment.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The folder of the tools: `LINKPROOF_BIN_DIR`, else the profile's folder that the test itself was built into.
pub fn bin_dir() -> PathBuf {
    if let Some(folder) = std::env::var_os("LINKPROOF_BIN_DIR") {
        return folder.into();
    }
    // …/target/<profile>/deps/cli-0123456789abcdef
    let test = std::env::current_exe().expect("a running test has a path");
    test.parent().and_then(Path::parent).expect("cargo puts tests into <profile>/deps").to_owned()
}

/// The path of the tool `name`.
///
/// # Panics
/// Where it isn't built.
pub fn binary(name: &str) -> PathBuf {
    built(name)
}

/// The path of the library `name`, which lies beside the tools.
///
/// # Panics
/// Where it isn't built.
pub fn library(name: &str) -> PathBuf {
    built(&format!("lib{name}.so"))
}

fn built(name: &str) -> PathBuf {
    let path = bin_dir().join(name);
    assert!(
        path.is_file(),
        "{} is missing: run cargo build first (with the profile of the tests), or name the folder of the tools in \
         LINKPROOF_BIN_DIR",
        path.display()
    );
    path
}

/// softgpu, the CUDA driver in host memory.
///
/// # Panics
/// Where it isn't built.
pub fn softgpu() -> PathBuf {
    library("softgpu")
}

/// Every executable in the folder of the tools.
pub fn built_programs() -> Vec<PathBuf> {
    let executable = |path: &PathBuf| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
            && path.extension().is_none()
    };
    let entries = bin_dir().read_dir().expect("the folder of the tools can be read").flatten();
    entries.map(|entry| entry.path()).filter(executable).collect()
}
