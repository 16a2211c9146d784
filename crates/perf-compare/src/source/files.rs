//! Files by name and pattern, read up to a bound.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use linkproof_common::error::{Error, ErrorKind, Result, show_io_error};

use crate::words;

/// Larger files are refused. A run of a thousand ranks and forty points is some 10 MB.
pub const MOST_BYTES: u64 = 64 << 20;

/// All of `path`, which may be a pipe.
///
/// # Errors
/// [`ErrorKind::Usage`] where it can't be read, or has more than [`MOST_BYTES`].
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let name = words::printable(&path.display().to_string());
    let failed = |error: std::io::Error| {
        Error::new(ErrorKind::Usage, format!("cannot read {name}: {}", show_io_error(&error)))
    };
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    // One byte more than allowed tells an endless file from one that just fits.
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(Error::new(ErrorKind::Usage, format!("{name} is too large for a result"))
            .fact("largest", format!("{} MiB", MOST_BYTES >> 20)));
    }
    Ok(bytes)
}

/// The files that `pattern` names, in the order of their names. `*` and `?` stand for any characters but `/`; a file
/// of that very name is taken as it is.
///
/// # Errors
/// [`ErrorKind::Usage`] where there is none.
pub fn expand(pattern: &str) -> Result<Vec<PathBuf>> {
    if !pattern.contains(['*', '?']) || Path::new(pattern).exists() {
        return Ok(vec![pattern.into()]);
    }
    let root = if pattern.starts_with('/') { "/" } else { "" };
    let mut found = vec![PathBuf::from(root)];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        found = found.iter().flat_map(|folder| below(folder, part)).collect();
    }
    if found.is_empty() {
        let what = format!("no file fits {}", words::printable(pattern));
        return Err(Error::new(ErrorKind::Usage, what));
    }
    found.sort();
    Ok(found)
}

/// What in `folder` fits `part`. What can't be looked into has nothing that fits.
fn below(folder: &Path, part: &str) -> Vec<PathBuf> {
    if !part.contains(['*', '?']) {
        let path = folder.join(part);
        return if path.exists() { vec![path] } else { Vec::new() };
    }
    let place = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let names = place.read_dir().into_iter().flatten().flatten().map(|entry| entry.file_name());
    let fits = |name: &std::ffi::OsString| {
        let name = name.to_string_lossy();
        // As in a shell: a hidden file has to be asked for.
        (!name.starts_with('.') || part.starts_with('.')) && matches(part.as_bytes(), name.as_bytes())
    };
    names.filter(fits).map(|name| folder.join(name)).collect()
}

/// Whether `name` fits `pattern`, going back to the last `*` only: linear in practice, quadratic at worst.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                last_star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((star, from)) = last_star else { return false };
                last_star = Some((star, from + 1));
                p = star + 1;
                n = from + 1;
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_in_a_shell() {
        let fits = |pattern: &str, name: &str| matches(pattern.as_bytes(), name.as_bytes());
        assert!(fits("a-*.json", "a-1.json") && fits("*", "") && fits("?b*", "abc") && fits("*a*b", "xaayb"));
        assert!(!fits("a-*.json", "a-1.jso") && !fits("?", "") && !fits("*a*b", "xaay"));
    }

    #[test]
    fn files_come_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["b-2.json", "b-1.json", "a.json", ".b-3.json"] {
            std::fs::write(at(name), "").unwrap();
        }
        let found = |pattern: &str| expand(&at(pattern).display().to_string());
        assert_eq!(found("b-*.json"), Ok(vec![at("b-1.json"), at("b-2.json")]));
        assert_eq!(found("missing.json"), Ok(vec![at("missing.json")]));
        assert!(found("c-*").unwrap_err().what.starts_with("no file fits "));
    }
}
