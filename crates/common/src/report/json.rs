//! Where a document goes, and how.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::Serialize;

use super::stream::{Stream, cannot_write};
use crate::error::{Error, ErrorKind, Result};

/// Where JSON was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonTarget {
    /// Standard output; nothing else goes there then.
    Stdout,
    /// A file, beside the table on standard output.
    File(PathBuf),
}

impl JsonTarget {
    /// From the value of `--json[=FILE]`.
    pub fn from_option(option: Option<&Option<PathBuf>>) -> Option<Self> {
        option.map(|file| file.clone().map_or(Self::Stdout, Self::File))
    }

    /// What lines for it are written to.
    pub(super) fn stream(&self) -> Stream {
        match self {
            Self::Stdout => Stream::Stdout,
            Self::File(path) => Stream::File(path.clone()),
        }
    }

    /// From a command line that was not understood: whoever asked for `--json` reads stdout all the same.
    pub fn from_unparsed(argv: &[OsString]) -> Option<Self> {
        argv.iter().filter_map(|arg| arg.to_str()).find_map(|arg| match arg.strip_prefix("--json")? {
            "" => Some(Self::Stdout),
            file => {
                let file = file.strip_prefix('=').filter(|file| !file.is_empty());
                file.map(|file| Self::File(PathBuf::from(file)))
            }
        })
    }
}

/// How a document is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Indented: one document and nothing else.
    Pretty,
    /// On one line: a server writes one document after another.
    Line,
}

/// Writes `document`; a file is created, or for [`Layout::Line`] appended to. A pipe that its reader has closed is no
/// failure.
///
/// # Errors
/// [`ErrorKind::Output`] with the path.
pub fn write_document(document: &impl Serialize, target: &JsonTarget, layout: Layout) -> Result<()> {
    let mut text = match layout {
        Layout::Pretty => serde_json::to_string_pretty(document),
        Layout::Line => serde_json::to_string(document),
    }
    .map_err(|error| Error::new(ErrorKind::Output, format!("cannot write the result as JSON: {error}")))?;
    text.push('\n');
    match (target, layout) {
        (JsonTarget::File(path), Layout::Pretty) => {
            std::fs::write(path, text).map_err(|error| cannot_write(path, &error))
        }
        _ => target.stream().write(&text).map(|_| ()),
    }
}
