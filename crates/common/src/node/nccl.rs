//! NCCL: what it is told by variables and files, and, on the machine that runs, which library it is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Unseen;
use crate::host::HostFiles;

/// The file that every process on the machine takes settings from.
const SYSTEM_FILE: &str = "/etc/nccl.conf";

/// NCCL on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nccl {
    /// The library; absent where none was found or none was looked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub library: Option<NcclLibrary>,
    /// Its settings in force, of this process's environment and `/etc/nccl.conf`.
    pub settings: BTreeMap<String, String>,
}

/// A library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NcclLibrary {
    /// The file that it was loaded from.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file: Option<String>,
    /// Its version: `2.27.3`.
    pub version: String,
}

impl Nccl {
    pub(super) fn read(files: &HostFiles, unseen: &mut Vec<Unseen>) -> Self {
        let of_file = files.text(SYSTEM_FILE).unwrap_or_default();
        let environment = files.bytes("/proc/self/environ");
        if environment.is_none() {
            unseen.push(Unseen::new("NCCL_* variables", "/proc/self/environ can't be read"));
        }
        let environment = environment.unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment);
        // A variable of the environment goes before the file's.
        let lines = of_file.lines().map(str::trim).chain(environment.split('\0'));
        let settings =
            lines.filter_map(|line| line.split_once('=')).filter(|(name, _)| name.starts_with("NCCL_"));
        Self {
            library: None,
            settings: settings.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect(),
        }
    }

    /// The setting called `name`.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// Whether the setting called `name` is a number other than 0.
    pub fn is_on(&self, name: &str) -> bool {
        self.setting(name).and_then(|value| value.parse::<i64>().ok()).is_some_and(|value| value != 0)
    }
}
