//! For a browser: one file that needs nothing else, no script and no network. Every text in it has been through
//! [`escape`]; a policy in its head forbids whatever might have slipped through to load or run.

mod chart;

use std::collections::BTreeMap;
use std::fmt::Write;

use chart::{Change, Series};
use linkproof_common::compare::Verdict;
use linkproof_common::units::ByteSize;

use super::{Compared, goal, header, lines, primary, way_out};
use crate::arm::Arm;
use crate::judge::{Pair, Row};
use crate::output::TOOL;
use crate::recording::{Figure, Key};
use crate::words::{number, percent};

const STYLE: &str = include_str!("style.css");
/// Nothing is loaded, nothing runs: only the style of the page itself.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
/// Lines of a chart, and charts of a kind, beyond which the table has to do.
const MOST_LINES: usize = 40;
const MOST_CHARTS: usize = 24;
/// Rounds that have a column each.
const MOST_COLUMNS: usize = 12;
/// Ranks of an arm that are listed as the last to come.
const MOST_STRAGGLERS: usize = 5;

/// `text` as text of a page: nothing in it is markup, in an attribute neither.
pub(super) fn escape(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&quot;"),
            '\'' => shown.push_str("&#39;"),
            _ => shown.push(c),
        }
    }
    shown
}

/// The whole comparison as a page.
pub fn render(compared: &Compared) -> String {
    let operation = escape(&compared.arms[0].runs[0].operation);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{operation}: {TOOL}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>{operation}</h1>\n"
    );
    compared.pairs.iter().for_each(|pair| verdict(&mut page, pair));
    page.push_str(&arms(&compared.arms));
    page.push_str(&conditions(compared));
    page.push_str(&stragglers(&compared.arms));
    page.push_str(&curves(&compared.arms));
    compared.pairs.iter().for_each(|pair| page.push_str(&of_pair(pair)));
    compared.pairs.iter().for_each(|pair| page.push_str(&rounds(pair)));
    let _ = writeln!(
        page,
        "<p class=\"faint\">{TOOL} {}, {}. Change: Hodges–Lehmann estimate of the logarithms' ratio with its exact 95&nbsp;% interval; \
         docs/measuring.md, Comparing two arms.</p>\n</body>\n</html>",
        env!("CARGO_PKG_VERSION"),
        linkproof_common::report::timestamp()
    );
    page
}

fn verdict(page: &mut String, pair: &Pair) {
    let class = match pair.primary.judged.comparison.verdict {
        Verdict::Better => " better",
        Verdict::Worse => " worse",
        _ => "",
    };
    let _ = writeln!(
        page,
        "<div class=\"verdict{class}\"><p><strong>{} against {}: {}</strong></p><p>{}</p><p class=\"faint\">Order: {}.</p>",
        escape(&pair.arm),
        escape(&pair.baseline),
        escape(&pair.primary.judged.verdict()),
        escape(&primary(pair)),
        pair.standing.why
    );
    if let Some(way_out) = way_out(pair) {
        let _ = writeln!(page, "<p class=\"faint\">{}.</p>", escape(&way_out));
    }
    page.push_str("</div>\n");
}

/// Cells as rows; `class` says how they stand. A cell that begins with [`ODD`] is marked.
fn table(class: &str, header: &[String], rows: &[Vec<String>]) -> String {
    let mut text = format!("<div class=\"scroll\"><table class=\"{class}\"><thead><tr>");
    header.iter().for_each(|cell| text.push_str(&format!("<th scope=\"col\">{}</th>", escape(cell))));
    text.push_str("</tr></thead><tbody>\n");
    for row in rows {
        text.push_str("<tr>");
        for cell in row {
            match cell.strip_prefix(ODD) {
                Some(odd) => text.push_str(&format!("<td class=\"odd\">{}</td>", escape(odd))),
                None => text.push_str(&format!("<td>{}</td>", escape(cell))),
            }
        }
        text.push_str("</tr>\n");
    }
    text + "</tbody></table></div>\n"
}

/// No text of a file has it: control characters are escaped where a file is read.
const ODD: char = '\u{1}';

fn owned<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

fn arms(arms: &[Arm]) -> String {
    let row = |arm: &Arm| vec![arm.label.clone(), super::text::runs(arm)];
    let rows: Vec<Vec<String>> = arms.iter().map(row).collect();
    format!("<section><h2>Arms</h2>\n{}</section>\n", table("words", &owned(["arm", "runs"]), &rows))
}

