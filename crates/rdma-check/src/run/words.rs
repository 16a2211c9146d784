//! A command line, parted into words.

use linkproof_common::error::{Error, ErrorKind, Result};

/// Words as a shell parts them, with both kinds of quotes and without anything else that a shell does.
pub(crate) fn words(text: &str) -> Result<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(Error::new(ErrorKind::Usage, "--for: a quote is not closed"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_parted_as_a_shell_does() {
        assert_eq!(words("  a 'b c'  d\"e f\" ''").unwrap(), ["a", "b c", "de f", ""]);
    }
}
