//! What the notes of a fact amount to.

use crate::differences::Difference;
use crate::fact::{Notes, Obstacle, Outcome};

/// The judgement of a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Everything is as expected.
    Good,
    /// What is not as expected is listed; each check with what was seen, and the reason after them.
    Differs(Vec<String>),
    /// Something is neither; in words, each.
    Failed(Vec<String>),
}

/// Judges what a fact's function noted and how it ended, given what is `listed` for its device.
pub(crate) fn judge(notes: &Notes, outcome: &Outcome, listed: Option<&Difference>) -> Verdict {
    let mut failures = Vec::new();
    let mut differences = Vec::new();
    let mut missed = listed.map_or(Vec::new(), |difference| difference.seen.to_vec());
    for check in notes.checks.iter().filter(|check| !check.good) {
        let words = format!("{}: expected {}, seen {}", check.name, check.expected, check.seen);
        match missed.iter().position(|one| *one == (&check.name, &check.seen)) {
            Some(place) => {
                missed.remove(place);
                differences.push(words);
            }
            None => failures.push(words),
        }
    }
    if let Err(Obstacle(what)) = outcome {
        failures.push(format!("could not go on: {what}"));
    } else if notes.checks.is_empty() {
        failures.push("it compared nothing".into());
    }
    failures
        .extend(missed.iter().map(|(check, seen)| format!("{check}: listed as {seen}, which was not seen")));
    differences.extend(listed.map(|difference| format!("  {}", difference.reason)));
    if !failures.is_empty() {
        Verdict::Failed(failures)
    } else if !differences.is_empty() {
        Verdict::Differs(differences)
    } else {
        Verdict::Good
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::DeviceKind;

    const LISTED: Difference =
        Difference { kind: DeviceKind::Rxe, fact: "f::a", seen: &[("state", "RTS")], reason: "it is lax" };

    /// The verdict on one check, of a state that should be ERR.
    fn verdict(seen: &str, listed: Option<&Difference>) -> Verdict {
        let mut notes = Notes::default();
        notes.equal("state", "ERR", seen);
        judge(&notes, &Ok(()), listed)
    }

    fn failures(verdict: Verdict) -> String {
        match verdict {
            Verdict::Failed(failures) => failures.join("; "),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_as_expected_is_good_unless_a_difference_is_listed() {
        assert_eq!(verdict("ERR", None), Verdict::Good);
        assert_eq!(failures(verdict("ERR", Some(&LISTED))), "state: listed as RTS, which was not seen");
    }

    #[test]
    fn a_listed_difference_differs_and_another_answer_fails() {
        let differences = ["state: expected ERR, seen RTS", "  it is lax"].map(String::from).to_vec();
        assert_eq!(verdict("RTS", Some(&LISTED)), Verdict::Differs(differences));
        assert_eq!(failures(verdict("RTS", None)), "state: expected ERR, seen RTS");
        assert!(failures(verdict("RTR", Some(&LISTED))).starts_with("state: expected ERR, seen RTR; "));
    }

    #[test]
    fn an_obstacle_and_an_empty_fact_fail() {
        let obstacle = Err(Obstacle("ibv_alloc_pd: ENOMEM (12)".into()));
        let stopped = judge(&Notes::default(), &obstacle, None);
        assert_eq!(failures(stopped), "could not go on: ibv_alloc_pd: ENOMEM (12)");
        assert_eq!(failures(judge(&Notes::default(), &Ok(()), None)), "it compared nothing");
    }
}
