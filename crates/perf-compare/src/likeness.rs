//! Whether runs can be compared at all, and under which conditions that differ.

use std::collections::{BTreeMap, BTreeSet};

use linkproof_common::error::{Error, ErrorKind, Result};

use crate::arm::Arm;

/// What must be the same, by its name in the document, and what it is called on the command line and in words.
const MUST_AGREE: &[(&str, &str, &str)] = &[
    ("plan.traffic", "traffic", "directions"),
    ("plan.n_ranks", "ranks", "numbers of ranks"),
    ("plan.pacing", "pacing", "ways to begin iterations"),
];
/// The name by which runs with faults are let through.
const VALIDITY: &str = "validity";

/// A condition that is not the same in all arms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// By its name in the document.
    pub name: String,
    /// Each arm's label and value; several values where its runs differ, `unknown` where it has none.
    pub values: Vec<(String, String)>,
    /// Whether it was declared with `--allow`.
    pub allowed: bool,
}

/// What came of looking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Likeness {
    /// Conditions that differ.
    pub differences: Vec<Difference>,
    /// What else is worth a word.
    pub notes: Vec<String>,
}

/// Looks whether `arms` can be compared. `allow` has names of refusals and of conditions, or `all`.
///
/// # Errors
/// [`ErrorKind::Usage`], not comparable: another operation, type, number of ranks, or figures that are known to be
/// wrong.
pub fn check(arms: &[Arm], allow: &[String]) -> Result<Likeness> {
    let allowed = |name: &str| allow.iter().any(|given| given == name || given == "all");
    same_operation(arms)?;
    let faults = faults(arms);
    if let Some(first) = faults.first().filter(|_| !allowed(VALIDITY)) {
        let error = refusal("a run's figures may be wrong").fact("seen", first);
        return Err(error.hint("measure again, or compare all the same: --allow validity"));
    }
    let mut differences = differences(arms);
    for (name, flag, words) in MUST_AGREE {
        let differs = differences.iter().find(|difference| difference.name == *name);
        if let Some(difference) = differs.filter(|_| !allowed(flag) && !allowed(name)) {
            let error = difference
                .values
                .iter()
                .fold(refusal(&format!("{words} differ")), |error, (arm, value)| error.fact(arm, value));
            return Err(error.hint(format!("if that is what you want to compare: --allow {flag}")));
        }
    }
    same_points(arms)?;
    for difference in &mut differences {
        let flag = MUST_AGREE.iter().find(|(name, ..)| *name == difference.name).map(|(_, flag, _)| flag);
        let last = difference.name.rsplit('.').next().unwrap_or_default();
        difference.allowed = allowed(&difference.name) || allowed(last) || flag.is_some();
    }
    let notes = faults.into_iter().chain(left_out(arms)).collect();
    Ok(Likeness { differences, notes })
}

/// Looks whether each name of `allow` is one that could be declared: of a refusal, of a condition that some run has, or
/// `all`. A slip of the pen would otherwise declare nothing and say nothing.
///
/// # Errors
/// [`ErrorKind::Usage`] with the first that is none, and the conditions that differ.
pub fn check_names(arms: &[Arm], allow: &[String]) -> Result<()> {
    let refusals = MUST_AGREE.iter().flat_map(|(name, flag, _)| [*name, *flag]).chain([VALIDITY, "all"]);
    let conditions = arms.iter().flat_map(|arm| &arm.runs).flat_map(|run| run.conditions.keys());
    let known: BTreeSet<&str> = refusals
        .chain(conditions.flat_map(|name| [name.as_str(), name.rsplit('.').next().unwrap_or_default()]))
        .collect();
    let Some(stranger) = allow.iter().find(|name| !known.contains(name.as_str())) else { return Ok(()) };
    let what = format!("--allow {}: no run has a condition of that name", crate::words::printable(stranger));
    let differ: Vec<String> =
        differences(arms).into_iter().map(|difference| difference.name).take(8).collect();
    let error = Error::new(ErrorKind::Usage, what);
    Err(if differ.is_empty() {
        error.hint("leave it out: no condition differs")
    } else {
        error.fact("conditions that differ", differ.join(", "))
    })
}

fn refusal(why: &str) -> Error {
    Error::new(ErrorKind::Usage, format!("the results are not comparable: {why}"))
}

fn same_operation(arms: &[Arm]) -> Result<()> {
    let first = &arms[0].runs[0];
    let other = arms.iter().flat_map(|arm| &arm.runs).find(|run| run.operation != first.operation);
    match other {
        None => Ok(()),
        Some(run) => Err(refusal("they measure different things")
            .fact(&first.source, &first.operation)
            .fact(&run.source, &run.operation)),
    }
}

fn faults(arms: &[Arm]) -> Vec<String> {
    let of_run = |run: &crate::recording::Recording| {
        let source = run.source.clone();
        run.faults.iter().map(move |fault| format!("{source}: {fault}")).collect::<Vec<_>>()
    };
    arms.iter().flat_map(|arm| &arm.runs).flat_map(of_run).collect()
}

