//! Other tools' results, read into a [`Recording`]: what they measured, with whatever conditions they tell.

pub mod nccl_tests;
pub mod perftest;

use std::path::Path;

use linkproof_common::error::{Error, ErrorKind, Result};

use crate::recording::Recording;
use crate::{source, words};

/// Whose output it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// The tables of ib_write_bw, ib_write_lat and their kin, in MiB/sec (older ones call it MB/sec) or Gb/sec
    Perftest,
    /// The tables of all_reduce_perf and its kin
    NcclTests,
}

/// The recording in the file `path`. `operation` is the collective, where the file does not name it.
///
/// # Errors
/// [`ErrorKind::Usage`] with the line, and what was expected there.
pub fn file(path: &Path, format: Format, operation: Option<&str>) -> Result<Recording> {
    let name = words::printable(&path.display().to_string());
    let bytes = source::read(path)?;
    // perftest writes other bytes than UTF-8 only where a host's or device's name has them.
    let text = String::from_utf8_lossy(&bytes);
    text_of(&name, &text, format, operation).map_err(|what| {
        let tool = match format {
            Format::Perftest => "perftest's",
            Format::NcclTests => "nccl-tests'",
        };
        Error::new(ErrorKind::Usage, format!("{name} can't be read as {tool} output: {what}"))
    })
}

/// The recording in `text`.
///
/// # Errors
/// What is wrong, in words that are safe to show, with the line where it is in one.
pub fn text_of(
    name: &str,
    text: &str,
    format: Format,
    operation: Option<&str>,
) -> std::result::Result<Recording, String> {
    let recording = match format {
        Format::Perftest => perftest::recording(name, text)?,
        Format::NcclTests => nccl_tests::recording(name, text, operation)?,
    };
    recording.check()?;
    Ok(recording.printable())
}

/// A row that is not as expected.
fn bad_line(index: usize, line: &str, expected: &str) -> String {
    format!("line {}: expected {expected}, found {}", index + 1, words::printable(line.trim()))
}

#[cfg(test)]
mod tests;
