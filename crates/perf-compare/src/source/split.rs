//! The documents of a file: one, or several one after another.

use serde::Deserialize;

use super::Trouble;

/// One JSON document of a file.
pub(super) struct Part<'a> {
    /// What its shape is called.
    pub(super) schema: String,
    /// Its bytes.
    pub(super) json: &'a [u8],
    /// Lines of the file before it.
    lines_before: usize,
}

/// What is looked at first. Everything else is passed over, so that nothing large is kept.
#[derive(Deserialize)]
struct Head {
    schema: String,
}

/// The documents of `bytes`.
pub(super) fn documents(bytes: &[u8]) -> Result<Vec<Part<'_>>, Trouble> {
    let lines = |upto: usize| bytes[..upto].iter().filter(|&&byte| byte == b'\n').count();
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Trouble { line: None, what: "it is empty".to_owned(), ends_early: false });
    }
    let mut stream = serde_json::Deserializer::from_slice(bytes).into_iter::<Head>();
    let mut parts = Vec::new();
    let mut begin = 0;
    while let Some(head) = stream.next() {
        // Of the first error the stream itself knows the line.
        let head = head.map_err(|error| located(&error, 0))?;
        let end = stream.byte_offset();
        parts.push(Part { schema: head.schema, json: &bytes[begin..end], lines_before: lines(begin) });
        begin = end;
    }
    Ok(parts)
}

impl Part<'_> {
    /// Something that is wrong with it as a whole; the line is that of its beginning.
    pub(super) fn trouble(&self, what: &str) -> Trouble {
        let blank = self.json.iter().take_while(|byte| byte.is_ascii_whitespace());
        let lines = blank.filter(|&&byte| byte == b'\n').count();
        Trouble { line: Some(self.lines_before + lines + 1), what: what.to_owned(), ends_early: false }
    }

    /// An error of the parser in it.
    pub(super) fn locate(&self, error: &serde_json::Error) -> Trouble {
        located(error, self.lines_before)
    }
}

fn located(error: &serde_json::Error, lines_before: usize) -> Trouble {
    let text = error.to_string();
    // The parser appends its own line, which is counted from the document's beginning.
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    let line = (error.line() > 0).then(|| lines_before + error.line());
    Trouble { line, what: crate::words::printable(what), ends_early: error.is_eof() }
}
