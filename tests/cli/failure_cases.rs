//! `docs/failure-cases.md`: every test that it names exists, every code is one, and its figures are right.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use linkproof_common::error::{ErrorKind, ExitStatus};

const PAGE: &str = include_str!("../../docs/failure-cases.md");
/// The pages whose tables have the codes of warnings and findings.
const CODES: &[&str] = &[
    include_str!("../../docs/troubleshooting.md"),
    include_str!("../../docs/measuring.md"),
    include_str!("../../docs/collectives.md"),
];
/// Fewer than this many and the page is no evidence of anything.
const LEAST_COVERED: usize = 80;

/// A row of one of the tables.
struct Case {
    reported_in: &'static str,
    said: &'static str,
    test: &'static str,
}

fn cases() -> Vec<Case> {
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
    let rows = PAGE.lines().filter(|line| line.starts_with('|')).map(cells);
    rows.filter(|cells| cells[0] != "what people hit" && !cells[0].starts_with('-'))
        .map(|cells| match cells[..] {
            [_, reported_in, said, test] => Case { reported_in, said, test },
            _ => panic!("a row has four cells: {cells:?}"),
        })
        .collect()
}

/// What stands between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

impl Case {
    fn is_covered(&self) -> bool {
        !self.test.starts_with("none: ")
    }
}

/// The functions of a source file that are tests.
fn tests_in(file: &str) -> HashSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
    let (mut names, mut marked) = (HashSet::new(), false);
    for line in text.lines().map(str::trim) {
        match line.strip_prefix("fn ").and_then(|rest| rest.split('(').next()) {
            Some(name) if marked => {
                names.insert(name.to_owned());
                marked = false;
            }
            _ => marked = line == "#[test]" || (marked && line.starts_with("#[")),
        }
    }
    names
}

#[test]
fn every_test_that_is_named_exists() {
    let mut known: HashMap<&str, HashSet<String>> = HashMap::new();
    for case in cases().iter().filter(|case| case.is_covered()) {
        let named: Vec<&str> = quoted(case.test).collect();
        assert!(!named.is_empty(), "{} names no test and no reason", case.reported_in);
        for name in named {
            let (file, function) =
                name.split_once("::").unwrap_or_else(|| panic!("{name} is no FILE::FUNCTION"));
            let tests = known.entry(file).or_insert_with(|| tests_in(file));
            assert!(tests.contains(function), "{}: {file} has no test {function}", case.reported_in);
        }
    }
}

#[test]
fn every_report_is_there_once_and_the_figures_at_the_top_are_theirs() {
    let cases = cases();
    let mut seen = HashSet::new();
    for case in &cases {
        let is_one = case.reported_in.starts_with("http") || case.reported_in.contains('#');
        assert!(is_one, "{} is no report", case.reported_in);
        assert!(seen.insert(case.reported_in), "{} is there twice", case.reported_in);
        assert!(!case.is_covered() || !case.said.is_empty(), "{}: what do the tools say", case.reported_in);
    }
    let covered = cases.iter().filter(|case| case.is_covered()).count();
    assert!(covered >= LEAST_COVERED, "{covered} of {LEAST_COVERED}");
    let figures = format!("\n**{covered} of {} have a test.**", cases.len());
    assert!(PAGE.contains(&figures), "the page should say {figures}");
}

/// Codes of warnings and findings: the first cell of a row, in backticks.
fn codes_in_tables() -> HashSet<&'static str> {
    let rows = CODES.iter().flat_map(|page| page.lines()).filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|rest| rest.split_once("` |")).map(|(code, _)| code).collect()
}

#[test]
fn every_code_is_one_and_has_its_exit_status() {
    let others = codes_in_tables();
    assert!(others.contains("short-rounds") && others.contains("straggler"), "the tables look otherwise now");
    // Only codes are in lower case and nothing else: variables, options, commands and names have something of their own.
    let is_word = |text: &&str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    let is_code = |text: &&str| is_word(text) && !text.starts_with('-');
    for Case { reported_in, said, .. } in cases() {
        for code in quoted(said).filter(is_code) {
            let Some(kind) = ErrorKind::ALL.iter().find(|kind| kind.code() == code) else {
                assert!(others.contains(code), "{reported_in}: {code} is no code");
                continue;
            };
            // What the peer reports is its failure.
            let own = kind.exit_status() as i32;
            let states = [own, ExitStatus::Peer as i32].map(|status| format!("exit {status}"));
            assert!(states.iter().any(|exit| said.contains(exit)), "{reported_in}: {code} exits with {own}");
        }
    }
}
