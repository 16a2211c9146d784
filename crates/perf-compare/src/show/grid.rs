//! Cells in columns.

/// Lays `rows` out below `header`: the first column and those after `right` to the left, the others to the right.
pub fn grid(header: &[String], rows: &[Vec<String>], left_from: usize) -> String {
    let all: Vec<&[String]> = std::iter::once(header).chain(rows.iter().map(Vec::as_slice)).collect();
    let width = |column: usize| {
        all.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    for row in all {
        let cell = |(column, cell): (usize, &String)| {
            let width = widths[column];
            if column == 0 || column >= left_from {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        };
        let line = row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ");
        text.push_str(&format!(" {}\n", line.trim_end()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_below_each_other() {
        let cells = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let text = grid(
            &cells(&["p", "A", "verdict"]),
            &[cells(&["64 KiB", "1.5", "better"]), cells(&["2 B", "12.5", ""])],
            2,
        );
        assert_eq!(text, " p          A  verdict\n 64 KiB   1.5  better\n 2 B     12.5\n");
    }
}
