//! Where text goes: the two streams, and files that are appended to.

use std::fs::File;
use std::io::{ErrorKind as IoKind, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result, show_io_error};

/// A place for text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
    /// The end of a file, which is made where there is none. It is opened anew for each text, so that it can be moved
    /// away meanwhile.
    File(PathBuf),
}

impl Stream {
    /// Writes `text` at once: whoever reads it need not wait for more. False where the reader has closed the pipe: it
    /// has seen enough, and that is no failure.
    ///
    /// # Errors
    /// [`ErrorKind::Output`] with the place.
    pub(super) fn write(&self, text: &str) -> Result<bool> {
        match self.write_all(text.as_bytes()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == IoKind::BrokenPipe => Ok(false),
            Err(error) => Err(cannot_write(&self.name(), &error)),
        }
    }

    fn write_all(&self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Stderr => std::io::stderr().lock().write_all(bytes),
            Self::Stdout => {
                let mut stdout = std::io::stdout().lock();
                stdout.write_all(bytes)?;
                stdout.flush()
            }
            Self::File(path) => File::options().create(true).append(true).open(path)?.write_all(bytes),
        }
    }

    fn name(&self) -> PathBuf {
        match self {
            Self::Stderr => "standard error".into(),
            Self::Stdout => "standard output".into(),
            Self::File(path) => path.clone(),
        }
    }
}

/// The failure of writing to `path`.
pub(super) fn cannot_write(path: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Output, format!("cannot write {}: {}", path.display(), show_io_error(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_appended_to_and_one_that_cannot_be_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.json");
        let stream = Stream::File(path.clone());
        assert_eq!(stream.write("a\n"), Ok(true));
        assert_eq!(stream.write("b\n"), Ok(true));
        assert_eq!(std::fs::read_to_string(path).unwrap(), "a\nb\n");
        let nowhere = Stream::File("/nonexistent/lines.json".into()).write("a").unwrap_err();
        assert!(
            nowhere.what.starts_with("cannot write /nonexistent/lines.json: ENOENT (2)"),
            "{}",
            nowhere.what
        );
    }
}