/// What differs, and which way the bytes went even where that is the same.
fn conditions(compared: &Compared) -> String {
    let labels = compared.arms.iter().map(|arm| arm.label.clone());
    let header: Vec<String> =
        owned(["condition"]).into_iter().chain(labels).chain(owned(["declared"])).collect();
    let difference = |it: &crate::likeness::Difference| {
        let values = it.values.iter().map(|(_, value)| value.clone());
        let declared = if it.allowed { "yes" } else { "no" };
        [it.name.clone()].into_iter().chain(values).chain(owned([declared])).collect::<Vec<_>>()
    };
    let differences: Vec<Vec<String>> = compared.likeness.differences.iter().map(difference).collect();
    let mut text = "<section><h2>Conditions that differ</h2>\n".to_owned();
    if differences.is_empty() {
        text.push_str("<p>None: the conditions on record are the same.</p>\n");
    } else {
        text.push_str(&table("words", &header, &differences));
    }
    compared.likeness.notes.iter().for_each(|note| text.push_str(&format!("<p>{}</p>\n", escape(note))));
    text.push_str("</section>\n");
    let evidence = evidence(&compared.arms);
    if !evidence.is_empty() {
        let header: Vec<String> = header[..header.len() - 1].to_vec();
        text.push_str(&format!(
            "<section><h2>Transport</h2>\n{}</section>\n",
            table("words", &header, &evidence)
        ));
    }
    text
}

fn evidence(arms: &[Arm]) -> Vec<Vec<String>> {
    let of = |name: &&str| {
        let value = |arm: &Arm| {
            let values: std::collections::BTreeSet<&str> =
                arm.runs.iter().filter_map(|run| run.conditions.get(*name)).map(String::as_str).collect();
            Vec::from_iter(values).join(" | ")
        };
        let values: Vec<String> = arms.iter().map(value).collect();
        let known = values.iter().any(|value| !value.is_empty());
        known.then(|| [(*name).to_owned()].into_iter().chain(values).collect())
    };
    ["evidence.transports", "link.transport", "plan.transport", "backend.name", "backend.transport"]
        .iter()
        .filter_map(of)
        .collect()
}

