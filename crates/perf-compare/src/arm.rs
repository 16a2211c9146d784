//! Arms: the runs of one way of doing the same thing, in the order in which they were made.

use std::path::Path;

use linkproof_common::compare::Order;
use linkproof_common::error::{Error, ErrorKind, Result};

use crate::recording::{Key, Recording};
use crate::{source, words};

/// One arm.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// What it is called.
    pub label: String,
    /// Its runs in the order of their times, as far as these are known; at least one.
    pub runs: Vec<Recording>,
}

/// How rounds were put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sequence {
    /// By the times in the files
    Auto,
    /// The runs were made in turn: the n-th of one arm belongs to the n-th of the other
    InTurn,
    /// At different times: judged all with all, though drift is not controlled
    Apart,
}

impl Arm {
    /// From a word of the command line: `FILE`, or `LABEL=FILE`, each possibly with `*` and `?`.
    ///
    /// # Errors
    /// As [`source::recordings`] and [`source::expand`].
    pub fn from_word(word: &str) -> Result<Self> {
        let (label, pattern) = match word.split_once('=') {
            // A path may have an equals sign itself.
            Some((label, pattern)) if is_label(label) && !Path::new(word).exists() => (Some(label), pattern),
            _ => (None, word),
        };
        let mut runs = Vec::new();
        for path in source::expand(pattern)? {
            runs.extend(source::recordings(&path)?);
        }
        // Stable: where times are unknown, the order of the names stays.
        runs.sort_by(|a, b| a.started.cmp(&b.started));
        let name = label.map_or_else(|| stem(pattern), str::to_owned);
        Ok(Self { label: words::printable(&name), runs })
    }

    /// The arms that a word of the command line names where each file is one: with a label still all of one.
    ///
    /// # Errors
    /// As [`Self::from_word`].
    pub fn one_a_file(word: &str) -> Result<Vec<Self>> {
        let labelled = word.split_once('=').is_some_and(|(label, _)| is_label(label));
        if labelled && !Path::new(word).exists() {
            return Ok(vec![Self::from_word(word)?]);
        }
        source::expand(word)?.iter().map(|path| Self::from_word(&path.display().to_string())).collect()
    }

    /// The rounds of the point `key`: of several runs one value each, the median of the run's own rounds, since those
    /// share the run's conditions; of a single run its rounds. `None` where a run has no such point.
    pub fn rounds(&self, key: &Key) -> Option<Vec<f64>> {
        match self.runs.as_slice() {
            [only] => only.point(key).map(|point| point.rounds.clone()),
            several => several.iter().map(|run| run.point(key).map(|point| median(&point.rounds))).collect(),
        }
    }

    /// The points that any run has.
    pub fn keys(&self) -> std::collections::BTreeSet<Key> {
        self.runs.iter().flat_map(|run| &run.points).map(|point| point.key.clone()).collect()
    }

    fn span(&self) -> Option<(&str, &str)> {
        let first = self.runs.first()?.started.as_deref()?;
        let last = self.runs.last()?;
        Some((first, last.finished.as_deref().or(last.started.as_deref())?))
    }
}

/// The middle of one round or more.
pub fn median(rounds: &[f64]) -> f64 {
    linkproof_common::stats::RoundStats::of(rounds).map_or(f64::NAN, |stats| stats.median)
}

fn is_label(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "-_. +".contains(c))
}

fn stem(pattern: &str) -> String {
    let name = Path::new(pattern).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = name.replace(['*', '?'], "");
    let name = name.trim_matches(['-', '_', '.']);
    if name.is_empty() { pattern.to_owned() } else { name.to_owned() }
}

/// Labels that differ; arms that would be called the same get a number.
pub fn with_distinct_labels(mut arms: Vec<Arm>) -> Vec<Arm> {
    for index in 1..arms.len() {
        let taken = |label: &str, arms: &[Arm]| arms[..index].iter().any(|arm| arm.label == label);
        let (label, mut number) = (arms[index].label.clone(), 2);
        while taken(&arms[index].label, &arms) {
            arms[index].label = format!("{label} ({number})");
            number += 1;
        }
    }
    arms
}

/// How two arms' runs stand to each other, and in words why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// For the judgement.
    pub order: Order,
    /// In words.
    pub why: &'static str,
}

const IN_TURN: &str = "in turn, by their times";
const SAID_IN_TURN: &str = "in turn, as --order says";
const APART: &str = "as --order says, at different times: drift is not controlled";
const ONE_RUN: &str = "one run after the other: no verdict, drift would look like a difference";
const BLOCKED: &str = "all of one, then all of the other: no verdict, drift would look like a difference";
const MIXED: &str = "neither in turn nor in blocks: compared all with all, drift is not controlled";
const UNKNOWN: &str = "not known, since the files have no times: no verdict without --order";

/// How the runs of `a` and `b` were made.
///
/// # Errors
/// [`ErrorKind::Usage`] where `--order in-turn` contradicts the files.
pub fn standing(a: &Arm, b: &Arm, wish: Sequence) -> Result<Standing> {
    let found = by_times(a, b);
    match wish {
        Sequence::Auto => Ok(found),
        Sequence::Apart => Ok(Standing { order: Order::Apart, why: APART }),
        Sequence::InTurn if a.runs.len() == 1 || b.runs.len() == 1 => {
            Err(contradiction(a, b, "an arm of a single run is in turn with nothing"))
        }
        Sequence::InTurn if [BLOCKED, MIXED].contains(&found.why) => {
            Err(contradiction(a, b, "the times in the files say otherwise"))
        }
        Sequence::InTurn => Ok(Standing { order: Order::InTurn, why: SAID_IN_TURN }),
    }
}

