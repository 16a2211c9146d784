//! The library that devices come from: libibverbs, or the software device's.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rdma_sys as sys;
use rdma_sys::Verbs;

use crate::error::{Error, ErrorKind, Result};

/// The emulation whose devices `--soft-device` opens, as they name themselves.
pub const SOFTNIC: &str = "softnic";
/// The kernel's own software device, as its driver is called.
pub const SOFT_ROCE: &str = "rxe";
/// The file that has it.
const SOFTNIC_FILE: &str = "libsoftnic.so";

/// Which library's devices are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Library {
    /// libibverbs, or what stands in for it by the environment.
    #[default]
    Ibverbs,
    /// The software device's.
    Softnic,
}

impl Library {
    /// Loads it; later calls give the same.
    ///
    /// # Errors
    /// [`ErrorKind::LibraryMissing`], naming the file.
    pub fn load(self) -> Result<&'static Verbs> {
        match self {
            Self::Ibverbs => load_ibverbs(),
            Self::Softnic => load_softnic(),
        }
    }
}

fn load_ibverbs() -> Result<&'static Verbs> {
    Verbs::load().map_err(|error| {
        Error::new(ErrorKind::LibraryMissing, format!("the RDMA library can't be used: {error}"))
            .fact("opened", error.path().display())
            .hint(format!(
                "install it (libibverbs1 and ibverbs-providers on Debian and Ubuntu, libibverbs on RHEL and SUSE), name another \
                 with {}, or measure TCP on both ends with --transport tcp",
                sys::LIBRARY_VARIABLE
            ))
    })
}

fn load_softnic() -> Result<&'static Verbs> {
    static LOADED: OnceLock<Result<Verbs>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        let folders = folders_for(std::env::current_exe().ok().as_deref());
        open_softnic(&folders)
    });
    loaded.as_ref().map_err(Clone::clone)
}

/// Where the library may lie: beside the executable, as it is built, or where libraries lie beside a folder of
/// executables.
fn folders_for(executable: Option<&Path>) -> Vec<PathBuf> {
    let folder = executable.and_then(Path::parent);
    folder.map_or(Vec::new(), |folder| vec![folder.to_owned(), folder.join("../lib")])
}

/// The first that is there, else what the dynamic loader finds by itself.
fn open_softnic(folders: &[PathBuf]) -> Result<Verbs> {
    let beside = folders.iter().map(|folder| folder.join(SOFTNIC_FILE)).find(|path| path.is_file());
    let looked_in = folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ");
    Verbs::open(beside.as_deref().unwrap_or(Path::new(SOFTNIC_FILE))).map_err(|error| {
        Error::new(ErrorKind::LibraryMissing, format!("the software device can't be used: {error}"))
            .fact("looked in", format!("{looked_in}, and where the dynamic loader looks"))
            .hint(format!("put {SOFTNIC_FILE} beside the executable: cargo build --release makes both"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_software_device_lies_beside_the_executable() {
        let folders = folders_for(Some(Path::new("/opt/bin/write-bw")));
        assert_eq!(folders, [PathBuf::from("/opt/bin"), PathBuf::from("/opt/bin/../lib")]);
        assert!(folders_for(None).is_empty());
    }

    #[test]
    fn a_missing_or_broken_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(SOFTNIC_FILE), "no library").unwrap();
        let error = open_softnic(&[folder.path().to_owned()]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::LibraryMissing);
        assert!(
            error.what.contains(&folder.path().join(SOFTNIC_FILE).display().to_string()),
            "{}",
            error.what
        );
        assert!(error.facts[0].value.starts_with(&folder.path().display().to_string()));
    }
}
