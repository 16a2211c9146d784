//! From files to recordings.

mod document;
mod files;
mod leaves;
mod split;

pub use files::{MOST_BYTES, expand, read};

use std::path::Path;

use linkproof_common::error::{Error, ErrorKind, Result};

use crate::recording::{Recording, SCHEMA};
use crate::words;

/// What a result file holds, as messages say it.
const EXPECTED: &str =
    "JSON documents as --json writes them (linkproof/result.v1) or perf-compare import does";

/// Every recording in the file `path`: one, or of a server several, a document a line.
///
/// # Errors
/// [`ErrorKind::Usage`] with the line, and what was expected there.
pub fn recordings(path: &Path) -> Result<Vec<Recording>> {
    let name = words::printable(&path.display().to_string());
    let bytes = read(path)?;
    parse(&name, &bytes).map_err(|trouble| trouble.into_error(&name))
}

/// Every recording in `bytes`, which were read from what is called `name`.
///
/// # Errors
/// Where in it something is wrong, and what.
pub fn parse(name: &str, bytes: &[u8]) -> std::result::Result<Vec<Recording>, Trouble> {
    let mut found = Vec::new();
    for part in split::documents(bytes)? {
        // A line of an interval is not a result: the document that ends the run has it all.
        let recording = match part.schema.as_str() {
            linkproof_common::report::INTERVAL_SCHEMA => continue,
            linkproof_common::report::SCHEMA => document::recording(name, part.json),
            SCHEMA => serde_json::from_slice(part.json),
            other => return Err(part.trouble(&format!("its schema is \"{}\"", words::printable(other)))),
        };
        let recording: Recording = recording.map_err(|error| part.locate(&error))?;
        let recording = recording.printable();
        recording.check().map_err(|what| part.trouble(&what))?;
        found.push(recording);
    }
    if found.is_empty() {
        return Err(Trouble { line: None, what: "it has no result".to_owned(), ends_early: false });
    }
    Ok(found)
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// In which line, from 1, where it is in one.
    pub line: Option<usize>,
    /// What was found or missed, in words.
    pub what: String,
    /// Whether the file ends in the middle.
    pub ends_early: bool,
}

impl Trouble {
    /// The same as an error, of the file that is called `name`.
    pub fn into_error(self, name: &str) -> Error {
        let at = self.line.map_or(String::new(), |line| format!(" line {line}:"));
        let error =
            Error::new(ErrorKind::Usage, format!("{name} can't be read as a result:{at} {}", self.what))
                .fact("expected", EXPECTED);
        if self.ends_early {
            error.hint("the file ends in the middle: was the run or the copy cut short?")
        } else {
            error.hint("perf-compare import reads what perftest, nccl-tests, OSU and IMB write")
        }
    }
}

#[cfg(test)]
mod tests;
