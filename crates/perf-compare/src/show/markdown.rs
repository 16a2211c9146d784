//! For a ticket.

use super::{Compared, goal, header, lines, primary, way_out};
use crate::judge::Pair;
use crate::likeness::Difference;
use crate::output::TOOL;
use crate::words::{markdown, number};

/// The whole comparison as Markdown, the raw rounds folded away.
pub fn render(compared: &Compared) -> String {
    let mut text = format!("### {}\n\n", markdown(&compared.arms[0].runs[0].operation));
    for arm in &compared.arms {
        text.push_str(&format!("- **{}**: {}\n", markdown(&arm.label), markdown(&super::text::runs(arm))));
    }
    for pair in &compared.pairs {
        text.push_str(&of_pair(pair));
    }
    text.push_str(&conditions(compared));
    text.push_str(&format!(
        "\n{TOOL} {}; method: docs/measuring.md, Comparing two arms\n",
        env!("CARGO_PKG_VERSION")
    ));
    text
}

fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| markdown(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = format!("|{}\n", "---|".repeat(header.len()));
    let body: String = rows.iter().map(|row| line(row)).collect();
    format!("{}{rule}{body}", line(header))
}

fn of_pair(pair: &Pair) -> String {
    let mut text = format!(
        "\n**{} against {}**: {}\n\n",
        markdown(&pair.arm),
        markdown(&pair.baseline),
        markdown(&primary(pair))
    );
    text.push_str(&format!("Order: {}. Medians of rounds, {}.\n\n", pair.standing.why, goal(pair)));
    if let Some(way_out) = way_out(pair) {
        text.push_str(&format!("{}.\n\n", markdown(&way_out)));
    }
    text.push_str(&table(&header(pair, pair.primary.figure.unit()), &lines(pair)));
    for odd in pair.odd_rounds() {
        text.push_str(&format!("\nOdd, and counted like the others: {}\n", markdown(&odd)));
    }
    text.push_str("\n<details><summary>Rounds</summary>\n\n");
    text.push_str(&rounds(pair));
    text.push_str("\n</details>\n");
    text
}

fn rounds(pair: &Pair) -> String {
    let header = ["point", "arm", "rounds"].map(str::to_owned);
    let of_row = |row: &crate::judge::Row| {
        let labels = [&pair.baseline, &pair.arm];
        let line = |(label, rounds): (&String, &Vec<f64>)| {
            let values: Vec<String> = rounds.iter().map(|&value| number(value)).collect();
            vec![row.key.describe(), label.clone(), values.join(", ")]
        };
        labels.into_iter().zip(&row.judged.rounds).map(line).collect::<Vec<_>>()
    };
    table(&header, &pair.rows.iter().flat_map(of_row).collect::<Vec<_>>())
}

fn conditions(compared: &Compared) -> String {
    let differences = &compared.likeness.differences;
    if differences.is_empty() {
        return "\nThe conditions on record are the same.\n".to_owned();
    }
    let labels = compared.arms.iter().map(|arm| arm.label.clone());
    let header: Vec<String> =
        ["condition".to_owned()].into_iter().chain(labels).chain(["declared".to_owned()]).collect();
    let row = |difference: &Difference| {
        let values = difference.values.iter().map(|(_, value)| value.clone());
        let declared = if difference.allowed { "yes" } else { "" };
        [difference.name.clone()].into_iter().chain(values).chain([declared.to_owned()]).collect()
    };
    format!("\n{}", table(&header, &differences.iter().map(row).collect::<Vec<Vec<String>>>()))
}