fn contradiction(a: &Arm, b: &Arm, why: &str) -> Error {
    Error::new(ErrorKind::Usage, format!("{} and {} were not run in turn: {why}", a.label, b.label))
        .hint("leave out --order, or use --order apart")
}

fn by_times(a: &Arm, b: &Arm) -> Standing {
    let known = a.runs.iter().chain(&b.runs).all(|run| run.started.is_some());
    let (order, why) = match (a.span().filter(|_| known), b.span()) {
        _ if a.runs.len() == 1 && b.runs.len() == 1 => (Order::Blocked, ONE_RUN),
        (Some(a_span), Some(b_span)) if a_span.1 <= b_span.0 || b_span.1 <= a_span.0 => {
            (Order::Blocked, BLOCKED)
        }
        (Some(_), Some(_)) if in_turn(a, b) => (Order::InTurn, IN_TURN),
        (Some(_), Some(_)) => (Order::Apart, MIXED),
        _ => (Order::Blocked, UNKNOWN),
    };
    Standing { order, why }
}

/// Whether the first runs of both arms came before the second ones, and so on.
fn in_turn(a: &Arm, b: &Arm) -> bool {
    let pairs: Vec<_> = a.runs.iter().zip(&b.runs).map(|(a, b)| (&a.started, &b.started)).collect();
    a.runs.len() == b.runs.len()
        && pairs.windows(2).all(|pair| pair[0].0.max(pair[0].1) < pair[1].0.min(pair[1].1))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::recording::{Figure, Point};

    /// An arm whose run `i` began at `times[i]` seconds and has the rounds `values[i]`.
    pub(crate) fn arm(label: &str, times: &[u32], values: &[&[f64]]) -> Arm {
        let run = |(second, rounds): (&u32, &&[f64])| {
            let mut run = Recording::new(label, "write bandwidth");
            run.started = Some(format!("2026-11-29T10:00:{second:02}.000Z"));
            run.finished = Some(format!("2026-11-29T10:00:{second:02}.500Z"));
            run.points = vec![Point { key: key(), rounds: rounds.to_vec() }];
            run
        };
        Arm { label: label.into(), runs: times.iter().zip(values).map(run).collect() }
    }

    pub(crate) fn key() -> Key {
        Key { what: String::new(), size_bytes: 65536, figure: Figure::Bandwidth }
    }

    fn order(a: &[u32], b: &[u32], wish: Sequence) -> Result<Order> {
        let values = vec![&[1.0][..]; 6];
        standing(&arm("a", a, &values), &arm("b", b, &values), wish).map(|standing| standing.order)
    }

    #[test]
    fn the_times_say_how_runs_were_made() {
        let auto = |a: &[u32], b: &[u32]| order(a, b, Sequence::Auto).unwrap();
        assert_eq!(auto(&[0, 3, 4], &[1, 2, 5]), Order::InTurn);
        assert_eq!(auto(&[0, 1, 2], &[3, 4, 5]), Order::Blocked);
        assert_eq!(auto(&[3, 4, 5], &[0, 1, 2]), Order::Blocked);
        assert_eq!(auto(&[0, 1, 5], &[2, 3, 4]), Order::Apart);
        assert_eq!(auto(&[0], &[1]), Order::Blocked);
    }

    #[test]
    fn in_turn_is_not_believed_against_the_times() {
        assert!(order(&[0, 1, 2], &[3, 4, 5], Sequence::InTurn).is_err());
        assert!(order(&[0], &[1], Sequence::InTurn).is_err());
        assert_eq!(order(&[0, 1, 2], &[3, 4, 5], Sequence::Apart), Ok(Order::Apart));
        let timeless = |label: &str| {
            let mut arm = arm(label, &[0, 1], &[&[1.0], &[1.0]]);
            arm.runs.iter_mut().for_each(|run| run.started = None);
            arm
        };
        let (a, b) = (timeless("a"), timeless("b"));
        assert_eq!(standing(&a, &b, Sequence::Auto).unwrap().order, Order::Blocked);
        assert_eq!(standing(&a, &b, Sequence::InTurn).unwrap().order, Order::InTurn);
    }

    #[test]
    fn a_run_counts_once_and_a_lone_run_has_its_own_rounds() {
        let several = arm("a", &[0, 1], &[&[1.0, 2.0, 9.0], &[4.0]]);
        assert_eq!(several.rounds(&key()), Some(vec![2.0, 4.0]));
        assert_eq!(arm("a", &[0], &[&[1.0, 2.0]]).rounds(&key()), Some(vec![1.0, 2.0]));
        let other = Key { size_bytes: 1, ..key() };
        assert_eq!(several.rounds(&other), None);
    }

    #[test]
    fn labels_come_from_names_and_never_twice() {
        assert_eq!(["x/tcp-*.json", "*.json", "rdma.json"].map(stem), ["tcp", "*.json", "rdma"]);
        let arms = vec![arm("a", &[0], &[&[1.0]]); 3];
        let labels: Vec<String> = with_distinct_labels(arms).into_iter().map(|arm| arm.label).collect();
        assert_eq!(labels, ["a", "a (2)", "a (3)"]);
    }
}
