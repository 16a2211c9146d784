//! `--raw-samples`: when every rank began and ended every iteration, a line each.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use linkproof_common::error::{Error, ErrorKind, Result, show_io_error};

use crate::backend::Placement;
use crate::plan::Point;
use crate::summary::RankLog;

/// The file, and the first failure to write to it.
pub struct RawSamples {
    path: PathBuf,
    file: BufWriter<File>,
    failure: Option<std::io::Error>,
}

/// What the numbers of a line are. Times are microseconds since the first rank came to the round's first iteration, on
/// rank 0's clock.
const HEADER: &str =
    "# collective size_bytes dtype redop root placement round iteration rank start_usec stop_usec";

impl RawSamples {
    /// Creates the file.
    ///
    /// # Errors
    /// [`ErrorKind::Output`] with its path.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|error| failed(path, &error))?;
        let mut samples = Self { path: path.to_owned(), file: BufWriter::new(file), failure: None };
        samples.line(HEADER);
        Ok(samples)
    }

    /// Adds a round of `point`.
    pub fn add(&mut self, point: &Point, round: u32, logs: &[RankLog]) {
        let call = &point.call;
        let dash = || "-".to_owned();
        let what = format!(
            "{} {} {} {} {} {} {round}",
            call.collective.name,
            call.size_bytes(),
            call.dtype.name(),
            call.redop.map_or("-", |redop| redop.name()),
            call.root.map_or_else(dash, |root| root.to_string()),
            match point.placement {
                Placement::OutOfPlace => "out_of_place",
                Placement::InPlace => "in_place",
            }
        );
        let iterations = logs.iter().map(RankLog::iterations).min().unwrap_or(0);
        let begin = logs.iter().filter(|_| iterations > 0).map(|log| log.start(0)).min().unwrap_or(0);
        let usec = |ns: i64| (ns - begin) as f64 / 1e3;
        for iteration in 0..iterations {
            for (rank, log) in logs.iter().enumerate() {
                let (start, stop) = (usec(log.start(iteration)), usec(log.stop(iteration)));
                self.line(&format!("{what} {iteration} {rank} {start:.3} {stop:.3}"));
            }
        }
    }

    fn line(&mut self, text: &str) {
        if self.failure.is_none() {
            self.failure = writeln!(self.file, "{text}").err();
        }
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// [`ErrorKind::Output`] where not everything could be written.
    pub fn finish(mut self) -> Result<()> {
        match self.failure.take().or(self.file.flush().err()) {
            Some(error) => Err(failed(&self.path, &error)),
            None => Ok(()),
        }
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Output, format!("cannot write {}: {}", path.display(), show_io_error(error)))
}
