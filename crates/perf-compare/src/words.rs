//! Text from files, made safe to show, and numbers in words.

/// Longer names are cut: nobody reads them, and a table would break.
const LONGEST: usize = 120;

/// `text` for a terminal: what would move the cursor, change colours or turn the direction of writing is escaped.
pub fn printable(text: &str) -> String {
    let mut shown = String::new();
    // Counted as shown, so that what has been through here once comes out the same again.
    let mut length = 0;
    for c in text.chars() {
        let piece = if is_safe(c) { c.to_string() } else { format!("\\u{{{:x}}}", u32::from(c)) };
        length += piece.chars().count();
        if length > LONGEST {
            shown.push('…');
            break;
        }
        shown.push_str(&piece);
    }
    shown
}

/// Not a control character, nor one that is invisible or reorders what stands around it.
fn is_safe(c: char) -> bool {
    let invisible = matches!(u32::from(c), 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff);
    !c.is_control() && !invisible
}

/// `text` for a cell of a Markdown table: nothing in it is markup.
pub fn markdown(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        match c {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '|' | '`' | '*' | '_' | '[' | ']' | '\\' | '#' | '~' | '!' | '@' => {
                shown.push('\\');
                shown.push(c);
            }
            _ => shown.push(c),
        }
    }
    shown
}

/// A value with as many decimals as leave four digits or more to read.
pub fn number(value: f64) -> String {
    match value.abs() {
        big if big >= 1000.0 => format!("{value:.1}"),
        some if some >= 10.0 => format!("{value:.2}"),
        few if few >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.6}"),
    }
}

/// A fraction as a percentage with its sign: `+47.23`; huge ones without decimals.
pub fn signed_percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    if percent.abs() >= 1000.0 { format!("{percent:+.0}") } else { format!("{percent:+.2}") }
}

/// A fraction as a percentage, as short as it goes: `1 %`, `2.5 %`.
pub fn percent(fraction: f64) -> String {
    let text = format!("{:.2}", fraction * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_move_a_cursor_is_escaped() {
        assert_eq!(printable("a\x1b[2Jb\n\u{202e}c\u{7f}"), "a\\u{1b}[2Jb\\u{a}\\u{202e}c\\u{7f}");
        assert_eq!(printable("gpu-ä-节点"), "gpu-ä-节点");
        assert_eq!(printable(&"x".repeat(500)).chars().count(), LONGEST + 1);
        let hostile = printable(&"x\x1b".repeat(100));
        assert_eq!(printable(&hostile), hostile);
    }

    #[test]
    fn markup_in_a_name_is_text() {
        assert_eq!(markdown("<script>a|b</script>"), "&lt;script&gt;a\\|b&lt;/script&gt;");
        assert_eq!(markdown("[x](y)"), "\\[x\\](y)");
    }

    #[test]
    fn numbers_keep_what_can_be_read() {
        assert_eq!([12345.67, 39.18, 4.49, 0.000_218].map(number), ["12345.7", "39.18", "4.490", "0.000218"]);
        assert_eq!([0.4723, -0.0035, 143.81].map(signed_percent), ["+47.23", "-0.35", "+14381"]);
        assert_eq!([0.01, 0.025, 0.03].map(percent), ["1 %", "2.5 %", "3 %"]);
    }
}
