//! Columns, as wide as what stands in them.

/// `title`, and below it the lines, the first being the header. Nothing where there is no line but that.
pub(super) fn grid(title: &str, lines: &[Vec<String>]) -> String {
    if lines.len() < 2 {
        return String::new();
    }
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |cells: &Vec<String>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!(" {}", padded.collect::<Vec<_>>().join("  ")).trim_end().to_owned()
    };
    format!("{title}\n{}", lines.iter().map(line).collect::<Vec<_>>().join("\n"))
}

/// What stands where nothing is known.
pub(super) const UNKNOWN: &str = "?";

/// A cell.
pub(super) fn cell<T: ToString>(value: Option<T>) -> String {
    value.map_or(UNKNOWN.to_owned(), |value| value.to_string())
}

/// A line of the header.
pub(super) fn header(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
