//! Objects as perftest's `--out_json` writes them. Older versions leave names without quotes, put a comma after the last
//! pair and a blank before a colon, so that no JSON parser takes them; the newer ones' JSON is of the same shape.

/// A pair of a name and a value, somewhere in the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// The object it is in; empty for the outermost.
    pub(super) section: String,
    pub(super) name: String,
    pub(super) value: String,
    /// Its line, from 0.
    pub(super) line: usize,
}

/// More objects in each other than any version writes.
const DEEPEST: usize = 4;

/// The pairs of the object that is all of `text`.
pub(super) fn pairs(text: &str) -> Result<Vec<Pair>, String> {
    let mut reader = Reader { rest: text, line: 0 };
    let mut sections: Vec<String> = Vec::new();
    let mut found = Vec::new();
    reader.expect('{')?;
    sections.push(String::new());
    loop {
        reader.skip_blank(",");
        if reader.take('}') {
            sections.pop();
            if sections.is_empty() {
                reader.skip_blank("");
                return if reader.rest.is_empty() { Ok(found) } else { Err(reader.missed("nothing more")) };
            }
            continue;
        }
        let line = reader.line;
        let name = reader.word(":{}\n")?;
        reader.expect(':')?;
        reader.skip_blank("");
        if reader.take('{') {
            if sections.len() == DEEPEST {
                return Err(reader.missed("no more objects in each other"));
            }
            sections.push(name);
        } else {
            let value = reader.word(",}\n")?;
            let section = sections.last().cloned().unwrap_or_default();
            found.push(Pair { section, name, value, line });
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Reader<'a> {
    fn advance(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.bytes().filter(|&byte| byte == b'\n').count();
        self.rest = rest;
        taken
    }

    /// Passes over blanks, and over what else is `of_no_meaning`.
    fn skip_blank(&mut self, of_no_meaning: &str) {
        let blank = |c: char| c.is_whitespace() || of_no_meaning.contains(c);
        self.advance(self.rest.find(|c| !blank(c)).unwrap_or(self.rest.len()));
    }

    fn take(&mut self, wanted: char) -> bool {
        let there = self.rest.starts_with(wanted);
        if there {
            self.advance(wanted.len_utf8());
        }
        there
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        self.skip_blank("");
        if self.take(wanted) { Ok(()) } else { Err(self.missed(&format!("\"{wanted}\""))) }
    }

    /// A word in quotes, or one that ends before any of `ends`.
    fn word(&mut self, ends: &str) -> Result<String, String> {
        let quoted = self.take('"');
        let end = self.rest.find(|c: char| if quoted { c == '"' || c == '\n' } else { ends.contains(c) });
        let Some(end) = end else { return Err(self.missed("a name or a value")) };
        let word = self.advance(end).trim().to_owned();
        if quoted && !self.take('"') {
            return Err(self.missed("a quotation mark"));
        }
        if word.is_empty() { Err(self.missed("a name and a value")) } else { Ok(word) }
    }

    fn missed(&self, expected: &str) -> String {
        let found = self.rest.lines().next().unwrap_or_default().trim();
        if self.rest.is_empty() {
            format!("line {}: expected {expected}, and the file ends in the middle", self.line + 1)
        } else {
            super::bad_line(self.line, found, expected)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Result<Vec<(String, String, usize)>, String> {
        let of = |pair: Pair| (format!("{}.{}", pair.section, pair.name), pair.value, pair.line);
        pairs(text).map(|pairs| pairs.into_iter().map(of).collect())
    }

    #[test]
    fn names_may_lack_quotes_and_the_last_pair_may_have_a_comma() {
        let old = "{\ntest_info: {\ntest: A_B,\nTX_depth : 1,\n},\nresults: {\np_99.9: 4.03,\n},\n}\n";
        let new = "{\n\"test_info\": {\n\"test\": \"A_B\",\n\"TX_depth\": 1\n},\n\"results\": {\n\"p_99.9\": 4.03\n}\n}";
        assert_eq!(values(old), values(new));
        let third = ("results.p_99.9".to_owned(), "4.03".to_owned(), 6);
        assert_eq!(values(new).unwrap()[2], third);
        assert_eq!(values("{\"a\":{\"b\":1},\"c\":2}").unwrap()[1].0, ".c");
    }

    #[test]
    fn what_is_torn_is_named_with_its_line() {
        for (text, words) in [
            ("{\n\"a\": {\n", "line 3: expected a name or a value, and the file ends in the middle"),
            ("{\n\"a\": \"b\n", "line 2: expected a quotation mark"),
            ("{\n\"a\"\n\"b\"", "line 3: expected \":\", found \"b\""),
            ("{} x", "line 1: expected nothing more, found x"),
            ("[1]", "line 1: expected \"{\", found [1]"),
            ("{a:{b:{c:{d:{e:1}}}}}", "no more objects"),
        ] {
            let refusal = pairs(text).unwrap_err();
            assert!(refusal.contains(words), "{text}: {refusal}");
        }
    }
}