/// Which ranks the others of an arm waited for, the worst first.
fn stragglers(arms: &[Arm]) -> String {
    let of_arm = |arm: &Arm| {
        let mut ranks: BTreeMap<u32, (u64, f64)> = BTreeMap::new();
        for straggler in arm.runs.iter().flat_map(|run| &run.stragglers) {
            let (times, behind) = ranks.entry(straggler.rank).or_default();
            *times = times.saturating_add(straggler.times_last);
            *behind = behind.max(straggler.behind_usec);
        }
        // Somebody is last in every call.
        let calls: u64 = ranks.values().fold(0, |sum, (times, _)| sum.saturating_add(*times));
        let mut worst: Vec<(u32, (u64, f64))> = ranks.into_iter().collect();
        worst.sort_by_key(|(_, (times, _))| std::cmp::Reverse(*times));
        let row = move |(rank, (times, behind)): (u32, (u64, f64))| {
            let share = percent(times as f64 / calls as f64);
            vec![
                arm.label.clone(),
                rank.to_string(),
                times.to_string(),
                share,
                format!("{} µs", number(behind)),
            ]
        };
        worst.into_iter().take(MOST_STRAGGLERS).map(row).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = arms.iter().flat_map(of_arm).collect();
    if rows.is_empty() {
        return String::new();
    }
    let header = owned(["arm", "rank", "calls it came last to", "of all calls", "behind the last but one"]);
    format!("<section><h2>Ranks that come last</h2>\n{}</section>\n", table("", &header, &rows))
}

/// A chart for each figure of each operation: all arms, every round.
fn curves(arms: &[Arm]) -> String {
    let mut groups: BTreeMap<(String, Figure), Vec<Series>> = BTreeMap::new();
    for arm in arms {
        let mut of_arm: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for key in arm.keys() {
            if let Some(rounds) = arm.rounds(&key) {
                let place = (key.size_bytes.max(1) as f64).log2();
                of_arm.entry((key.what.clone(), key.figure)).or_default().push((place, rounds));
            }
        }
        for (group, points) in of_arm {
            groups.entry(group).or_default().push(Series { label: arm.label.clone(), points });
        }
    }
    let mut text = "<section class=\"long\"><h2>Curves</h2>\n<p class=\"faint\">Median, the band from the smallest to the largest round, \
                    and every round, by size; both axes logarithmic.</p>\n"
        .to_owned();
    for ((what, figure), series) in groups.iter().take(MOST_CHARTS) {
        let title =
            if what.is_empty() { figure.name().to_owned() } else { format!("{what}, {}", figure.name()) };
        let size = |place: f64| ByteSize(place.exp2().round() as u64).to_string();
        let chart = chart::curves(&title, figure.unit(), series, size);
        let _ = writeln!(
            text,
            "<figure><figcaption>{}</figcaption><div class=\"scroll\">{chart}</div></figure>",
            escape(&title)
        );
    }
    if groups.len() > MOST_CHARTS {
        let _ = writeln!(text, "<p>{} more are in the tables only.</p>", groups.len() - MOST_CHARTS);
    }
    text + "</section>\n"
}

fn of_pair(pair: &Pair) -> String {
    let mut text = format!(
        "<section class=\"long\"><h2>{} against {}</h2>\n<p class=\"faint\">Medians of rounds, {}.</p>\n",
        escape(&pair.arm),
        escape(&pair.baseline),
        goal(pair)
    );
    let rows = lines(pair);
    text.push_str(&table("", &header(pair, pair.primary.figure.unit()), &rows));
    if rows.iter().flatten().any(|cell| cell.ends_with(" ·")) {
        text.push_str("<p class=\"faint\">· among so many rows one is always unlikely: this one alone is no proof</p>\n");
    }
    let lines: Vec<Change> = pair.rows.iter().take(MOST_LINES).map(change).collect();
    let threshold = pair.primary.judged.threshold;
    let title = format!("Change of {} against {} in per cent, with 95 % intervals", pair.arm, pair.baseline);
    let _ = writeln!(
        text,
        "<figure><figcaption>Change with its 95 % interval; grey: less than {}</figcaption><div class=\"scroll\">{}</div></figure>",
        percent(threshold),
        chart::changes(&title, threshold * 100.0, &lines)
    );
    let odd = pair.odd_rounds();
    if !odd.is_empty() {
        text.push_str("<h3>Odd rounds, counted like the others</h3>\n");
        odd.iter().for_each(|line| text.push_str(&format!("<p>{}</p>\n", escape(line))));
    }
    text + "</section>\n"
}

fn change(row: &Row) -> Change {
    let (estimate, interval) = row.judged.comparison.relative();
    Change {
        label: row.key.describe(),
        estimate: estimate * 100.0,
        interval: interval.map(|(low, high)| (low * 100.0, high * 100.0)),
    }
}

/// The primary figure round by round, and the rounds of every point.
fn rounds(pair: &Pair) -> String {
    let judged = &pair.primary.judged;
    let labels = [&pair.baseline, &pair.arm];
    let series: Vec<Series> = labels
        .iter()
        .zip(&judged.rounds)
        .map(|(label, rounds)| Series {
            label: (*label).clone(),
            points: rounds
                .iter()
                .enumerate()
                .map(|(index, &value)| ((index + 1) as f64, vec![value]))
                .collect(),
        })
        .collect();
    let title = format!("{} of each round", pair.primary.of);
    format!(
        "<section class=\"long\"><h2>Rounds of {} and {}</h2>\n<figure><figcaption>{}</figcaption><div class=\"scroll\">{}</div></figure>\n\
         <p class=\"faint\">In the order of their runs; underlined or starred ones are unlike the others of their arm.</p>\n{}</section>\n",
        escape(&pair.baseline),
        escape(&pair.arm),
        escape(&title),
        chart::rounds(&title, pair.primary.figure.unit(), &series),
        table_of_rounds(pair)
    )
}

/// A column for each round, or, of more than a page is wide, all in one.
fn table_of_rounds(pair: &Pair) -> String {
    let most = pair.rows.iter().flat_map(|row| row.judged.rounds.iter().map(Vec::len)).max().unwrap_or(0);
    let wide = most > MOST_COLUMNS;
    let columns: Vec<String> =
        if wide { owned(["rounds"]) } else { (1..=most).map(|round| round.to_string()).collect() };
    let header: Vec<String> = owned(["point", "unit", "arm"]).into_iter().chain(columns).collect();
    let labels = [&pair.baseline, &pair.arm];
    let line = |row: &Row, arm: usize| {
        let odd = super::json::odd(&row.judged.comparison, arm);
        let cell = |(index, value): (usize, &f64)| match (odd.contains(&index), wide) {
            (true, false) => format!("{ODD}{}", number(*value)),
            (true, true) => format!("{}*", number(*value)),
            (false, _) => number(*value),
        };
        let values: Vec<String> = row.judged.rounds[arm].iter().enumerate().map(cell).collect();
        let values = if wide { vec![values.join(", ")] } else { values };
        let key: &Key = &row.key;
        let begin = [key.describe(), key.figure.unit().to_owned(), labels[arm].clone()];
        begin.into_iter().chain(values).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = pair.rows.iter().flat_map(|row| [line(row, 0), line(row, 1)]).collect();
    table(if wide { "words" } else { "" }, &header, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::Sequence;
    use crate::arm::tests::arm;
    use crate::judge::{Primary, Wishes};
    use crate::recording::Straggler;

    fn page(label: &str) -> String {
        let wishes = Wishes { sequence: Sequence::Auto, threshold: None, primary: Primary::Mean };
        let a = arm(label, &[0, 3, 4, 7, 8, 11], &[&[10.0], &[10.1], &[9.9], &[10.0], &[5.0], &[10.0]]);
        let b = arm("b", &[1, 2, 5, 6, 9, 10], &[&[12.0], &[12.1], &[11.9], &[12.0], &[12.0], &[12.03]]);
        render(&Compared::of(vec![a, b], wishes, &[]).unwrap())
    }

    #[test]
    fn the_page_needs_nothing_else_and_runs_nothing() {
        let page = page("a");
        for word in
            ["<script", "http:", "https:", "src=", "href", "url(", "@import", "<iframe", "<link", "onload="]
        {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("default-src 'none'"));
    }

    #[test]
    fn every_round_is_in_it_and_the_odd_one_marked() {
        let page = page("a");
        for value in ["10.10", "9.900", "12.03", "11.90"] {
            assert!(page.contains(&format!("<td>{value}</td>")), "{value}");
        }
        assert!(page.contains("<td class=\"odd\">5.000</td>"));
        assert!(page.contains("b against a: better") && page.contains("<div class=\"verdict better\">"));
    }

    #[test]
    fn ranks_that_come_last_are_listed_the_worst_first() {
        let mut arm = arm("a", &[0, 1], &[&[1.0], &[1.0]]);
        for (run, times) in arm.runs.iter_mut().zip([30, 45]) {
            let straggler = |rank, times_last| Straggler { rank, times_last, behind_usec: f64::from(rank) };
            run.stragglers = vec![straggler(0, 25), straggler(3, times)];
        }
        let table = stragglers(&[arm]);
        let rows: Vec<&str> = table.split("<tr>").skip(2).collect();
        assert!(
            rows[0].starts_with("<td>a</td><td>3</td><td>75</td><td>60 %</td><td>3.000 µs</td>"),
            "{table}"
        );
        assert!(rows[1].contains("<td>0</td><td>50</td><td>40 %</td>"));
        assert_eq!(stragglers(&[]), "");
    }

    #[test]
    fn many_rounds_share_a_column_and_the_odd_one_has_a_star() {
        let mut values: Vec<f64> = (0..40).map(|round| 10.0 + f64::from(round % 3) / 100.0).collect();
        values[7] = 2.5;
        let wishes = Wishes { sequence: Sequence::Auto, threshold: None, primary: Primary::Mean };
        let arms = vec![arm("a", &[0], &[&values]), arm("b", &[1], &[&values])];
        let page = render(&Compared::of(arms, wishes, &[]).unwrap());
        assert!(page.contains(", 2.500*, ") && page.contains("<th scope=\"col\">rounds</th>"));
    }

    #[test]
    fn a_hostile_name_is_text() {
        let page = page("</title><script>alert(1)</script>\"onload='x'");
        assert!(
            !page.contains("<script>")
                && page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;onload=&#39;x&#39;")
        );
    }

    #[test]
    fn tags_are_closed() {
        let page = page("a");
        for tag in ["section", "table", "tr", "td", "th", "figure", "svg", "div", "p", "h2", "text"] {
            let opened =
                page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}