fn differences(arms: &[Arm]) -> Vec<Difference> {
    let names: BTreeSet<&String> =
        arms.iter().flat_map(|arm| &arm.runs).flat_map(|run| run.conditions.keys()).collect();
    let of = |name: &String| {
        let values: Vec<BTreeSet<&str>> = arms.iter().map(|arm| values(arm, name)).collect();
        let same = values.iter().all(|set| set.len() == 1 && *set == values[0]);
        let shown = |(arm, set): (&Arm, &BTreeSet<&str>)| {
            (arm.label.clone(), Vec::from_iter(set.iter().copied()).join(" | "))
        };
        (!same).then(|| Difference {
            name: name.clone(),
            values: arms.iter().zip(&values).map(shown).collect(),
            allowed: false,
        })
    };
    names.into_iter().filter_map(of).collect()
}

fn values<'a>(arm: &'a Arm, name: &str) -> BTreeSet<&'a str> {
    arm.runs.iter().map(|run| run.conditions.get(name).map_or("unknown", String::as_str)).collect()
}

/// How many arms have each point in all of their runs.
fn coverage(arms: &[Arm]) -> BTreeMap<crate::recording::Key, usize> {
    let mut counts = BTreeMap::new();
    for arm in arms {
        for key in arm.keys() {
            let complete = arm.runs.iter().all(|run| run.point(&key).is_some());
            *counts.entry(key).or_insert(0) += usize::from(complete);
        }
    }
    counts
}

fn same_points(arms: &[Arm]) -> Result<()> {
    if coverage(arms).values().any(|&count| count == arms.len()) {
        return Ok(());
    }
    let first = |arm: &Arm| arm.keys().first().map_or(String::new(), crate::recording::Key::describe);
    let error = refusal("they have no size, type and operation in common");
    Err(arms.iter().fold(error, |error, arm| error.fact(&arm.label, format!("{}, …", first(arm)))))
}

fn left_out(arms: &[Arm]) -> Option<String> {
    let missing: Vec<String> = coverage(arms)
        .iter()
        .filter(|(_, count)| **count < arms.len())
        .map(|(key, _)| key.describe())
        .collect();
    let more = if missing.len() > 8 { ", …" } else { "" };
    let shown = missing.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
    (!missing.is_empty())
        .then(|| format!("{} points are not in every run and are left out: {shown}{more}", missing.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::tests::arm;

    fn two() -> Vec<Arm> {
        vec![arm("a", &[0], &[&[1.0]]), arm("b", &[1], &[&[2.0]])]
    }

    fn with(name: &str, a: &str, b: &str) -> Vec<Arm> {
        let mut arms = two();
        for (arm, value) in arms.iter_mut().zip([a, b]) {
            arm.runs[0].conditions.insert(name.into(), value.into());
        }
        arms
    }

    fn allow(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.into()).collect()
    }

    #[test]
    fn what_is_not_the_same_measurement_is_refused() {
        let mut other = two();
        other[1].runs[0].operation = "write latency".into();
        assert!(check(&other, &allow(&["all"])).unwrap_err().what.ends_with("they measure different things"));
        let ranks = with("plan.n_ranks", "8", "16");
        let error = check(&ranks, &[]).unwrap_err();
        assert_eq!(error.exit_status() as i32, 2);
        assert_eq!((error.facts[0].value.as_str(), error.facts[1].value.as_str()), ("8", "16"));
        assert!(check(&ranks, &allow(&["ranks"])).unwrap().differences[0].allowed);
        let mut wrong = two();
        wrong[1].runs[0].faults.push("wrong-data: 3 bytes".into());
        assert_eq!(check(&wrong, &[]).unwrap_err().facts[0].value, "b: wrong-data: 3 bytes");
        assert_eq!(check(&wrong, &allow(&["validity"])).unwrap().notes, ["b: wrong-data: 3 bytes"]);
        let mut sizes = two();
        sizes[1].runs[0].points[0].key.size_bytes = 1;
        assert!(check(&sizes, &[]).unwrap_err().what.contains("in common"));
    }

    #[test]
    fn conditions_that_differ_are_listed_and_declared_ones_marked() {
        let arms = with("link.client.gid.type", "roce_v1", "roce_v2");
        let found = check(&arms, &[]).unwrap().differences;
        assert_eq!(found[0].values[1], ("b".into(), "roce_v2".into()));
        assert!(!found[0].allowed);
        assert!(check(&arms, &allow(&["type"])).unwrap().differences[0].allowed);
        assert!(check(&with("x", "1", "1"), &[]).unwrap().differences.is_empty());
    }

    #[test]
    fn a_name_that_nothing_has_is_no_declaration() {
        let arms = with("link.client.gid.type", "roce_v1", "roce_v2");
        for name in ["link.client.gid.type", "type", "ranks", "plan.pacing", "validity", "all"] {
            assert_eq!(check_names(&arms, &allow(&[name])), Ok(()), "{name}");
        }
        let error = check_names(&arms, &allow(&["type", "gid.typ"])).unwrap_err();
        assert_eq!(error.what, "--allow gid.typ: no run has a condition of that name");
        assert_eq!(error.facts[0].value, "link.client.gid.type");
        assert!(check_names(&two(), &allow(&["x"])).unwrap_err().facts.is_empty());
    }

    #[test]
    fn runs_of_an_arm_that_differ_show_both_values() {
        let mut arms = vec![arm("a", &[0, 3], &[&[1.0], &[1.0]]), arm("b", &[1, 2], &[&[2.0], &[2.0]])];
        arms[0].runs[0].conditions.insert("version".into(), "1".into());
        arms[0].runs[1].conditions.insert("version".into(), "2".into());
        assert_eq!(
            check(&arms, &[]).unwrap().differences[0].values,
            [("a".into(), "1 | 2".into()), ("b".into(), "unknown".into())]
        );
    }
}
