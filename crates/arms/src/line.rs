//! The command line of a run: the tool's own without what is about the arms.

use std::ffi::{OsStr, OsString};

/// A command line, and how to write it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line(Vec<OsString>);

impl Line {
    /// `argv` without its program, and without the long options `with_value` and their values, and `--json` in all its
    /// forms: runs report to the command that has started them.
    pub fn without(argv: &[OsString], with_value: &[&str]) -> Self {
        let mut kept = Vec::new();
        let mut words = argv.iter().skip(1);
        while let Some(word) = words.next() {
            let text = word.to_string_lossy();
            let given = text.split_once('=').map_or(&*text, |(name, _)| name);
            // Underscores are taken for hyphens, as the tools' own parser does.
            let name = given.replace('_', "-");
            if name == "--json" {
                continue;
            }
            if !with_value.contains(&name.as_str()) {
                kept.push(word.clone());
            } else if given == text {
                words.next();
            }
        }
        Self(kept)
    }

    /// The same without the option `flag`, which has no value, and whether it was there.
    pub fn without_flag(self, flag: &str) -> (Self, bool) {
        let (there, kept): (Vec<_>, Vec<_>) =
            self.0.into_iter().partition(|word| word.to_string_lossy().replace('_', "-") == flag);
        (Self(kept), !there.is_empty())
    }

    /// The words of a run with `more` options.
    pub(crate) fn with<'a>(&'a self, more: &'a [String]) -> impl Iterator<Item = &'a OsStr> {
        self.0.iter().map(OsString::as_os_str).chain(more.iter().map(OsStr::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_the_arms_is_left_out() {
        let words = "coll-perf --arm a --op all --arm=b -b 8 --json=x.json --rounds 6 --json -v --require_it now -e 1M";
        let argv: Vec<OsString> = words.split(' ').map(Into::into).collect();
        let more = ["--rounds".to_owned(), "1".to_owned()];
        let line = Line::without(&argv, &["--arm", "--rounds", "--require-it"]);
        let shown: Vec<&OsStr> = line.with(&more).collect();
        assert_eq!(shown.join(OsStr::new(" ")), "--op all -b 8 -v -e 1M --rounds 1");
        let (line, there) = Line::without(&argv, &[]).without_flag("-v");
        assert!(there && !line.without_flag("-v").1);
    }
}
