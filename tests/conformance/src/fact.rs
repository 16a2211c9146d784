//! A fact: a function that brings a device into a situation and compares what it does with what it should do.

use std::fmt::Display;
use std::io;

use crate::objects::{Bench, Refused};

/// What a fact's function compares goes into its notes; an `Err` means that it could not get that far.
pub(crate) type Outcome = Result<(), Obstacle>;

/// A fact.
#[derive(Clone, Copy)]
pub(crate) struct Fact {
    /// The file that it is in.
    pub(crate) topic: &'static str,
    /// A sentence, the function's name.
    pub(crate) name: &'static str,
    /// How it is established.
    pub(crate) establish: fn(&Bench, &mut Notes) -> Outcome,
}

impl Fact {
    /// As it is listed and filtered.
    pub(crate) fn full_name(&self) -> String {
        format!("{}::{}", self.topic, self.name)
    }
}

/// The facts of a file, in the order in which they run.
macro_rules! facts {
    ($topic:literal: $($function:ident,)*) => {
        /// The facts of this file.
        pub(crate) const FACTS: &[crate::fact::Fact] = &[
            $(crate::fact::Fact { topic: $topic, name: stringify!($function), establish: $function },)*
        ];
    };
}
pub(crate) use facts;

/// Why a fact could not be established.
#[derive(Debug)]
pub(crate) struct Obstacle(pub(crate) String);

impl From<Refused> for Obstacle {
    fn from(refused: Refused) -> Self {
        Self(refused.to_string())
    }
}

impl From<io::Error> for Obstacle {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Something compared.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Check {
    /// What was looked at.
    pub(crate) name: String,
    /// What the specification or the manual has.
    pub(crate) expected: String,
    /// What the device did.
    pub(crate) seen: String,
    /// Whether that is as expected.
    pub(crate) good: bool,
}

/// Where a fact's function writes down what it compares.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) checks: Vec<Check>,
}

impl Notes {
    /// `seen` has to be `expected`.
    pub(crate) fn equal<T: PartialEq + Display>(&mut self, name: &str, expected: T, seen: T) {
        let good = expected == seen;
        self.note(name, expected.to_string(), good, seen);
    }

    /// `seen` has to be one of `allowed`: where the specification leaves the choice.
    pub(crate) fn either<T: PartialEq + Display>(&mut self, name: &str, allowed: &[T], seen: T) {
        let words: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        self.note(name, words.join(" or "), allowed.contains(&seen), seen);
    }

    /// `good` has to hold, which `expected` says in words.
    pub(crate) fn holds(&mut self, name: &str, expected: &str, good: bool, seen: impl Display) {
        self.note(name, expected.to_owned(), good, seen);
    }

    /// `seen` has to be `expected`, byte by byte.
    pub(crate) fn bytes(&mut self, name: &str, expected: &[u8], seen: &[u8]) {
        let wrong = expected.iter().zip(seen).position(|(expected, seen)| expected != seen);
        let words = match wrong {
            Some(place) => format!("{:#04x} at {place} in place of {:#04x}", seen[place], expected[place]),
            None => format!("{} bytes", seen.len()),
        };
        self.note(name, format!("{} bytes as given", expected.len()), expected == seen, words);
    }

    fn note(&mut self, name: &str, expected: String, good: bool, seen: impl Display) {
        self.checks.push(Check { name: name.to_owned(), expected, seen: seen.to_string(), good });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_say_what_was_expected_and_what_was_seen() {
        let mut notes = Notes::default();
        notes.equal("a", 1, 1);
        notes.either("b", &[1, 2], 3);
        notes.holds("c", "at least 4", false, 3);
        let check = |name: &str, expected: &str, seen: &str, good| Check {
            name: name.into(),
            expected: expected.into(),
            seen: seen.into(),
            good,
        };
        let expected = [
            check("a", "1", "1", true),
            check("b", "1 or 2", "3", false),
            check("c", "at least 4", "3", false),
        ];
        assert_eq!(notes.checks, expected);
    }
}
