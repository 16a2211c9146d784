//! Other tools' results, read into a [`Recording`]: what they measured, with whatever conditions they tell.

mod imb;
mod loose;
mod nccl_json;
mod nccl_tests;
mod osu;
mod perftest;
mod perftest_json;

use std::path::Path;

use linkproof_common::error::{Error, ErrorKind, Result};

use crate::recording::Recording;
use crate::{source, words};

/// Whose output it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// The tables of ib_write_bw, ib_write_lat and their kin, in MiB/sec (older ones call it MB/sec) or Gb/sec, or --out_json
    Perftest,
    /// The tables of all_reduce_perf and its kin, or the JSON of their -J
    NcclTests,
    /// The tables of the OSU micro-benchmarks
    Osu,
    /// The tables of the Intel MPI benchmarks
    Imb,
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
            Format::Osu => "OSU",
            Format::Imb => "IMB",
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
    let is_json = text.trim_start().starts_with('{');
    let recording = match format {
        Format::Perftest if is_json => perftest_json::recording(name, text)?,
        Format::Perftest => perftest::recording(name, text)?,
        Format::NcclTests if is_json => nccl_json::recording(name, text, operation)?,
        Format::NcclTests => nccl_tests::recording(name, text, operation)?,
        Format::Osu => osu::recording(name, text)?,
        Format::Imb => imb::recording(name, text)?,
    };
    let recording = recording.printable();
    recording.check()?;
    Ok(recording)
}

/// A row that is not as expected.
fn bad_line(index: usize, line: &str, expected: &str) -> String {
    format!("line {}: expected {expected}, found {}", index + 1, words::printable(line.trim()))
}

#[cfg(test)]
mod tests;
